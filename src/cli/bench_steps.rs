//! Steps under measurement, back to back in blocks.

use crate::exec::Executor;
use crate::exec::cpu::Pool;
use crate::train::TrainingStep;
use std::time::{Duration, Instant};

/// One block of eager or replayed steps.
const BLOCK: Duration = Duration::from_millis(40);

/// A step under measurement.
pub struct Bench<'a> {
    pub step: &'a mut TrainingStep,
    pub pool: &'a mut Pool,
    /// The parameters and state that every block starts from.
    pub start: Vec<u8>,
}

impl Bench<'_> {
    /// An estimate of the time of one replay: the shortest of a few.
    ///
    /// # Errors
    /// As [`TrainingStep::run`].
    pub fn single_us(&mut self) -> anyhow::Result<f64> {
        let mut best = f64::INFINITY;
        for _ in 0..10 {
            let started = Instant::now();
            self.step.run(Executor::Replay, self.pool)?;
            self.step.synchronize()?;
            best = best.min(started.elapsed().as_secs_f64() * 1e6);
        }
        Ok(best)
    }

    /// Steps back to back for about [`BLOCK`], at least one sample; the first is not counted.
    ///
    /// # Errors
    /// As [`TrainingStep::run`].
    pub fn block(&mut self, executor: Executor, steps_per_sample: usize, times: &mut Vec<f64>) -> anyhow::Result<()> {
        self.step.restore(&self.start)?;
        match executor {
            Executor::Replay => self.step.replay_many(steps_per_sample, self.pool)?,
            Executor::Eager => self.step.run(executor, self.pool)?,
        }
        self.step.synchronize()?;
        let end = Instant::now() + BLOCK;
        loop {
            let started = Instant::now();
            match executor {
                Executor::Replay => self.step.replay_many(steps_per_sample, self.pool)?,
                Executor::Eager => (0..steps_per_sample).try_for_each(|_| self.step.run(executor, self.pool))?,
            }
            self.step.synchronize()?;
            let now = Instant::now();
            times.push((now - started).as_secs_f64() * 1e6 / steps_per_sample as f64);
            if now >= end {
                return Ok(());
            }
        }
    }
}
