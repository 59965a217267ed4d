//! A summary of a plan: the kernel of each operation and the place of each buffer, with a checksum that is the same on
//! every machine.

use crate::compile::Compiled;
use crate::tensor::Fnv;
use serde::{Deserialize, Serialize};

/// The operations and buffers of a plan, one on each line. Addresses are relative to the arena.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanDigest {
    pub arena_bytes: u64,
    /// `gemm gemm_bias_relu_f32_avx2_v0 forward L0:Dense`, in order.
    pub ops: Vec<String>,
    /// `params param f32[9610] 38656 bytes at 0`.
    pub buffers: Vec<String>,
}

impl PlanDigest {
    /// The digest of a compiled step.
    #[must_use]
    pub fn of(compiled: &Compiled) -> Self {
        let plan = &compiled.plan;
        let ops = plan.program.ops.iter().zip(&compiled.selection.choices).enumerate();
        let ops = ops.map(|(index, (op, choice))| {
            format!("{} {} {} {}", op.kind.name(), choice.kernel, op.phase.name(), compiled.owner(index))
        });
        let buffers = plan
            .buffers
            .iter()
            .map(|b| format!("{} {} {}{} {} bytes at {}", b.name, b.role.name(), b.dtype, b.shape, b.bytes, b.offset));
        Self { arena_bytes: plan.arena_bytes, ops: ops.collect(), buffers: buffers.collect() }
    }

    /// The checksum over all lines, in hexadecimal.
    #[must_use]
    pub fn sum(&self) -> String {
        let mut hash = Fnv::new();
        hash.add(&self.arena_bytes.to_le_bytes());
        for line in self.ops.iter().chain(&self.buffers) {
            hash.add(line.as_bytes());
            hash.add(b"\n");
        }
        format!("{:016x}", hash.sum())
    }

    /// The differences in `other`, one on each line: operations with their kernels, then buffers with their addresses.
    /// Empty if there are none.
    #[must_use]
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let mut out = Vec::new();
        if self.arena_bytes != other.arena_bytes {
            out.push(format!("arena: {} bytes there, {} here", self.arena_bytes, other.arena_bytes));
        }
        for (what, a, b) in [("op", &self.ops, &other.ops), ("buffer", &self.buffers, &other.buffers)] {
            for index in 0..a.len().max(b.len()) {
                let text = |list: &[String]| list.get(index).map_or_else(|| "nothing".to_owned(), Clone::clone);
                if a.get(index) != b.get(index) {
                    out.push(format!("{what} {index}: {} there, {} here", text(a), text(b)));
                }
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::{Options, compile};
    use crate::model::{BUNDLED, check, read_preset};
    use crate::select::{Isa, Target};

    fn digest(isa: Isa, batch: usize) -> PlanDigest {
        let mut preset = read_preset(BUNDLED[0].text).unwrap();
        preset.input.batch = batch;
        let model = check(&preset).model.unwrap();
        PlanDigest::of(&compile(&model, &Options::train(Target::cpu(isa, 1))).unwrap())
    }

    #[test]
    fn a_digest_distinguishes_one_plan_from_another() {
        let a = digest(Isa::Avx2, 64);
        assert_eq!((a.sum(), a.differences(&a)), (digest(Isa::Avx2, 64).sum(), Vec::new()));
        let other = digest(Isa::Portable, 64);
        assert_ne!(a.sum(), other.sum());
        let lines = a.differences(&other);
        assert!(lines.iter().any(|l| l.starts_with("op 0: gemm gemm_") && l.contains("portable")), "{lines:?}");
        let smaller = a.differences(&digest(Isa::Avx2, 32));
        assert!(smaller[0].starts_with("arena: ") && smaller.iter().any(|l| l.starts_with("buffer ")), "{smaller:?}");
    }
}
