//! Checks everything except the layers: inputs, loss, optimizer, and whether the output suits the loss.

use super::diagnostic::Diagnostic;
use super::input::{Content, InputSpec, NamedInput};
use super::losses::LossSpec;
use super::mistakes::{FieldChecks, Mistakes};
use super::optimizers::OptimizerSpec;
use super::path::LayerPath;
use super::preset::Preset;
use crate::tensor::Shape;

/// More values than this in one buffer are considered a mistake: 2^40 elements are 4 TiB.
pub(super) const MAX_ELEMENTS: usize = 1 << 40;
/// Tokens are stored as `i32`.
const MAX_VOCAB: usize = i32::MAX as usize;
/// The layer whose branches take inputs by name.
const PARALLEL: &str = "parallel";
/// The largest number of batches in a step.
const MAX_ACCUMULATE: usize = 1_000_000;

/// Checks the inputs; returns those without mistakes.
pub(super) fn check_inputs(spec: &InputSpec, out: &mut Mistakes) -> Vec<NamedInput> {
    let sound_batch = (1..=1 << 30).contains(&spec.batch);
    if !sound_batch {
        out.fail("input.batch", format!("found {}", spec.batch), "expected at least 1 and at most 2^30");
    }
    if spec.inputs.is_empty() {
        out.fail("inputs", "the network has no inputs", "add one, such as \"image\": {\"shape\": [1, 28, 28]}");
    }
    let batch = if sound_batch { spec.batch } else { 1 };
    spec.inputs.iter().filter(|input| check_input(&spec.place(input), input, batch, out)).cloned().collect()
}

/// Checks one input at `place`; returns true if it has no mistake.
fn check_input(place: &str, input: &NamedInput, batch: usize, out: &mut Mistakes) -> bool {
    let shape = &input.shape;
    let path = format!("{place}.shape");
    let expected = match input.content {
        Content::Tokens { .. } if shape.rank() != 1 => Some("expected [T]: a sample of tokens has one dimension"),
        Content::Real if !(1..=3).contains(&shape.rank()) => Some("expected [features], [T, D] or [C, H, W]"),
        _ if shape.checked_len().is_none_or(|n| n == 0 || n > MAX_ELEMENTS) => {
            Some("every size must be at least 1, and a sample at most 2^40 values")
        }
        _ => None,
    };
    if let Some(expected) = expected {
        out.fail(path, format!("found {shape}"), expected);
        return false;
    }
    if let Content::Tokens { vocab } = input.content
        && !(1..=MAX_VOCAB).contains(&vocab)
    {
        let help = "expected the number of different tokens: at least 1 and at most 2^31 - 1";
        out.fail(format!("{place}.vocab"), format!("found {vocab}"), help);
        return false;
    }
    if shape.len().checked_mul(batch).is_none_or(|n| n > MAX_ELEMENTS) {
        let message = format!("{batch} samples of shape {shape}");
        out.fail(place, message, "a batch may hold at most 2^40 values");
        return false;
    }
    true
}

pub(super) fn check_loss(loss: LossSpec, out: &mut Mistakes) {
    for (name, found, help) in loss.findings() {
        out.fail(name, found, help);
    }
}

pub(super) fn check_output(preset: &Preset, output: &Shape, out: &mut Mistakes) {
    if let Some(help) = preset.loss.refusal(output) {
        let layer = preset.layers.len().checked_sub(1).map(|i| LayerPath::from([i]));
        out.add(Diagnostic {
            layer,
            path: "loss".into(),
            message: format!("{} on an output of shape {output}", preset.loss.name()),
            help: help.into(),
        });
    }
}

pub(super) fn check_optimizer(optimizer: &OptimizerSpec, out: &mut Mistakes) {
    for (name, found, help) in optimizer.findings() {
        out.fail(name, found, help);
    }
}

/// Checks the settings of the update apart from the optimizer's rule; a warm-up must end before the run does.
pub(super) fn check_update(preset: &Preset, out: &mut Mistakes) {
    for (name, found, help) in preset.update.findings() {
        out.fail(name, found, help);
    }
    if let Some(mistake) = preset.train.and_then(|train| preset.update.schedule.beyond(train.steps as u64)) {
        out.add(mistake);
    }
}

/// Checks that the layers take the existing inputs: a single one is the input of the first layer, several are taken by
/// name.
pub(super) fn check_names(preset: &Preset, mistakes: &mut Mistakes) {
    let inputs = &preset.input.inputs;
    let Some(first) = preset.layers.first().filter(|_| inputs.len() > 1 && mistakes.is_read("inputs")) else { return };
    let path = LayerPath::from([0]);
    let named = first.named_inputs();
    if mistakes.is_read(&format!("{path}.type")) && first.kind().type_name != PARALLEL {
        let names = inputs.iter().map(|input| input.name.as_str()).collect::<Vec<_>>().join(", ");
        let message = format!("{} takes one input, and the network has {names}", first.kind().type_name);
        let help = "begin with a `parallel` whose branches name the inputs";
        FieldChecks::new(&path, mistakes).fail("", message, help);
        return;
    }
    for input in inputs.iter().filter(|input| !named.contains(&input.name.as_str())) {
        let help = format!("add a branch with \"input\": \"{}\" to {path}, or remove the input", input.name);
        mistakes.fail(preset.input.place(input), "no branch reads this input", help);
    }
}

/// Reports a network without layers and a training without steps.
pub(super) fn check_amounts(preset: &Preset, mistakes: &mut Mistakes) {
    if preset.layers.is_empty() {
        mistakes.fail("layers", "the network has no layers", "add at least one");
    }
    if preset.train.is_some_and(|t| t.steps == 0) {
        mistakes.fail("train.steps", "found 0", "expected at least 1");
    }
    let accumulate = preset.train.map_or(1, |t| t.accumulate);
    if !(1..=MAX_ACCUMULATE).contains(&accumulate) {
        let help = format!("expected 1 to {MAX_ACCUMULATE} batches");
        mistakes.fail("train.accumulate", format!("found {accumulate}"), help);
    }
}
