//! Exports: runs and networks in the formats of other programs.
//!
//! Each format is a function from plain data to the bytes of a file; [`Subject`] collects what they need of a run or a
//! preset, and [`Subject::write`] writes complete files, and replaces existing ones only on request.

mod error;
mod export_size;
mod format;
mod layers;
mod onnx;
mod onnx_graph;
mod parameters;
mod plot;
mod protobuf;
mod python;
mod pytorch;
mod semantics;
mod tensorboard;
#[cfg(test)]
mod tests;
mod text;

pub use error::{ExportError, Replace};
pub use format::Format;
pub use parameters::initial_weights;
pub use plot::{Across, LINE_COLORS, PlotOptions, plot_svg, svg_to_png};
pub use semantics::Meaning;
pub use text::{HeldOutFigures, write_line};

use super::file_contents::Holding;
use super::runs::{Curves, Quantity, RunEnd, RunEntry, RunStore};
use super::tensor_reader::OpenTensors;
use super::tensor_writer::{Stream, write_streams};
use super::weights::open_tensors;
use super::{Origin, ResultKind, TensorFile, TrainError, replaceable};
use crate::data::{self, Dataset, Preprocessing, Request, RowPart, Samples, Split, Target};
use crate::model::{Model, Preset, check};
use crate::tensor::{HostTensor, write_atomic, write_atomic_with};
use parameters::weight;
use std::io;
use std::path::{Path, PathBuf};

/// What is exported: a run, or a preset with weights.
#[derive(Clone, Debug)]
pub struct Subject {
    pub name: String,
    preset: Option<Preset>,
    base: PathBuf,
    seed: u64,
    steps: u64,
    started_ms: u64,
    curves: Option<Curves>,
    /// `None` if a run kept none.
    weights: Option<Vec<(String, HostTensor)>>,
    /// The origin of these weights; `None` for initial ones.
    origin: Option<Origin>,
}

impl Subject {
    /// A kept run, with what the format needs of it.
    ///
    /// # Errors
    /// If its files cannot be read.
    pub fn of_run(store: &RunStore, entry: &RunEntry, format: Format) -> Result<Self, ExportError> {
        let record = &entry.record;
        let mut curves = if format.shows_curves() { Some(store.curves(&entry.id)?) } else { None };
        curves.iter_mut().for_each(|curves| curves.maybe_trained = record.maybe_trained);
        if record.steps > 0 && curves.as_ref().is_some_and(Curves::is_empty) {
            let reason = record.error.clone().filter(|_| record.state == RunEnd::Damaged);
            return Err(ExportError::Lost(
                reason.unwrap_or_else(|| format!("the curves of {} are lost", entry.name())),
            ));
        }
        let wants_weights = !format.shows_curves() && entry.has_weights;
        let path = store.weights(&entry.id);
        let preset = record.read_preset();
        let (mut weights, mut origin) = (None, None);
        if wants_weights {
            export_size::check_room(preset.as_ref(), &record.base, Some(&path), format)?;
            let file = open_tensors(&path)?;
            origin = Origin::of_metadata(&file.metadata, &path)?.or_else(|| Some(Origin::of_record(record)));
            weights = Some(parameters(&file)?);
        }
        Ok(Self {
            name: entry.name().to_owned(),
            preset,
            base: record.base.clone(),
            seed: record.seed,
            steps: record.total,
            started_ms: record.span.started_ms,
            curves,
            weights,
            origin,
        })
    }

    /// A preset with the weights of a file, or its initial ones, with what the format needs of them.
    ///
    /// # Errors
    /// If the file cannot be read, or the export does not fit.
    pub fn of_preset(
        preset: &Preset,
        base: &Path,
        seed: Option<u64>,
        file: Option<&Path>,
        format: Format,
    ) -> Result<Self, ExportError> {
        export_size::check_room(Some(preset), base, file, format)?;
        let own_seed = |origin: Option<&Origin>| {
            seed.or(origin.and_then(|o| o.seed)).or(preset.train.map(|t| t.seed)).unwrap_or(0)
        };
        let (weights, origin) = match (file, check(preset).model) {
            (Some(path), _) => {
                let file = open_tensors(path)?;
                let origin = Origin::of_metadata(&file.metadata, path)?;
                (Some(parameters(&file)?), Some(origin.unwrap_or_default()))
            }
            (None, Some(model)) => (Some(initial_weights(&model, own_seed(None))?), None),
            (None, None) => (None, None),
        };
        Ok(Self {
            name: preset.name.clone(),
            preset: Some(preset.clone()),
            base: base.to_owned(),
            seed: own_seed(origin.as_ref()),
            steps: preset.train.map_or(1000, |t| t.steps as u64),
            started_ms: 0,
            curves: None,
            weights,
            origin,
        })
    }

    /// The files that an export to `path` writes.
    #[must_use]
    pub fn files(&self, format: Format, path: &Path) -> Vec<PathBuf> {
        match format {
            Format::PyTorch => {
                let mut files = vec![path.to_owned(), beside(path, "weights")];
                if self.preset.as_ref().is_some_and(|p| p.data.is_some()) {
                    files.push(beside(path, "data"));
                }
                files
            }
            // TensorBoard treats the text after the last dot as an extension.
            Format::TensorBoard => {
                vec![path.join(format!("events.out.tfevents.{}.stepgraph", self.started_ms / 1000))]
            }
            _ => vec![path.to_owned()],
        }
    }

    /// Writes the export and returns its files, the first of which is the requested one.
    ///
    /// # Errors
    /// If the format cannot represent it, it cannot be written, or `replace` does not allow an existing file to be
    /// replaced.
    pub fn write(
        &self,
        format: Format,
        path: &Path,
        options: PlotOptions,
        replace: Replace,
    ) -> Result<Vec<PathBuf>, ExportError> {
        let files = self.files(format, path);
        // If there are several files, the first must not be written if a later name is too long.
        let of_name = |f: &PathBuf| f.symlink_metadata().err().filter(|e| e.kind() == io::ErrorKind::InvalidFilename);
        if let Some((path, cause)) = files.iter().find_map(|f| Some((f.clone(), of_name(f)?))) {
            return Err(ExportError::Write { path, cause });
        }
        for (index, file) in files.iter().enumerate() {
            free(file, format.kind(index), replace)?;
        }
        let main = &files[0];
        match format {
            Format::Csv => self.stream(main, |out, curves| text::write_csv(out, curves))?,
            Format::Jsonl => self.stream(main, |out, curves| text::write_jsonl(out, curves))?,
            Format::TensorBoard => {
                self.curves()?;
                std::fs::create_dir_all(path).map_err(|cause| ExportError::Write { path: path.to_owned(), cause })?;
                self.stream(main, |out, curves| tensorboard::write_events(out, curves, self.started_ms))?;
            }
            Format::Svg | Format::Png => {
                let curves = self.curves()?;
                let is_there = |q: &Quantity| curves.values(*q).iter().any(|v| v.is_finite());
                if !is_there(&options.quantity) {
                    let there = Quantity::ALL.into_iter().filter(is_there).map(Quantity::name).collect::<Vec<_>>();
                    let (name, what) = (self.name.clone(), options.quantity.name());
                    return Err(ExportError::NotMeasured { name, what, there: there.join(", ") });
                }
                let svg = plot_svg(&[(&self.name, curves)], options);
                write_picture(format, main, &svg)?;
            }
            Format::Safetensors => {
                let metadata =
                    self.origin.as_ref().map_or_else(|| Holding::Weights.metadata(), Origin::weights_metadata);
                let streams: Vec<Stream> = self.weights()?.iter().map(|(name, t)| Stream::held(name, t)).collect();
                write_streams(main, &streams, &metadata)?;
            }
            Format::Onnx => {
                // If layers choose, the network of evaluations is used.
                let model = self.model()?.in_evaluation();
                put(main, &onnx::onnx(&model, self.weights()?, &self.meaning(&model)?)?)?;
            }
            Format::PyTorch => self.write_script(&files)?,
        }
        Ok(files)
    }

    fn curves(&self) -> Result<&Curves, ExportError> {
        let curves = self.curves.as_ref().ok_or_else(|| ExportError::NoCurves(self.name.clone()))?;
        if curves.is_empty() { Err(ExportError::Empty(self.name.clone())) } else { Ok(curves) }
    }

    fn weights(&self) -> Result<&[(String, HostTensor)], ExportError> {
        self.weights.as_deref().ok_or_else(|| ExportError::NoWeights(self.name.clone()))
    }

    fn model(&self) -> Result<Model, ExportError> {
        let preset = self.preset.as_ref().ok_or_else(|| ExportError::Preset(self.name.clone()))?;
        let checked = check(preset);
        checked.model.ok_or_else(|| TrainError::Preset(checked.diagnostics).into())
    }

    /// The meaning of the network's samples and outputs, as far as its data define it. If the data cannot be read, only
    /// a network that needs their mean and deviation cannot be exported.
    fn meaning(&self, model: &Model) -> Result<Meaning, ExportError> {
        let known = self.known();
        let Some(preset) = self.preset.as_ref().filter(|p| p.data.is_some()) else {
            return Ok(known.map_or_else(Meaning::default, |known| Meaning::known(known, model)));
        };
        match (self.samples(preset, model), known) {
            (Ok((set, _)), _) => Ok(Meaning::of(&set)),
            (Err(_), Some(known)) => Ok(Meaning::known(known, model)),
            (Err(error), None) if preset.data.as_ref().is_some_and(|d| d.source.is_standardized()) => Err(error),
            (Err(_), None) => Ok(Meaning::default()),
        }
    }

    /// How the samples that the weights were trained with were prepared, if that is known.
    fn known(&self) -> Option<&Preprocessing> {
        self.origin.as_ref()?.preprocessing.as_ref()
    }

    /// A note about what the export assumes if the weights do not say how their samples were prepared.
    #[must_use]
    pub fn assumption(&self, format: Format) -> Option<String> {
        let is_standardized = |p: &Preset| p.data.as_ref().is_some_and(|d| d.source.is_standardized());
        let depends =
            matches!(format, Format::Onnx | Format::PyTorch) && self.preset.as_ref().is_some_and(is_standardized);
        (depends && self.origin.is_some() && self.known().is_none()).then(|| {
            "the weights do not say how their samples were prepared; mean, deviation and names are those of the \
             preset's data as it is now"
                .to_owned()
        })
    }

    /// The samples of the preset as its run used them, scaled and divided.
    fn samples(&self, preset: &Preset, model: &Model) -> Result<(Dataset, Split), ExportError> {
        let mut source = preset.data.clone().ok_or(TrainError::NoData)?;
        let request = Request::of(model, self.seed);
        let set = match self.known() {
            Some(known) => data::load_as(&source, &request, &self.base, known),
            None => data::load(&source, &request, &self.base),
        };
        let set = set.map_err(TrainError::from)?;
        if let Some(origin) = self.origin.as_ref().filter(|o| o.is_of(&set.digest()) != Some(false)) {
            origin.divide(&mut source);
        }
        let split = data::split(set.len(), &source, self.seed).map_err(TrainError::from)?;
        Ok((set, split))
    }

    fn stream(
        &self,
        path: &Path,
        fill: impl FnOnce(&mut dyn io::Write, &Curves) -> io::Result<()>,
    ) -> Result<(), ExportError> {
        let curves = self.curves()?;
        write_atomic_with(path, |out| fill(out, curves))
            .map_err(|cause| ExportError::Write { path: path.to_owned(), cause })
    }

    fn write_script(&self, files: &[PathBuf]) -> Result<(), ExportError> {
        let model = self.model()?;
        let weights = self.weights()?;
        let mut kept = Vec::with_capacity(model.params.len());
        for param in &model.params {
            kept.push(Stream::held(&param.name, weight(weights, &param.name, &param.shape)?));
        }
        let name = |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let maybe_trained = self.origin.as_ref().is_some_and(Origin::is_maybe_trained);
        let companions = pytorch::Companions { weights: name(&files[1]), data: files.get(2).map(name), maybe_trained };
        // The script is written last, so that every file that it needs exists when it appears.
        let mut meaning = self.known().map_or_else(Meaning::default, |known| Meaning::known(known, &model));
        if let (Some(path), Some(preset)) = (files.get(2), &self.preset) {
            let (set, split) = self.samples(preset, &model)?;
            let tensors = data_tensors(&set, &split)?;
            TensorFile { tensors, metadata: Holding::Data.metadata() }.write(path)?;
            meaning = Meaning::of(&set);
        }
        write_streams(&files[1], &kept, &Holding::Weights.metadata())?;
        put(&files[0], pytorch::script(&model, self.steps, self.seed, &companions, &meaning).as_bytes())
    }
}

/// Checks that no other file is lost when a file of this kind is written.
fn free(file: &Path, kind: ResultKind<'_>, replace: Replace) -> Result<(), ExportError> {
    if !file.exists() {
        return Ok(());
    }
    if replace == Replace::Nothing {
        return Err(ExportError::Exists(file.to_owned()));
    }
    if !file.is_file() {
        let cause = io::Error::new(io::ErrorKind::InvalidInput, "it exists and is not a file");
        return Err(ExportError::Write { path: file.to_owned(), cause });
    }
    if replace == Replace::Older { Ok(replaceable(file, kind)?) } else { Ok(()) }
}

/// Writes a picture that was drawn as SVG.
///
/// # Errors
/// If it cannot be drawn or written.
pub fn write_picture(format: Format, path: &Path, svg: &str) -> Result<(), ExportError> {
    if format == Format::Svg {
        return put(path, svg.as_bytes());
    }
    put(path, &svg_to_png(svg).ok_or(ExportError::Picture)?)
}

/// `a.py` with `weights` becomes `a.weights.safetensors`.
fn beside(path: &Path, what: &str) -> PathBuf {
    path.with_extension(format!("{what}.safetensors"))
}

fn put(path: &Path, bytes: &[u8]) -> Result<(), ExportError> {
    write_atomic(path, bytes).map_err(|cause| ExportError::Write { path: path.to_owned(), cause })
}

/// The tensors of a file, without the optimizer's state that a checkpoint also contains.
fn parameters(file: &OpenTensors) -> Result<Vec<(String, HostTensor)>, ExportError> {
    let wanted = file.entries.iter().filter(|entry| !entry.name.starts_with(export_size::STATE));
    wanted.map(|entry| Ok((entry.name.clone(), file.read(entry)?))).collect()
}

fn data_tensors(set: &Dataset, split: &Split) -> Result<Vec<(String, HostTensor)>, ExportError> {
    let n = set.len();
    let all: Vec<u32> = (0..n as u32).collect();
    let y = match &set.target {
        Target::Classes { labels, shape, .. } => HostTensor::from_slice(shape.batched(n), labels)?,
        Target::Values { values, shape } => HostTensor::from_slice(shape.batched(n), values)?,
        Target::Windows(rows) => {
            let tokens = rows.rows(&all, RowPart::Target).map_err(TrainError::from)?;
            HostTensor::from_slice(rows.target_shape().batched(n), &tokens)?
        }
    };
    let part = |indices: &[u32]| {
        let indices: Vec<i32> = indices.iter().map(|i| *i as i32).collect();
        HostTensor::from_slice([indices.len()], &indices)
    };
    let mut tensors = Vec::new();
    for (input, name) in set.inputs.iter().zip(set.value_names()) {
        let shape = input.sample.batched(n);
        let tensor = match &input.values {
            Samples::Real(values) => HostTensor::from_slice(shape, values)?,
            Samples::Tokens(tokens) => HostTensor::from_slice(shape, tokens)?,
            Samples::Windows(rows) => {
                let tokens = rows.rows(&all, RowPart::Sample).map_err(TrainError::from)?;
                HostTensor::from_slice(shape, &tokens)?
            }
        };
        tensors.push((name, tensor));
    }
    let parts = [("train".into(), part(&split.train)?), ("held_out".into(), part(&split.held_out)?)];
    tensors.push(("y".into(), y));
    tensors.extend(parts);
    Ok(tensors)
}
