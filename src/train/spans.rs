//! How far parameters move over many steps: the extremes of ranges, so that periodic reports lose none.

use crate::tensor::number_text;
use serde::{Deserialize, Serialize};

/// The smallest and the largest of each value over several steps, so that periodic reports lose no extreme.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spans {
    /// First and last step, from 1; `None` while empty.
    pub steps: Option<[u64; 2]>,
    #[serde(with = "number_text")]
    pub low: Vec<f32>,
    #[serde(with = "number_text")]
    pub high: Vec<f32>,
}

impl Spans {
    /// Receives the values of a step. Allocates only at the first step.
    pub fn add(&mut self, step: u64, values: &[f32]) {
        match &mut self.steps {
            Some(span) => {
                span[1] = step;
                for ((low, high), v) in self.low.iter_mut().zip(&mut self.high).zip(values) {
                    (*low, *high) = (low.min(*v), high.max(*v));
                }
            }
            None => {
                self.steps = Some([step, step]);
                for side in [&mut self.low, &mut self.high] {
                    side.clear();
                    side.extend_from_slice(values);
                }
            }
        }
    }
}

/// The length of a range is at most one part in this many of the run: early steps have separate ranges, and a run of
/// any length has few ranges.
const PARTS: u64 = 128;

/// The largest number of steps of a range that begins with this one.
#[must_use]
pub const fn longest_from(first: u64) -> u64 {
    let part = first / PARTS;
    if part > 1 { part } else { 1 }
}

/// Steps in ranges that grow with the run, until they are taken.
#[derive(Clone, Debug, Default)]
pub struct Stretches {
    full: Vec<Spans>,
    open: Spans,
}

impl Stretches {
    /// Receives the values of a step.
    pub fn add(&mut self, step: u64, values: &[f32]) {
        let ends = |[first, last]: [u64; 2]| step != last + 1 || step + 1 - first > longest_from(first);
        if self.open.steps.is_some_and(ends) {
            self.close();
        }
        self.open.add(step, values);
    }

    fn close(&mut self) {
        if self.open.steps.is_some() {
            self.full.push(self.open.clone());
            self.open.steps = None;
        }
    }

    /// All ranges since the last call, in order.
    pub fn take(&mut self) -> Vec<Spans> {
        self.close();
        std::mem::take(&mut self.full)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_keep_the_extremes() {
        let mut spans = Spans::default();
        for (step, v) in [(4, 1.0), (5, 9.0), (6, -2.0)] {
            spans.add(step, &[v, 0.5]);
        }
        assert_eq!(spans, Spans { steps: Some([4, 6]), low: vec![-2.0, 0.5], high: vec![9.0, 0.5] });
    }

    #[test]
    fn ranges_cover_every_step_and_stay_few() {
        let mut stretches = Stretches::default();
        (1..=100_000).for_each(|step| stretches.add(step, &[step as f32]));
        let found = stretches.take();
        assert!(found.len() < 1200 && stretches.take().is_empty(), "{}", found.len());
        assert!(found[..128].iter().all(|s| s.low == s.high));
        let ends: Vec<[u64; 2]> = found.iter().filter_map(|s| s.steps).collect();
        assert!(
            ends[0][0] == 1 && ends.last().unwrap()[1] == 100_000 && ends.windows(2).all(|w| w[0][1] + 1 == w[1][0])
        );
        assert!(found.iter().all(|s| s.steps == Some([s.low[0] as u64, s.high[0] as u64])));
    }
}
