//! The choice of a kernel for one operation on a CPU.

use super::selection::{Candidate, Choice, Policy, SelectError};
use super::{catalogue, least};
use crate::lower::Program;
use crate::ops::OpKind;
use crate::select::target::{CpuFacts, Target};
use crate::select::tuning::Tuning;
use crate::select::variant::Variant;
use std::collections::HashMap;

/// Chooses kernels for the operations of a program, once for each kind of operation.
pub(super) struct Chooser<'a> {
    program: &'a Program,
    target: &'a Target,
    cpu: CpuFacts,
    policy: Policy,
    tuning: Option<&'a Tuning>,
    /// Previous choices, with the bytes of the operation that they were made for.
    chosen: HashMap<&'a OpKind, Choice>,
}

impl<'a> Chooser<'a> {
    pub(super) fn new(
        program: &'a Program,
        (target, cpu): (&'a Target, CpuFacts),
        policy: Policy,
        tuning: Option<&'a Tuning>,
    ) -> Self {
        Self { program, target, cpu, policy, tuning, chosen: HashMap::new() }
    }

    /// The kernel of operation `index`: the fastest by remembered times if there are any, otherwise the cheapest by
    /// estimate.
    pub(super) fn choose(&mut self, index: usize) -> Result<Choice, SelectError> {
        let op = &self.program.ops[index];
        let bytes = least::bytes(self.program, op);
        if let Some(choice) = self.chosen.get(&op.kind) {
            return Ok(Choice { bytes, ..choice.clone() });
        }
        let choice = self.choose_for(&op.kind, index, bytes)?;
        self.chosen.insert(&op.kind, choice.clone());
        Ok(choice)
    }

    fn choose_for(&self, kind: &OpKind, index: usize, bytes: u64) -> Result<Choice, SelectError> {
        let Self { target, cpu, policy, tuning, .. } = *self;
        let variants = catalogue::variants(self.program.real).iter().copied();
        let allowed = variants.filter(|v| policy == Policy::Fast || matches!(v, Variant::RefF32 | Variant::RefF64));
        let (mut candidates, best) = estimated(kind, allowed, cpu);
        let Some((variant, cost_us)) = best else {
            let reasons = candidates.iter().map(|c| format!("{}: {}", c.kernel, c.lost)).collect::<Vec<_>>().join("; ");
            let (name, target) = (kind.name(), target.name.clone());
            return Err(SelectError::NoKernel { op: index, name, target, reasons });
        };
        let measured = tuning.and_then(|t| t.fastest(kind, cpu).map(|winner| (t, winner)));
        let (variant, shared, cost_us) =
            measured.map_or((variant, true, cost_us), |(_, winner)| (winner.variant, winner.shared, winner.us));
        let kernel = catalogue::id(kind, variant);
        for candidate in candidates.iter_mut().filter(|c| c.kernel != kernel) {
            if let Some(cost) = candidate.cost_us {
                let never = if measured.is_some() { "; never measured" } else { "" };
                candidate.lost = format!("estimated {cost:.1} us against {cost_us:.1} us{never}");
            }
        }
        if let Some((tuning, winner)) = measured {
            tuning.explain(kind, winner, &mut candidates);
        }
        Ok(Choice {
            variant,
            shared,
            cost_us,
            workspace_bytes: catalogue::workspace_bytes(kind, variant, cpu.threads) as u64,
            flops: kind.flops(),
            least_flops: kind.least_flops(),
            bytes,
            kernel,
            candidates,
        })
    }
}

/// Every variant of an operation's kernel with its estimated time or the reason why it is refused, and the cheapest.
fn estimated(
    kind: &OpKind,
    variants: impl Iterator<Item = Variant>,
    cpu: CpuFacts,
) -> (Vec<Candidate>, Option<(Variant, f64)>) {
    let mut candidates = Vec::new();
    let mut best: Option<(Variant, f64)> = None;
    for variant in variants {
        let kernel = catalogue::id(kind, variant);
        match catalogue::accepts(kind, variant, cpu) {
            Err(lost) => candidates.push(Candidate { kernel, cost_us: None, lost }),
            Ok(()) => {
                let cost = catalogue::cost_us(kind, variant, cpu);
                candidates.push(Candidate { kernel, cost_us: Some(cost), lost: String::new() });
                // Among equals the last one is chosen: variants are in rising order of preference.
                if best.is_none_or(|(_, b)| cost <= b) {
                    best = Some((variant, cost));
                }
            }
        }
    }
    (candidates, best)
}
