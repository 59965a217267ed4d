//! The search for lower placements: many short depth-first searches, each with its own order.
//!
//! A search that succeeds usually does so within a few nodes for each item; otherwise even hours may not be enough. So
//! there are many short searches and few long ones, in the proportions of Luby, Sinclair and Zuckerman ("Optimal
//! speedup of Las Vegas algorithms", 1993). Orders are drawn from those of the planners with growing noise, by a fixed
//! rule: search number k is the same on every machine.
//!
//! Searches run in batches on all cores. The result of a batch is that of its first search, by number, that reached a
//! result, so it does not depend on which thread was faster; only the time at which the time limit is reached does.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use super::depth_first::{DepthFirst, First, STACK_BYTES, Strategy, Verdict};
use super::instance::Instance;
use super::orders::{self, Key};
use super::problem::{Placement, Problem};
use super::repair::Repair;
use super::sections::{Sections, Span};
use super::seed_mix::uniform;

/// How long to search.
#[derive(Debug, Clone, Copy)]
pub(super) enum Limit {
    /// Up to this many steps: a visit to one item in one section is a step, and takes about a nanosecond.
    Steps(u64),
    /// Until this time.
    Deadline(Instant),
}

/// The result of a search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    /// The lowest placement, if it is lower than the one from which the search started.
    pub placement: Option<Placement>,
    /// Whether it is proved that nothing can be lower than that placement, or than the first one if there is none.
    pub proved: bool,
}

/// The number of searches in a batch.
const BATCH: u64 = 8;
/// If visiting every section takes more steps than this, searches visit only the lowest valley.
const LARGE: u64 = 20_000;
/// More threads than this improve little on problems of a few hundred items.
const MOST_THREADS: usize = 8;

/// Searches for placements lower than `height` bytes until one reaches the bound or the limit is reached.
pub(super) fn improve(problem: &Problem, sections: &Sections, height: u64, limit: Limit) -> Found {
    let nothing = Found { placement: None, proved: false };
    if let Limit::Steps(steps) = limit {
        // If not even one search is within these steps, the preparation costs more than they allow.
        let steps_a_node: u64 = sections.spans.iter().map(|span| span.width() as u64).sum();
        if steps_a_node.saturating_mul(sections.spans.len() as u64) > steps {
            return nothing;
        }
    }
    match Field::new(problem, sections) {
        Some(field) => field.improve(height, limit, Repair::new(problem, sections)),
        None => nothing,
    }
}

/// A problem in the form that the searches use, and the keys of their orders.
struct Field<'a> {
    problem: &'a Problem,
    instance: Instance,
    /// The items of the instance, by their index in the problem: those that have bytes.
    items: Vec<usize>,
    /// The bytes of one unit of the instance.
    unit: u64,
    /// Whether the instance has a placement exactly if the problem has one.
    exact: bool,
    /// The values of each key, in the order of the variants of [`Key`], by instance item.
    keys: Vec<Vec<f64>>,
}

/// The first and second key of the orders, the most successful one first.
const BASES: [(Key, Key); 8] = [
    (Key::Size, Key::Duration),
    (Key::Area, Key::Duration),
    (Key::Duration, Key::Total),
    (Key::Total, Key::Size),
    (Key::Size, Key::Total),
    (Key::Duration, Key::Area),
    (Key::Total, Key::Duration),
    (Key::Area, Key::Size),
];

impl<'a> Field<'a> {
    /// Prepares the search; `None` if the alignments have no common multiple that fits in 64 bits.
    fn new(problem: &'a Problem, sections: &Sections) -> Option<Self> {
        let all = problem.items();
        let items: Vec<usize> = (0..all.len()).filter(|&i| all[i].extent() > 0).collect();
        // The searches do not handle alignments. If extents are multiples of every alignment, so are all offsets that
        // they can find. Otherwise extents are rounded up, which may exclude a placement and proves nothing.
        let align = items.iter().try_fold(1, |align, &i| least_common_multiple(align, all[i].align))?;
        let extents =
            items.iter().map(|&i| all[i].extent().checked_next_multiple_of(align)).collect::<Option<Vec<u64>>>()?;
        extents.iter().try_fold(0u64, |sum, &extent| sum.checked_add(extent))?;
        let exact = items.iter().zip(&extents).all(|(&i, &extent)| all[i].extent() == extent);
        let unit = extents.iter().fold(0, |unit, &extent| greatest_common_divisor(extent, unit)).max(1);
        let spans: Vec<Span> = items.iter().map(|&i| sections.spans[i]).collect();
        let keys = [Key::Size, Key::Duration, Key::Area, Key::Total]
            .map(|key| {
                let values = orders::values(problem, sections, key);
                items.iter().map(|&i| values[i] as f64).collect()
            })
            .to_vec();
        Some(Self {
            problem,
            instance: Instance::new(sections, &spans, extents.iter().map(|extent| extent / unit).collect()),
            items,
            unit,
            exact,
            keys,
        })
    }

    /// Lowers the target between what is proved to be impossible and what is found.
    fn improve(&self, height: u64, limit: Limit, mut repair: Repair<'_>) -> Found {
        let mut best: Option<Placement> = None;
        // No placement is below `low`, one is known at `high`; both are in units.
        let mut low = self.instance.bound();
        let mut high = height.div_ceil(self.unit);
        let mut searches_left = match limit {
            Limit::Steps(steps) => steps / (self.instance.steps_a_node() * self.nodes(0)).max(1),
            Limit::Deadline(_) => u64::MAX,
        };
        let deadline = match limit {
            Limit::Steps(_) => None,
            Limit::Deadline(deadline) => Some(deadline),
        };
        let rounds = self.repairs_a_batch(deadline.is_some());
        let is_over = || deadline.is_some_and(|deadline| Instant::now() >= deadline);
        let (mut at_bound, mut between) = (0, 0);
        let mut nearness = 1;
        while low < high && searches_left > 0 {
            for _ in 0..rounds {
                if low >= high || is_over() {
                    break;
                }
                let placement = repair.next_round();
                let reached = placement.height.div_ceil(self.unit);
                if reached < high {
                    high = reached;
                    best = Some(placement);
                }
            }
            if low >= high || is_over() {
                break;
            }
            // Every third batch uses a target between the bound and the known height, ever nearer to the latter until
            // one succeeds.
            let gap = high - low;
            let aims_at_bound = gap == 1 || at_bound <= 2 * between;
            let (target, first) =
                if aims_at_bound { (low, &mut at_bound) } else { (high - (gap >> nearness).max(1), &mut between) };
            let count = BATCH.min(searches_left);
            let verdict = self.batch(target, *first..*first + count, deadline);
            *first += count;
            searches_left -= count;
            match verdict {
                Verdict::Solved(offsets) => {
                    let placement = self.placement(&offsets);
                    high = placement.height.div_ceil(self.unit).min(target);
                    best = Some(placement);
                }
                Verdict::Impossible => low = target + 1,
                Verdict::Stopped if !aims_at_bound => {
                    nearness = if gap >> nearness > 1 { nearness + 1 } else { 1 };
                }
                Verdict::Stopped => {}
            }
        }
        Found { placement: best, proved: self.exact && low >= high }
    }

    /// The number of rounds of repair before each batch. Searches of large problems are slow and seldom succeed, so
    /// that repair gets more of the time there.
    fn repairs_a_batch(&self, has_deadline: bool) -> u64 {
        match (has_deadline, self.is_large()) {
            (false, _) => 0,
            (true, true) => 512,
            (true, false) => 8,
        }
    }

    /// Runs the searches with these numbers; returns the result of the first one that has one.
    fn batch(&self, target: u64, numbers: std::ops::Range<u64>, deadline: Option<Instant>) -> Verdict {
        let next = AtomicU64::new(numbers.start);
        let settled = AtomicU64::new(u64::MAX);
        let verdict = Mutex::new((u64::MAX, Verdict::Stopped));
        let work = || {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= numbers.end || settled.load(Ordering::Relaxed) < number {
                    return;
                }
                let stop = || {
                    settled.load(Ordering::Relaxed) < number
                        || deadline.is_some_and(|deadline| Instant::now() >= deadline)
                };
                let found = DepthFirst::run(&self.instance, target, &self.strategy(number), &stop);
                if found != Verdict::Stopped {
                    settled.fetch_min(number, Ordering::Relaxed);
                    let mut first = verdict.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    if number < first.0 {
                        *first = (number, found);
                    }
                }
            }
        };
        let threads = thread::available_parallelism().map_or(1, |n| n.get().min(MOST_THREADS));
        thread::scope(|scope| {
            for index in 0..threads {
                let spawned = thread::Builder::new()
                    .name(format!("stepgraph-arena-{index}"))
                    .stack_size(STACK_BYTES)
                    .spawn_scoped(scope, work);
                // With fewer threads it only takes longer, and without any thread the batch has no result.
                if spawned.is_err() {
                    break;
                }
            }
        });
        verdict.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner).1
    }

    /// Whether visiting every section is too slow.
    fn is_large(&self) -> bool {
        self.instance.steps_a_node() > LARGE
    }

    /// The parameters of search number `number`.
    fn strategy(&self, number: u64) -> Strategy {
        let bases = BASES.len() as u64;
        let (primary, secondary) = BASES[(number % bases) as usize];
        let lap = number / bases;
        let noise = if lap == 0 { 0.0 } else { [0.1, 0.3, 1.0][(lap % 3) as usize] };
        let first = if self.is_large() || lap % 2 == 1 { First::LowestValley } else { First::FewestChoices };
        let value =
            |item: usize| self.keys[primary as usize][item] * (1.0 + noise * uniform((number << 32) + item as u64));
        let mut order: Vec<(f64, f64, usize)> =
            (0..self.items.len()).map(|item| (value(item), self.keys[secondary as usize][item], item)).collect();
        order.sort_by(|a, b| b.0.total_cmp(&a.0).then(b.1.total_cmp(&a.1)).then(a.2.cmp(&b.2)));
        let mut ranks = vec![0; order.len()];
        for (rank, &(_, _, item)) in order.iter().enumerate() {
            ranks[item] = rank as u32;
        }
        Strategy { first, ranks, nodes: self.nodes(number) }
    }

    /// The number of nodes that search number `number` may visit.
    fn nodes(&self, number: u64) -> u64 {
        2 * self.items.len() as u64 * luby(number + 1)
    }

    /// Turns a search's offsets into a placement of the problem.
    fn placement(&self, offsets: &[u64]) -> Placement {
        let mut all = vec![0; self.problem.items().len()];
        for (&item, offset) in self.items.iter().zip(offsets) {
            all[item] = offset * self.unit;
        }
        Placement::new(self.problem, all)
    }
}

/// The sequence 1 1 2 1 1 2 4 1 1 2 1 1 2 4 8 ..., counted from 1.
fn luby(mut number: u64) -> u64 {
    loop {
        let power = (number + 1).next_power_of_two();
        if power == number + 1 {
            return power / 2;
        }
        number -= power / 2 - 1;
    }
}

fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

fn least_common_multiple(a: u64, b: u64) -> Option<u64> {
    (a / greatest_common_divisor(a, b)).checked_mul(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_searches_are_short_and_few_are_long() {
        let start: Vec<u64> = (1..=15).map(luby).collect();
        assert_eq!(start, [1, 1, 2, 1, 1, 2, 4, 1, 1, 2, 1, 1, 2, 4, 8]);
    }

    #[test]
    fn the_common_alignment_is_the_least_common_multiple_and_may_be_too_large() {
        assert_eq!(least_common_multiple(12, 256), Some(768));
        assert_eq!(least_common_multiple(u64::MAX, u64::MAX - 1), None);
    }
}
