//! `stepgraph generate`: writes texts with a network of tokens and given weights.

use super::error::wrong;
use super::generate_args::GenerateArgs;
use super::predict_data::Weights;
use super::presets::{self, DataLook};
use super::runs::{Named, find};
use super::{device, output};
use crate::model::{InputSpec, Model, Preset, TrainSpec, check};
use crate::train::{
    DataChoice, Generation, GenerationEnd, Purpose, Sampling, Session, SessionSpec, Start, TrainError, vocabulary_of,
};
use serde::Serialize;
use std::path::PathBuf;
use std::time::Instant;

/// What `--json` prints.
#[derive(Serialize)]
struct Summary {
    preset: String,
    device: String,
    init: String,
    /// The prompt, as the network received it.
    prompt: String,
    /// The text that was written after the prompt.
    text: String,
    /// Tokens that were drawn, including those of a stop text.
    tokens: usize,
    end: GenerationEnd,
    temperature: f64,
    top_k: Option<usize>,
    top_p: f64,
    seed: u64,
    /// The time of drawing tokens only.
    seconds: f64,
    notes: Vec<String>,
}

/// A network, its weights, and the folder of its files.
struct Source {
    preset: Preset,
    base: PathBuf,
    weights: Weights,
}

impl Source {
    /// What the arguments name: a preset with weights, or a kept run.
    fn of(args: &GenerateArgs) -> anyhow::Result<Self> {
        if args.init.is_some() || args.run.is_some() {
            let found = presets::load(&args.what, DataLook::Ignore)?;
            let weights = Weights::of(args.init.as_deref(), args.run.as_deref())?;
            return Ok(Self { preset: found.preset, base: found.base, weights });
        }
        match find(&args.what)? {
            Named::Run(store, run) => {
                let weights = Weights::of_run(&store, &run)?;
                let record = store.record(&run.id)?;
                let newer = || wrong(format!("run {}: a newer version wrote its preset; update stepgraph", run.id));
                let preset = record.read_preset().ok_or_else(newer)?;
                Ok(Self { preset, base: record.base, weights })
            }
            Named::Preset(found) => Err(wrong(format!(
                "{} is a preset, and no kept run is called that: give its weights with --init FILE or --run RUN; \
                 `stepgraph train {} --save FILE` makes some",
                found.preset.name,
                args.what.to_string_lossy()
            ))),
        }
    }

    /// The preset with one sample in a step, because texts are written one at a time.
    fn alone(&self) -> anyhow::Result<(Preset, Model)> {
        let mut preset = self.preset.clone();
        preset.input = InputSpec { batch: 1, ..preset.input };
        preset.train = preset.train.map(|train| TrainSpec { accumulate: 1, ..train });
        let checked = check(&preset);
        let model = checked.model.ok_or(TrainError::Preset(checked.diagnostics))?;
        Ok((preset, model))
    }
}

/// Continues the prompt, and prints it with the text that was written.
///
/// # Errors
/// If an argument is wrong, or standard output fails.
pub fn run(args: &GenerateArgs) -> anyhow::Result<()> {
    let source = Source::of(args)?;
    let (preset, model) = source.alone()?;
    let data = preset.data.as_ref().map(|data| &data.source);
    let vocabulary = vocabulary_of(&model, data, &source.base, source.weights.preprocessing())?;
    let small = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    let asked = Generation {
        prompt: args.prompt.clone(),
        tokens: args.tokens.map(small),
        sampling: Sampling {
            temperature: args.temperature,
            top_k: args.top_k.map(small),
            top_p: args.top_p,
            seed: args.seed,
        },
        stop: args.stop.clone(),
    };
    let prompt = vocabulary.arranged(&args.prompt).into_owned();
    let (mut session, device) = prepare(&source, preset, &model, args)?;
    let started = Instant::now();
    let mut failure = None;
    let mut printed = false;
    let made = session.generate(&vocabulary, &asked, |piece| {
        let first = if printed { "" } else { &*prompt };
        printed = true;
        failure = if args.json { None } else { output::print(&format!("{first}{piece}")).err() };
        failure.is_none()
    })?;
    if let Some(error) = failure {
        return Err(error);
    }
    let seconds = started.elapsed().as_secs_f64();
    // Notes begin on a line of their own.
    let rest = if printed { "" } else { &*prompt };
    let printed = if args.json { Ok(()) } else { output::print(&format!("{rest}\n")) };
    for note in &made.notes {
        output::note(&format!("note: {note}"));
    }
    if !args.json {
        return printed;
    }
    output::print_json(&Summary {
        preset: model.name,
        device,
        init: source.weights.path.display().to_string(),
        prompt: made.prompt,
        text: made.text,
        tokens: made.tokens,
        end: made.end,
        temperature: args.temperature,
        top_k: asked.sampling.top_k,
        top_p: args.top_p,
        seed: args.seed,
        seconds,
        notes: made.notes,
    })
}

/// The network with its weights, and the name of the device that it runs on.
fn prepare(source: &Source, preset: Preset, model: &Model, args: &GenerateArgs) -> anyhow::Result<(Session, String)> {
    let threads = device::threads(args.cpu.threads, model).count;
    let (target, device) = device::choose(args.device, threads, [model])?;
    let spec = SessionSpec {
        threads,
        machine: Some(target.clone()),
        start: Start::from_weights(source.weights.path.clone()),
        data: DataChoice::Resident,
        tuning: device::tuning(&target),
        purpose: Purpose::Predict,
        ..SessionSpec::new(preset, source.base.clone())
    };
    Ok((Session::prepare(&spec)?, device))
}
