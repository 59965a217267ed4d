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
    /// The progress of the run; empty if there is none.
    pub run: String,
    pub problems: usize,
    /// The numbers of the plan.
    pub plan: Option<String>,
    pub difference: Option<DifferenceView<'a>>,
    /// True if the plan is that of the network before its mistakes.
    pub is_plan_outdated: bool,
}

/// The changes of the plan by the last edit.
#[derive(Clone, Copy, Debug)]
pub struct DifferenceView<'a> {
    /// In a line.
    pub text: &'a str,
    /// The time from the edit to the new plan.
    pub took: Duration,
    /// The added and removed items; `None` if the previous plan is not known any more.
    pub changes: Option<&'a PlanChanges>,
}
