//! Queries about a run: the network's outputs for samples and for arbitrary points, its filters, and the cost of its
//! step eagerly and replayed.
//!
//! No query changes the run. While it trains, a [`Pace`] limits the time for queries to a small share of the total
//! time.

use super::data_feed::rows_of;
use super::{DataFeed, Inside, Insight, Session, TrainError};
use crate::data::{Dataset, Samples};
use crate::exec::Executor;
use crate::model::ParamId;
use crate::tensor::{HostTensor, number_text};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// A query about a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Query {
    /// Samples of the data set to evaluate, by index.
    pub samples: Vec<u32>,
    /// Further points to evaluate, `[points, input]` in logical order; empty for none.
    #[serde(with = "number_text")]
    pub points: Vec<f32>,
    /// A parameter whose values are requested.
    pub weight: Option<ParamId>,
    /// A sample for which the inside of the network is shown.
    pub inside: Option<Inside>,
}

/// What a run answered.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct QueryResult {
    pub question: Query,
    /// The number of steps made at the time of the answer.
    pub step: u64,
    /// `[samples, output]`: logits or values.
    #[serde(with = "number_text")]
    pub outputs: Vec<f32>,
    /// `[points, output]`.
    #[serde(with = "number_text")]
    pub at_points: Vec<f32>,
    /// The parameter in its logical shape.
    pub weight: Option<HostTensor>,
    /// The inside of the network, if it was requested.
    pub inside: Option<Insight>,
    /// Time that the answer took, in microseconds.
    #[serde(with = "number_text")]
    pub took_us: f64,
}

/// Times of single steps of the same batch, run alternately in both ways.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BothWays {
    /// The number of steps made at the time of the measurement.
    pub step: u64,
    /// Microseconds of each eager step, in order.
    #[serde(with = "number_text")]
    pub eager_us: Vec<f32>,
    /// Microseconds of each replayed step, in order.
    #[serde(with = "number_text")]
    pub replay_us: Vec<f32>,
}

impl BothWays {
    /// The median of each, eager first, in microseconds; 0 if nothing was measured.
    #[must_use]
    pub fn medians_us(&self) -> [f32; 2] {
        [&self.eager_us, &self.replay_us].map(|times| {
            let mut sorted = times.clone();
            sorted.sort_by(f32::total_cmp);
            sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
        })
    }
}

impl Session {
    /// Answers a query with the current parameters. The run itself is not changed.
    ///
    /// # Errors
    /// If there is too little memory for the evaluation, or a requested sample or parameter does not exist.
    pub fn query(&mut self, question: Query) -> Result<QueryResult, TrainError> {
        let started = Instant::now();
        let mut outputs = Vec::new();
        if !(question.samples.is_empty() && question.points.is_empty()) {
            self.make_evaluator()?;
        }
        if let (Some(evaluator), DataFeed::Data { set, stored, .. }) = (&mut self.evaluator, &self.feed) {
            let inside: Vec<u32> = question.samples.iter().copied().filter(|i| (*i as usize) < set.len()).collect();
            let stored: Vec<_> = stored.views().collect();
            evaluator.outputs(&mut self.pool, &stored, &inside, |_, values| outputs.extend_from_slice(values))?;
        }
        let mut at_points = Vec::new();
        if let Some(evaluator) = &mut self.evaluator
            && !question.points.is_empty()
            && let Some(input) = self.model.single_input().filter(|input| !input.content.is_tokens())
        {
            let count = question.points.len() / input.shape.len().max(1);
            at_points = evaluator.answer(&mut self.pool, vec![Samples::Real(question.points.clone())], count)?;
        }
        let weight = question.weight.filter(|p| (p.0 as usize) < self.model.params.len());
        let weight = weight.map(|p| self.weight(p)).transpose()?;
        let inside = question.inside.as_ref().map(|asked| self.inside(asked)).transpose()?;
        let took_us = started.elapsed().as_secs_f64() * 1e6;
        Ok(QueryResult { question, step: self.done, outputs, at_points, weight, inside, took_us })
    }

    /// The network's outputs for samples of any data set in its shapes, `[indices.len(), output]`. The set need not be
    /// the one that it trains on, and may have fewer samples than a batch.
    ///
    /// # Errors
    /// If there is too little memory for the evaluation.
    pub fn answers(&mut self, set: &Dataset, indices: &[u32]) -> Result<Vec<f32>, TrainError> {
        /// The largest number of input values that are copied at a time.
        const MAX_VALUES: usize = 1 << 22;
        self.make_evaluator()?;
        let mut outputs = Vec::with_capacity(indices.len() * self.model.output.len());
        let Some(evaluator) = &mut self.evaluator else { return Ok(outputs) };
        let batches = (MAX_VALUES / self.model.sample_len().max(1) / self.model.batch).max(1);
        for chunk in indices.chunks(batches * self.model.batch) {
            outputs.extend(evaluator.answer(&mut self.pool, rows_of(set, chunk)?, chunk.len())?);
        }
        Ok(outputs)
    }

    fn weight(&self, id: ParamId) -> Result<HostTensor, TrainError> {
        let values = self.train.param::<f32>(id)?;
        let tensor = HostTensor::from_slice(self.model.param(id).shape.clone(), &values);
        Ok(tensor.map_err(|e| crate::exec::ExecError::NoValue(e.to_string()))?)
    }

    /// Times single steps on the batch in memory, eager and replayed in alternating blocks, so that both run under the
    /// same conditions; ends early if it would take longer than `limit`. Everything that survives a step is restored.
    ///
    /// # Errors
    /// As [`Session::step`].
    pub fn time_both_ways(&mut self, steps: usize, limit: Duration) -> Result<BothWays, TrainError> {
        const BLOCK: usize = 8;
        let mut out = BothWays { step: self.done, ..BothWays::default() };
        let saved = self.train.snapshot()?;
        let started = Instant::now();
        let mut outcome = Ok(());
        while outcome.is_ok()
            && out.replay_us.len() < steps.max(1)
            && (out.replay_us.len() < 3 || started.elapsed() < limit)
        {
            for executor in [Executor::Eager, Executor::Replay] {
                let times = if executor == Executor::Eager { &mut out.eager_us } else { &mut out.replay_us };
                for _ in 0..BLOCK.min(steps.max(1) - times.len()) {
                    let step_started = Instant::now();
                    outcome = self.train.run(executor, &mut self.pool).and_then(|()| self.train.synchronize());
                    times.push(step_started.elapsed().as_secs_f32() * 1e6);
                    // Many steps on one batch may overflow, so each block starts from the run's state.
                    if outcome.is_err() || started.elapsed() > limit {
                        break;
                    }
                }
                self.train.restore(&saved)?;
            }
        }
        outcome?;
        Ok(out)
    }
}

/// Limits work that is done beside the steps to a share of the time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    /// Nothing is done before this.
    due: Option<Instant>,
}

/// The largest share of a run's time for queries.
const QUERY_SHARE: f64 = 0.03;

impl Pace {
    /// True if work may be done at `now`.
    #[must_use]
    pub fn allows(&self, now: Instant) -> bool {
        self.due.is_none_or(|due| now >= due)
    }

    /// Records that work that took `took` ended at `now`.
    pub fn spent(&mut self, now: Instant, took: Duration) {
        self.due = Some(now + took.mul_f64((1.0 - QUERY_SHARE) / QUERY_SHARE));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::{Overrides, SessionSpec};

    fn session(name: &str) -> Session {
        let bundled = crate::model::BUNDLED.iter().find(|b| b.name == name).unwrap();
        let preset = crate::model::read_preset(bundled.text).unwrap();
        Session::prepare(&SessionSpec { threads: 1, ..SessionSpec::new(preset, ".".into()) }).unwrap()
    }

    #[test]
    fn queries_and_timing_do_not_change_a_run() {
        let (mut alone, mut watched) = (session("spirals"), session("spirals"));
        for step in 0..12 {
            let plain = alone.step().unwrap().unwrap();
            if step % 4 == 2 {
                let points = vec![0.25; 2 * 300];
                let question = Query { samples: (0..200).collect(), points, weight: Some(ParamId(0)), inside: None };
                let result = watched.query(question).unwrap();
                assert_eq!((result.outputs.len(), result.at_points.len()), (200 * 3, 300 * 3));
                // Equal points get equal outputs, also in a batch that is padded.
                assert!(result.at_points.chunks(3).all(|p| p == &result.at_points[..3]));
                assert_eq!(result.weight.unwrap().shape.0, [2, 64]);
                let both = watched.time_both_ways(20, Duration::from_secs(5)).unwrap();
                assert_eq!((both.eager_us.len(), both.replay_us.len(), both.step), (20, 20, u64::from(step as u32)));
                assert!(both.medians_us().iter().all(|us| *us > 0.0));
            }
            let seen = watched.step().unwrap().unwrap();
            assert_eq!(
                (plain.loss.to_bits(), plain.update_max.to_bits()),
                (seen.loss.to_bits(), seen.update_max.to_bits())
            );
        }
    }

    #[test]
    fn a_run_without_a_held_out_part_can_be_queried() {
        let bundled = crate::model::BUNDLED.iter().find(|b| b.name == "digits-cnn").unwrap();
        let mut preset = crate::model::read_preset(bundled.text).unwrap();
        preset.data.as_mut().unwrap().held_out = 0.0;
        let mut session =
            Session::prepare(&SessionSpec { threads: 1, ..SessionSpec::new(preset, ".".into()) }).unwrap();
        let result = session.query(Query { samples: vec![5, 5, 9], ..Query::default() }).unwrap();
        assert_eq!((result.outputs.len(), &result.outputs[..10]), (30, &result.outputs[10..20]));
        // A sample that is passed as a point has the same output, for any internal layout.
        let image = session.dataset().unwrap().0.sample_slice(9).to_vec();
        let again = session.query(Query { points: image, ..Query::default() }).unwrap();
        assert_eq!(again.at_points, result.outputs[20..]);
        assert_eq!(session.evaluate().unwrap(), None);
    }

    #[test]
    fn queries_take_a_small_share_of_the_time() {
        let mut pace = Pace::default();
        let start = Instant::now();
        assert!(pace.allows(start));
        pace.spent(start, Duration::from_millis(3));
        assert!(!pace.allows(start + Duration::from_millis(96)) && pace.allows(start + Duration::from_millis(98)));
    }

    #[test]
    fn a_queried_run_spends_nearly_all_of_its_time_on_steps() {
        use crate::train::{Command, Event, RunState, Worker};
        let bundled = crate::model::BUNDLED.iter().find(|b| b.name == "spirals").unwrap();
        let preset = crate::model::read_preset(bundled.text).unwrap();
        let spec = SessionSpec {
            threads: 1,
            overrides: Overrides::steps(100_000_000),
            ..SessionSpec::new(preset, ".".into())
        };
        let worker = Worker::spawn(spec, || {}).unwrap();
        assert!(worker.send(Command::Start));
        let question =
            || Query { samples: (0..600).collect(), points: vec![0.1; 2 * 9216], weight: None, inside: None };
        let (mut begun, mut result, mut steps) = (None, Vec::new(), 0);
        // Another query immediately after the first, regardless of the cost of the answers.
        while result.len() < 3 || begun.is_none_or(|t: Instant| t.elapsed() < Duration::from_secs(1)) {
            match worker.wait_event(Duration::from_secs(20)).expect("the worker lives") {
                Event::State(RunState::Running) => {
                    begun = Some(Instant::now());
                    assert!(worker.send(Command::Query(question())));
                }
                Event::QueryResult(answer) => {
                    assert!(worker.send(Command::Query(question())));
                    result.push(answer.took_us);
                }
                Event::Steps(reports) => steps += reports.len(),
                Event::State(RunState::Failed(why)) => panic!("{why}"),
                _ => {}
            }
        }
        // Later waiting compensates for the time of the last answer.
        let paid: f64 = result[..result.len() - 1].iter().sum::<f64>();
        let elapsed = begun.unwrap().elapsed().as_secs_f64() * 1e6;
        assert!(steps > 0, "{} answers", result.len());
        assert!(paid <= elapsed * (QUERY_SHARE + 0.002), "{paid} us of {elapsed} us");
    }
}
