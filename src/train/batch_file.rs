//! Batches from a file, compared with the network's inputs.

use super::batch_shape::BatchShape;
use super::{TensorFile, TrainError};
use crate::data::Samples;
use crate::model::{Content, Model, NamedInput, Targets};
use crate::tensor::{DType, HostTensor, plural};
use std::path::Path;

/// Targets of given batches.
pub enum Labels {
    Classes(Vec<i32>),
    Values(Vec<f32>),
}

/// All batches of a file, in logical order.
pub(super) struct GivenBatches {
    /// The samples of each input, in the model's order.
    pub(super) x: Vec<Samples>,
    pub(super) y: Labels,
    pub(super) count: usize,
    /// What each batch uses of it, if batches differ in that.
    pub(super) shapes: Option<Vec<BatchShape>>,
}

/// A file of batches; mistakes are reported with its path.
struct BatchFile<'a> {
    file: &'a TensorFile,
    path: &'a Path,
    model: &'a Model,
}

/// The batches of `batch.x`, or `batch.x.NAME` for each input, and `batch.y` of a file; with `batch.rows` and
/// `batch.length`, if it has them.
///
/// # Errors
/// If they are missing, have the wrong shape or type, or contain labels, tokens, rows or lengths out of range.
pub(super) fn given_batches(file: &TensorFile, path: &Path, model: &Model) -> Result<GivenBatches, TrainError> {
    let file = BatchFile { file, path, model };
    let names: Vec<String> = model.inputs.iter().map(|i| format!("batch.{}", i.value_name(&model.inputs))).collect();
    let tensors = names.iter().map(|name| file.tensor(name)).collect::<Result<Vec<_>, _>>()?;
    let y = file.tensor("batch.y")?;
    let mut counts = Vec::new();
    let mut x = Vec::new();
    for ((input, name), tensor) in model.inputs.iter().zip(&names).zip(tensors) {
        counts.push((name.as_str(), file.batch_count(name, tensor, &input.shape.batched(model.batch).0)?));
        x.push(file.samples(name, input, tensor)?);
    }
    let (y, steps) = match model.loss.targets() {
        Targets::Values | Targets::Binary => {
            let steps = file.batch_count("batch.y", y, &model.output.batched(model.batch).0)?;
            file.same_count(&counts, steps)?;
            let values = file.floats("batch.y", y)?;
            file.check_targets(&values)?;
            (Labels::Values(values), steps)
        }
        Targets::Classes => {
            let steps = file.batch_count("batch.y", y, &model.labels().batched(model.batch).0)?;
            file.same_count(&counts, steps)?;
            (Labels::Classes(file.classes(y)?), steps)
        }
    };
    file.enough(steps)?;
    Ok(GivenBatches { x, y, count: steps, shapes: file.shapes(steps)? })
}

impl BatchFile<'_> {
    fn tensor(&self, name: &str) -> Result<&HostTensor, TrainError> {
        let found = self.file.get(name);
        let missing = |help: String| TrainError::file(self.path, format!("has no tensor {name}"), help);
        found.ok_or_else(|| match &self.model.inputs[..] {
            inputs @ [_, _, ..] => {
                let all: Vec<String> = inputs.iter().map(|i| format!("batch.{}", i.value_name(inputs))).collect();
                missing(format!("a file of batches for this network holds {} [S, B, ...] and batch.y", all.join(", ")))
            }
            _ => missing("a file of batches holds batch.x [S, B, ...] and batch.y".into()),
        })
    }

    /// The number of batches in a tensor `[S, tail..]`.
    fn batch_count(&self, name: &str, found: &HostTensor, tail: &[usize]) -> Result<usize, TrainError> {
        match &found.shape.0[..] {
            [count, rest @ ..] if *count > 0 && rest == tail => Ok(*count),
            _ => {
                let dims = tail.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
                let found = &found.shape;
                let message = format!("{name} has shape {found}, the network needs [S, {dims}] with S at least 1");
                Err(TrainError::file(self.path, message, "give batches made for this preset"))
            }
        }
    }

    /// Refuses fewer batches than make a step.
    fn enough(&self, count: usize) -> Result<(), TrainError> {
        let wanted = self.model.accumulate;
        if count >= wanted {
            return Ok(());
        }
        let message = format!("holds {count} {}, and {wanted} make a step", plural(count as u64, "batch"));
        Err(TrainError::file(self.path, message, "give more batches, or a smaller train.accumulate"))
    }

    /// Refuses inputs whose number of batches differs from that of the targets.
    fn same_count(&self, x: &[(&str, usize)], y: usize) -> Result<(), TrainError> {
        let Some((name, count)) = x.iter().find(|(_, count)| *count != y) else { return Ok(()) };
        Err(TrainError::file(
            self.path,
            format!("{name} holds {count} {} and batch.y {y}", plural(*count as u64, "batch")),
            "both need the same number",
        ))
    }

    /// What each batch uses: the first `batch.rows` samples, and of these the first `batch.length` positions. `None` if
    /// all batches use everything.
    fn shapes(&self, count: usize) -> Result<Option<Vec<BatchShape>>, TrainError> {
        let model = self.model;
        let rows = self.used("batch.rows", count, model.batch, "samples")?;
        if let Some(at) = rows.iter().flatten().position(|rows| *rows == 1)
            && let Some(layer) = model.without_statistics_of_one()
        {
            let message =
                format!("batch.rows holds 1 in batch {at}: {} has no variance of a single value", layer.label());
            return Err(TrainError::file(self.path, message, "give batches of 2 samples or more"));
        }
        let lengths = match (self.file.get("batch.length"), model.length()) {
            (Some(_), None) => {
                let message = "has batch.length, and the network has no sequences of one length".to_owned();
                return Err(TrainError::file(self.path, message, "leave that tensor out"));
            }
            (_, whole) => self.used("batch.length", count, whole.unwrap_or(1), "positions")?,
        };
        for (batch, length) in lengths.iter().flatten().enumerate() {
            let is_first = lengths.iter().flatten().take(batch).all(|before| before != length);
            if let Some(Err(error)) = is_first.then(|| model.with_length(*length)) {
                let message = format!("batch.length holds {length} in batch {batch}: {error}");
                return Err(TrainError::file(self.path, message, "give batches made for this preset"));
            }
        }
        if rows.is_none() && lengths.is_none() {
            return Ok(None);
        }
        let rows_of = |batch: usize| rows.as_ref().map_or(model.batch, |rows| rows[batch]);
        let length_of = |batch: usize| lengths.as_ref().map(|lengths| lengths[batch]);
        Ok(Some((0..count).map(|batch| BatchShape { rows: rows_of(batch), length: length_of(batch) }).collect()))
    }

    /// How much of each batch is used, from a tensor `[S]`; `None` if there is no such tensor, or always everything is
    /// used.
    fn used(&self, name: &str, count: usize, most: usize, what: &str) -> Result<Option<Vec<usize>>, TrainError> {
        let Some(tensor) = self.file.get(name) else { return Ok(None) };
        let refused = |message: String, help: String| Err(TrainError::file(self.path, message, help));
        let (found, dtype) = (&tensor.shape, tensor.dtype);
        if found.0[..] != [count] {
            return refused(
                format!("{name} has shape {found}"),
                format!("there are {count} batches, so give [{count}]"),
            );
        }
        let Some(values) = Self::whole(tensor) else {
            return refused(format!("{name} holds {dtype}"), "expected i32".into());
        };
        if let Some(at) = values.iter().position(|v| usize::try_from(*v).map_or(true, |v| v < 1 || v > most)) {
            let message = format!("{name} holds {} in batch {at}", values[at]);
            return refused(message, format!("expected 1 to {most}, the {what} of a batch"));
        }
        let values: Vec<usize> = values.into_iter().map(|v| v as usize).collect();
        Ok(values.iter().any(|v| *v != most).then_some(values))
    }

    fn samples(&self, name: &str, input: &NamedInput, tensor: &HostTensor) -> Result<Samples, TrainError> {
        Ok(match input.content {
            Content::Real => Samples::Real(self.floats(name, tensor)?),
            Content::Tokens { vocab } => Samples::Tokens(self.tokens(name, tensor, vocab)?),
        })
    }

    fn floats(&self, name: &str, tensor: &HostTensor) -> Result<Vec<f32>, TrainError> {
        let values = match tensor.dtype {
            DType::F32 => tensor.to_vec::<f32>().ok(),
            DType::F64 => tensor.to_f64().map(|v| v.into_iter().map(|x| x as f32).collect()),
            _ => None,
        };
        let refused = |message: String, help: &str| TrainError::file(self.path, message, help);
        let values = values.ok_or_else(|| refused(format!("{name} holds {}", tensor.dtype), "expected f32"))?;
        match values.iter().position(|v| !v.is_finite()) {
            Some(at) => {
                Err(refused(format!("{name} holds {} at element {at}", values[at]), "every value must be finite"))
            }
            None => Ok(values),
        }
    }

    /// Refuses targets that the loss does not accept.
    fn check_targets(&self, values: &[f32]) -> Result<(), TrainError> {
        let model = self.model;
        let is_wrong = |v: &f32| model.loss.targets() == Targets::Binary && *v != 0.0 && *v != 1.0;
        let Some(at) = values.iter().position(is_wrong) else { return Ok(()) };
        let (batch, sample) = (at / (model.batch * model.output.len()), at / model.output.len() % model.batch);
        let message = format!("batch.y holds {} in batch {batch}, sample {sample}", values[at]);
        let help = format!("the loss {} takes targets of 0 or 1; for other values use mse", model.loss.name());
        Err(TrainError::file(self.path, message, help))
    }

    /// Whole numbers; `None` if the tensor is of another type.
    fn whole(tensor: &HostTensor) -> Option<Vec<i32>> {
        match tensor.dtype {
            DType::I32 => tensor.to_vec::<i32>().ok(),
            // A value that does not fit the type is also out of range.
            DType::I64 | DType::U8 | DType::U16 => tensor.to_f64().map(|v| v.into_iter().map(|x| x as i32).collect()),
            _ => None,
        }
    }

    fn tokens(&self, name: &str, tensor: &HostTensor, vocab: usize) -> Result<Vec<i32>, TrainError> {
        let refused = |message: String, help: String| TrainError::file(self.path, message, help);
        let tokens = Self::whole(tensor)
            .ok_or_else(|| refused(format!("{name} holds {}", tensor.dtype), "expected i32 tokens".into()))?;
        let Some(at) = tokens.iter().position(|t| usize::try_from(*t).map_or(true, |t| t >= vocab)) else {
            return Ok(tokens);
        };
        // `[S, B, T]`
        let length = tensor.shape.0.last().copied().unwrap_or(1).max(1);
        let (row, position) = (at / length, at % length);
        let (step, sample) = (row / self.model.batch + 1, row % self.model.batch);
        let message = format!("{name} holds token {} at step {step}, sample {sample}, position {position}", tokens[at]);
        Err(refused(message, format!("tokens must be in 0..{vocab}, or the input needs a larger vocab")))
    }

    fn classes(&self, tensor: &HostTensor) -> Result<Vec<i32>, TrainError> {
        let values = Self::whole(tensor).ok_or_else(|| {
            TrainError::file(self.path, format!("batch.y holds {}", tensor.dtype), "expected i32 classes")
        })?;
        let classes = i32::try_from(self.model.classes()).unwrap_or(i32::MAX);
        if let Some(at) = values.iter().position(|l| !(0..classes).contains(l)) {
            let labels = self.model.labels();
            let (row, position) = (at / labels.len().max(1), at % labels.len().max(1));
            let (batch, sample) = (row / self.model.batch, row % self.model.batch);
            let place = if labels.rank() == 0 { String::new() } else { format!(", position {position}") };
            let message = format!("batch.y holds class {} in batch {batch}, sample {sample}{place}", values[at]);
            return Err(TrainError::file(self.path, message, format!("classes must be in 0..{classes}")));
        }
        Ok(values)
    }
}
