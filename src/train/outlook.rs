//! The cases that a run is expected to have, in the order of their first use.

use super::batch_shape::BatchShape;
use super::step_cases::{Case, StepPlanner};
use super::{DataFeed, TrainError};
use crate::compile::Compiled;
use crate::ir::Share;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The number of steps that are searched for the cases of a run.
const MOST_STEPS: u64 = 1 << 14;
/// The largest number of recordings that are made before the first step.
const MOST_AT_FIRST: usize = 64;
/// The time after which no more of them are started, on a machine that can make them later.
const AT_FIRST: Duration = Duration::from_millis(800);
/// The largest number of expected cases.
const MOST_FORESEEN: usize = 1 << 14;

/// A case of a run, with its first step and, if there was time, its plan.
pub(super) struct Foreseen {
    pub(super) case: Case,
    pub(super) step: u64,
    pub(super) plan: Option<Arc<Compiled>>,
}

/// The expected cases of a run, in the order of their use.
pub(super) struct Outlook {
    pub(super) cases: Vec<Foreseen>,
    /// Whether there are no other cases.
    pub(super) is_all: bool,
}

impl Outlook {
    /// Searches the steps of a run of `total`, and plans the first of its cases: all of them on a device that `waits`
    /// for its recordings, otherwise for a limited time.
    ///
    /// # Errors
    /// If a step cannot be planned.
    pub(super) fn new(planner: &StepPlanner, feed: &DataFeed, total: u64, waits: bool) -> Result<Self, TrainError> {
        let mut outlook = Self { cases: Vec::new(), is_all: true };
        let mut seen = HashSet::new();
        let batches = planner.model().accumulate;
        let last = total.min(MOST_STEPS);
        for step in 1..=last {
            let code = planner.paths().code_at(step);
            for batch in 0..batches {
                let ahead = (step - 1) as usize * batches + batch;
                for shape in feed.shapes_ahead(ahead, &BatchShape::whole(planner.model())) {
                    let case = Case { shape, code, share: Share::of(batch, batches) };
                    if seen.insert(case) {
                        outlook.cases.push(Foreseen { case, step, plan: None });
                    }
                }
            }
            if outlook.cases.len() >= MOST_FORESEEN || (!planner.paths().vary() && !feed.is_listed()) {
                outlook.is_all = !planner.paths().vary();
                break;
            }
        }
        outlook.is_all &= last == total || !(planner.paths().vary() || feed.is_listed());
        let started = Instant::now();
        for foreseen in outlook.cases.iter_mut().take(MOST_AT_FIRST) {
            if !waits && started.elapsed() > AT_FIRST {
                break;
            }
            let Foreseen { case, step, plan } = foreseen;
            if !planner.is_whole(&planner.key(*case, *step)?) {
                *plan = Some(planner.plan(*case, *step)?);
            }
        }
        Ok(outlook)
    }

    /// The plans that were made.
    pub(super) fn plans(&self) -> impl Iterator<Item = Arc<Compiled>> {
        self.cases.iter().filter_map(|foreseen| foreseen.plan.clone())
    }
}
