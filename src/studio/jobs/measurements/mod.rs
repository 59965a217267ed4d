//! Measurements on request, each on a separate thread: measured times, comparisons of planners and precisions, and the
//! values in a buffer.
//!
//! Answers belong to a revision of the plan; answers for another revision are not shown.

mod private_copy;
mod request;

use crate::exec::cpu::Ceilings;
use crate::studio::commands::choices::{JobKind, Weights};
use crate::studio::jobs::background::{Background, Watch};
use crate::studio::jobs::planned_network::PlannedNetwork;
use crate::studio::view_models::compare::Comparison;
use crate::studio::view_models::measured::Measured;
use crate::studio::view_models::values::{Place, ShownValues};
use crate::train::{DataChoice, FirstBad, Moment, OpTimes, SessionSpec, measure_ops};
use private_copy::PrivateCopy;
use request::{Point, Task, ValuesAnswer, ValuesRequest};
use std::sync::Arc;

/// A plan's revision, and its times or why there are none.
type TimesAnswer = (u64, Result<OpTimes, String>);

/// Which values of a buffer are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    pub slice: usize,
    /// Which part of a flat vector: one parameter, gradient or moment.
    pub part: usize,
}

/// The state of showing values.
#[derive(Default)]
pub struct Values {
    /// True if the user wants to see them.
    pub on: bool,
    pub cut: Cut,
    /// The user's choice; without one, the run's weights are shown once they exist.
    pub weights: Option<Weights>,
    /// True if the run trains the network on screen and has made steps.
    pub has_run: bool,
    pub shown: Option<Box<ShownValues>>,
    pub problem: Option<String>,
    /// The revision that was searched, and the first value that is not finite.
    pub first_bad: Option<(u64, Option<FirstBad>)>,
    asked: Option<Point>,
    searching: bool,
}

impl Values {
    /// The weights to show, if they are available.
    #[must_use]
    pub fn wanted(&self) -> Weights {
        self.weights.unwrap_or(if self.has_run { Weights::Run } else { Weights::Initial })
    }
}

/// A result to report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    Times,
    Comparison,
}

/// Measurements and comparisons on request.
pub struct Measurements {
    wake: Arc<dyn Fn() + Send + Sync>,
    measurer: Option<Background<(PlannedNetwork, Option<Ceilings>), TimesAnswer>>,
    comparer: Option<Background<PlannedNetwork, (u64, Comparison)>>,
    prober: Option<Background<ValuesRequest, ValuesAnswer>>,
    measured: Option<Measured>,
    /// Measured once, because they are valid for every plan on this machine.
    pub ceilings: Option<Ceilings>,
    comparison: Option<(u64, Comparison)>,
    /// The last result, until it is reported.
    pub found: Option<Finding>,
    pub values: Values,
    /// The run, and its steps when its weights were last requested.
    pub snapshot_of: Option<(u64, u64)>,
    /// The operation at the scrubber.
    pub scrub: Option<usize>,
    number: u64,
}

impl Measurements {
    /// No results, and no running thread; `wake` requests a frame.
    #[must_use]
    pub fn new(wake: Arc<dyn Fn() + Send + Sync>) -> Self {
        Self {
            wake,
            measurer: None,
            comparer: None,
            prober: None,
            measured: None,
            ceilings: None,
            comparison: None,
            found: None,
            values: Values::default(),
            snapshot_of: None,
            scrub: None,
            number: 0,
        }
    }

    /// The measured times of the plan with this revision.
    #[must_use]
    pub fn measured(&self, revision: u64) -> Option<&Measured> {
        self.measured.as_ref().filter(|m| m.revision == revision)
    }

    /// Planners and precisions for the plan with this revision.
    #[must_use]
    pub fn comparison(&self, revision: u64) -> Option<&Comparison> {
        self.comparison.as_ref().filter(|(r, _)| *r == revision).map(|(_, c)| c)
    }

    #[must_use]
    pub fn is_measuring(&self) -> bool {
        self.measurer.as_ref().is_some_and(Background::is_busy)
    }

    #[must_use]
    pub fn is_comparing(&self) -> bool {
        self.comparer.as_ref().is_some_and(Background::is_busy)
    }

    #[must_use]
    pub fn is_looking(&self) -> bool {
        self.prober.as_ref().is_some_and(Background::is_busy)
    }

    /// True while the step is searched for its first value that is not finite.
    #[must_use]
    pub const fn is_searching(&self) -> bool {
        self.values.searching
    }

    /// The share of the running comparison that is done, from 0 to 1.
    #[must_use]
    pub fn compared(&self) -> Option<f32> {
        self.comparer.as_ref().and_then(Background::progress)
    }

    /// Cancels the job of this kind.
    pub fn cancel(&mut self, kind: JobKind) {
        match kind {
            JobKind::Measure => self.measurer.iter_mut().for_each(Background::cancel),
            JobKind::Compare => self.comparer.iter_mut().for_each(Background::cancel),
            JobKind::Values | JobKind::Search => {
                self.prober.iter_mut().for_each(Background::cancel);
                self.values.searching = false;
            }
            _ => {}
        }
    }

    /// Drops everything that belongs to the closed document.
    pub fn clear(&mut self) {
        let on = self.values.on;
        (self.measured, self.comparison, self.scrub) = (None, None, None);
        self.values = Values { on, ..Values::default() };
    }

    fn bell(&self) -> Arc<dyn Fn() + Send + Sync> {
        Arc::clone(&self.wake)
    }

    /// Times every operation of the plan.
    ///
    /// # Errors
    /// If the system refuses to start a thread.
    pub fn measure(&mut self, network: PlannedNetwork) -> std::io::Result<()> {
        if self.measurer.is_none() {
            let work = |(network, ceilings): (PlannedNetwork, Option<Ceilings>)| {
                let spec = SessionSpec { data: DataChoice::Resident, ..network.spec() };
                (network.revision, measure_ops(&spec, ceilings).map_err(|e| e.to_string()))
            };
            self.measurer = Some(Background::spawn("stepgraph-measure", self.bell(), work)?);
        }
        if let Some(measurer) = &mut self.measurer {
            measurer.ask((network, self.ceilings.clone()));
        }
        Ok(())
    }

    /// Compares every planner and every precision.
    ///
    /// # Errors
    /// If the system refuses to start a thread.
    pub fn compare(&mut self, network: PlannedNetwork) -> std::io::Result<()> {
        if self.comparer.is_none() {
            let work = |network: PlannedNetwork, watch: &Watch| {
                let found = Comparison::watched(&network.plan.compiled, &|share| watch.report(share));
                (network.revision, found)
            };
            self.comparer = Some(Background::spawn_watched("stepgraph-compare", self.bell(), work)?);
        }
        if let Some(comparer) = &mut self.comparer {
            comparer.ask(network);
        }
        Ok(())
    }

    fn probe(&mut self, request: ValuesRequest) -> std::io::Result<()> {
        if self.prober.is_none() {
            let mut copy = PrivateCopy::default();
            self.prober =
                Some(Background::spawn("stepgraph-values", self.bell(), move |request| copy.answer(&request))?);
        }
        if let Some(prober) = &mut self.prober {
            prober.ask(request);
        }
        Ok(())
    }

    /// The weights whose values are shown: those of the run only if there are any.
    #[must_use]
    pub fn weights(&self, has_snapshot: bool) -> Weights {
        if has_snapshot { self.values.wanted() } else { Weights::Initial }
    }

    fn wanted(&self, snapshot: Option<&Arc<Moment>>) -> Option<Arc<Moment>> {
        snapshot.filter(|_| self.values.wanted() == Weights::Run).map(Arc::clone)
    }

    /// Searches the step for its first value that is not finite.
    ///
    /// # Errors
    /// If the system refuses to start a thread.
    pub fn find_first_bad(&mut self, network: PlannedNetwork, snapshot: Option<&Arc<Moment>>) -> std::io::Result<()> {
        self.values.searching = true;
        self.values.first_bad = None;
        let snapshot = self.wanted(snapshot);
        self.probe(ValuesRequest { network, snapshot, task: Task::FirstBad })
    }

    /// Requests the values at `place` if they are wanted and others are shown.
    ///
    /// # Errors
    /// If the system refuses to start a thread.
    pub fn follow(
        &mut self,
        network: impl FnOnce() -> PlannedNetwork,
        revision: u64,
        place: Option<Place>,
        snapshot: Option<&Arc<Moment>>,
    ) -> std::io::Result<()> {
        // A search is not cancelled by a request for values.
        let (true, false, Some(place)) = (self.values.on, self.values.searching, place) else { return Ok(()) };
        let weights = self.weights(snapshot.is_some());
        let snapshot = self.wanted(snapshot);
        let step = snapshot.as_ref().map_or(0, |m| m.step);
        let known = self.values.asked;
        let meant = |p: Place| (p.buffer, p.part);
        if known.is_none_or(|a| (meant(a.place), a.revision) != (meant(place), revision)) {
            self.values.cut = Cut { slice: 0, part: place.part };
        } else if known.is_some_and(|a| a.part != self.values.cut.part) {
            self.values.cut.slice = 0;
        }
        let Cut { slice, part } = self.values.cut;
        let point = Point { revision, place, part, slice, weights, step };
        if known == Some(point) {
            return Ok(());
        }
        self.values.asked = Some(point);
        self.probe(ValuesRequest { network: network(), snapshot, task: Task::Query(point) })
    }

    /// Drops everything that belongs to the plan for another device, including the threads that may still be working on
    /// it.
    pub fn change_device(&mut self) {
        (self.measurer, self.comparer, self.prober, self.measured) = (None, None, None, None);
        let Values { on, weights, .. } = self.values;
        self.values = Values { on, weights, ..Values::default() };
    }

    /// Receives answers; returns an error message for the user, if there is one.
    pub fn poll(&mut self) -> Option<String> {
        let mut problem = None;
        if let Some((revision, result)) = self.measurer.as_mut().and_then(Background::poll) {
            match result {
                Ok(times) => {
                    self.ceilings.clone_from(&times.ceilings);
                    self.measured = Some(Measured::new(revision, times));
                    self.found = Some(Finding::Times);
                }
                Err(why) => problem = Some(format!("The step was not measured: {why}")),
            }
        }
        if let Some(answer) = self.comparer.as_mut().and_then(Background::poll) {
            self.comparison = Some(answer);
            self.found = Some(Finding::Comparison);
        }
        match self.prober.as_mut().and_then(Background::poll) {
            Some(ValuesAnswer::Query(point, mut shown)) if self.values.asked == Some(point) => {
                self.number += 1;
                shown.number = self.number;
                self.values.shown = Some(shown);
                self.values.problem = None;
            }
            Some(ValuesAnswer::Query(..)) | None => {}
            Some(ValuesAnswer::FirstBad(revision, found)) => {
                self.values.searching = false;
                match found {
                    Ok(found) => self.values.first_bad = Some((revision, found)),
                    Err(why) => self.values.problem = Some(why),
                }
            }
            Some(ValuesAnswer::Failed(why)) => {
                self.values.searching = false;
                self.values.shown = None;
                self.values.problem = Some(why);
            }
        }
        problem
    }
}
