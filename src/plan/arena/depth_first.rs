//! Depth-first search for a placement under a given height.
//!
//! Items are placed on a floor, as in the skyline planner: `floor[s]` is the lowest offset at which anything may still
//! be placed in section `s`. If a placement exists under the target, then there is also one in which every item is on
//! the floor or directly above another item, because items can be moved down one by one. In a *valley*, a run of
//! sections with the same floor between higher neighbours, only items that are inside it can be placed on its floor. So
//! for each section of a valley there is a short and complete list of choices: one of the items that fit is placed on
//! the floor here, or none is and the floor rises to the next level at which something could be placed. The search
//! branches at the shortest list.
//!
//! It prunes by these rules:
//! - *room*: the floor of a section plus what must still be placed there must not exceed the target. Space below an
//!   item is lost permanently, so sections in which the live items fill the arena allow no gaps at all;
//! - *lifting*: the floor of a section rises to the lowest offset that any of its items can still have;
//! - *parts*: if no item spans the border of two sections, the sides are solved separately, and if one fails, the whole
//!   fails;
//! - *memory*: whether a part can be completed depends only on its floors and on the remaining items. Parts that failed
//!   are remembered and never searched again.
//!
//! The ideas of a floor that only rises, of inference over sections and of splitting at borders are those of M. D.
//! Moffitt, "MiniMalloc: A Lightweight Memory Allocator for Hardware-Accelerated Machine Learning", ASPLOS 2023.

use super::instance::Instance;
use super::seed_mix::scramble;

/// The largest number of open choices, and the stack that a thread needs for them, in bytes.
const DEEPEST: u32 = 20_000;
pub(super) const STACK_BYTES: usize = 64 << 20;

const UNPLACED: u64 = u64::MAX;
/// An offset above all others, which no item reaches.
const NOWHERE: u64 = u64::MAX;

/// The result of a search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// An offset for every item of the instance, none of which ends above the target.
    Solved(Vec<u64>),
    /// No placement under the target exists.
    Impossible,
    /// The limit of nodes was reached, or the search was stopped.
    Stopped,
}

/// The result of searching a part.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Placed,
    Failed,
    Stopped,
}

/// Parts that are known to fail: a table of fixed size in which a new key replaces an old one.
#[derive(Debug)]
struct Memory {
    slots: Vec<[u64; 2]>,
}

impl Memory {
    /// A memory that is large enough for this number of nodes, up to 32 MiB.
    fn for_nodes(nodes: u64) -> Self {
        let slots = nodes.saturating_mul(2).clamp(1 << 8, 1 << 21);
        Self { slots: vec![[0; 2]; slots.next_power_of_two() as usize] }
    }

    fn slot(&self, key: [u64; 2]) -> usize {
        (key[0] as usize) & (self.slots.len() - 1)
    }

    fn contains(&self, key: [u64; 2]) -> bool {
        self.slots[self.slot(key)] == key
    }

    fn insert(&mut self, key: [u64; 2]) {
        let slot = self.slot(key);
        self.slots[slot] = key;
    }
}

/// A change to undo when a choice is reverted.
enum Change {
    Floor { section: u32, old: u64 },
    Rest { item: u32, old: u64 },
    Placed { item: u32 },
}

/// The analysis of one section.
#[derive(Clone, Copy)]
struct View {
    /// The number of its items that can be placed on its floor.
    fitting: u32,
    /// The smallest extent among those.
    smallest: u64,
    /// The lowest offset of its other items.
    next: u64,
}

/// The section at which the search branches; among equals, the one with the most remaining items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum First {
    FewestChoices,
    LowestValley,
}

/// The parameters of one search.
#[derive(Debug, Clone)]
pub(super) struct Strategy {
    pub first: First,
    /// The position of each item in the order in which choices are tried.
    pub ranks: Vec<u32>,
    /// The largest number of nodes.
    pub nodes: u64,
}

/// The section at which the search branches.
struct Branch {
    section: usize,
    /// The floor after the choice of leaving a gap, if the section has enough space for it.
    gap_to: Option<u64>,
}

/// One search under one target.
pub(super) struct DepthFirst<'a> {
    instance: &'a Instance,
    memory: Memory,
    strategy: &'a Strategy,
    target: u64,
    nodes_left: u64,
    depth: u32,
    stop: &'a dyn Fn() -> bool,

    floor: Vec<u64>,
    /// The sum of extents that are not placed yet in each section.
    left: Vec<u64>,
    /// The items that are not placed yet in each section.
    waiting: Vec<Vec<u32>>,
    /// The position of each item in that list, by [`Instance::place`].
    slots: Vec<u32>,
    /// The sum of the hash marks of those.
    marks: Vec<[u64; 2]>,
    /// The number of unplaced items that span the border between a section and the next.
    spanning: Vec<u32>,
    /// The lowest offset that each item can still have.
    rest: Vec<u64>,
    offsets: Vec<u64>,
    changes: Vec<Change>,
    views: Vec<View>,
}

impl<'a> DepthFirst<'a> {
    /// Searches for offsets under `target`, in units of the instance, until the strategy's limit of nodes is reached or
    /// `stop` returns true.
    pub fn run(instance: &'a Instance, target: u64, strategy: &'a Strategy, stop: &'a dyn Fn() -> bool) -> Verdict {
        let sections = instance.members.len();
        let mut search = Self {
            instance,
            memory: Memory::for_nodes(strategy.nodes),
            strategy,
            target,
            nodes_left: strategy.nodes,
            depth: 0,
            stop,
            floor: vec![0; sections],
            left: vec![0; sections],
            waiting: instance.members.clone(),
            slots: vec![0; instance.steps_a_node() as usize],
            marks: vec![[scramble(target), scramble(!target)]; sections],
            spanning: vec![0; sections],
            rest: vec![0; instance.spans.len()],
            offsets: vec![UNPLACED; instance.spans.len()],
            changes: Vec::new(),
            views: vec![View { fitting: 0, smallest: 0, next: 0 }; sections],
        };
        for (item, span) in instance.spans.iter().enumerate() {
            for section in span.first..span.end {
                search.left[section] += instance.extents[item];
                search.add_mark(section, item, true);
                search.spanning[section] += u32::from(section + 1 < span.end);
            }
        }
        for (section, items) in instance.members.iter().enumerate() {
            for (slot, &item) in items.iter().enumerate() {
                search.slots[instance.place(item as usize, section)] = slot as u32;
            }
        }
        match search.solve(0, sections) {
            Outcome::Placed => Verdict::Solved(search.offsets),
            Outcome::Failed => Verdict::Impossible,
            Outcome::Stopped => Verdict::Stopped,
        }
    }

    /// Places all remaining items in the sections `[from, to)`; none of them extends beyond these sections.
    fn solve(&mut self, from: usize, to: usize) -> Outcome {
        let mut parts: Vec<(usize, usize)> = Vec::new();
        let mut first = from;
        for section in from..to {
            if self.spanning[section] == 0 {
                if !self.waiting[section].is_empty() {
                    parts.push((first, section + 1));
                }
                first = section + 1;
            }
        }
        // A small part fails fastest.
        parts.sort_by_key(|&(first, end)| end - first);
        for (first, end) in parts {
            let outcome = self.solve_part(first, end);
            if outcome != Outcome::Placed {
                return outcome;
            }
        }
        Outcome::Placed
    }

    /// Places all remaining items in the sections `[from, to)`, each of whose borders is spanned by an item.
    fn solve_part(&mut self, from: usize, to: usize) -> Outcome {
        if self.nodes_left == 0 || self.depth == DEEPEST || (self.nodes_left.is_multiple_of(16) && (self.stop)()) {
            return Outcome::Stopped;
        }
        self.nodes_left -= 1;
        self.depth += 1;
        let outcome = self.search_part(from, to);
        self.depth -= 1;
        outcome
    }

    /// Tries the choices for one section of a part, and completes the part after each.
    fn search_part(&mut self, from: usize, to: usize) -> Outcome {
        let mark = self.changes.len();
        let Some((first, end)) = self.choose_from(from, to) else {
            self.undo(mark);
            return Outcome::Failed;
        };
        let key = self.key(from, to);
        if self.memory.contains(key) {
            self.undo(mark);
            return Outcome::Failed;
        }
        let branch = self.branch(from, to, first..end);
        let section = branch.section;
        let floor = self.floor[section];
        let mut choices: Vec<u32> =
            self.waiting[section].iter().copied().filter(|&item| self.rest[item as usize] == floor).collect();
        choices.sort_unstable_by_key(|&item| self.strategy.ranks[item as usize]);
        let here = self.changes.len();
        for item in choices {
            self.place(item as usize, floor);
            let outcome = self.solve(from, to);
            if outcome != Outcome::Failed {
                return outcome;
            }
            self.undo(here);
        }
        if let Some(level) = branch.gap_to {
            self.raise(section, level);
            let outcome = self.solve_part(from, to);
            if outcome != Outcome::Failed {
                return outcome;
            }
        }
        self.undo(mark);
        self.memory.insert(key);
        Outcome::Failed
    }

    /// The sections of a part at which to branch, analysed and lifted; `None` if one of them lacks space.
    fn choose_from(&mut self, from: usize, to: usize) -> Option<(usize, usize)> {
        if self.strategy.first == First::FewestChoices {
            return self.look(from, to).then_some((from, to));
        }
        // Only the lowest valley is analysed. Lifting may turn it into another one.
        loop {
            let lowest = self.floor[from..to].iter().min()?;
            let first = from + self.floor[from..to].iter().position(|floor| floor == lowest)?;
            let level = self.floor[first..to].iter().take_while(|floor| *floor == lowest).count();
            let mark = self.changes.len();
            if !self.look(first, first + level) {
                return None;
            }
            if self.changes.len() == mark {
                return Some((first, first + level));
            }
        }
    }

    /// Analyses and lifts these sections; returns false if one of them lacks space.
    fn look(&mut self, from: usize, to: usize) -> bool {
        for section in from..to {
            let mut lowest = NOWHERE;
            let mut view = View { fitting: 0, smallest: NOWHERE, next: NOWHERE };
            for &item in &self.waiting[section] {
                let rest = self.rest[item as usize];
                let extent = self.instance.extents[item as usize];
                if rest < lowest {
                    view = View { fitting: 1, smallest: extent, next: lowest };
                    lowest = rest;
                } else if rest == lowest {
                    view.fitting += 1;
                    view.smallest = view.smallest.min(extent);
                } else {
                    view.next = view.next.min(rest);
                }
            }
            self.views[section] = view;
            if lowest > self.floor[section] {
                self.set_floor(section, lowest);
            }
            if self.floor[section] + self.left[section] > self.target {
                return false;
            }
        }
        true
    }

    /// The analysed section with the fewest choices; the analysed sections are a valley of the part `[from, to)`.
    fn branch(&self, from: usize, to: usize, viewed: std::ops::Range<usize>) -> Branch {
        let mut best: Option<((u64, u64, u64), Branch)> = None;
        let mut first = viewed.start;
        while first < viewed.end {
            let floor = self.floor[first];
            let mut end = first + 1;
            while end < to && self.floor[end] == floor {
                end += 1;
            }
            let left_wall = if first > from { self.floor[first - 1] } else { NOWHERE };
            let right_wall = if end < to { self.floor[end] } else { NOWHERE };
            if left_wall > floor && right_wall > floor {
                let smallest = self.views[first..end].iter().map(|view| view.smallest).min().unwrap_or(NOWHERE);
                // An item that fits here but would be higher is above one that fits here too, or above one that extends
                // over the border of the valley.
                let level = (floor.saturating_add(smallest)).min(left_wall).min(right_wall);
                for section in first..end {
                    let view = self.views[section];
                    let gap_to = view.next.min(level);
                    let room = self.target - floor - self.left[section];
                    let gap_to = (gap_to != NOWHERE && gap_to - floor <= room).then_some(gap_to);
                    let choices = u64::from(view.fitting) + u64::from(gap_to.is_some());
                    let crowd = NOWHERE - self.waiting[section].len() as u64;
                    let score = (choices, crowd, room);
                    if best.as_ref().is_none_or(|(least, _)| score < *least) {
                        best = Some((score, Branch { section, gap_to }));
                    }
                }
            }
            first = end;
        }
        let Some((_, branch)) = best else { unreachable!("the lowest floor of a part is a valley") };
        branch
    }

    /// The memory's key for the remainder of a part.
    fn key(&self, from: usize, to: usize) -> [u64; 2] {
        let mut key = [scramble(from as u64 + 1), to as u64];
        for section in from..to {
            // The marks are random, so that their product with the floor is distributed over all 128 bits.
            let [a, b] = self.marks[section];
            let floor = self.floor[section];
            let product = u128::from(a ^ floor) * u128::from(b.wrapping_add(floor).rotate_left(32));
            key[0] = (key[0] ^ product as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
            key[1] = (key[1] ^ (product >> 64) as u64).wrapping_mul(0xbf58_476d_1ce4_e5b9).rotate_left(31);
        }
        key
    }

    /// Places an item on the floor.
    fn place(&mut self, item: usize, offset: u64) {
        let instance = self.instance;
        let span = instance.spans[item];
        let extent = instance.extents[item];
        let top = offset + extent;
        for section in span.first..span.end {
            self.set_floor(section, top);
            self.left[section] -= extent;
            self.add_mark(section, item, false);
            let place = instance.place(item, section);
            let slot = self.slots[place] as usize;
            let waiting = &mut self.waiting[section];
            waiting.swap_remove(slot);
            if let Some(&moved) = waiting.get(slot) {
                self.slots[instance.place(moved as usize, section)] = slot as u32;
            }
            self.spanning[section] -= u32::from(section + 1 < span.end);
        }
        self.offsets[item] = offset;
        self.changes.push(Change::Placed { item: item as u32 });
        for &other in &instance.meets[item] {
            if self.offsets[other as usize] == UNPLACED {
                self.lift(other, top);
            }
        }
    }

    /// Leaves a gap on the floor of a section.
    fn raise(&mut self, section: usize, level: u64) {
        self.set_floor(section, level);
        for at in 0..self.waiting[section].len() {
            self.lift(self.waiting[section][at], level);
        }
    }

    fn lift(&mut self, item: u32, level: u64) {
        let old = self.rest[item as usize];
        if old < level {
            self.changes.push(Change::Rest { item, old });
            self.rest[item as usize] = level;
        }
    }

    fn set_floor(&mut self, section: usize, level: u64) {
        self.changes.push(Change::Floor { section: section as u32, old: self.floor[section] });
        self.floor[section] = level;
    }

    fn add_mark(&mut self, section: usize, item: usize, add: bool) {
        for (sum, mark) in self.marks[section].iter_mut().zip(self.instance.marks[item]) {
            *sum = if add { sum.wrapping_add(mark) } else { sum.wrapping_sub(mark) };
        }
    }

    /// Undoes every change after the first `mark`.
    fn undo(&mut self, mark: usize) {
        while self.changes.len() > mark {
            match self.changes.pop() {
                Some(Change::Floor { section, old }) => self.floor[section as usize] = old,
                Some(Change::Rest { item, old }) => self.rest[item as usize] = old,
                Some(Change::Placed { item }) => {
                    let item = item as usize;
                    let span = self.instance.spans[item];
                    for section in span.first..span.end {
                        self.left[section] += self.instance.extents[item];
                        self.add_mark(section, item, true);
                        self.slots[self.instance.place(item, section)] = self.waiting[section].len() as u32;
                        self.waiting[section].push(item as u32);
                        self.spanning[section] += u32::from(section + 1 < span.end);
                    }
                    self.offsets[item] = UNPLACED;
                }
                None => return,
            }
        }
    }
}
