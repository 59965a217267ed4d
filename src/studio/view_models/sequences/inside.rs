//! The inside of a network for one sample, ready to be drawn.

use crate::data::Dataset;
use crate::model::Model;
use crate::studio::view_models::format;
use crate::studio::view_models::sequences::heat_map::HeatMap;
use crate::studio::view_models::sequences::position_names;
use crate::studio::view_models::sequences::tokens::TokenLosses;
use crate::train::{AttentionMap, HiddenStates, Inside, Insight};

/// The inside of a network for one sample.
#[derive(Clone, Debug)]
pub struct InsideView {
    /// The run that was queried.
    pub run: u64,
    /// The number of steps made at the time of the query.
    pub step: u64,
    pub asked: Inside,
    pub found: Found,
    pub took_us: f64,
}

/// The result.
#[derive(Clone, Debug)]
pub enum Found {
    Tokens(TokenLosses),
    Attention(AttentionView),
    States(StatesView),
    /// The network has nothing of the requested kind.
    Nothing,
}

/// The attention of one head.
#[derive(Clone, Debug)]
pub struct AttentionView {
    /// The token or number at each position.
    pub names: Vec<String>,
    pub causal: bool,
    /// A row for each query, and a column for each key.
    pub map: HeatMap,
    weights: Vec<f32>,
    /// Mean over the queries of the largest weight of each query.
    pub sharpness: f32,
}

impl AttentionView {
    fn new(found: &AttentionMap, names: Vec<String>) -> Self {
        let n = found.positions;
        let weight = |query: usize, key: usize| found.weights.get(query * n + key).copied().unwrap_or(0.0);
        let is_masked = |query: usize, key: usize| found.causal && key > query;
        // The root, so that small weights are visible beside large ones.
        let value = |query, key| (!is_masked(query, key)).then(|| weight(query, key).max(0.0).sqrt());
        let most = found.weights.chunks_exact(n.max(1)).map(|row| row.iter().copied().fold(0.0, f32::max));
        let sharpness = most.sum::<f32>() / n.max(1) as f32;
        let map = HeatMap::new(n, n, value);
        Self { names, causal: found.causal, map, weights: found.weights.clone(), sharpness }
    }

    /// A query, a key and the weight, as text.
    #[must_use]
    pub fn about(&self, [key, query]: [usize; 2]) -> String {
        let name = |at: usize| place(&self.names, at);
        if self.causal && key > query {
            return format!("query {}, key {}: masked, as it comes later", name(query), name(key));
        }
        let weight = self.weights.get(query * self.map.columns + key).copied().unwrap_or(f32::NAN);
        format!("query {}, key {}: weight {}", name(query), name(key), format::percent(f64::from(weight)))
    }
}

/// The states of a recurrent layer.
#[derive(Clone, Debug)]
pub struct StatesView {
    /// The token or number at each position.
    pub names: Vec<String>,
    /// A row for each unit, and a column for each position.
    pub map: HeatMap,
    pub directions: usize,
    /// The largest magnitude, which has the full colour.
    pub scale: f32,
    /// `[positions, units]`.
    values: Vec<f32>,
}

impl StatesView {
    fn new(found: &HiddenStates, names: Vec<String>) -> Self {
        let units = found.units;
        let value = |unit: usize, position: usize| found.values.get(position * units + unit).copied().unwrap_or(0.0);
        let largest = found.values.iter().filter(|v| v.is_finite()).fold(0.0f32, |most, v| most.max(v.abs()));
        let scale = largest.max(f32::MIN_POSITIVE);
        let map = HeatMap::new(found.positions, units, |unit, position| Some(value(unit, position) / scale));
        Self { names, map, directions: found.directions, scale, values: found.values.clone() }
    }

    /// A unit, a position and the value, as text.
    #[must_use]
    pub fn about(&self, [position, unit]: [usize; 2]) -> String {
        let own = self.map.rows / self.directions.max(1);
        let direction = if unit >= own { " of the reverse direction" } else { "" };
        let value = self.values.get(position * self.map.rows + unit).copied().unwrap_or(f32::NAN);
        let (after, value) = (place(&self.names, position), format::number(f64::from(value)));
        format!("unit {}{direction} after {after}: {value}", unit % own.max(1))
    }
}

/// The token or number at a position, as text.
fn place(names: &[String], position: usize) -> String {
    let number = (position + 1).to_string();
    match names.get(position) {
        Some(name) if *name != number => format!("{name} at {number}"),
        _ => format!("position {number}"),
    }
}

impl Found {
    /// The part of an answer that belongs to a sample.
    #[must_use]
    pub fn of(model: &Model, set: &Dataset, sample: u32, insight: &Insight) -> Self {
        let names = |positions| position_names(set, sample, positions);
        match insight {
            Insight::Positions(answers) => {
                TokenLosses::of(model, set, sample, answers).map_or(Self::Nothing, Self::Tokens)
            }
            Insight::Attention(map) => Self::Attention(AttentionView::new(map, names(map.positions))),
            Insight::States(states) => Self::States(StatesView::new(states, names(states.positions))),
            Insight::Nothing => Self::Nothing,
        }
    }
}
