//! The fields that do not belong to layers: input, loss, optimizer, data and run.

use crate::model::{DataSource, DataSpec, InputSpec, LastBatch, LossSpec, OptimizerSpec, Precision, Preset, SplitKind};
use crate::studio::document::fields::inputs::{put_inputs, set_unnamed};
use crate::studio::document::fields::value::{Field, FieldValue, List, Owner};

/// The name that is offered for no data source.
const NO_DATA: &str = "none";

/// The names that are offered: no data, then every source.
pub(super) fn source_names() -> Vec<&'static str> {
    std::iter::once(NO_DATA).chain(DataSource::NAMES).collect()
}

/// The fields that do not belong to layers, by section.
#[must_use]
pub fn preset_fields(preset: &Preset) -> Vec<(&'static str, Vec<Field>)> {
    vec![
        ("Input", input_fields(preset)),
        ("Loss", loss_fields(preset.loss)),
        ("Optimizer", optimizer_fields(preset)),
        ("Data", data_fields(preset)),
        ("Run", run_fields(preset)),
    ]
}

fn list() -> List {
    List { owner: Owner::Preset, fields: Vec::new() }
}

fn input_fields(preset: &Preset) -> Vec<Field> {
    let mut l = list();
    put_inputs(&mut l, &preset.input);
    l.put("input.batch", "batch", FieldValue::Count(preset.input.batch), "Samples per batch.");
    let index = Precision::ALL.iter().position(|p| *p == preset.precision).unwrap_or(0);
    l.choose(
        "precision",
        "precision",
        Precision::ALL.map(Precision::name).into(),
        index,
        "Precision of products and activations; the CPU computes f32.",
    );
    l.fields
}

fn loss_fields(loss: LossSpec) -> Vec<Field> {
    let mut l = list();
    let index = LossSpec::NAMES.iter().position(|name| *name == loss.name()).unwrap_or(0);
    let help = "What training minimises; the mean over the batch.";
    l.choose("loss.type", "loss", LossSpec::NAMES.into(), index, help);
    l.fields.extend(loss.fields().into_iter().map(|view| Field::of(&Owner::Preset, view)));
    l.fields
}

fn optimizer_fields(preset: &Preset) -> Vec<Field> {
    let (mut l, optimizer) = (list(), &preset.optimizer);
    let index = OptimizerSpec::NAMES.iter().position(|o| *o == optimizer.name()).unwrap_or(0);
    l.choose("optimizer.type", "optimizer", OptimizerSpec::NAMES.into(), index, "How gradients change the parameters.");
    let fields = optimizer.fields().into_iter().chain(preset.update.fields());
    l.fields.extend(fields.map(|view| Field::of(&Owner::Preset, view)));
    l.fields
}

fn data_fields(preset: &Preset) -> Vec<Field> {
    let (mut l, data) = (list(), preset.data.as_ref());
    put_kind(&mut l, data.map(|d| &d.source), "Where samples come from.");
    let Some(data) = data else { return l.fields };
    put_source(&mut l, &data.source);
    l.put(
        "data.held_out",
        "held out",
        FieldValue::Number(data.held_out),
        "Kept for evaluation: a fraction below 1, or a number of samples.",
    );
    l.choose("data.split", "split", vec!["shuffled", "last"], data.split as usize, "Which samples are held out.");
    let index = LastBatch::ALL.iter().position(|kind| *kind == data.last_batch).unwrap_or(0);
    let help = "What to do with the samples at the end of an epoch that do not fill a batch: drop leaves them out; \
                short makes a smaller step, with its own recording.";
    l.choose("data.last_batch", "last batch", LastBatch::ALL.map(LastBatch::name).into(), index, help);
    if !data.buckets.is_empty() || has_lengths(preset, &data.source) {
        let help = "Lengths that the sequences of a step may have, in increasing order, such as 16, 32, 64; each has \
                    its own recording. If empty, all have the length of the input.";
        l.put("data.buckets", "buckets", FieldValue::Lengths(data.buckets.clone()), help);
    }
    l.fields
}

/// Whether `data.buckets` applies to a source: whether it can provide texts of different lengths.
fn has_lengths(preset: &Preset, source: &DataSource) -> bool {
    let gives_texts = matches!(source, DataSource::Text { .. } | DataSource::SourceCode | DataSource::Csv { .. });
    gives_texts && preset.input.inputs.iter().any(|input| input.content.is_tokens())
}

/// The choice of a source.
fn put_kind(l: &mut List, source: Option<&DataSource>, help: &'static str) {
    let names = source_names();
    let index = source.and_then(|source| names.iter().position(|name| *name == source.name())).unwrap_or(0);
    l.choose("data.type", "data", names, index, help);
}

/// The fields of a source, and of the source of each input if several are joined.
fn put_source(l: &mut List, source: &DataSource) {
    let owner = l.owner.clone();
    l.fields.extend(source.fields().into_iter().map(|view| Field::of(&owner, view)));
    let DataSource::Joined { inputs, .. } = source else { return };
    for (name, source) in inputs {
        let mut own = List { owner: Owner::Source(name.clone()), fields: Vec::new() };
        put_kind(&mut own, Some(source), "Where the samples of this input come from.");
        put_source(&mut own, source);
        l.fields.extend(own.fields);
    }
}

fn run_fields(preset: &Preset) -> Vec<Field> {
    let mut l = list();
    let train = preset.train.unwrap_or_default();
    l.put("train.steps", "steps", FieldValue::Count(train.steps), "Length of the run.");
    l.put("train.seed", "seed", FieldValue::Seed(train.seed), "Initial weights, shuffles and dropout follow from it.");
    let help = "The number of batches whose mean gradient makes one step; with 1, every batch is a step.";
    l.put("train.accumulate", "accumulate", FieldValue::Count(train.accumulate), help);
    l.put("name", "name", FieldValue::Text(preset.name.clone()), "The preset's name.");
    l.put("about", "about", FieldValue::Text(preset.about.clone()), "A description that is shown before training.");
    l.fields
}

/// Sets a field that does not belong to a layer; returns false if there is none with this name or the value is of
/// another type.
pub fn set_preset_field(preset: &mut Preset, name: &str, value: &FieldValue) -> bool {
    use FieldValue::{Choice, Count, Seed, Text};
    match (name, value) {
        ("name", Text(t)) => preset.name.clone_from(t),
        ("about", Text(t)) => preset.about.clone_from(t),
        ("input.batch", Count(n)) => preset.input.batch = *n,
        ("precision", Choice(i)) => preset.precision = Precision::ALL.get(*i).copied().unwrap_or_default(),
        ("loss.type", Choice(i)) => {
            let chosen = LossSpec::NAMES.get(*i).and_then(|name| LossSpec::example(name));
            let Some(chosen) = chosen else { return false };
            preset.loss = chosen;
        }
        ("train.steps", Count(n)) => preset.train.get_or_insert_default().steps = *n,
        ("train.accumulate", Count(n)) => preset.train.get_or_insert_default().accumulate = *n,
        ("train.seed", Seed(n)) => preset.train.get_or_insert_default().seed = *n,
        _ => {
            if name.starts_with("loss.") {
                return preset.loss.set(name, value);
            }
            if name.starts_with("optimizer.") {
                return set_optimizer_field(&mut preset.optimizer, name, value) || preset.update.set(name, value);
            }
            if let Some(field) = name.strip_prefix("input.") {
                return set_unnamed(&mut preset.input, field, value);
            }
            if let ("data.type", Choice(i)) = (name, value)
                && let Some(DataSource::Joined { .. }) = example_source(*i)
            {
                preset.data = Some(join(preset.data.take(), &preset.input));
                return true;
            }
            return set_data_field(&mut preset.data, name, value);
        }
    }
    true
}

/// A new optimizer keeps the learning rate and weight decay.
fn set_optimizer_field(optimizer: &mut OptimizerSpec, name: &str, value: &FieldValue) -> bool {
    let ("optimizer.type", FieldValue::Choice(index)) = (name, value) else { return optimizer.set(name, value) };
    let chosen = OptimizerSpec::NAMES.get(*index).and_then(|name| OptimizerSpec::example(name));
    let Some(chosen) = chosen else { return false };
    *optimizer = chosen.at_rates(optimizer.lr(), optimizer.weight_decay());
    true
}

/// A source for each input: the previous one for the first, and examples for the others.
fn join(old: Option<DataSpec>, inputs: &InputSpec) -> DataSpec {
    let mut spec = old.unwrap_or_else(|| DataSpec::of(DataSource::Digits));
    if matches!(spec.source, DataSource::Joined { .. }) {
        return spec;
    }
    let mut first = Some(spec.source);
    let example = || DataSource::example("csv").unwrap_or(DataSource::Digits);
    let of_each = |name: &String| (name.clone(), first.take().unwrap_or_else(example));
    let names: Vec<String> = inputs.inputs.iter().map(|input| input.name.clone()).collect();
    let target = names.first().cloned().unwrap_or_default();
    spec.source = DataSource::Joined { inputs: names.iter().map(of_each).collect(), target };
    spec
}

/// Sets a field of the source of one of several inputs; returns false if there is none with this name, or the source
/// cannot be joined.
pub fn set_source_field(preset: &mut Preset, input: &str, name: &str, value: &FieldValue) -> bool {
    let Some(DataSpec { source: DataSource::Joined { inputs, .. }, .. }) = &mut preset.data else { return false };
    let own = inputs.iter_mut().find(|(own, _)| own == input);
    let Some((_, source)) = own else { return false };
    let mut alone = Some(DataSpec::of(source.clone()));
    let is_set = set_data_field(&mut alone, name, value);
    match alone.map(|spec| spec.source) {
        Some(changed) if is_set && !matches!(changed, DataSource::Joined { .. }) => *source = changed,
        _ => return false,
    }
    true
}

/// Sets a field of the data, given by its whole path; returns false if there is none with this name, or no data.
fn set_data_field(data: &mut Option<DataSpec>, name: &str, value: &FieldValue) -> bool {
    use FieldValue::{Choice, Lengths, Number};
    if let ("data.type", Choice(index)) = (name, value) {
        *data = example_source(*index).map(|source| match data.take() {
            Some(old) if source.is_ordered() => DataSpec { source, split: SplitKind::Last, buckets: Vec::new(), ..old },
            Some(old) => DataSpec { source, buckets: Vec::new(), ..old },
            None => DataSpec::of(source),
        });
        return true;
    }
    let Some(spec) = data else { return false };
    match (name, value) {
        ("data.held_out", Number(n)) => spec.held_out = n.max(0.0),
        ("data.split", Choice(i)) => spec.split = if *i == 0 { SplitKind::Shuffled } else { SplitKind::Last },
        ("data.last_batch", Choice(i)) => spec.last_batch = LastBatch::ALL.get(*i).copied().unwrap_or_default(),
        ("data.buckets", Lengths(lengths)) => spec.buckets.clone_from(lengths),
        _ => return spec.source.set(name, value),
    }
    true
}

/// The source that is offered at this index, with sensible fields; `None` for no data.
fn example_source(index: usize) -> Option<DataSource> {
    source_names().get(index).and_then(|name| DataSource::example(name))
}
