//! Copies batches to the memory that a step reads: whole ones, or the first samples and the first elements of each.

use super::TrainError;
use crate::data::{RowPart, SamplesRef, Target, TokenRows};
use crate::exec::Step;
use crate::lower::LValueId;
use crate::tensor::Element;

/// One of the batches of a file.
#[derive(Clone, Copy)]
pub(super) struct FileBatch {
    pub(super) number: usize,
    /// Batches of the file.
    pub(super) count: usize,
    /// The number of samples that the step uses, and of samples in a batch.
    pub(super) rows: usize,
    pub(super) whole: usize,
}

impl FileBatch {
    /// Writes this batch of all values `[count, whole, ...]`: the first samples, with the first elements of each.
    pub(super) fn write<T: Element>(self, step: &mut Step, to: LValueId, all: &[T]) -> Result<(), TrainError> {
        let batch = &all[self.number * (all.len() / self.count)..][..all.len() / self.count];
        let sample = batch.len() / self.whole;
        if step.compiled().plan.program.value(to).shape.len() == batch.len() {
            return Ok(step.write(to, batch)?);
        }
        step.fill(to, |out: &mut [T]| {
            let width = out.len() / self.rows;
            for (out, row) in out.chunks_exact_mut(width).zip(batch.chunks_exact(sample)) {
                out.copy_from_slice(&row[..width]);
            }
        })?;
        Ok(())
    }
}

/// Copies samples of each input, by index, to the memory that a step reads.
pub(super) fn gather_samples<'a>(
    step: &mut Step,
    mut inputs: impl Iterator<Item = (LValueId, SamplesRef<'a>)>,
    indices: &[u32],
) -> Result<(), TrainError> {
    inputs.try_for_each(|(x, stored)| gather(step, x, stored, indices, None))
}

/// Copies samples of one input, by index. `stride` is the number of elements of a sample, because the step may use only
/// the first of them.
pub(super) fn gather(
    step: &mut Step,
    x: LValueId,
    stored: SamplesRef<'_>,
    indices: &[u32],
    stride: Option<usize>,
) -> Result<(), TrainError> {
    match stored {
        SamplesRef::Real(values) => gather_rows(step, x, values, indices, stride),
        SamplesRef::Tokens(tokens) => gather_rows(step, x, tokens, indices, stride),
        SamplesRef::Windows(rows) => gather_windows(step, x, (rows, RowPart::Sample), indices),
    }
}

/// Copies the first elements of rows, by index, to the memory that a step reads.
fn gather_rows<T: Element>(
    step: &mut Step,
    to: LValueId,
    all: &[T],
    indices: &[u32],
    stride: Option<usize>,
) -> Result<(), TrainError> {
    step.fill(to, |out: &mut [T]| {
        let width = out.len() / indices.len().max(1);
        let stride = stride.unwrap_or(width);
        for (row, &i) in out.chunks_exact_mut(width).zip(indices) {
            row.copy_from_slice(&all[i as usize * stride..][..width]);
        }
    })?;
    Ok(())
}

/// Copies a part of rows of tokens, by index, to the memory that a step reads.
fn gather_windows(
    step: &mut Step,
    to: LValueId,
    (rows, part): (&TokenRows, RowPart),
    indices: &[u32],
) -> Result<(), TrainError> {
    let mut outcome = Ok(());
    step.fill(to, |out: &mut [i32]| outcome = rows.fill_first(indices, part, out))?;
    Ok(outcome?)
}

/// Copies targets of `count` samples, by index, to the memory that a step reads.
pub(super) fn gather_targets(
    step: &mut Step,
    y: Option<LValueId>,
    target: &Target,
    indices: &[u32],
    count: usize,
) -> Result<(), TrainError> {
    let stride = |len: usize| Some(len / count.max(1));
    match (target, y) {
        (Target::Classes { labels, .. }, Some(y)) => gather_rows(step, y, labels, indices, stride(labels.len())),
        (Target::Values { values, .. }, Some(y)) => gather_rows(step, y, values, indices, stride(values.len())),
        (Target::Windows(rows), Some(y)) => gather_windows(step, y, (rows, RowPart::Target), indices),
        (_, None) => Ok(()),
    }
}
