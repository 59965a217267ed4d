//! The inside of a network for one sample: the prediction at each position, the attention of a head, and the states of
//! its recurrent layers.

use super::answer_sums::cross_entropy;
use super::data_feed::rows_of;
use super::{DataFeed, Session, TrainError};
use crate::exec::Step;
use crate::exec::cpu::kernels::reference::attention_map;
use crate::lower::Op;
use crate::model::{LayerId, LayerPath};
use crate::ops::{OpKind, RecurrenceGeometry};
use crate::tensor::number_text;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A query about the inside of a network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inside {
    /// The number of the sample in the data set.
    pub sample: u32,
    /// A layer of attention, or a recurrent one; `None` for the predictions at each position.
    pub layer: Option<LayerPath>,
    /// The head of attention.
    pub head: usize,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Insight {
    /// One for each position; empty if the network has no class for each position.
    Positions(Vec<PositionAnswer>),
    Attention(AttentionMap),
    States(HiddenStates),
    /// There is no such sample, layer or head.
    Nothing,
}

/// The prediction of a network at a position.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PositionAnswer {
    /// The correct class.
    pub truth: u32,
    /// Its loss: the natural logarithm of one over its probability.
    #[serde(with = "number_text")]
    pub loss: f64,
    /// The most likely classes with their probabilities, the likeliest first.
    pub likely: Vec<(u32, f32)>,
}

/// The attention of a head.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttentionMap {
    pub positions: usize,
    /// Whether a position attends to itself and earlier ones only.
    pub causal: bool,
    /// `[positions, positions]`: for each query the weight of each key; each row sums to 1.
    #[serde(with = "number_text")]
    pub weights: Vec<f32>,
}

/// The states of a recurrent layer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HiddenStates {
    pub positions: usize,
    /// Units of all directions: those of the direction that starts at the first position come first.
    pub units: usize,
    /// Directions: 1 or 2.
    pub directions: usize,
    /// `[positions, units]`: the state after each position.
    #[serde(with = "number_text")]
    pub values: Vec<f32>,
}

/// The number of classes that are reported for a position.
const LIKELY: usize = 5;

impl Session {
    /// Evaluates the inside with the current parameters. The run itself is not changed.
    pub(super) fn inside(&mut self, asked: &Inside) -> Result<Insight, TrainError> {
        let DataFeed::Data { set, .. } = &self.feed else { return Ok(Insight::Nothing) };
        if asked.sample as usize >= set.len() {
            return Ok(Insight::Nothing);
        }
        let rows = rows_of(set, &[asked.sample])?;
        let Some(path) = &asked.layer else {
            let labels = set.target.labels(&[asked.sample])?;
            let (has_positions, kinds) = (self.model.labels().rank() > 0, self.model.classes());
            if !self.model.loss.wants_classes() || !has_positions {
                return Ok(Insight::Positions(Vec::new()));
            }
            let mut found = Vec::new();
            self.answer_alone(rows, |outputs| {
                found = labels.iter().zip(outputs.chunks_exact(kinds)).map(|(l, row)| position(*l, row)).collect();
            })?;
            return Ok(Insight::Positions(found));
        };
        let Some(layer) = self.model.layers.iter().position(|l| l.path == *path) else { return Ok(Insight::Nothing) };
        let Some((evaluator, pool)) = self.alone()? else { return Ok(Insight::Nothing) };
        evaluator.place(rows)?;
        let step = evaluator.step_mut();
        let compiled = Arc::clone(step.compiled());
        let ops = &compiled.plan.program.ops;
        let is_own = |op: &&Op| op.layer == Some(LayerId(layer as u32)) && is_looked_into(&op.kind);
        // For a layer that is applied several times, its last application is used.
        let last_pass = ops.iter().filter(is_own).map(|op| op.pass).max();
        let own = ops.iter().enumerate().filter(|(_, op)| is_own(op) && Some(op.pass) == last_pass);
        let (mut done, mut states) = (0, Vec::new());
        for (at, op) in own {
            step.run_ops(done, at + 1, pool)?;
            step.synchronize()?;
            done = at + 1;
            match &op.kind {
                OpKind::Attention(attention) if asked.head < attention.geometry.heads => {
                    let g = &attention.geometry;
                    let Some(packed) = op.arg("qkv") else { return Ok(Insight::Nothing) };
                    let weights = attention_map(g, &step.stored::<f32>(packed)?, 0, asked.head);
                    let map = AttentionMap { positions: g.positions, causal: g.causal, weights };
                    return Ok(Insight::Attention(map));
                }
                OpKind::Recurrence(recurrence) => states.push(states_of(step, op, &recurrence.geometry)?),
                _ => {}
            }
        }
        Ok(joined(&states).map_or(Insight::Nothing, Insight::States))
    }
}

/// Whether the inside of an operation can be shown.
const fn is_looked_into(kind: &OpKind) -> bool {
    matches!(kind, OpKind::Attention(_) | OpKind::Recurrence(_))
}

/// The prediction in a row of logits, where `label` is correct.
fn position(label: i32, row: &[f32]) -> PositionAnswer {
    let truth = usize::try_from(label).unwrap_or(0).min(row.len().saturating_sub(1));
    let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = row.iter().map(|v| f64::from(v - max).exp()).sum();
    let mut likely: Vec<(u32, f32)> = Vec::with_capacity(LIKELY + 1);
    for (class, value) in (0u32..).zip(row) {
        // Equal values keep their order.
        let at = likely.iter().position(|(_, other)| value > other).unwrap_or(likely.len());
        if at < LIKELY && !value.is_nan() {
            likely.insert(at, (class, *value));
            likely.truncate(LIKELY);
        }
    }
    likely.iter_mut().for_each(|(_, value)| *value = (f64::from(*value - max).exp() / sum) as f32);
    PositionAnswer { truth: truth as u32, loss: cross_entropy(row, truth), likely }
}

/// The states of one direction after each position, `[positions, units]`: those that are stored before the following
/// position, and the final one.
fn states_of(step: &Step, op: &Op, g: &RecurrenceGeometry) -> Result<(usize, Vec<f32>), TrainError> {
    let (positions, units) = (g.positions, g.units);
    let mut values = vec![0.0; positions * units];
    if let (Some(before), Some(output)) = (op.arg("before"), op.arg("y")) {
        let before = step.stored::<f32>(before)?;
        let row = |at: usize| at * units..(at + 1) * units;
        for at in 1..positions {
            let (from, to) = if g.reverse { (at - 1, at) } else { (at, at - 1) };
            values[row(to)].copy_from_slice(&before[row(from)]);
        }
        let end = if g.reverse { 0 } else { positions - 1 };
        let width = if g.joins() { 2 * units } else { units };
        let of_end = if g.last { 0 } else { end * width } + width - units;
        values[row(end)].copy_from_slice(&step.stored::<f32>(output)?[of_end..of_end + units]);
    }
    Ok((units, values))
}

/// The concatenated states of both directions.
fn joined(directions: &[(usize, Vec<f32>)]) -> Option<HiddenStates> {
    let (units, first) = directions.first()?;
    let positions = first.len() / (*units).max(1);
    let row = |at: usize| directions.iter().flat_map(move |(units, values)| &values[at * units..(at + 1) * units]);
    let values = (0..positions).flat_map(row).copied().collect();
    Some(HiddenStates { positions, units: units * directions.len(), directions: directions.len(), values })
}

#[cfg(test)]
mod tests;
