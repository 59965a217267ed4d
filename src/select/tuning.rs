//! Times of kernels that were measured on a machine, which are used instead of estimates.
//!
//! Plain data. It is measured by `train::tune` and stored in a file by `train::remembered`; this module only looks it
//! up.

use super::catalogue;
use crate::ops::OpKind;
use crate::select::selection::Candidate;
use crate::select::target::{CpuFacts, Isa, Target};
use crate::select::variant::Variant;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The machine that times belong to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TunedDevice {
    /// The name that the processor reports.
    pub cpu: String,
    pub isa: Isa,
    pub threads: usize,
}

/// The time of one kernel for one operation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Timing {
    pub variant: Variant,
    /// Whether the threads shared the call; otherwise one thread ran it alone.
    pub shared: bool,
    pub us: f64,
}

/// Measured times by operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tuning {
    pub device: TunedDevice,
    /// By [`Tuning::key`].
    pub times: BTreeMap<String, Vec<Timing>>,
}

impl TunedDevice {
    /// The device of a target, if it is a CPU.
    #[must_use]
    pub fn of(target: &Target, cpu: String) -> Option<Self> {
        target.as_cpu().map(|CpuFacts { isa, threads }| Self { cpu, isa, threads })
    }
}

impl Tuning {
    /// No times yet.
    #[must_use]
    pub const fn new(device: TunedDevice) -> Self {
        Self { device, times: BTreeMap::new() }
    }

    /// The key of an operation: its kind with every dimension, as JSON.
    #[must_use]
    pub fn key(kind: &OpKind) -> String {
        // Plain data with text keys always serialises; an empty key would match nothing.
        serde_json::to_string(kind).unwrap_or_default()
    }

    /// The times of an operation; empty where it was never measured.
    #[must_use]
    pub fn of(&self, kind: &OpKind) -> &[Timing] {
        self.times.get(&Self::key(kind)).map_or(&[], Vec::as_slice)
    }

    /// The fastest measured kernel of an operation that the machine accepts now; `None` if there is none, or if the
    /// times are those of another machine.
    #[must_use]
    pub fn fastest(&self, kind: &OpKind, cpu: CpuFacts) -> Option<Timing> {
        if (self.device.isa, self.device.threads) != (cpu.isa, cpu.threads) {
            return None;
        }
        let sound = |t: &&Timing| t.us.is_finite() && t.us >= 0.0 && (t.shared || cpu.threads > 1);
        let fast = |t: &&Timing| matches!(t.variant, Variant::Fast(_));
        let accepted = |t: &&Timing| catalogue::accepts(kind, t.variant, cpu).is_ok();
        let usable = self.of(kind).iter().filter(sound).filter(fast).filter(accepted);
        usable.min_by(|a, b| a.us.total_cmp(&b.us)).copied()
    }

    /// Adds times, replacing older ones of the same operations.
    pub fn merge(&mut self, newer: Self) {
        self.times.extend(newer.times);
    }

    /// Writes measured times into the candidates of an operation, with what they lost against, and adds those that
    /// differ only in sharing.
    pub(super) fn explain(&self, kind: &OpKind, winner: Timing, candidates: &mut Vec<Candidate>) {
        for timing in self.of(kind) {
            let name = candidate_name(kind, timing.variant, timing.shared);
            let lost = if (timing.variant, timing.shared) == (winner.variant, winner.shared) {
                String::new()
            } else {
                format!("measured {:.1} us against {:.1} us", timing.us, winner.us)
            };
            match candidates.iter_mut().find(|c| c.kernel == name) {
                Some(known) if known.cost_us.is_some() => (known.cost_us, known.lost) = (Some(timing.us), lost),
                Some(_) => {}
                None => candidates.push(Candidate { kernel: name, cost_us: Some(timing.us), lost }),
            }
        }
    }
}

/// A kernel's name among the candidates.
fn candidate_name(kind: &OpKind, variant: Variant, shared: bool) -> String {
    let id = catalogue::id(kind, variant);
    if shared { id } else { format!("{id}, on one thread") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::{Options, compile};
    use crate::model::{BUNDLED, check, read_preset};
    use crate::ops;
    use std::sync::Arc;

    const CPU: CpuFacts = CpuFacts { isa: Isa::Avx512, threads: 2 };

    fn tuning(times: &[(OpKind, &[Timing])], threads: usize) -> Tuning {
        let device = TunedDevice { cpu: "a processor".into(), isa: Isa::Avx512, threads };
        let times = times.iter().map(|(kind, t)| (Tuning::key(kind), t.to_vec())).collect();
        Tuning { device, times }
    }

    const fn timing(isa: Isa, shared: bool, us: f64) -> Timing {
        Timing { variant: Variant::Fast(isa), shared, us }
    }

    #[test]
    fn the_fastest_valid_time_of_this_machine_is_used() {
        let kind = OpKind::Fill(ops::Fill { len: 100 });
        let times = [
            timing(Isa::Avx512, true, 5.0),
            timing(Isa::Avx2, false, 2.0),
            timing(Isa::Portable, true, f64::NAN),
            timing(Isa::Portable, false, -1.0),
            Timing { variant: Variant::RefF64, shared: true, us: 0.1 },
        ];
        let own = tuning(&[(kind.clone(), &times)], 2);
        assert_eq!(own.fastest(&kind, CPU), Some(times[1]));
        assert_eq!(own.fastest(&OpKind::Fill(ops::Fill { len: 101 }), CPU), None);
        assert_eq!(own.fastest(&kind, CpuFacts { isa: Isa::Avx2, threads: 2 }), None, "another instruction set");
        assert_eq!(own.fastest(&kind, CpuFacts { isa: Isa::Avx512, threads: 4 }), None, "other threads");
    }

    #[test]
    fn remembered_times_decide_and_are_reported() {
        let preset = read_preset(BUNDLED.iter().find(|b| b.name == "digits-mlp").unwrap().text).unwrap();
        let model = check(&preset).model.unwrap();
        let options = Options::train(Target::cpu(Isa::Avx512, 2));
        let plain = compile(&model, &options).unwrap();
        let op = plain.plan.program.ops.iter().position(|o| o.kind.name() == "gemm").unwrap();
        let kind = plain.plan.program.ops[op].kind.clone();
        let times = [timing(Isa::Avx512, true, 12.34), timing(Isa::Avx2, false, 4.5), timing(Isa::Avx2, true, 6.0)];
        let tuning = Some(Arc::new(tuning(&[(kind, &times)], 2)));
        let tuned = compile(&model, &Options { tuning: tuning.clone(), ..options.clone() }).unwrap();
        let choice = &tuned.selection.choices[op];
        assert_eq!((choice.variant, choice.shared, choice.cost_us), (Variant::Fast(Isa::Avx2), false, 4.5));
        let lost = |end: &str| choice.candidates.iter().find(|c| c.kernel.ends_with(end)).unwrap().lost.clone();
        assert_eq!(lost("f32_avx512_v0"), "measured 12.3 us against 4.5 us");
        assert_eq!(lost("f32_avx2_v0"), "measured 6.0 us against 4.5 us");
        assert_eq!(lost("f32_avx2_v0, on one thread"), "");
        assert!(lost("f32_ref_v0").contains("estimated") && lost("f32_ref_v0").contains("never measured"));
        assert!(tuned.selection.to_string().contains("on one thread"));
        // Other operations, and plans for other machines, do not change.
        assert!(tuned.selection.choices.iter().zip(&plain.selection.choices).enumerate().all(|(i, (a, b))| {
            let same_kind = plain.plan.program.ops[i].kind == plain.plan.program.ops[op].kind;
            same_kind || a == b
        }));
        let other = Options::train(Target::cpu(Isa::Avx512, 4));
        let foreign = compile(&model, &Options { tuning, ..other.clone() }).unwrap();
        assert_eq!(foreign.selection, compile(&model, &other).unwrap().selection);
    }
}
