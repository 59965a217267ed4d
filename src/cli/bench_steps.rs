//! Steps under measurement, back to back in blocks.

use super::output::Distribution;
use crate::exec::Executor;
use crate::exec::cpu::Pool;
use crate::select::Kernels;
use crate::train::{Session, TrainingStep};
use std::time::{Duration, Instant};

/// One block of eager or replayed steps.
const BLOCK: Duration = Duration::from_millis(40);
/// Steps shorter than this are timed several at a time.
const SHORT_US: f64 = 20.0;
/// Roughly how long such a group of steps takes.
const SAMPLE_US: f64 = 100.0;
/// Roughly how long such a group of steps takes on a GPU.
const GPU_SAMPLE_US: f64 = 10_000.0;

/// A step under measurement.
pub struct Bench<'a> {
    pub step: &'a mut TrainingStep,
    pub pool: &'a mut Pool,
    /// The parameters and state that every block starts from.
    pub start: Vec<u8>,
}

/// The time of a replay with the general kernels that a run starts with, before it changes over to those compiled for
/// its sizes; `None` if it does not.
///
/// # Errors
/// If a step fails, or the other kernels cannot be made.
pub fn before_change(session: &mut Session, seconds: f64) -> anyhow::Result<Option<Distribution>> {
    if session.kernels().is_none_or(|kernels| kernels.first != Kernels::FirstGeneral) {
        return Ok(None);
    }
    let (step, pool) = session.step_mut();
    let mut bench = Bench { start: step.snapshot()?, step, pool };
    let steps_per_sample = bench.steps_per_sample()?;
    let mut times = Vec::new();
    let deadline = Instant::now() + Duration::from_secs_f64(seconds);
    while times.is_empty() || Instant::now() < deadline {
        bench.block(Executor::Replay, steps_per_sample, &mut times)?;
    }
    bench.step.restore(&bench.start)?;
    session.specialise()?;
    Ok(Some(Distribution::of(&mut times)))
}

impl Bench<'_> {
    /// The number of steps that are timed at once.
    ///
    /// # Errors
    /// As [`TrainingStep::run`].
    pub fn steps_per_sample(&mut self) -> anyhow::Result<usize> {
        let single = self.single_us()?;
        // On a GPU the host's overhead is hidden only if steps are queued.
        Ok(match self.step.capabilities().queues_steps {
            true => (GPU_SAMPLE_US / single.max(1.0)).ceil().clamp(8.0, 512.0) as usize,
            false if single < SHORT_US => (SAMPLE_US / single.max(0.05)).ceil() as usize,
            false => 1,
        })
    }

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
