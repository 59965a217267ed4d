//! How long a step's operations take, and what a replay costs the host.

use super::Step;
use super::bind::{Work, device_error};
use super::capture::Role;
use super::graph::Graph;
use super::group::Launch;
use super::memory::Event;
use super::step::MAX_STEPS;
use crate::exec::ExecError;
use std::time::Instant;

impl Step {
    /// What a library does in operation `index`: algorithm, tile, workspace; nothing for own kernels.
    #[must_use]
    pub fn describe(&self, index: usize) -> Option<String> {
        self.calls[index].iter().find_map(Work::describe)
    }

    /// Times each operation by itself: `rounds` launches back to back between two events, the median of five such, in microseconds.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn time_calls(&mut self, rounds: usize) -> Result<Vec<f64>, ExecError> {
        self.begin()?;
        let (start, end) = (Event::new(true).map_err(ExecError::Gpu)?, Event::new(true).map_err(ExecError::Gpu)?);
        let stream = self.gpu.stream();
        let mut out = Vec::with_capacity(self.calls.len());
        for op in 0..self.calls.len() {
            let mut samples = Vec::with_capacity(5);
            // The launches of one operation are captured, so that the host's pace does not count.
            let graph = self.capture_repeated(op, rounds)?;
            for _ in 0..5 {
                start.record(stream).map_err(ExecError::Gpu)?;
                graph.launch(&self.gpu).map_err(ExecError::Gpu)?;
                end.record(stream).map_err(ExecError::Gpu)?;
                end.wait().map_err(ExecError::Gpu)?;
                samples.push(start.until_us(&end).map_err(ExecError::Gpu)? / rounds.max(1) as f64);
            }
            samples.sort_by(f64::total_cmp);
            out.push(samples[2]);
        }
        Ok(out)
    }

    /// The time of one operation by itself in microseconds, roughly: what is slower than `give_up_us` is not timed again.
    ///
    /// # Errors
    /// Where a launch fails.
    pub fn time_op(&mut self, op: usize, give_up_us: f64) -> Result<f64, ExecError> {
        self.begin()?;
        let stream = self.gpu.stream();
        let (start, end) = (Event::new(true).map_err(ExecError::Gpu)?, Event::new(true).map_err(ExecError::Gpu)?);
        // The first launch loads what a library has not loaded yet.
        self.put_op(op)?;
        start.record(stream).map_err(ExecError::Gpu)?;
        self.put_op(op)?;
        end.record(stream).map_err(ExecError::Gpu)?;
        end.wait().map_err(ExecError::Gpu)?;
        let once = start.until_us(&end).map_err(ExecError::Gpu)?;
        if once > give_up_us + 20.0 {
            return Ok(once);
        }
        // Long operations tell enough in a few launches.
        let launches = ((400.0 / once.max(1.0)) as usize).clamp(3, 12);
        let graph = self.capture_repeated(op, launches)?;
        let mut best = f64::INFINITY;
        for _ in 0..3 {
            start.record(stream).map_err(ExecError::Gpu)?;
            graph.launch(&self.gpu).map_err(ExecError::Gpu)?;
            end.record(stream).map_err(ExecError::Gpu)?;
            end.wait().map_err(ExecError::Gpu)?;
            best = best.min(start.until_us(&end).map_err(ExecError::Gpu)? / launches as f64);
        }
        Ok(best)
    }

    /// One operation `rounds` times in a graph whose nodes were read.
    fn capture_repeated(&self, op: usize, rounds: usize) -> Result<Graph, ExecError> {
        let launch = Launch::Single { op, flags: 0 };
        let graph = self.capture_graph(Role::Several(rounds), &vec![&launch; rounds], &[]);
        graph.map_err(|error| match error {
            ExecError::Gpu(why) => device_error(&self.compiled, op, why),
            other => other,
        })
    }

    /// What a replay costs the host, in microseconds a step: the ledger and the launch, with nothing queued before it. The median of `rounds` launches.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn time_bookkeeping(&mut self, rounds: usize) -> Result<f64, ExecError> {
        self.replay_many(MAX_STEPS)?;
        let steps = self.many.as_ref().map_or(1, |(k, _)| *k);
        let mut samples = Vec::with_capacity(rounds.clamp(1, 200));
        for _ in 0..rounds.clamp(1, 200) {
            self.synchronize()?;
            let started = Instant::now();
            self.replay_many(steps)?;
            samples.push(started.elapsed().as_secs_f64() * 1e6 / steps as f64);
        }
        self.synchronize()?;
        samples.sort_by(f64::total_cmp);
        Ok(samples[samples.len() / 2])
    }
}
