//! The selection as text.

use super::cuda::CompiledFor;
use crate::lower::dims;
use crate::select::selection::Selection;
use std::fmt;

/// One line for each operation with its kernel and estimate, and one line for each candidate that was not chosen.
/// Kernels of a GPU that read their sizes from arguments are marked *any size*.
impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds = CompiledFor::of_all(self);
        let kernels =
            if kinds.is_empty() { String::new() } else { format!(", {} kernels", self.target.kernels.name()) };
        writeln!(f, "target: {}{kernels}", self.target.name)?;
        for (index, (op, choice)) in self.program.ops.iter().zip(&self.choices).enumerate() {
            let fused = if op.fused.is_empty() { String::new() } else { format!("  [{}]", op.fused.join(" + ")) };
            let alone = if choice.shared { "" } else { ", on one thread" };
            let any = if kinds.get(index) == Some(&CompiledFor::AnySize) { ", any size" } else { "" };
            writeln!(
                f,
                "{index:>4}  {:<38} {:<34} {:>8.1} us{alone}{any}{fused}",
                choice.kernel,
                dims(&op.kind),
                choice.cost_us
            )?;
            for candidate in choice.candidates.iter().filter(|c| !c.lost.is_empty()) {
                writeln!(f, "        not {:<34} {}", candidate.kernel, candidate.lost)?;
            }
        }
        Ok(())
    }
}
