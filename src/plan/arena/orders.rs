//! The orders in which planners place items: items that are hard to place later come first.

use super::problem::{Item, Problem};
use super::sections::Sections;

/// A criterion by which items come first; larger values are earlier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    /// Its extent, in bytes.
    Size,
    /// How long it lives.
    Duration,
    /// Extent times live time.
    Area,
    /// The largest sum of live extents in any of its sections.
    Total,
}

/// The items' positions sorted by the first key, ties by the next ones, and then as the problem lists them.
pub(super) fn sorted(problem: &Problem, sections: &Sections, keys: &[Key]) -> Vec<u32> {
    let columns: Vec<Vec<u128>> = keys.iter().map(|&key| values(problem, sections, key)).collect();
    let mut order: Vec<u32> = (0..problem.items().len() as u32).collect();
    order.sort_by(|&a, &b| {
        columns
            .iter()
            .map(|column| column[b as usize].cmp(&column[a as usize]))
            .find(|ordering| ordering.is_ne())
            .unwrap_or(a.cmp(&b))
    });
    order
}

/// The key of every item, by its position in the problem.
pub(super) fn values(problem: &Problem, sections: &Sections, key: Key) -> Vec<u128> {
    let per_item = |value: fn(&Item) -> u128| problem.items().iter().map(value).collect();
    match key {
        Key::Size => per_item(|item| u128::from(item.extent())),
        Key::Duration => per_item(|item| u128::from(item.duration())),
        Key::Area => per_item(|item| u128::from(item.extent()) * u128::from(item.duration())),
        Key::Total => largest_totals(sections).into_iter().map(u128::from).collect(),
    }
}

/// For each item, the largest total of any section that it spans, in bytes.
fn largest_totals(sections: &Sections) -> Vec<u64> {
    // Row k holds the maxima over runs of 2^k sections: two rows' entries cover any span.
    let mut rows = vec![sections.totals.clone()];
    for k in 1..=sections.count.max(1).ilog2() {
        let half = 1usize << (k - 1);
        let row = &rows[rows.len() - 1];
        let next = (0..=sections.count - 2 * half).map(|s| row[s].max(row[s + half])).collect();
        rows.push(next);
    }
    sections
        .spans
        .iter()
        .map(|span| {
            let k = span.width().ilog2();
            let row = &rows[k as usize];
            row[span.first].max(row[span.end - (1usize << k)])
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::samples::random_problems;
    use super::*;

    #[test]
    fn the_largest_total_is_that_of_the_fullest_section() {
        for problem in random_problems(3, 50, 30) {
            let sections = Sections::new(&problem);
            let plain: Vec<u64> =
                sections.spans.iter().map(|s| sections.totals[s.first..s.end].iter().copied().max().unwrap()).collect();
            assert_eq!(largest_totals(&sections), plain);
        }
    }
}
