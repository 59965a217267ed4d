//! The recording of a run whose plan the views show instead of the network's own, planned on a separate thread.

use crate::studio::jobs::background::Background;
use crate::studio::view_models::plan::PlanView;
use crate::train::{RecordingPlans, RecordingSeen};
use std::sync::Arc;

/// The revisions of these plans start here, beyond any revision of a document.
const FIRST_REVISION: u64 = 1 << 62;

/// The views of a planned step, or why there are none.
type Planned = Result<Arc<PlanView>, String>;

/// A recording that the user chose to view.
struct Chosen {
    /// The run that it belongs to.
    run: u64,
    key: String,
    /// How it differs from the other recordings of the run.
    name: String,
    is_planning: bool,
    /// Why there is no plan.
    problem: Option<String>,
}

/// The recording whose plan the views show.
#[derive(Default)]
pub struct ShownRecording {
    planner: Option<Background<(RecordingPlans, RecordingSeen), Planned>>,
    chosen: Option<Chosen>,
    /// The plan of the chosen recording; while it is being planned, that of the previous one.
    plan: Option<Arc<PlanView>>,
    /// The number of plans that were shown so far.
    count: u64,
}

impl ShownRecording {
    /// Plans a recording of a run; its plan is shown from then on.
    ///
    /// # Errors
    /// If the system refuses to start a thread.
    pub fn choose(
        &mut self,
        run: u64,
        name: String,
        (plans, seen): (RecordingPlans, RecordingSeen),
        wake: &Arc<dyn Fn() + Send + Sync>,
    ) -> std::io::Result<()> {
        if self.planner.is_none() {
            let work = |(plans, seen): (RecordingPlans, RecordingSeen)| {
                let compiled = plans.plan(&seen).map_err(|error| error.to_string())?;
                Ok(Arc::new(PlanView::new(compiled)))
            };
            self.planner = Some(Background::spawn("stepgraph-recording", Arc::clone(wake), work)?);
        }
        self.chosen = Some(Chosen { run, key: seen.key.clone(), name, is_planning: true, problem: None });
        if let Some(planner) = &mut self.planner {
            planner.ask((plans, seen));
        }
        Ok(())
    }

    /// Shows the network's own plan again.
    pub fn clear(&mut self) {
        if self.is_planning()
            && let Some(planner) = &mut self.planner
        {
            planner.cancel();
        }
        (self.chosen, self.plan) = (None, None);
    }

    /// Receives the plan once it is made.
    pub fn poll(&mut self) {
        let planned = self.planner.as_mut().and_then(Background::poll);
        let (Some(planned), Some(chosen)) = (planned, &mut self.chosen) else { return };
        chosen.is_planning = false;
        match planned {
            Ok(plan) => (self.plan, self.count) = (Some(plan), self.count + 1),
            Err(why) => (self.plan, chosen.problem) = (None, Some(why)),
        }
    }

    /// The plan to show.
    #[must_use]
    pub const fn plan(&self) -> Option<&Arc<PlanView>> {
        self.plan.as_ref()
    }

    /// A revision for the plan that is shown: different for each plan and from those of documents.
    #[must_use]
    pub const fn revision(&self) -> u64 {
        FIRST_REVISION + self.count
    }

    /// The run that the chosen recording belongs to.
    #[must_use]
    pub fn run(&self) -> Option<u64> {
        self.chosen.as_ref().map(|chosen| chosen.run)
    }

    /// The key of the chosen recording.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        self.chosen.as_ref().map(|chosen| chosen.key.as_str())
    }

    /// The name of the chosen recording.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.chosen.as_ref().map(|chosen| chosen.name.as_str())
    }

    /// Why the chosen recording has no plan to show.
    #[must_use]
    pub fn problem(&self) -> Option<&str> {
        self.chosen.as_ref()?.problem.as_deref()
    }

    /// True while the chosen recording is being planned.
    #[must_use]
    pub fn is_planning(&self) -> bool {
        self.chosen.as_ref().is_some_and(|chosen| chosen.is_planning)
    }
}
