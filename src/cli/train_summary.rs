//! The closing summary of `stepgraph train`, as JSON and as text.

use super::args::{ExecutorArg, TrainArgs};
use super::metrics::Metrics;
use super::output::{self, Distribution};
use super::signals::Signal;
use super::step_times::Times;
use crate::exec::{PoolReport, peak_bytes};
use crate::model::Model;
use crate::select::Threads;
use crate::tensor::{Bytes, figure};
use crate::train::{Evaluation, KernelsOfRun, RecipeChange, Session, StepReport};
use serde::Serialize;
use serde_json::Value;
use std::path::PathBuf;

/// What `--json` prints. Times ending in `_us` are microseconds.
#[derive(Serialize)]
pub struct Summary {
    preset: String,
    device: String,
    executor: &'static str,
    threads: usize,
    /// How the number of threads was chosen.
    threads_why: Threads,
    seed: u64,
    /// The number of the last step; `first_step` is above 1 if the run was resumed.
    steps: u64,
    first_step: u64,
    /// True if a signal ended the run before its last step.
    interrupted: bool,
    /// The name of that signal.
    signal: Option<&'static str>,
    /// The loss of the last batch, before its update.
    loss: Option<f32>,
    /// Absent if nothing is held out, or if the held-out samples may have been trained on before.
    held_out: Option<HeldOut>,
    /// The same for samples that are held out now but may have been trained on before: the run was resumed with other
    /// samples, or started from the weights of another run.
    #[serde(skip_serializing_if = "Option::is_none")]
    maybe_trained: Option<HeldOut>,
    evaluations: Vec<HeldOut>,
    /// From the first step to the end of the last one, including evaluations.
    seconds: f64,
    steps_per_s: f64,
    samples_per_s: f64,
    /// The median time of the step itself, without fetching its batch.
    step_us: Distribution,
    /// The median time of fetching a batch.
    feed_us: f64,
    prepare_ms: f64,
    compile_ms: f64,
    arena_bytes: u64,
    /// The largest memory of this process so far, where the system reports it.
    peak_rss_bytes: Option<u64>,
    lower_bound_bytes: u64,
    unshared_bytes: u64,
    parameters: usize,
    /// Kernel calls a step.
    launches: usize,
    /// The kernels of the steps, on a GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    kernels: Option<KernelsOfRun>,
    /// Look-ups of recordings, the memory of recordings, and why steps ran op by op.
    recordings: PoolReport,
    files: Vec<String>,
    notes: Vec<String>,
    /// Fields of the recipe whose values differ from those of the checkpoint that the run was resumed from.
    recipe_changes: Vec<Value>,
}

/// An evaluation of held-out samples after a step.
#[derive(Clone, Serialize)]
pub struct HeldOut {
    step: u64,
    #[serde(flatten)]
    metrics: Metrics,
    samples: usize,
}

impl HeldOut {
    #[must_use]
    pub fn new(model: &Model, step: u64, found: &Evaluation) -> Self {
        Self { step, metrics: Metrics::of(model, found), samples: found.samples }
    }

    /// The evaluation as text; its samples are called held out unless they may have been trained on before
    /// (`maybe_trained`).
    #[must_use]
    pub fn text(&self, maybe_trained: bool) -> String {
        let what = if maybe_trained { "may have been trained on" } else { "held out" };
        let m = &self.metrics;
        let accuracy = m.accuracy.map_or_else(String::new, |a| format!("accuracy {:.2} %, ", a * 100.0));
        let exact = m.some_exact();
        // If whole samples are predicted correctly, most tokens are certain, and the perplexity carries no information.
        let perplexity = m.perplexity.filter(|_| exact.is_none());
        let perplexity = perplexity.map_or_else(String::new, |p| format!("perplexity {}, ", figure(p, 2)));
        let exact = exact.map_or_else(String::new, |share| format!("{:.2} % of samples exact, ", share * 100.0));
        let samples = output::counted(self.samples as u64, "sample");
        format!("{what}: {accuracy}{exact}{perplexity}loss {} on {samples}", figure(m.loss, 4))
    }
}

/// The steps of a run.
pub struct MadeSteps {
    /// Steps that were made before.
    pub first: u64,
    pub last: Option<StepReport>,
    pub evaluations: Vec<HeldOut>,
    pub times: Times,
    pub seconds: f64,
}

impl MadeSteps {
    /// No steps so far, for a session that begins or continues.
    pub fn none(session: &Session) -> Self {
        let times = Times::new(session.total());
        Self { first: session.done(), last: None, evaluations: Vec::new(), times, seconds: 0.0 }
    }
}

/// The results of a run at its end.
pub struct Outcome {
    pub made: MadeSteps,
    pub prepare_ms: f64,
    /// The signal that ended the run before its last step.
    pub signal: Option<Signal>,
    pub device: String,
    pub threads: Threads,
}

impl Outcome {
    /// The summary of a finished run, with its evaluation on held-out samples and the results that were written.
    #[must_use]
    pub fn summary(self, session: &Session, args: &TrainArgs, held: Option<&Evaluation>, files: &[PathBuf]) -> Summary {
        let (compiled, step) = (session.compiled(), session.done());
        let mut steps = self.made;
        let made = (step - steps.first) as f64;
        let last = held.map(|h| HeldOut::new(session.model(), step, h));
        steps.evaluations.extend(last.clone());
        let (held_out, maybe_trained) = if session.is_maybe_trained() { (None, last) } else { (last, None) };
        let rate = if steps.seconds > 0.0 { made / steps.seconds } else { 0.0 };
        let resumed = session.resumed();
        let notes = session.notes().iter().chain(resumed.iter().flat_map(|r| &r.notes));
        Summary {
            preset: session.model().name.clone(),
            device: self.device,
            executor: if args.executor == ExecutorArg::Eager { "eager" } else { "replay" },
            threads: self.threads.count,
            threads_why: self.threads,
            seed: session.seed(),
            steps: step,
            first_step: steps.first + 1,
            interrupted: self.signal.is_some(),
            signal: self.signal.map(|s| s.name),
            loss: steps.last.map(|r| r.loss),
            held_out,
            maybe_trained,
            evaluations: steps.evaluations,
            seconds: steps.seconds,
            steps_per_s: rate,
            samples_per_s: rate * session.model().samples_a_step() as f64,
            step_us: Distribution::of(&mut steps.times.step_us),
            feed_us: Distribution::of(&mut steps.times.feed_us).median,
            prepare_ms: self.prepare_ms,
            compile_ms: compiled.times.total().as_secs_f64() * 1e3,
            arena_bytes: compiled.plan.arena_bytes,
            peak_rss_bytes: peak_bytes(),
            lower_bound_bytes: compiled.plan.lower_bound_bytes,
            unshared_bytes: compiled.plan.unshared_bytes,
            parameters: session.model().trained_len(),
            launches: session.calls(),
            kernels: session.kernels(),
            recordings: session.recordings(),
            files: files.iter().map(|file| file.display().to_string()).collect(),
            notes: notes.cloned().collect(),
            recipe_changes: resumed.map(|r| r.changes.iter().map(RecipeChange::to_json).collect()).unwrap_or_default(),
        }
    }
}

/// The summary as text.
#[must_use]
pub fn text(s: &Summary) -> String {
    let mut out = if s.steps < s.first_step && !s.interrupted {
        format!(
            "{}: nothing to do: the run already made step {}; increase --steps to continue\n",
            s.preset,
            output::count(s.steps)
        )
    } else {
        format!(
            "{}: step {} after {:.2} s, {} samples/s, {} a step (median, {})\n",
            s.preset,
            output::count(s.steps),
            s.seconds,
            output::count(s.samples_per_s as u64),
            output::micros(s.step_us.median),
            s.executor
        )
    };
    if let Some(loss) = s.loss {
        out.push_str(&format!("last batch: loss {}\n", figure(f64::from(loss), 4)));
    }
    match s.held_out.as_ref().or(s.maybe_trained.as_ref()) {
        Some(h) => out.push_str(&format!("{}\n", h.text(s.maybe_trained.is_some()))),
        None => out.push_str("held out: nothing, so the run was not evaluated\n"),
    }
    if let Some(step) = s.kernels.and_then(|kernels| kernels.changed_at) {
        out.push_str(&format!("kernels: general before step {step}, compiled for their sizes from there on\n"));
    }
    if let Some(text) = recordings_text(&s.recordings) {
        out.push_str(&text);
    }
    for file in &s.files {
        out.push_str(&format!("wrote {file}\n"));
    }
    out
}

/// The statistics of the recordings of a run whose steps differ, in one line; a second line lists the steps that ran op
/// by op, with the reasons.
fn recordings_text(report: &PoolReport) -> Option<String> {
    let counts = &report.counts;
    let training = report.keys.iter().filter(|known| known.key.variant().trains()).count();
    let differs = training > 1 && report.keys.iter().filter(|known| known.key.variant().updates()).count() > 1;
    if !differs && report.eager.is_empty() {
        return None;
    }
    let us = output::micros(counts.capture_us as f64);
    let mut out = format!(
        "recordings: {}, {}, {} ({} made ahead), {}, {us} to plan and record; {} of {} with transient memory\n",
        output::counted(training as u64, "key"),
        output::counted(counts.hits, "hit"),
        output::counted(counts.misses, "miss"),
        output::count(counts.made_ahead),
        output::counted(counts.evictions, "eviction"),
        Bytes(counts.bytes),
        Bytes(counts.budget_bytes),
    );
    if counts.waits > 0 {
        out.push_str(&format!("{} waited for a recording\n", output::counted(counts.waits, "step")));
    }
    let mut reasons: Vec<_> = report.eager.iter().collect();
    reasons.sort_by_key(|eager| std::cmp::Reverse(eager.steps));
    if counts.eager_steps > 0 {
        out.push_str(&format!("{} ran op by op:\n", output::counted(counts.eager_steps, "step")));
    }
    for eager in reasons.iter().take(3) {
        out.push_str(&format!("  {} of {}: {}\n", output::count(eager.steps), eager.key, eager.why));
    }
    if reasons.len() > 3 {
        out.push_str(&format!("  and {} more reasons, which --json lists\n", reasons.len() - 3));
    }
    Some(out)
}
