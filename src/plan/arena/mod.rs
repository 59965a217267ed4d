//! The arena: an offset for every buffer of a step, in as few bytes as possible.
//!
//! Buffers that are alive at different times may share bytes. Finding the offsets that make the arena smallest is
//! *offline dynamic storage allocation*, which is NP-hard; but no arena is smaller than the largest sum of live bytes,
//! and for the buffers of training steps quick planners usually reach this bound. So [`plan_best`] tries the planners
//! in the order of their success and stops as soon as one reaches the bound; if none does, the search follows.
//!
//! | file | what it holds |
//! |---|---|
//! | `problem` | items, problems, placements |
//! | `sections` | time cut where items begin |
//! | `orders` | what goes first |
//! | `skyline` | the lowest-offset-first planner |
//! | `greedy` | the first-fit planner |
//! | `instance`, `depth_first`, `search` | what a depth-first search looks at, one such search, and the many of them |
//! | `repair` | skyline plans that learn from the one before |
//! | `seed_mix` | repeatable noise for the orders of search and repair |
//! | `referee` | checks placements, and shares no code with the planners |
//! | `csv` | problems from files |

pub mod csv;
mod depth_first;
mod greedy;
mod instance;
mod orders;
mod problem;
pub mod referee;
mod repair;
#[cfg(test)]
mod samples;
mod search;
mod sections;
mod seed_mix;
mod skyline;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use orders::Key;
pub use problem::{Item, ItemId, Placement, Problem, ProblemError};
pub use referee::Violation;
use repair::Repair;
use search::Limit;
use sections::Sections;

/// A way to place buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Planner {
    /// Lowest offset first; among those the item in the fullest section, then the one that lives longest.
    LowestByTotalThenDuration,
    /// Lowest offset first; among those the item that lives longest, then the one of the largest area.
    LowestByDuration,
    /// Lowest offset first; among those the item in the fullest section, then the one of the largest area.
    LowestByTotalThenArea,
    /// Lowest offset first; among those the item of the largest bytes times time.
    LowestByArea,
    /// Lowest offset first; among those the largest item.
    LowestBySize,
    /// First fit; the largest item first.
    GreedyBySize,
    /// First fit; the item in the fullest section first, then the largest.
    GreedyByTotal,
    /// First fit; the item of the largest bytes times time first.
    GreedyByArea,
    /// First fit; the item that lives longest first.
    GreedyByDuration,
    /// Repeated depth-first search for a placement below the best one of the preceding planners.
    Search,
    /// Lowest offset first, repeatedly; items that ended too high are placed earlier in the next round.
    Repair,
}

impl Planner {
    /// Every planner, in the order in which [`plan_best`] tries them.
    pub const ALL: [Self; 11] = [
        Self::LowestByTotalThenDuration,
        Self::LowestByDuration,
        Self::LowestByTotalThenArea,
        Self::LowestByArea,
        Self::LowestBySize,
        Self::GreedyBySize,
        Self::GreedyByTotal,
        Self::GreedyByArea,
        Self::GreedyByDuration,
        Self::Search,
        Self::Repair,
    ];

    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::LowestByTotalThenDuration => "lowest_by_total_then_duration",
            Self::LowestByDuration => "lowest_by_duration",
            Self::LowestByTotalThenArea => "lowest_by_total_then_area",
            Self::LowestByArea => "lowest_by_area",
            Self::LowestBySize => "lowest_by_size",
            Self::GreedyBySize => "greedy_by_size",
            Self::GreedyByTotal => "greedy_by_total",
            Self::GreedyByArea => "greedy_by_area",
            Self::GreedyByDuration => "greedy_by_duration",
            Self::Search => "search",
            Self::Repair => "repair",
        }
    }

    /// The placement of this planner; the search starts from that of the first planner.
    pub fn plan(self, problem: &Problem) -> Placement {
        self.place(problem, &Sections::new(problem))
    }

    fn place(self, problem: &Problem, sections: &Sections) -> Placement {
        let order = |keys: &[Key]| orders::sorted(problem, sections, keys);
        let lowest = |keys: &[Key]| skyline::plan(problem, sections, &order(keys));
        let greedy = |keys: &[Key]| greedy::plan(problem, &order(keys));
        match self {
            Self::LowestByTotalThenDuration => lowest(&[Key::Total, Key::Duration, Key::Area]),
            Self::LowestByDuration => lowest(&[Key::Duration, Key::Area, Key::Total]),
            Self::LowestByTotalThenArea => lowest(&[Key::Total, Key::Area, Key::Duration]),
            Self::LowestByArea => lowest(&[Key::Area, Key::Duration]),
            Self::LowestBySize => lowest(&[Key::Size, Key::Duration]),
            Self::GreedyBySize => greedy(&[Key::Size, Key::Duration]),
            Self::GreedyByTotal => greedy(&[Key::Total, Key::Size]),
            Self::GreedyByArea => greedy(&[Key::Area]),
            Self::GreedyByDuration => greedy(&[Key::Duration, Key::Size]),
            Self::Search => {
                let first = Self::LowestByTotalThenDuration.place(problem, sections);
                let limit = Limit::Steps(DEFAULT_STEPS);
                search::improve(problem, sections, first.height, limit).placement.unwrap_or(first)
            }
            Self::Repair => repaired(problem, sections),
        }
    }
}

/// The lowest of a fixed number of rounds of repair, or the first that meets the bound.
fn repaired(problem: &Problem, sections: &Sections) -> Placement {
    let lower_bound = problem.lower_bound();
    let mut repair = Repair::new(problem, sections);
    let mut best = repair.next_round();
    for _ in 1..REPAIR_PLACEMENTS / problem.items().len().max(1) {
        if best.height == lower_bound {
            break;
        }
        let placement = repair.next_round();
        if placement.height < best.height {
            best = placement;
        }
    }
    best
}

impl std::fmt::Display for Planner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// The number of steps of the search if no time is given: some ten milliseconds.
const DEFAULT_STEPS: u64 = 1 << 25;

/// The number of items that repair may place in all its rounds, which takes about as long.
const REPAIR_PLACEMENTS: usize = 1 << 15;

/// The limit of the work for a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Budget {
    /// How long to search if the quick planners leave a gap; without it a fixed small amount of work, so that the
    /// result depends only on the problem.
    pub time: Option<Duration>,
}

/// The result of one planner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    pub planner: Planner,
    /// The height of its placement, in bytes.
    pub height: u64,
    /// The time that it took.
    pub micros: u64,
}

/// The best placement, and how it was found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    pub placement: Placement,
    /// The planner that found the placement.
    pub planner: Planner,
    /// The largest sum of live extents, in bytes.
    pub lower_bound: u64,
    /// The sum of all extents, in bytes.
    pub unshared: u64,
    /// Height over lower bound; 1 for an empty arena.
    pub ratio: f64,
    /// The results of all tried planners, in order.
    pub tried: Vec<Attempt>,
    /// Whether it is proved that no placement is lower.
    pub proved_optimal: bool,
}

/// The lowest placement that the planners find within the budget. No further planner runs once the bound is reached.
pub fn plan_best(problem: &Problem, budget: Budget) -> Report {
    let deadline = budget.time.and_then(|time| Instant::now().checked_add(time));
    let lower_bound = problem.lower_bound();
    let sections = Sections::new(problem);
    let mut tried = Vec::new();
    let mut best: Option<(Placement, Planner)> = None;
    let mut proved_optimal = false;
    for planner in Planner::ALL {
        let attempt_started = Instant::now();
        let best_height = best.as_ref().map_or(u64::MAX, |(placement, _)| placement.height);
        let placement = if planner == Planner::Search {
            let limit = deadline.map_or(Limit::Steps(DEFAULT_STEPS), Limit::Deadline);
            let found = search::improve(problem, &sections, best_height, limit);
            proved_optimal = found.proved;
            found.placement
        } else {
            Some(planner.place(problem, &sections))
        };
        tried.push(Attempt {
            planner,
            height: placement.as_ref().map_or(best_height, |placement| placement.height),
            micros: attempt_started.elapsed().as_micros() as u64,
        });
        if let Some(placement) = placement.filter(|placement| placement.height < best_height) {
            best = Some((placement, planner));
        }
        proved_optimal |= best.as_ref().is_some_and(|(placement, _)| placement.height == lower_bound);
        if proved_optimal || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            break;
        }
    }
    let Some((placement, planner)) = best else { unreachable!("every planner but the search has a placement") };
    let ratio = if lower_bound == 0 { 1.0 } else { placement.height as f64 / lower_bound as f64 };
    Report { placement, planner, lower_bound, unshared: problem.unshared(), ratio, tried, proved_optimal }
}
