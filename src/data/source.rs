//! The data set of one source: read, drawn or bundled, and prepared by its own statistics or as for given weights.

use super::dataset::Loaded;
use super::{
    CsvOptions, DataError, FeatureColumns, Preprocessing, Request, Samples, bundled, cifar, file, idx, images, npy,
    npz, prepare, series, split, synthetic, table, text,
};
use crate::model::{DataSource, DataSpec, Targets};
use crate::tensor::Shape;
use std::path::Path;

/// What is used of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Samples and targets.
    Whole,
    /// Samples only: the targets have no meaning.
    Samples,
}

/// The data set of a source, prepared as for the weights that `known` belongs to.
pub(super) fn known_as(
    source: &DataSource,
    request: &Request,
    base: &Path,
    known: &Preprocessing,
    part: Part,
) -> Result<Loaded, DataError> {
    let mut loaded = known.prepare(read(source, request, base, Some(known), part)?)?;
    if let (DataSource::Series { .. }, Some(scaling)) = (source, &known.scaling) {
        series::scale_targets(&mut loaded.dataset, scaling);
    }
    Ok(loaded)
}

/// The data set of a source, its features standardised over the training part of the split `spec`, if the source asks
/// for that.
pub(super) fn learnt(
    source: &DataSource,
    spec: &DataSpec,
    request: &Request,
    base: &Path,
    part: Part,
) -> Result<Loaded, DataError> {
    let mut loaded = read(source, request, base, None, part)?;
    if source.is_standardized() {
        let train = split(loaded.dataset.len(), spec, request.seed)?.train;
        prepare::standardize(&mut loaded.dataset, &train);
    }
    if let DataSource::Series { .. } = source {
        let train = split(loaded.dataset.len(), spec, request.seed)?.train;
        series::standardize(&mut loaded.dataset, &train);
    }
    Ok(loaded)
}

/// The data set of a source as it is, with the columns that `known` names, if it names any.
fn read(
    source: &DataSource,
    request: &Request,
    base: &Path,
    known: Option<&Preprocessing>,
    part: Part,
) -> Result<Loaded, DataError> {
    let closed = file::closed(&source.paths(), base);
    if closed.len() > 1 {
        return Err(DataError::Several(closed));
    }
    let none = Shape::default();
    let input = if source.gives_tokens() { &none } else { request.only(source)? };
    // Tokens are the bytes of a column, up to this number.
    let text = request.inputs.first().filter(|input| input.content.is_tokens()).map(|_| input.len());
    // Names of classes, and numbers that represent them, become 0 and 1 if a loss requires that.
    let classes = request.loss.wants_classes();
    let names_classes = request.loss.targets() != Targets::Values;
    let loaded = match source {
        DataSource::Digits => bundled::digits()?,
        DataSource::DigitSums => bundled::digit_sums()?,
        DataSource::Iris => bundled::iris()?,
        DataSource::Csv { path, header, target, columns, delimiter, .. } => {
            let (target, classes) = (target.clone(), names_classes);
            let features = FeatureColumns { ranges: columns.clone(), text, without_target: part == Part::Samples };
            let options = CsvOptions { header: *header, target, delimiter: *delimiter, classes, features };
            table::load(&base.join(path), &options, known)?
        }
        DataSource::Npz { path, x, y } => {
            // Targets that are not needed are not searched for.
            let y = if part == Part::Samples { x } else { y };
            npz::load(&base.join(path), x, y, classes)?
        }
        DataSource::Npy { x, y } => npy::load(&base.join(x), &base.join(y), classes)?,
        DataSource::Idx { images, labels } => idx::load(&base.join(images), &base.join(labels))?,
        DataSource::Cifar10 { paths } => cifar::load(&paths.iter().map(|path| base.join(path)).collect::<Vec<_>>())?,
        DataSource::Images { path } => images::load(&base.join(path), input)?,
        DataSource::Spirals { .. }
        | DataSource::Moons { .. }
        | DataSource::Circles { .. }
        | DataSource::Xor { .. }
        | DataSource::Regression { .. }
        | DataSource::Waves { .. } => synthetic::draw(source, input, &request.output, request.seed)?,
        DataSource::Series { path, columns, window, horizon } => {
            series::load(&base.join(path), columns, [*window, *horizon])?
        }
        DataSource::Text { .. } | DataSource::SourceCode | DataSource::Sums { .. } => {
            text::load(source, request, base, known)?
        }
        DataSource::Joined { .. } => {
            let help = "a joined source cannot contain another one: give each input its own source";
            return Err(DataError::field("type", source.name(), "a source of one input", help));
        }
    };
    match (text, source) {
        (Some(_), DataSource::Npz { .. } | DataSource::Npy { .. }) => tokens_of(loaded),
        _ => Ok(loaded),
    }
}

/// Samples that are whole numbers used as tokens.
fn tokens_of(mut loaded: Loaded) -> Result<Loaded, DataError> {
    let width = loaded.dataset.sample().len().max(1);
    let whole = |v: &f32| (v.fract() == 0.0 && (0.0..=f32::from(u16::MAX) * 256.0).contains(v)).then_some(*v as i32);
    let tokens: Option<Vec<i32>> = loaded.dataset.x().iter().map(whole).collect();
    let Some(tokens) = tokens else {
        let wrong = loaded.dataset.x().iter().position(|v| whole(v).is_none()).unwrap_or(0);
        let found = loaded.dataset.x()[wrong].to_string();
        let (place, help) = (loaded.place(wrong / width), "store the numbers of tokens, from 0 to input.vocab - 1");
        return Err(DataError::content(&loaded.file, place, found, "tokens, which are whole numbers from 0", help));
    };
    if let Some(input) = loaded.dataset.inputs.first_mut() {
        input.values = Samples::Tokens(tokens);
    }
    Ok(loaded)
}
