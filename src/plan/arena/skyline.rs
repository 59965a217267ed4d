//! Lowest offset first: items are placed on a skyline, always in its lowest valley.
//!
//! The skyline contains, for each section, the height that is occupied. The item that can be placed lowest is one that
//! fits into the lowest valley; among those, an order decides. A valley into which no item fits is filled up to its
//! lower neighbour.
//!
//! Every placement adds at most two pieces to the skyline and every filling removes one, and the best item for a valley
//! is found with a search tree, so a whole plan takes about `n log n` steps even if every item overlaps every other.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::problem::{Placement, Problem};
use super::sections::{Sections, Span};

/// Places the items on the skyline; among those that fit into the lowest valley, the one that `order` lists first.
///
/// `order` names every item once, by its position in the problem.
pub(super) fn plan(problem: &Problem, sections: &Sections, order: &[u32]) -> Placement {
    let items = problem.items();
    let mut offsets = vec![0; items.len()];
    let mut waiting = Waiting::new(problem, sections, order);
    let mut skyline = Skyline::new(sections.count);
    while let Some(valley) = skyline.lowest_valley() {
        let Some(item) = waiting.take_first_inside(valley.span) else {
            skyline.fill(valley);
            continue;
        };
        let offset = valley.floor.next_multiple_of(items[item].align);
        offsets[item] = offset;
        let top = offset + items[item].extent();
        skyline.stack(valley, sections.spans[item], top);
    }
    Placement::new(problem, offsets)
}

/// A run of sections of one height whose neighbours are higher.
#[derive(Debug, Clone, Copy)]
struct Valley {
    span: Span,
    floor: u64,
}

/// The occupied height over all sections, as a list of level pieces.
struct Skyline {
    /// The end of the piece that begins at a section, or 0 if none begins.
    end: Vec<usize>,
    /// The first section of the piece that ends at a section.
    first: Vec<usize>,
    /// The height of the piece that begins at a section, in bytes.
    floor: Vec<u64>,
    /// The pieces by height and first section, with outdated entries that are skipped when they are reached.
    heap: BinaryHeap<Reverse<(u64, usize)>>,
}

impl Skyline {
    /// One level piece at height 0.
    fn new(count: usize) -> Self {
        let mut skyline = Self {
            end: vec![0; count + 1],
            first: vec![0; count + 1],
            floor: vec![0; count + 1],
            heap: BinaryHeap::new(),
        };
        skyline.set_piece(Span { first: 0, end: count }, 0);
        skyline
    }

    /// Adds a piece to the list, unless it is empty.
    fn set_piece(&mut self, span: Span, floor: u64) {
        if span.first < span.end {
            self.end[span.first] = span.end;
            self.first[span.end] = span.first;
            self.floor[span.first] = floor;
            self.heap.push(Reverse((floor, span.first)));
        }
    }

    /// The lowest piece, merged with neighbours of the same height.
    fn lowest_valley(&mut self) -> Option<Valley> {
        while let Some(Reverse((floor, at))) = self.heap.pop() {
            if self.end[at] == 0 || self.floor[at] != floor {
                continue;
            }
            let mut span = Span { first: at, end: self.end[at] };
            while span.first > 0 && self.floor[self.first[span.first]] == floor {
                self.end[span.first] = 0;
                span.first = self.first[span.first];
            }
            while self.end[span.end] != 0 && self.floor[span.end] == floor {
                let next = self.end[span.end];
                self.end[span.end] = 0;
                span.end = next;
            }
            self.end[span.first] = span.end;
            self.first[span.end] = span.first;
            return Some(Valley { span, floor });
        }
        None
    }

    /// Raises a valley into which nothing fits to its lower neighbour; a valley that spans all sections has none.
    fn fill(&mut self, valley: Valley) {
        let Span { first, end } = valley.span;
        let left = (first > 0).then(|| self.floor[self.first[first]]);
        let right = (self.end[end] != 0).then(|| self.floor[end]);
        if let Some(wall) = left.into_iter().chain(right).min() {
            self.set_piece(valley.span, wall);
        }
    }

    /// Splits a valley around the item that was placed into it.
    fn stack(&mut self, valley: Valley, item: Span, top: u64) {
        let Span { first, end } = valley.span;
        self.set_piece(Span { first, end: item.first }, valley.floor);
        self.set_piece(item, top);
        self.set_piece(Span { first: item.end, end }, valley.floor);
    }
}

/// The items that are not placed yet: a search tree over them, sorted by their first section.
struct Waiting {
    /// For each section, and for the end, the first leaf whose item begins there or later.
    leaf_from: Vec<usize>,
    /// For each leaf, the end of its item's span.
    ends: Vec<usize>,
    /// The item at each rank of the order.
    item_at_rank: Vec<u32>,
    /// The leaf of the item at each rank.
    leaf_at_rank: Vec<u32>,
    /// How many leaves the tree has: a power of two.
    leaves: usize,
    nodes: Vec<Node>,
}

/// A subtree of waiting items: the best rank in it, and the earliest end.
#[derive(Debug, Clone, Copy)]
struct Node {
    rank: u32,
    earliest_end: usize,
}

/// A subtree in which no item is waiting.
const NOBODY: Node = Node { rank: u32::MAX, earliest_end: usize::MAX };

impl Waiting {
    fn new(problem: &Problem, sections: &Sections, order: &[u32]) -> Self {
        let spans = &sections.spans;
        // An item without bytes overlaps nothing: it stays at 0 and never waits.
        let item_at_rank: Vec<u32> =
            order.iter().copied().filter(|&item| problem.items()[item as usize].extent() > 0).collect();
        let mut by_first: Vec<u32> = (0..item_at_rank.len() as u32).collect();
        let span_of = |rank: u32| spans[item_at_rank[rank as usize] as usize];
        by_first.sort_by_key(|&rank| span_of(rank).first);

        let leaves = by_first.len().next_power_of_two();
        let mut nodes = vec![NOBODY; 2 * leaves];
        let mut leaf_at_rank = vec![0; by_first.len()];
        let mut leaf_from = vec![0; sections.count + 1];
        let mut ends = Vec::with_capacity(by_first.len());
        for (leaf, &rank) in by_first.iter().enumerate() {
            let span = span_of(rank);
            leaf_at_rank[rank as usize] = leaf as u32;
            leaf_from[span.first + 1] = leaf + 1;
            ends.push(span.end);
            nodes[leaves + leaf] = Node { rank, earliest_end: span.end };
        }
        // The first leaf of a section in which nothing begins is the end of the leaves of the preceding section.
        for section in 1..leaf_from.len() {
            leaf_from[section] = leaf_from[section].max(leaf_from[section - 1]);
        }
        for node in (1..leaves).rev() {
            nodes[node] = join(nodes[2 * node], nodes[2 * node + 1]);
        }
        Self { leaf_from, ends, item_at_rank, leaf_at_rank, leaves, nodes }
    }

    /// Removes and returns the first item in the order that is inside `span`.
    fn take_first_inside(&mut self, span: Span) -> Option<usize> {
        let wanted = (self.leaf_from[span.first], self.leaf_from[span.end]);
        let rank = self.best(1, (0, self.leaves), wanted, span.end, u32::MAX);
        let item = *self.item_at_rank.get(rank as usize)?;
        let mut node = self.leaves + self.leaf_at_rank[rank as usize] as usize;
        self.nodes[node] = NOBODY;
        while node > 1 {
            node /= 2;
            self.nodes[node] = join(self.nodes[2 * node], self.nodes[2 * node + 1]);
        }
        Some(item as usize)
    }

    /// The best rank below `limit` in a subtree that covers the leaves `[from, to)`, of the items among the `wanted`
    /// leaves that end by `end`; `limit` if there is none.
    fn best(&self, node: usize, (from, to): (usize, usize), wanted: (usize, usize), end: usize, limit: u32) -> u32 {
        let Node { rank, earliest_end } = self.nodes[node];
        if rank >= limit || earliest_end > end || to <= wanted.0 || wanted.1 <= from {
            return limit;
        }
        let leaf = self.leaf_at_rank[rank as usize] as usize;
        if wanted.0 <= leaf && leaf < wanted.1 && self.ends[leaf] <= end {
            return rank;
        }
        if to - from == 1 {
            return limit;
        }
        let middle = (from + to) / 2;
        let limit = self.best(2 * node, (from, middle), wanted, end, limit);
        self.best(2 * node + 1, (middle, to), wanted, end, limit)
    }
}

/// The combination of two neighbouring subtrees.
fn join(a: Node, b: Node) -> Node {
    Node { rank: a.rank.min(b.rank), earliest_end: a.earliest_end.min(b.earliest_end) }
}

#[cfg(test)]
mod tests {
    use super::super::samples::{Rng, full_problem, random_problems};
    use super::*;

    /// The same rule without a skyline: of all items the one that can be placed lowest, and among those the first in
    /// the order.
    fn plainly(problem: &Problem, order: &[u32]) -> Vec<u64> {
        let items = problem.items();
        let mut offsets = vec![None; items.len()];
        for _ in order {
            let rest = |id: usize| {
                let below = |other: &usize| items[id].meets(&items[*other]);
                let top = |other: usize| offsets[other].map(|offset: u64| offset + items[other].extent());
                (0..items.len()).filter(below).filter_map(top).max().unwrap_or(0)
            };
            let waiting = order.iter().map(|&id| id as usize).filter(|&id| offsets[id].is_none());
            let next = waiting.min_by_key(|&id| rest(id)).unwrap();
            offsets[next] = Some(rest(next));
        }
        offsets.into_iter().flatten().collect()
    }

    #[test]
    fn the_skyline_agrees_with_the_simple_rule() {
        let mut rng = Rng::new(9);
        for _ in 0..100 {
            let problem = full_problem(&mut rng, 12, 20);
            let mut order: Vec<u32> = (0..problem.items().len() as u32).collect();
            for last in (1..order.len()).rev() {
                order.swap(last, rng.below(last as u64 + 1) as usize);
            }
            let placement = plan(&problem, &Sections::new(&problem), &order);
            assert_eq!(placement.offsets, plainly(&problem, &order));
        }
    }

    #[test]
    fn items_without_bytes_are_placed_at_zero() {
        for problem in random_problems(10, 50, 12) {
            let order: Vec<u32> = (0..problem.items().len() as u32).collect();
            let placement = plan(&problem, &Sections::new(&problem), &order);
            for (item, offset) in problem.items().iter().zip(placement.offsets) {
                assert!(item.extent() > 0 || offset == 0);
            }
        }
    }
}
