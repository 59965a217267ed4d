//! What the status line shows.

use crate::studio::view_models::changes::PlanChanges;
use crate::studio::view_models::job::Job;
use crate::studio::view_models::notice::Notice;
use std::time::Duration;

/// What the status line shows.
#[derive(Clone, Debug)]
pub struct StatusView<'a> {
    pub notice: Option<&'a Notice>,
    pub jobs: &'a [Job],
    /// How the step is recorded.
    pub recorded: String,
    /// How far the run is; empty where there is none.
    pub run: String,
    pub problems: usize,
    /// The numbers of the plan.
    pub plan: Option<String>,
    pub difference: Option<DifferenceView<'a>>,
    /// True where the plan is that of the network before its problems.
    pub is_plan_outdated: bool,
}

/// What the last edit changed about the plan.
#[derive(Clone, Copy, Debug)]
pub struct DifferenceView<'a> {
    /// In a line.
    pub text: &'a str,
    /// From the edit to the new plan.
    pub took: Duration,
    /// What came and went; `None` where the plan before is not known any more.
    pub changes: Option<&'a PlanChanges>,
}
