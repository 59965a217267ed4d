//! Runs the stages from a model to a plan, and keeps the result of each stage.

use crate::ir::{self, Graph, IrError, Metrics, Mode, Share};
use crate::lower::{self, ParamOrder, Program, ProgramError};
use crate::model::{Model, Precision};
use crate::plan::arena::Budget;
use crate::plan::{self, BindingPlan, PlanError};
use crate::rewrite::{self, Goal, Machine, PassRun, RewriteError, Rewritten, Stage};
use crate::select::cuda::GpuTimes;
use crate::select::{self, Device, Isa, Measured, Policy, SelectError, Selection, Target, Tuning};
use crate::tensor::DType;
use std::sync::Arc;
use std::time::{Duration, Instant};
use thiserror::Error;

/// What to compile for.
#[derive(Clone, Debug)]
pub struct Options {
    pub mode: Mode,
    pub metrics: Metrics,
    /// Which batch of a step it is compiled for, if several batches make one step.
    pub share: Share,
    pub policy: Policy,
    /// The type of real values: `F32`, or `F64` with the reference kernels.
    pub real: DType,
    pub target: Target,
    pub budget: Budget,
    /// Kernel times measured on this machine; without them, kernels are chosen by estimated cost.
    pub tuning: Option<Arc<Tuning>>,
    /// The same for a GPU.
    pub gpu_times: Option<Arc<GpuTimes>>,
    /// For timing: uses the kernel with this index for every operation of a GPU's step.
    pub force: Option<usize>,
    /// How the step of all layers stores each parameter, if this step runs one path only. Without it, the order is
    /// determined from the whole network.
    pub orders: Option<Arc<[ParamOrder]>>,
}

impl Options {
    /// The training step with all metrics and the fastest kernels.
    #[must_use]
    pub fn train(target: Target) -> Self {
        let (metrics, policy, budget) = (Metrics::default(), Policy::Fast, Budget::default());
        let (tuning, gpu_times, force) = (None, None, None);
        let (share, orders) = (Share::Last, None);
        let (mode, real) = (Mode::Train, DType::F32);
        Self { mode, metrics, share, policy, real, target, budget, tuning, gpu_times, force, orders }
    }

    /// What the step's program is rewritten for.
    #[must_use]
    pub const fn goal(&self, precision: Precision) -> Goal {
        let machine = match self.target.device {
            Device::Cpu(_) => Machine::Cpu,
            Device::Cuda(_) => Machine::Gpu,
        };
        Goal { machine, precision, fuses: matches!(self.policy, Policy::Fast) }
    }

    fn measured(&self) -> Measured<'_> {
        Measured { tuning: self.tuning.as_deref(), gpu_times: self.gpu_times.as_deref(), force: self.force }
    }

    /// The forward pass for evaluation.
    #[must_use]
    pub fn eval(target: Target) -> Self {
        Self { mode: Mode::Eval, ..Self::train(target) }
    }

    /// The training step in f64 with reference kernels, which gradients are checked against.
    #[must_use]
    pub fn reference_f64(target: Target) -> Self {
        Self { policy: Policy::Reference, real: DType::F64, ..Self::train(target) }
    }
}

/// How long each stage took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageTimes {
    pub ir: Duration,
    pub lower: Duration,
    /// Rewriting, and the choice of kernels.
    pub select: Duration,
    pub plan: Duration,
}

impl StageTimes {
    /// The sum of all stages.
    #[must_use]
    pub fn total(&self) -> Duration {
        self.ir + self.lower + self.select + self.plan
    }
}

/// The results of all stages for a compiled step.
#[derive(Clone, Debug)]
pub struct Compiled {
    pub model: Model,
    pub graph: Graph,
    /// The lowered program, before it is rewritten.
    pub program: Program,
    /// The goal that it was rewritten for.
    pub goal: Goal,
    /// The passes that ran, in order, with what each changed.
    pub passes: Vec<PassRun>,
    /// The rewritten program with its kernels.
    pub selection: Selection,
    pub plan: BindingPlan,
    pub times: StageTimes,
}

impl Compiled {
    /// The program after each pass, computed again from the lowered one.
    ///
    /// # Errors
    /// If a pass produces an invalid program.
    pub fn stages(&self) -> Result<Vec<Stage>, RewriteError> {
        rewrite::trace(&self.program, &self.goal)
    }

    /// The name of operation `index` for the user: its layer, or its phase if it belongs to no layer.
    #[must_use]
    pub fn owner(&self, index: usize) -> String {
        let op = &self.plan.program.ops[index];
        op.layer.map_or_else(|| op.phase.name().to_owned(), |l| self.model.layer(l).label())
    }
}

/// An operation of a network for which no GPU has a kernel.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{op} of {owner} has no GPU kernel yet: use --device cpu")]
pub struct CpuOnly {
    pub op: &'static str,
    /// Its layer, or its phase if it belongs to no layer.
    pub owner: String,
}

impl CpuOnly {
    /// The first such operation of a program of `model`.
    #[must_use]
    pub fn find(program: &Program, model: &Model) -> Option<Self> {
        let op = program.ops.iter().find(|op| !op.kind.has_gpu_kernel())?;
        let owner = op.layer.map_or_else(|| format!("the {} pass", op.phase.name()), |l| model.layer(l).label());
        Some(Self { op: op.kind.name(), owner })
    }

    /// The first such operation of a model's training step, on any path through its layers.
    #[must_use]
    pub fn of(model: &Model) -> Option<Self> {
        model.covering_paths().iter().find_map(|path| {
            let model = model.along(path);
            let graph = ir::build(&model, Mode::Train, Metrics::default(), DType::F32);
            Self::find(&lower::lower(&graph, &model), &model)
        })
    }
}

/// Why a model could not be compiled.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum CompileError {
    #[error(transparent)]
    CpuOnly(#[from] CpuOnly),
    #[error("the IR's verifier: {0}")]
    Ir(#[from] IrError),
    #[error("the lowered program's verifier: {0}")]
    Program(#[from] ProgramError),
    #[error("rewriting: {0}")]
    Rewrite(#[from] RewriteError),
    #[error("kernel selection: {0}")]
    Select(#[from] SelectError),
    #[error("memory plan: {0}")]
    Plan(#[from] PlanError),
}

impl CompileError {
    /// True if another device, which the user chooses, would work.
    #[must_use]
    pub const fn is_user(&self) -> bool {
        matches!(self, Self::CpuOnly(_))
    }
}

/// The stages that depend only on the kind of machine: graph, program and rewritten program. The number of threads is
/// chosen with their result, before kernels are.
#[derive(Clone, Debug)]
pub struct Front {
    model: Model,
    options: Options,
    graph: Graph,
    program: Program,
    goal: Goal,
    rewritten: Rewritten,
    times: StageTimes,
}

impl Front {
    /// Builds, lowers and rewrites the step of a checked model.
    ///
    /// # Errors
    /// If a step for a GPU contains an operation without a GPU kernel, or a stage fails, which is a defect of this
    /// program.
    pub fn new(model: &Model, options: Options) -> Result<Self, CompileError> {
        // If layers choose and no path is given, the path of evaluations is used.
        let chosen = model.chooses().then(|| model.in_evaluation());
        let model = chosen.as_ref().unwrap_or(model);
        let mut times = StageTimes::default();
        let started = Instant::now();
        let graph = ir::build_share(model, options.mode, options.metrics, options.real, options.share);
        ir::verify(&graph)?;
        times.ir = started.elapsed();
        let started = Instant::now();
        let goal = options.goal(model.precision);
        let filters = match goal.machine {
            Machine::Cpu => lower::FilterOrder::Hwio,
            Machine::Gpu => lower::FilterOrder::Ohwi,
        };
        let program = lower::lower_in_order(&graph, model, filters, options.orders.as_deref());
        lower::verify(&program)?;
        if let Some(found) = (goal.machine == Machine::Gpu).then(|| CpuOnly::find(&program, model)).flatten() {
            return Err(found.into());
        }
        times.lower = started.elapsed();
        let started = Instant::now();
        let rewritten = rewrite::rewrite(&program, &goal)?;
        times.select = started.elapsed();
        Ok(Self { model: model.clone(), options, graph, program, goal, rewritten, times })
    }

    /// The machine that it is compiled for.
    #[must_use]
    pub const fn options(&self) -> &Options {
        &self.options
    }

    /// The rewritten program, for which kernels are not chosen yet.
    #[must_use]
    pub const fn rewritten(&self) -> &Program {
        &self.rewritten.program
    }

    /// The same for another machine of the same kind, with the times measured there.
    #[must_use]
    pub fn on(mut self, target: Target, tuning: Option<Arc<Tuning>>) -> Self {
        (self.options.target, self.options.tuning) = (target, tuning);
        debug_assert_eq!(self.options.goal(self.model.precision), self.goal);
        self
    }

    /// Chooses kernels and plans memory.
    ///
    /// # Errors
    /// If an operation has no kernel on the target, or the step is too large for any machine; also if a stage fails,
    /// which is a defect of this program.
    pub fn compile(self) -> Result<Compiled, CompileError> {
        let Self { model, options, graph, program, goal, rewritten, mut times } = self;
        let started = Instant::now();
        let passes = rewritten.runs;
        let Options { target, policy, budget, .. } = &options;
        let selection = select::select(rewritten.program, target, *policy, model.precision, options.measured())?;
        times.select += started.elapsed();
        let started = Instant::now();
        let plan = plan::bind(&selection, *budget)?;
        times.plan = started.elapsed();
        Ok(Compiled { model, graph, program, goal, passes, selection, plan, times })
    }
}

/// The operations of the training step on a CPU, before kernels are chosen. The number of threads is chosen by them.
///
/// # Errors
/// As [`Front::new`].
pub fn cpu_program(model: &Model) -> Result<Program, CompileError> {
    // The program is the same for every CPU.
    Ok(Front::new(model, Options::train(Target::cpu(Isa::Portable, 1)))?.rewritten.program)
}

/// Compiles a checked model.
///
/// # Errors
/// If a plan for a GPU contains an operation without a GPU kernel, or a stage fails. Unless sizes exceed any machine,
/// that is a defect of this program, and the message names the operation.
pub fn compile(model: &Model, options: &Options) -> Result<Compiled, CompileError> {
    Front::new(model, options.clone())?.compile()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::cpu::host_target;
    use crate::model::checked_network;
    use crate::ops::OpKind;

    fn model(input: &str, layers: &str) -> Model {
        checked_network(&format!("{input}, \"batch\": 3"), layers, "mse").model.unwrap()
    }

    #[test]
    fn an_operation_without_a_gpu_kernel_is_reported_with_its_layer() {
        let tokens = r#""type": "tokens", "shape": [4], "vocab": 9"#;
        let model = model(tokens, r#"{"type": "embedding", "units": 330}, {"type": "attention", "heads": 1}"#);
        let error = compile(&model, &Options::train(Target::h200())).unwrap_err();
        assert_eq!(error.to_string(), "attention of L1:Attention has no GPU kernel yet: use --device cpu");
        assert!(error.is_user() && CpuOnly::of(&model).is_some_and(|found| found.to_string() == error.to_string()));
        assert!(compile(&model, &Options::train(host_target(1))).is_ok());
    }

    #[test]
    fn causal_padding_is_left_to_kernels_of_any_geometry() {
        let kernels = |padding: &str| {
            let layer = format!(r#"{{"type": "conv1d", "filters": 64, "kernel": 3, "padding": "{padding}"}}"#);
            let compiled = compile(&model(r#""shape": [32, 64]"#, &layer), &Options::train(Target::h200())).unwrap();
            let ops = compiled.selection.program.ops.iter().zip(&compiled.selection.choices);
            let of_layer = ops.filter(|(op, _)| op.kind.name().starts_with("conv2d"));
            let offered = of_layer.flat_map(|(_, c)| c.candidates.iter().filter(|k| k.cost_us.is_some()));
            offered.map(|k| k.kernel.clone()).collect::<Vec<_>>()
        };
        let (causal, same) = (kernels("causal"), kernels("same"));
        assert!(!causal.is_empty() && causal.iter().all(|k| k.contains("simt")), "{causal:?}");
        assert!(same.iter().any(|k| k.contains("cudnn")), "{same:?}");
    }

    /// Positions are added to whole samples and not to the rows of the preceding product.
    #[test]
    fn learned_positions_are_not_fused_as_a_bias() {
        let layers = r#"{"type": "dense", "units": 4, "bias": false}, {"type": "position"}"#;
        let compiled = compile(&model(r#""shape": [5, 2]"#, layers), &Options::train(host_target(1))).unwrap();
        let adds = compiled.plan.program.ops.iter().filter(|op| matches!(op.kind, OpKind::BiasAdd(_)));
        assert_eq!(adds.count(), 1);
    }
}
