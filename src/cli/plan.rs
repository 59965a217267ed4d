//! `stepgraph plan`: the compiled step, stage by stage.

use super::args::{PlanArgs, Stage};
use super::choices::Format;
use super::error::wrong;
use super::presets::{DataLook, Loaded};
use super::result_places::{Kind, Places};
use super::{device, output, plan_against, plan_json, plan_passes, plan_text, presets};
use crate::compile::{Compiled, Front, Options, compile};
use crate::exec::cpu::host_target;
use crate::ir::Share;
use crate::plan::arena::{Attempt, Budget, Planner};
use crate::plan::{BindingPlan, CapturePlan, EXTERNAL, arena_svg, referee};
use crate::select::Threads;
use crate::train::evaluated;
use std::time::{Duration, Instant};

/// Compiles a preset and prints the requested stage.
///
/// # Errors
/// If the preset is wrong, or a picture cannot be written.
pub fn run(args: &PlanArgs) -> anyhow::Result<()> {
    let found = presets::load(&args.preset, DataLook::Report)?;
    let svg = Places::of(&found).writes("the picture", Kind::Picture, args.svg.as_deref())?;
    let format = if args.json {
        Format::Json
    } else if args.dot {
        Format::Dot
    } else {
        args.format
    };
    let step = planned(args, &found, args.path.as_deref(), "--path")?;
    presets::warn_of_precision(&found.preset, &step.compiled.selection.target);
    if let Some(other) = &args.against {
        let against = planned(args, &found, Some(other), "--against")?;
        let names = [args.path.as_deref().unwrap_or("evaluation"), other];
        return output::print(&plan_against::shown(names, [&step.compiled, &against.compiled], format)?);
    }
    let text = match (args.stage, args.pass.as_deref()) {
        (Some(Stage::Passes), pass) | (None, pass @ Some(_)) => plan_passes::shown(&step.compiled, pass, format)?,
        (Some(_), Some(_)) => return Err(wrong("--pass can be used only with --stage passes")),
        (stage, None) => shown(&step, stage, format)?,
    };
    output::print(&text)?;
    if let Some(path) = svg {
        output::write_picture(&path, &arena_svg(&step.compiled.plan, &found.preset.name))?;
    }
    Ok(())
}

/// A compiled step, and how it was compiled.
struct Planned {
    compiled: Compiled,
    options: Options,
    threads: Option<Threads>,
}

/// Compiles the step of a path, which the option `named` gave; without one, the step of the path of evaluations.
fn planned(args: &PlanArgs, found: &Loaded, path: Option<&str>, named: &str) -> anyhow::Result<Planned> {
    let target = device::choose_to_plan(args.device, &found.model);
    let (model, options) = match args.eval {
        true => (evaluated(&found.model, &target), Options::eval(target.clone())),
        false => (found.model.clone(), Options::train(target.clone())),
    };
    let seed = found.preset.train.map_or(0, |train| train.seed);
    let path = path.map(|text| model.path_named(text, seed)).transpose();
    let path = path.map_err(|why| wrong(format!("{named}: {why}")))?;
    let model = path.map_or_else(|| model.in_evaluation(), |path| model.along(&path));
    let budget = Budget { time: args.time_budget.map(|s| Duration::from_secs_f64(s.0)) };
    let gpu_times = crate::train::known_gpu_times(&target);
    let front = Front::new(&model, Options { budget, gpu_times, ..options })?;
    // An evaluation has as many threads as the training step.
    let threads = target.as_cpu().map(|_| match args.eval {
        true => device::threads(args.cpu.threads, &found.model),
        false => device::threads_of_step(args.cpu.threads, front.rewritten()),
    });
    let target = threads.map_or(target, |threads| host_target(threads.count));
    let front = front.on(target.clone(), device::tuning(&target));
    let options = front.options().clone();
    let mut compiled = front.compile()?;
    if let Some(planner) = args.planner {
        place_again(&mut compiled.plan, planner.0)?;
    }
    Ok(Planned { compiled, options, threads })
}

/// The recordings of the step, if several batches make one step.
fn variants(compiled: &Compiled, options: &Options) -> anyhow::Result<Vec<plan_json::Variant>> {
    let Some(last) = plan_json::Variant::of(compiled) else { return Ok(Vec::new()) };
    let mut variants = Vec::new();
    for &share in Share::before_last(compiled.model.accumulate) {
        let before_last = compile(&compiled.model, &Options { share, ..options.clone() })?;
        variants.extend(plan_json::Variant::of(&before_last));
    }
    variants.push(last);
    Ok(variants)
}

fn shown(step: &Planned, stage: Option<Stage>, format: Format) -> anyhow::Result<String> {
    let Planned { compiled, options, threads } = step;
    let threads = *threads;
    let stage_or_all = stage.unwrap_or(Stage::All);
    match format {
        Format::Text => Ok(plan_text::text(compiled, threads, stage_or_all)),
        Format::Dot => dot(compiled, stage),
        Format::Json => {
            let mut text = match stage_or_all {
                Stage::Ir => serde_json::to_string_pretty(&compiled.graph)?,
                Stage::Lowered => serde_json::to_string_pretty(&compiled.program)?,
                Stage::Passes => return plan_passes::shown(compiled, None, format),
                Stage::Selected => serde_json::to_string_pretty(&compiled.selection)?,
                Stage::Bindings => serde_json::to_string_pretty(&compiled.plan)?,
                Stage::Arena => serde_json::to_string_pretty(&compiled.plan.report)?,
                Stage::Capture => serde_json::to_string_pretty(&CapturePlan::new(&compiled.plan, &compiled.model))?,
                Stage::All => {
                    let variants = variants(compiled, options)?;
                    serde_json::to_string_pretty(&plan_json::document(compiled, threads, variants))?
                }
            };
            text.push('\n');
            Ok(text)
        }
    }
}

fn dot(compiled: &Compiled, stage: Option<Stage>) -> anyhow::Result<String> {
    match stage.unwrap_or(Stage::Selected) {
        Stage::Ir => Ok(compiled.graph.to_dot()),
        Stage::Lowered => Ok(compiled.program.to_dot(|i, op| format!("{i} {}", op.kind.name()))),
        Stage::Selected => {
            let choices = &compiled.selection.choices;
            Ok(compiled.plan.program.to_dot(|i, _| format!("{i} {}", choices[i].kernel)))
        }
        Stage::Passes => plan_passes::shown(compiled, None, Format::Dot),
        Stage::Bindings | Stage::Arena | Stage::Capture | Stage::All => Err(wrong(
            "only the stages ir, lowered and selected are graphs; use --stage with one of them, or --format json",
        )),
    }
}

/// Places the buffers that share memory with one planner, and checks the placement with the referee.
fn place_again(plan: &mut BindingPlan, planner: Planner) -> anyhow::Result<()> {
    let (problem, ids) = plan.problem()?;
    let started = Instant::now();
    let placement = planner.plan(&problem);
    let micros = started.elapsed().as_micros() as u64;
    crate::plan::arena::referee::check(&problem, &placement)?;
    let before: Vec<u64> = plan.buffers.iter().map(|b| b.offset).collect();
    for (id, offset) in ids.iter().zip(&placement.offsets) {
        plan.buffers[id.0 as usize].offset = plan.persistent_bytes + offset;
    }
    for place in plan.places.iter_mut().flatten().filter(|p| p.offset < EXTERNAL) {
        let buffer = place.buffer.0 as usize;
        place.offset = place.offset - before[buffer] + plan.buffers[buffer].offset;
    }
    let report = &mut plan.report;
    plan.arena_bytes = plan.persistent_bytes + placement.height;
    report.proved_optimal = placement.height == report.lower_bound;
    report.ratio = if report.lower_bound == 0 { 1.0 } else { placement.height as f64 / report.lower_bound as f64 };
    report.tried = vec![Attempt { planner, height: placement.height, micros }];
    report.planner = planner;
    report.placement = placement;
    Ok(referee::check(plan)?)
}
