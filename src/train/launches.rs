//! Several steps at once: if the data set is on a GPU, they are launched before the reports of earlier ones are read.

use super::watched::Watched;
use super::{Session, Spans, StepReport, Stretches, TrainError};
use crate::exec::{ExecError, MemoryOf, StepRecord};
use std::time::{Duration, Instant};

impl Session {
    /// Whether one launch makes several steps, which fetch their batches themselves.
    #[must_use]
    pub const fn streams(&self) -> bool {
        self.streams
    }

    /// The number of kernel calls of a step.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.train.recordings().map(|(step, count)| step.compiled().plan.program.ops.len() * count).sum()
    }

    /// Makes up to `most` steps, and starts none once `within` is over; each is passed to `listen`, in order. Returns
    /// the number of steps made: 0 if the run is at its end. If the data set is on a GPU, steps are launched before the
    /// reports of earlier ones are read; all launched steps are done when this returns.
    ///
    /// # Errors
    /// As for [`Self::step`]; the steps before the failed one were reported.
    pub fn steps(
        &mut self,
        most: u64,
        within: Duration,
        mut listen: impl FnMut(&StepReport),
    ) -> Result<u64, TrainError> {
        let started = Instant::now();
        let mut made = 0;
        if !self.streams {
            while made < most && (made == 0 || started.elapsed() < within) {
                let Some(report) = self.step()? else { break };
                made += 1;
                self.note_updates();
                listen(&report);
            }
            return Ok(made);
        }
        while made < most && (made == 0 || started.elapsed() < within) {
            self.guard.renew(&mut self.train, &self.feed, self.done, false)?;
            self.change_over();
            // A snapshot needs a point at which no launch is in flight: there is one at the next of these steps.
            let next = self.guard.next(&self.train).saturating_sub(self.done).max(1);
            let wanted = (most - made).min(self.total - self.done).min(next);
            if wanted == 0 {
                break;
            }
            made += self.stream(wanted, started + within, &mut listen)?;
        }
        Ok(made)
    }

    /// Collects how far each parameter moves from now on, for [`Self::take_updates`].
    pub fn collect_updates(&mut self) {
        self.moved = Some(Stretches::default());
    }

    /// Records how far each parameter moved, if reading that needs no copy from a device.
    fn note_updates(&mut self) {
        let Some(mut moved) = self.moved.take() else { return };
        let is_here = self.train.capabilities().memory == MemoryOf::Host;
        if let (true, Ok(values)) = (is_here, self.layer_updates())
            && !values.is_empty()
        {
            moved.add(self.done, &values);
        }
        self.moved = Some(moved);
    }

    /// How far each parameter moved since the last call, over ranges of steps; for steps that are launched together,
    /// only the last one. Empty if it is not measured or not collected.
    pub fn take_updates(&mut self) -> Vec<Spans> {
        let found = self.moved.as_mut().map(Stretches::take).unwrap_or_default();
        if !found.is_empty() || self.moved.is_none() || !self.streams || self.done == 0 {
            return found;
        }
        let mut last = Spans::default();
        if let Ok(values) = self.layer_updates()
            && !values.is_empty()
        {
            last.add(self.done, &values);
        }
        last.steps.is_some().then_some(last).into_iter().collect()
    }

    /// Up to `wanted` steps that fetch their own batches; at least one, and no launch after `until`.
    fn stream(&mut self, wanted: u64, until: Instant, listen: &mut impl FnMut(&StepReport)) -> Result<u64, TrainError> {
        let counter = self.train.stored::<i64>(self.train.find("counter")?)?[1] as u64;
        let (mut sent, mut made, mut fed_us) = (0, 0, 0.0);
        let mut problem: Option<ExecError> = None;
        while made < wanted {
            let may_send = problem.is_none() && (sent == 0 || Instant::now() < until);
            let size = if sent < wanted && may_send { self.train.launch_size(wanted - sent) } else { 0 };
            if size > 0 && self.train.has_free_slot() {
                let started = Instant::now();
                let position = self.feed.position();
                self.places.clear();
                self.feed.places(size, self.model.batch, &mut self.places);
                if let Err(error) = self.train.launch(counter + sent, &self.places) {
                    // These batches were not used; the earlier launches must still be reported.
                    self.feed.resume(position)?;
                    problem = Some(error);
                    continue;
                }
                fed_us = started.elapsed().as_secs_f32() * 1e6 / size as f32;
                sent += size as u64;
                continue;
            }
            if made == sent {
                break;
            }
            let mut failed = None;
            let mut records = std::mem::take(&mut self.records);
            records.clear();
            records.extend_from_slice(self.train.completed()?);
            for record in &records {
                let mut report = self.watched.report(record, self.done + 1, fed_us);
                if !self.accept(&mut report)? {
                    failed = Some(report.loss);
                    break;
                }
                made += 1;
                listen(&report);
            }
            self.records = records;
            if let Some(loss) = failed {
                self.train.abandon_launches()?;
                return Err(self.explain(loss)?.into());
            }
        }
        problem.map_or(Ok(made), |error| Err(error.into()))
    }
}

impl Watched {
    /// The report in the record of a step, whose values are in the order of [`Self::read_back`].
    fn report(&self, record: &StepRecord, step: u64, feed_us: f32) -> StepReport {
        let mut values = record.values.iter().copied();
        let mut next = |there: bool, or: f32| if there { values.next().unwrap_or(or) } else { or };
        let (loss, lr) = (next(true, 0.0), next(true, 0.0));
        let accuracy = next(self.accuracy.is_some(), f32::NAN);
        let update_max = next(self.update_max.is_some(), 0.0);
        let grad_norm = next(self.grad_norm.is_some(), 0.0);
        let loss_scale = next(self.loss_scale.is_some(), f32::NAN);
        let step_us = record.step_us;
        StepReport {
            step,
            loss,
            update_max,
            grad_norm,
            accuracy,
            lr,
            loss_scale,
            step_us,
            feed_us,
            ..StepReport::default()
        }
    }
}
