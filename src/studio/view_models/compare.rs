//! A step's memory with every planner, and the step in every precision of a GPU: computed on a thread, because some
//! planners search.

use crate::compile::{Compiled, Options, compile};
use crate::exec::cuda::GpuCeilings;
use crate::model::Precision;
use crate::plan::arena::Planner;
use crate::select::Target;
use std::time::Instant;

/// The result of one planner for the whole problem.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannerRow {
    pub name: String,
    /// Size of the arena with its placement, in bytes, including what survives the step.
    pub bytes: u64,
    /// The duration, in microseconds.
    pub us: f64,
    /// True if it reaches the lower bound.
    pub meets_bound: bool,
    /// True for the planner whose placement is used.
    pub chosen: bool,
}

/// The step in one precision, planned for a GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct PrecisionRow {
    pub name: &'static str,
    pub arena_bytes: u64,
    pub ops: usize,
    /// The least time of the step by the data sheet's rates, in microseconds.
    pub floor_us: f64,
    /// Why there is no plan; then the numbers are 0.
    pub error: Option<String>,
}

/// All results.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Comparison {
    pub planners: Vec<PlannerRow>,
    pub precisions: Vec<PrecisionRow>,
    /// The GPU that the precisions are planned for.
    pub gpu: String,
}

const PRECISIONS: [Precision; 4] = [Precision::F32, Precision::Tf32, Precision::Bf16, Precision::F16];

/// The rates of an H200 by its data sheet: memory at 4.8 TB/s, dense products at 67, 495 and 990 TFLOP/s; a cache of 50
/// MiB, from which each of the 132 multiprocessors reads 64 bytes in a cycle of 1.98 GHz.
const fn data_sheet(precision: Precision) -> GpuCeilings {
    let tera = match precision {
        Precision::F32 => 67.0,
        Precision::Tf32 => 495.0,
        Precision::Bf16 | Precision::F16 => 990.0,
    };
    let (cache_bytes, cache_bytes_per_us) = (50 << 20, 132.0 * 64.0 * 1980.0);
    GpuCeilings { launch_us: 0.8, cache_bytes, cache_bytes_per_us, bytes_per_us: 4.8e6, flops_per_us: tera * 1e6 }
}

impl Comparison {
    /// Runs every planner and plans every precision.
    #[must_use]
    pub fn of(compiled: &Compiled) -> Self {
        Self::watched(compiled, &|_| true)
    }

    /// Like [`Self::of`]; `report` receives the share that is done, from 0 to 1, and ends the comparison if it returns
    /// false. Missing results are then left out.
    #[must_use]
    pub fn watched(compiled: &Compiled, report: &dyn Fn(f32) -> bool) -> Self {
        let (target, all) = (Target::h200(), (Planner::ALL.len() + PRECISIONS.len()) as f32);
        let planners = planners(compiled, &|done| report(done as f32 / all));
        let precisions = precisions(compiled, &target, &|done| report((Planner::ALL.len() + done) as f32 / all));
        Self { planners, precisions, gpu: target.name }
    }
}

fn planners(compiled: &Compiled, report: &dyn Fn(usize) -> bool) -> Vec<PlannerRow> {
    let plan = &compiled.plan;
    let Ok((problem, _)) = plan.problem() else { return Vec::new() };
    let row = |planner: Planner| {
        let started = Instant::now();
        let placement = planner.plan(&problem);
        let bytes = plan.persistent_bytes + placement.height;
        PlannerRow {
            name: planner.name().replace('_', " "),
            bytes,
            us: started.elapsed().as_secs_f64() * 1e6,
            meets_bound: placement.height == plan.report.lower_bound,
            chosen: planner == plan.report.planner,
        }
    };
    Planner::ALL
        .into_iter()
        .enumerate()
        .take_while(|(done, _)| report(*done))
        .map(|(_, planner)| row(planner))
        .collect()
}

fn precisions(compiled: &Compiled, target: &Target, report: &dyn Fn(usize) -> bool) -> Vec<PrecisionRow> {
    let row = |precision: Precision| {
        let model = crate::model::Model { precision, ..compiled.model.clone() };
        let name = precision.name();
        match compile(&model, &Options::train(target.clone())) {
            Err(error) => PrecisionRow { name, arena_bytes: 0, ops: 0, floor_us: 0.0, error: Some(error.to_string()) },
            Ok(found) => {
                let rates = data_sheet(precision);
                PrecisionRow {
                    name,
                    arena_bytes: found.plan.arena_bytes,
                    ops: found.plan.program.ops.len(),
                    floor_us: found.selection.floor_us(|flops, bytes| rates.floor(flops, bytes).us),
                    error: None,
                }
            }
        }
    };
    PRECISIONS.into_iter().enumerate().take_while(|(done, _)| report(*done)).map(|(_, p)| row(p)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::check;
    use crate::select::Isa;

    #[test]
    fn planners_and_precisions_are_compared() {
        let model = check(&crate::studio::document::presets::digits()).model.unwrap();
        let compiled = compile(&model, &Options::train(Target::cpu(Isa::Avx2, 1))).unwrap();
        let c = Comparison::of(&compiled);
        assert_eq!(c.planners.len(), Planner::ALL.len());
        let chosen: Vec<&PlannerRow> = c.planners.iter().filter(|p| p.chosen).collect();
        assert!(chosen.len() == 1 && chosen[0].bytes == compiled.plan.arena_bytes, "{chosen:?}");
        assert!(c.planners.iter().all(|p| p.bytes >= compiled.plan.arena_bytes));
        assert!(c.planners.iter().all(|p| p.meets_bound == (p.bytes == compiled.plan.arena_bytes)));
        let names: Vec<&str> = c.precisions.iter().map(|p| p.name).collect();
        assert_eq!(names, ["f32", "tf32", "bf16", "f16"]);
        assert!(c.precisions.iter().all(|p| p.error.is_none() && p.arena_bytes > 0 && p.floor_us > 0.0), "{c:?}");
        let floor = |i: usize| c.precisions[i].floor_us;
        assert!(floor(1) <= floor(0));
    }
}
