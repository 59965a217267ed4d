//! The cost of the metrics inside a step: the same network, compiled with and without each group, is timed alternately
//! on a separate thread.

use crate::ir::Metrics;
use crate::model::Preset;
use crate::studio::jobs::background::{Background, Watch};
use crate::studio::jobs::devices::Machine;
use crate::train::{DataChoice, Session, SessionSpec, TrainError};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Median times of a replayed step, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prices {
    pub all_us: f32,
    pub without_accuracy_us: f32,
    pub without_updates_us: f32,
    /// The revision of the document that was timed.
    pub revision: u64,
}

impl Prices {
    /// The time that accuracy and updates add to a step, in microseconds; negative if the noise of the measurement is
    /// larger than the cost.
    #[must_use]
    pub fn added_us(&self) -> [f32; 2] {
        [self.all_us - self.without_accuracy_us, self.all_us - self.without_updates_us]
    }
}

/// A document to time.
struct Question {
    preset: Arc<Preset>,
    base: PathBuf,
    machine: Arc<Machine>,
    revision: u64,
}

/// The thread that times, and its results.
pub struct PriceList {
    timer: Background<Question, Result<Prices, String>>,
    pub prices: Option<Prices>,
    pub problem: Option<String>,
}

impl PriceList {
    /// No results yet; `wake` requests a frame.
    ///
    /// # Errors
    /// If the system refuses to start a thread.
    pub fn new(wake: Arc<dyn Fn() + Send + Sync>) -> std::io::Result<Self> {
        let work = |q: Question, watch: &Watch| measure(&q, &|share| watch.report(share)).map_err(|e| e.to_string());
        let timer = Background::spawn_watched("stepgraph-prices", wake, work)?;
        Ok(Self { timer, prices: None, problem: None })
    }

    /// Requests the cost of a document's metrics.
    pub fn measure(&mut self, preset: Arc<Preset>, base: PathBuf, machine: Arc<Machine>, revision: u64) {
        self.problem = None;
        self.timer.ask(Question { preset, base, machine, revision });
    }

    /// Receives results from the thread.
    pub fn poll(&mut self) {
        match self.timer.poll() {
            None => {}
            Some(Ok(prices)) => self.prices = Some(prices),
            Some(Err(why)) => self.problem = Some(why),
        }
    }

    /// The share of the timing that is done, from 0 to 1.
    #[must_use]
    pub fn progress(&self) -> Option<f32> {
        self.timer.progress()
    }

    /// Another device was chosen: the timing is cancelled, and its results are dropped.
    pub fn change_device(&mut self) {
        self.cancel();
        (self.prices, self.problem) = (None, None);
    }

    /// Cancels the timing.
    pub fn cancel(&mut self) {
        self.timer.cancel();
    }

    #[must_use]
    pub const fn is_busy(&self) -> bool {
        self.timer.is_busy()
    }
}

/// The number of rounds of the three steps, and of steps of each kind in a round.
const ROUNDS: usize = 12;
const STEPS: usize = 16;
/// The longest time of one round for one kind of step.
const LIMIT: Duration = Duration::from_millis(80);

fn measure(question: &Question, report: &dyn Fn(f32) -> bool) -> Result<Prices, TrainError> {
    let session = |metrics: Metrics| {
        Session::prepare(&SessionSpec {
            metrics,
            data: DataChoice::Resident,
            machine: Some(question.machine.target.clone()),
            tuning: question.machine.tuning.clone(),
            ..SessionSpec::new((*question.preset).clone(), question.base.clone())
        })
    };
    let all = Metrics { accuracy: true, updates: true };
    let mut sessions =
        [session(all)?, session(Metrics { accuracy: false, ..all })?, session(Metrics { updates: false, ..all })?];
    let mut times = [Vec::new(), Vec::new(), Vec::new()];
    for round in 0..ROUNDS {
        if !report(round as f32 / ROUNDS as f32) {
            return Err(TrainError::Cancelled);
        }
        for (session, times) in sessions.iter_mut().zip(&mut times) {
            times.extend(session.time_both_ways(STEPS, LIMIT)?.replay_us);
        }
    }
    let [all_us, without_accuracy_us, without_updates_us] = times.map(|mut t| {
        t.sort_by(f32::total_cmp);
        t.get(t.len() / 2).copied().unwrap_or(0.0)
    });
    Ok(Prices { all_us, without_accuracy_us, without_updates_us, revision: question.revision })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variant_is_timed() {
        let preset = Arc::new(crate::studio::document::presets::digits());
        let question = Question { preset, base: PathBuf::new(), machine: Arc::new(Machine::cpu(None)), revision: 3 };
        let prices = measure(&question, &|_| true).unwrap();
        assert!(matches!(measure(&question, &|share| share < 0.1), Err(TrainError::Cancelled)));
        let found = [prices.all_us, prices.without_accuracy_us, prices.without_updates_us];
        assert!(found.iter().all(|us| *us > 0.0) && prices.revision == 3, "{prices:?}");
        let given = Prices { all_us: 10.0, without_accuracy_us: 9.0, without_updates_us: 7.5, revision: 0 };
        assert_eq!(given.added_us(), [1.0, 2.5]);
    }
}
