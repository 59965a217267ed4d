//! The host memory that a command will need, listed before any of it is allocated.
//!
//! The system lets a program request more memory than exists, and kills it when it uses that. So everything large is
//! estimated first, item by item, and compared with the available memory. What a GPU's memory must hold is checked by
//! `Step::check_room`; this module counts the host memory of such a run.

use super::{DataChoice, Purpose, SessionSpec, Start};
use crate::compile::Compiled;
use crate::data::{DataSize, Request, expected_size};
use crate::exec::{MemoryOf, Step, available_bytes};
use crate::lower::{Layout, ParamOrder};
use crate::model::Model;
use crate::plan::BindingPlan;
use crate::tensor::Bytes;
use serde::Serialize;
use thiserror::Error;

/// One item that needs memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Need {
    pub what: &'static str,
    pub bytes: u64,
}

/// All items of a command, the largest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs(Vec<Need>);

/// The error of insufficient memory.
#[derive(Clone, Debug, Error, PartialEq)]
#[error(
    "this takes {needed} of memory, and {available} are free: {}; \
     use fewer units or a smaller batch, or end other programs",
    .largest.iter().map(|n| format!("{} for {}", Bytes(n.bytes), n.what)).collect::<Vec<_>>().join(", ")
)]
pub struct Shortage {
    pub needed: Bytes,
    pub available: Bytes,
    /// The largest items.
    pub largest: Vec<Need>,
}

/// Stacks of threads, tables of a plan, logs.
pub(super) const PROGRAM: u64 = 32 << 20;

/// Smaller states are kept in memory: they are negligible compared with the program itself.
pub(super) const SMALL: u64 = 64 << 20;

/// The number of items that an error names.
const NAMED: usize = 4;

/// Whether this many bytes are kept in memory in any case.
pub(super) const fn is_small(bytes: u64) -> bool {
    bytes <= SMALL
}

impl Needs {
    pub(super) fn add(&mut self, what: &'static str, bytes: u64) {
        if bytes > 0 {
            self.0.push(Need { what, bytes });
            self.0.sort_by_key(|n| std::cmp::Reverse(n.bytes));
        }
    }

    /// The items, the largest first.
    #[must_use]
    pub fn items(&self) -> &[Need] {
        &self.0
    }

    /// The total of all items.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.iter().fold(0, |sum, n| sum.saturating_add(n.bytes))
    }

    /// Fails if they do not fit into `available` bytes; everything fits if that is not known.
    ///
    /// # Errors
    /// The error, with the largest items.
    pub fn check(&self, available: Option<u64>) -> Result<(), Shortage> {
        let needed = self.bytes();
        match available.filter(|free| needed > *free) {
            None => Ok(()),
            Some(free) => {
                let largest = self.0.iter().take(NAMED).copied().collect();
                Err(Shortage { needed: Bytes(needed), available: Bytes(free), largest })
            }
        }
    }

    /// Like [`Self::check`], with the memory that is free now.
    ///
    /// # Errors
    /// As [`Self::check`].
    pub fn check_here(&self) -> Result<(), Shortage> {
        self.check(available_bytes())
    }
}

/// The parts of a session that need memory.
pub(super) struct Parts<'a> {
    pub(super) spec: &'a SessionSpec,
    pub(super) model: &'a Model,
    pub(super) train: &'a Compiled,
    /// The evaluation's step, if it will use this memory.
    pub(super) evaluation: Option<&'a Compiled>,
    /// Whether the guard keeps its snapshot in memory.
    pub(super) keeps_in_memory: bool,
}

/// The host memory of a session of a compiled step without evaluation.
#[must_use]
pub fn needs(spec: &SessionSpec, train: &Compiled) -> Needs {
    let keeps_in_memory = is_small(train.plan.persistent_bytes) || !is_here(train);
    needs_of(&Parts { spec, model: &train.model, train, evaluation: None, keeps_in_memory })
}

/// Whether the values of a step are stored in the host's memory.
fn is_here(step: &Compiled) -> bool {
    Step::capabilities_for(step).memory == MemoryOf::Host
}

/// The host memory for preparing a session and for its purpose.
pub(super) fn needs_of(parts: &Parts<'_>) -> Needs {
    let Parts { spec, model, train, .. } = *parts;
    let plan = &train.plan;
    let here = is_here(train);
    let kept = plan.persistent_bytes;
    let mut needs = Needs::default();
    needs.add("the program's own tables", PROGRAM);
    needs.add("the step's arena", if here { plan.arena_bytes } else { 0 });
    // It runs in the transient memory of the training step, as far as that is large enough.
    let lent = plan.arena_bytes - plan.persistent_bytes;
    needs.add("the evaluation's arena", parts.evaluation.map_or(0, |e| e.plan.arena_bytes.saturating_sub(lent)));
    needs.add("the run's snapshot", if parts.keeps_in_memory { kept } else { 0 });
    let data = data_size(spec, model);
    needs.add("the samples", data.held);
    needs.add("the files of the samples while they are read", data.reading);
    let is_relaid = |x| matches!(plan.program.value(x).layout, Layout::ChannelsLast { .. });
    let relaid = plan.program.all_samples().any(is_relaid);
    needs.add("the samples in the step's own order", if relaid { data.held } else { 0 });
    needs.add("copies of parameters for the transfer to and from the step", in_transit(spec, plan, here));
    let params = 4 * model.params.iter().map(|p| p.shape.len() as u64).sum::<u64>();
    match spec.purpose {
        Purpose::Train => {}
        Purpose::Predict => needs.add("the answers", answers(model, data)),
        Purpose::Time => needs.add("the state that timed steps start from", kept),
        Purpose::Verify => {
            needs.add("the state that the checks start from", kept);
            needs.add(
                "the memory of one way to run, for comparison with another",
                plan.arena_bytes.max(2 * kept) + kept,
            );
        }
        Purpose::Inspect => {
            needs.add("the states that a copy of the step starts from", 3 * kept);
            needs.add("the values that are shown", 2 * largest(plan));
        }
        Purpose::Capsule => needs.add("the first and the last parameters", 2 * params),
    }
    needs
}

/// The data of a session: the preset's, or a file of batches.
fn data_size(spec: &SessionSpec, model: &Model) -> DataSize {
    match (&spec.data, &spec.preset.data) {
        // Code that answers queries writes the samples into a step that is not trained with them.
        (DataChoice::Resident, _) if spec.purpose != Purpose::Predict => DataSize::default(),
        (DataChoice::Preset | DataChoice::Resident, Some(data)) => {
            expected_size(&data.source, &Request::of(model, 0), &spec.base)
        }
        (DataChoice::Batches(path), _) => {
            let bytes = std::fs::metadata(path).map_or(0, |m| m.len());
            DataSize { held: bytes, reading: bytes }
        }
        (DataChoice::Preset | DataChoice::Resident, None) => DataSize::default(),
    }
}

/// Copies of single parameters: those whose stored order differs are converted, and those from a file or a device are
/// first read into memory.
fn in_transit(spec: &SessionSpec, plan: &BindingPlan, here: bool) -> u64 {
    let slots = &plan.program.params;
    let bytes = |slot: &crate::lower::ParamSlot| 4 * plan.program.value(slot.value).shape.len() as u64;
    let any = slots.iter().map(bytes).max().unwrap_or(0);
    let reordered = slots.iter().filter(|s| s.order != ParamOrder::Plain).map(bytes).max().unwrap_or(0);
    let of_files = if spec.start == Start::default() { 0 } else { any };
    of_files + 2 * reordered + if here { 0 } else { 2 * any }
}

fn largest(plan: &BindingPlan) -> u64 {
    plan.buffers.iter().map(|b| b.bytes).max().unwrap_or(0)
}

/// Outputs for every sample that the data may have, twice: as numbers, and as text.
fn answers(model: &Model, data: DataSize) -> u64 {
    let (input, output) = (model.sample_len().max(1) as u64, model.output.len() as u64);
    2 * (data.held / input).saturating_mul(output)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::{Options, compile};
    use crate::model::{check, read_preset};
    use crate::select::{Isa, Target};

    fn needs(text: &str, change: impl Fn(&mut SessionSpec), keeps_in_memory: bool) -> (Needs, Compiled) {
        let preset = read_preset(text).unwrap();
        let model = check(&preset).model.unwrap();
        let train = compile(&model, &Options::train(Target::cpu(Isa::Avx2, 2))).unwrap();
        let mut spec = SessionSpec::new(preset, ".".into());
        change(&mut spec);
        let parts = Parts { spec: &spec, model: &model, train: &train, evaluation: None, keeps_in_memory };
        (needs_of(&parts), train)
    }

    fn text(units: usize, samples: usize) -> String {
        format!(
            r#"{{"version": 1, "name": "n", "input": {{"shape": [2], "batch": 16}},
            "layers": [{{"type": "dense", "units": {units}}}, {{"type": "dense", "units": {units}}},
            {{"type": "dense", "units": 2}}],
            "loss": {{"type": "softmax_cross_entropy"}}, "optimizer": {{"type": "adam", "lr": 0.01}},
            "data": {{"type": "moons", "samples": {samples}, "noise": 0.1}}}}"#
        )
    }

    #[test]
    fn every_command_estimates_its_memory() {
        let of = |purpose, in_memory| needs(&text(512, 1000), |s| s.purpose = purpose, in_memory).0;
        let (run, compiled) = needs(&text(512, 1000), |_| {}, false);
        let (arena, kept) = (compiled.plan.arena_bytes, compiled.plan.persistent_bytes);
        assert_eq!(run.items()[1], Need { what: "the step's arena", bytes: arena });
        assert_eq!(of(Purpose::Train, true).bytes(), run.bytes() + kept);
        assert_eq!(of(Purpose::Time, false).bytes(), run.bytes() + kept);
        assert_eq!(of(Purpose::Verify, false).bytes(), run.bytes() + kept + arena.max(2 * kept) + kept);
        assert_eq!(of(Purpose::Inspect, false).bytes(), run.bytes() + 3 * kept + 2 * largest(&compiled.plan));
        let params = 4 * compiled.model.trained_len() as u64;
        assert_eq!(of(Purpose::Capsule, false).bytes(), run.bytes() + 2 * params);
        assert!(of(Purpose::Predict, false).bytes() > run.bytes());
        // Samples that are evaluated need memory although they are not trained on; samples of a step that is timed are
        // its own batch.
        let resident = |purpose| {
            let change = |s: &mut SessionSpec| (s.purpose, s.data) = (purpose, DataChoice::Resident);
            needs(&text(512, 1000), change, false).0.bytes()
        };
        assert_eq!(resident(Purpose::Predict), of(Purpose::Predict, false).bytes());
        assert_eq!(resident(Purpose::Time), of(Purpose::Time, false).bytes() - 1000 * 3 * 4);
        let more = needs(&text(512, 2000), |_| {}, false).0;
        assert_eq!(more.bytes(), run.bytes() + 1000 * 3 * 4);
        let resumed = needs(&text(512, 1000), |s| s.start.resume = Some("x".into()), false).0;
        assert_eq!(resumed.bytes(), run.bytes() + 512 * 512 * 4);
    }

    #[test]
    fn a_run_of_large_parameters_takes_little_beside_its_arena() {
        let (run, compiled) = needs(&text(4000, 1000), |s| s.start.resume = Some("x".into()), false);
        assert!(run.bytes() as f64 <= 1.3 * compiled.plan.arena_bytes as f64 + f64::from(64 << 20), "{run:?}");
    }

    #[test]
    fn parameters_of_ten_gigabytes_are_refused_with_the_largest_items_named() {
        let (run, compiled) = needs(&text(50_000, 1000), |_| {}, false);
        assert!(compiled.plan.arena_bytes > 4 * 10_000_000_000);
        assert_eq!((run.check(None), run.check(Some(run.bytes()))), (Ok(()), Ok(())));
        let message = run.check(Some(24 << 30)).unwrap_err().to_string();
        assert!(
            message.starts_with("this takes 37.")
                && message.contains("and 24.0 GiB are free: 37.3 GiB for the step's arena"),
            "{message}"
        );
        assert!(message.contains("use fewer units"), "{message}");
    }
}
