//! Time, divided into as few sections as the planners need.
//!
//! Two half-open ranges overlap exactly if one of them is alive when the other begins. So only the times at which some
//! item begins matter: each starts a *section*, and an item spans a contiguous run of sections.

use super::problem::Problem;

/// The sections `[first, end)` that an item spans; never empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub first: usize,
    pub end: usize,
}

impl Span {
    /// How many sections the item spans.
    pub fn width(self) -> usize {
        self.end - self.first
    }
}

/// A problem's items over its sections.
#[derive(Debug, Clone)]
pub(super) struct Sections {
    /// How many sections there are.
    pub count: usize,
    /// The run of sections of each item.
    pub spans: Vec<Span>,
    /// The sum of live extents in each section, in bytes.
    pub totals: Vec<u64>,
}

impl Sections {
    /// Divides the problem's time at every time at which an item begins.
    pub fn new(problem: &Problem) -> Self {
        let items = problem.items();
        let mut starts: Vec<u64> = items.iter().map(|item| item.lower).collect();
        starts.sort_unstable();
        starts.dedup();
        let section_of = |time: u64| starts.partition_point(|&start| start < time);
        let spans: Vec<Span> =
            items.iter().map(|item| Span { first: section_of(item.lower), end: section_of(item.upper) }).collect();

        // Items that begin in a section are added to the running sum there, and those that ended before it are
        // subtracted; wrapping sums are exact because the true ones fit.
        let mut change = vec![0u64; starts.len() + 1];
        for (item, span) in items.iter().zip(&spans) {
            change[span.first] = change[span.first].wrapping_add(item.extent());
            change[span.end] = change[span.end].wrapping_sub(item.extent());
        }
        let mut live = 0u64;
        let totals = change[..starts.len()]
            .iter()
            .map(|step| {
                live = live.wrapping_add(*step);
                live
            })
            .collect();
        Self { count: starts.len(), spans, totals }
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::random_problems;
    use super::*;

    #[test]
    fn spans_overlap_exactly_if_live_ranges_do() {
        for problem in random_problems(7, 50, 20) {
            let sections = Sections::new(&problem);
            for (a, s) in problem.items().iter().zip(&sections.spans) {
                for (b, t) in problem.items().iter().zip(&sections.spans) {
                    assert_eq!(a.meets(b), s.first < t.end && t.first < s.end);
                }
            }
            assert_eq!(sections.totals.iter().max().copied().unwrap_or(0), problem.lower_bound());
        }
    }
}
