//! The choice of a kernel for every operation.

use super::{CudaFacts, Device, Target, Tuning, Variant, catalogue, cuda, fuse, least};
use crate::lower::{Program, ProgramError, verify};
use crate::model::Precision;
use crate::tensor::{Bytes, DType};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Which kernels may be chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// The cheapest that accepts the shape, operations fused.
    #[default]
    Fast,
    /// The plain-loop reference of every operation, nothing fused.
    Reference,
}

/// A kernel that could do an operation, and what came of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    pub kernel: String,
    /// Estimated or measured time; `None` where it was refused before.
    pub cost_us: Option<f64>,
    /// Why it was not chosen; empty for the one that was.
    pub lost: String,
}

/// The kernel of one operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    pub kernel: String,
    pub variant: Variant,
    /// Whether threads may share the call; false where one alone was measured to be faster.
    pub shared: bool,
    pub cost_us: f64,
    pub workspace_bytes: u64,
    pub flops: u64,
    /// Floating-point operations that no kernel can do without, two for a fused multiply-add.
    #[serde(default)]
    pub least_flops: u64,
    /// Bytes that the operation must read and write at least.
    pub bytes: u64,
    pub candidates: Vec<Candidate>,
}

/// The fused program with a kernel for each operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Selection {
    pub target: Target,
    pub program: Program,
    /// One for each operation of the program.
    pub choices: Vec<Choice>,
    /// What products and activations are made of.
    pub real: cuda::Real,
    /// The group of each operation, rising: members of one may run at the same time. Empty where every operation runs by itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<u32>,
}

/// Why no kernels could be chosen.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum SelectError {
    #[error("op {op} ({name}): no kernel for {target}; {reasons}")]
    NoKernel { op: usize, name: &'static str, target: String, reasons: String },
    #[error("its parameters alone take {needed}, and {target} has {memory} of memory; use fewer units")]
    TooLarge { needed: Bytes, target: String, memory: Bytes },
    #[error("{0} runs f32, tf32, bf16 and f16 steps; plan f64 steps for the CPU")]
    Real(String),
    #[error("fusion broke the program: {0}")]
    Fusion(#[from] ProgramError),
}

impl Selection {
    /// The sum of the operations' estimated times, in microseconds.
    #[must_use]
    pub fn cost_us(&self) -> f64 {
        self.choices.iter().map(|c| c.cost_us).sum()
    }

    /// The least time of the step in microseconds, by `floor` of arithmetic and bytes: members of a group run side by side and share a launch.
    pub fn floor_us(&self, floor: impl Fn(u64, u64) -> f64) -> f64 {
        let numbers: Vec<usize> = (0..self.choices.len()).collect();
        let together = |a: &usize, b: &usize| !self.groups.is_empty() && self.groups[*a] == self.groups[*b];
        let of = |ops: &[usize]| {
            let sum = |get: fn(&Choice) -> u64| ops.iter().map(|i| get(&self.choices[*i])).sum::<u64>();
            floor(sum(|c| c.least_flops), sum(|c| c.bytes))
        };
        numbers.chunk_by(together).map(of).sum()
    }

    /// Floating-point operations of a step.
    #[must_use]
    pub fn flops(&self) -> u64 {
        self.choices.iter().map(|c| c.flops).sum()
    }
}

/// What was measured on the machine before, and goes before estimates.
#[derive(Clone, Copy, Debug, Default)]
pub struct Measured<'a> {
    /// On a CPU.
    pub tuning: Option<&'a Tuning>,
    /// On a GPU.
    pub gpu_times: Option<&'a cuda::GpuTimes>,
    /// On a GPU: takes the kernel of this number for every operation, counted by estimate, to time it; the best where there are not so many.
    pub force: Option<usize>,
}

/// Fuses (unless it is to keep to references) and chooses a kernel for every operation.
///
/// `precision` is what products and activations are made of on a GPU; a CPU computes in the program's own type.
///
/// # Errors
/// Where an operation has no kernel on the target.
pub fn select(
    program: &Program,
    target: &Target,
    policy: Policy,
    precision: Precision,
) -> Result<Selection, SelectError> {
    select_tuned(program, target, policy, precision, Measured::default())
}

/// As [`select`]; where an operation has remembered times of this machine, the fastest of those is chosen.
///
/// # Errors
/// As [`select`].
pub fn select_tuned(
    program: &Program,
    target: &Target,
    policy: Policy,
    precision: Precision,
    measured: Measured<'_>,
) -> Result<Selection, SelectError> {
    let Measured { tuning, .. } = measured;
    let tuning = tuning.filter(|_| policy == Policy::Fast && program.real != DType::F64);
    let cpu = match target.device {
        Device::Cpu(cpu) => cpu,
        Device::Cuda(gpu) => return select_cuda(program, target, gpu, precision, measured),
    };
    let program = match policy {
        Policy::Fast => fuse(program),
        Policy::Reference => program.clone(),
    };
    verify(&program)?;
    let mut choices = Vec::with_capacity(program.ops.len());
    for (index, op) in program.ops.iter().enumerate() {
        let mut candidates = Vec::new();
        let mut best: Option<(Variant, f64)> = None;
        for &variant in catalogue::variants(program.real) {
            let is_reference = matches!(variant, Variant::RefF32 | Variant::RefF64);
            if policy == Policy::Reference && !is_reference {
                continue;
            }
            let kernel = catalogue::id(&op.kind, variant);
            match catalogue::accepts(&op.kind, variant, cpu) {
                Err(lost) => candidates.push(Candidate { kernel, cost_us: None, lost }),
                Ok(()) => {
                    let cost = catalogue::cost_us(&op.kind, variant, cpu);
                    candidates.push(Candidate { kernel, cost_us: Some(cost), lost: String::new() });
                    // The last of equals wins: variants stand in rising order of preference.
                    if best.is_none_or(|(_, b)| cost <= b) {
                        best = Some((variant, cost));
                    }
                }
            }
        }
        let Some((variant, cost_us)) = best else {
            let reasons = candidates.iter().map(|c| format!("{}: {}", c.kernel, c.lost)).collect::<Vec<_>>().join("; ");
            return Err(SelectError::NoKernel {
                op: index,
                name: op.kind.name(),
                target: target.name.clone(),
                reasons,
            });
        };
        let measured = tuning.and_then(|t| t.fastest(&op.kind, cpu).map(|winner| (t, winner)));
        let (variant, shared, cost_us) =
            measured.map_or((variant, true, cost_us), |(_, winner)| (winner.variant, winner.shared, winner.us));
        let kernel = catalogue::id(&op.kind, variant);
        for candidate in candidates.iter_mut().filter(|c| c.kernel != kernel) {
            if let Some(cost) = candidate.cost_us {
                let never = if measured.is_some() { "; never measured" } else { "" };
                candidate.lost = format!("estimated {cost:.1} us against {cost_us:.1} us{never}");
            }
        }
        if let Some((tuning, winner)) = measured {
            tuning.explain(&op.kind, winner, &mut candidates);
        }
        choices.push(Choice {
            variant,
            shared,
            cost_us,
            workspace_bytes: catalogue::workspace_bytes(&op.kind, variant, cpu.threads) as u64,
            flops: op.kind.flops(),
            least_flops: op.kind.least_flops(),
            bytes: least::bytes(&program, op),
            kernel,
            candidates,
        });
    }
    Ok(Selection { target: target.clone(), program, choices, real: cuda::Real::F32, groups: Vec::new() })
}

/// As [`select`], for a GPU.
fn select_cuda(
    program: &Program,
    target: &Target,
    gpu: CudaFacts,
    precision: Precision,
    measured: Measured<'_>,
) -> Result<Selection, SelectError> {
    if program.real == DType::F64 {
        return Err(SelectError::Real(target.name.clone()));
    }
    let real = cuda::Real::from(precision);
    let program = cuda::adapt(&fuse(program), real);
    verify(&program)?;
    let mut choices = Vec::with_capacity(program.ops.len());
    for (index, op) in program.ops.iter().enumerate() {
        let of = cuda::real_of(&program, op, real);
        let stem = op.kind.stem();
        let offers = cuda::offers(&op.kind, of, &gpu);
        let known = measured.gpu_times.and_then(|t| t.of(&op.kind, of));
        let time = |o: &cuda::Offer| known.and_then(|k| k.get(&format!("{stem}_{}", o.tail)).copied());
        let mut usable: Vec<(&cuda::Offer, f64)> =
            offers.iter().filter_map(|o| o.cost.as_ref().ok().map(|cost| (o, *cost))).collect();
        // The last of equals stands first: kernels come in rising order of preference.
        usable.reverse();
        usable.sort_by(|a, b| a.1.total_cmp(&b.1));
        let by_time = usable.iter().filter_map(|(o, _)| Some((*o, time(o)?))).min_by(|a, b| a.1.total_cmp(&b.1));
        let best = match measured.force {
            Some(number) => usable.get(number).or_else(|| usable.first()).copied(),
            None => by_time.filter(|(_, us)| *us < cuda::NOT_OFFERED_US).or_else(|| usable.first().copied()),
        };
        let Some((offer, cost_us)) = best else {
            let needed = (program.flat_len() as u64).saturating_mul(size_of::<f32>() as u64);
            if needed > gpu.memory_bytes {
                let (needed, memory) = (Bytes(needed), Bytes(gpu.memory_bytes));
                return Err(SelectError::TooLarge { needed, target: target.name.clone(), memory });
            }
            let reasons = offers.iter().map(|o| format!("{stem}_{}: {:?}", o.tail, o.cost)).collect::<Vec<_>>();
            let reasons = if reasons.is_empty() { "no family knows it".into() } else { reasons.join("; ") };
            return Err(SelectError::NoKernel {
                op: index,
                name: op.kind.name(),
                target: target.name.clone(),
                reasons,
            });
        };
        let candidates = offers.iter().map(|o| Candidate {
            kernel: format!("{stem}_{}", o.tail),
            cost_us: o.cost.as_ref().ok().copied(),
            lost: match &o.cost {
                _ if o.route == offer.route => String::new(),
                Ok(_) if time(o).is_some_and(|us| us >= cuda::NOT_OFFERED_US) => "the library does not offer it".into(),
                Ok(cost) => match time(o) {
                    Some(us) => format!("measured {us:.1} us against {cost_us:.1} us"),
                    None => format!("estimated {cost:.1} us against {cost_us:.1} us"),
                },
                Err(why) => why.clone(),
            },
        });
        choices.push(Choice {
            kernel: format!("{stem}_{}", offer.tail),
            variant: Variant::Cuda(offer.route),
            shared: true,
            cost_us,
            workspace_bytes: offer.work_bytes,
            flops: op.kind.flops(),
            least_flops: op.kind.least_flops_with_tiles(),
            bytes: least::bytes(&program, op),
            candidates: candidates.collect(),
        });
    }
    let costs: Vec<f64> = choices.iter().map(|c| c.cost_us).collect();
    let (order, groups) = cuda::schedule(&program, &costs);
    let ops = order.iter().map(|&i| program.ops[i].clone()).collect();
    let choices = order.iter().map(|&i| choices[i].clone()).collect();
    Ok(Selection { target: target.clone(), program: Program { ops, ..program }, choices, real, groups })
}
