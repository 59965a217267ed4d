//! The operations of a step as rows of a table.

use crate::compile::Compiled;
use crate::ir::Phase;
use crate::lower::dims;
use crate::model::LayerPath;
use crate::studio::view_models::format;
use crate::tensor::Bytes;

/// One operation.
#[derive(Clone, Debug, PartialEq)]
pub struct OpRow {
    pub index: usize,
    pub phase: Phase,
    pub layer: String,
    pub path: Option<LayerPath>,
    pub op: &'static str,
    pub kernel: String,
    pub dims: String,
    pub flops: u64,
    pub bytes: u64,
    pub cost_us: f64,
    /// All texts that a filter searches, in lower case.
    haystack: String,
}

impl OpRow {
    /// Every operation of a step, in order.
    #[must_use]
    pub fn all(compiled: &Compiled) -> Vec<Self> {
        let (model, choices) = (&compiled.model, &compiled.selection.choices);
        let row = |(index, (op, choice)): (usize, (&crate::lower::Op, &crate::select::Choice))| {
            let layer = op.layer.map(|l| model.layer(l));
            let pass = if op.pass > 0 { format!("#{}", op.pass) } else { String::new() };
            let label = layer.map_or_else(String::new, |l| format!("{}{pass}", l.label()));
            let (name, kernel, dims) = (op.kind.name(), choice.kernel.clone(), dims(&op.kind));
            let haystack = format!("{} {label} {name} {kernel} {dims}", op.phase.name()).to_lowercase();
            let path = layer.map(|l| l.path.clone());
            let (phase, flops, bytes, cost_us) = (op.phase, choice.flops, choice.bytes, choice.cost_us);
            Self { index, phase, layer: label, path, op: name, kernel, dims, flops, bytes, cost_us, haystack }
        };
        compiled.plan.program.ops.iter().zip(choices).enumerate().map(row).collect()
    }

    /// True if every word of `filter` (in lower case) is found.
    #[must_use]
    pub fn matches(&self, filter: &str) -> bool {
        filter.split_whitespace().all(|word| self.haystack.contains(word))
    }
}

/// A phase's letter, beside its place in the lightness ramp.
#[must_use]
pub const fn letter(phase: Phase) -> &'static str {
    match phase {
        Phase::Forward => "F",
        Phase::Loss => "L",
        Phase::Backward => "B",
        Phase::Optimizer => "O",
        Phase::Metric => "M",
    }
}

impl std::fmt::Display for OpRow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (flops, bytes) = (format::count(self.flops as f64), Bytes(self.bytes));
        write!(
            f,
            "{} {} {} {} {} [{}] {flops} FLOP {bytes} {}",
            self.index,
            letter(self.phase),
            self.layer,
            self.op,
            self.kernel,
            self.dims,
            format::micros(self.cost_us)
        )
    }
}
