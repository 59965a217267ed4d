//! What must be placed, and its placement: plain data that does not depend on a planner.

use serde::{Deserialize, Serialize};

/// Names an item of a [`Problem`] by its position in the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ItemId(pub u32);

impl ItemId {
    /// The position in `Problem::items`.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl std::fmt::Display for ItemId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// One buffer: alive during `[lower, upper)` (op indices), `size` bytes at a multiple of `align` bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item {
    pub lower: u64,
    pub upper: u64,
    pub size: u64,
    pub align: u64,
}

impl Item {
    /// The bytes that the item owns: its size rounded up to its alignment.
    ///
    /// Nothing else is ever placed in the padding, so that a kernel may read a whole last vector, and the lower bound
    /// may add these numbers. A problem contains only items whose extent fits in 64 bits.
    pub fn extent(&self) -> u64 {
        self.size.next_multiple_of(self.align)
    }

    /// How many time steps the item is alive.
    pub fn duration(&self) -> u64 {
        self.upper - self.lower
    }

    /// Whether there is a time at which both items are alive.
    pub fn meets(&self, other: &Item) -> bool {
        self.lower < other.upper && other.lower < self.upper
    }
}

/// Why a list of items is not a placement problem.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProblemError {
    #[error("item {item}: the live range [{lower}, {upper}) is empty")]
    EmptyRange { item: ItemId, lower: u64, upper: u64 },
    #[error("item {item}: an alignment of 0 bytes has no multiple; 1 means no alignment")]
    ZeroAlign { item: ItemId },
    #[error("item {item}: the sizes up to this one add up to more than 64 bits hold")]
    TooLarge { item: ItemId },
    #[error("{count} items are more than the {limit} that an item id can name")]
    TooMany { count: usize, limit: u32 },
}

/// A checked list of items: ranges are not empty, alignments not zero, and all extents together fit in 64 bits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    items: Vec<Item>,
}

impl Problem {
    /// Checks the items once, so that no planner must.
    ///
    /// # Errors
    /// The first item that violates a rule of [`ProblemError`].
    pub fn new(items: Vec<Item>) -> Result<Self, ProblemError> {
        let limit = u32::MAX - 1;
        if items.len() > limit as usize {
            return Err(ProblemError::TooMany { count: items.len(), limit });
        }
        let mut total = 0u64;
        for (index, it) in items.iter().enumerate() {
            let item = ItemId(index as u32);
            if it.lower >= it.upper {
                return Err(ProblemError::EmptyRange { item, lower: it.lower, upper: it.upper });
            }
            if it.align == 0 {
                return Err(ProblemError::ZeroAlign { item });
            }
            // One alignment more than necessary keeps every rounded offset inside 64 bits too.
            total = it
                .size
                .checked_next_multiple_of(it.align)
                .and_then(|extent| extent.checked_add(it.align))
                .and_then(|padded| padded.checked_add(total))
                .ok_or(ProblemError::TooLarge { item })?;
        }
        Ok(Self { items })
    }

    /// The items, in the order in which every placement lists its offsets.
    pub fn items(&self) -> &[Item] {
        &self.items
    }

    /// The largest sum of live extents at any time, in bytes: no placement can be lower.
    pub fn lower_bound(&self) -> u64 {
        let mut events: Vec<(u64, bool, u64)> = Vec::with_capacity(2 * self.items.len());
        for item in &self.items {
            events.push((item.lower, true, item.extent()));
            events.push((item.upper, false, item.extent()));
        }
        // `false` sorts first: items that end at a time are removed before items that begin at it are added.
        events.sort_unstable();
        let (mut live, mut peak) = (0u64, 0u64);
        for (_, begins, extent) in events {
            if begins {
                live += extent;
                peak = peak.max(live);
            } else {
                live -= extent;
            }
        }
        peak
    }

    /// The sum of all extents, in bytes: the size without shared memory.
    pub fn unshared(&self) -> u64 {
        self.items.iter().map(Item::extent).sum()
    }
}

/// An offset for every item of a problem, and the height of the whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// Bytes from the start of the arena, by item.
    pub offsets: Vec<u64>,
    /// The bytes that the arena needs: the largest offset plus extent.
    pub height: u64,
}

impl Placement {
    /// Measures the height of the given offsets, one for each item of the problem.
    pub fn new(problem: &Problem, offsets: Vec<u64>) -> Self {
        let height =
            problem.items().iter().zip(&offsets).map(|(item, offset)| offset + item.extent()).max().unwrap_or(0);
        Self { offsets, height }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(lower: u64, upper: u64, size: u64, align: u64) -> Item {
        Item { lower, upper, size, align }
    }

    #[test]
    fn the_bound_is_the_largest_sum_of_live_items() {
        let problem = Problem::new(vec![item(0, 4, 10, 1), item(2, 6, 5, 8), item(4, 8, 9, 1)]).unwrap();
        assert_eq!(problem.lower_bound(), 18);
        assert_eq!(problem.unshared(), 27);
    }

    #[test]
    fn an_empty_problem_needs_no_bytes() {
        let problem = Problem::new(Vec::new()).unwrap();
        assert_eq!(problem.lower_bound(), 0);
        assert_eq!(Placement::new(&problem, Vec::new()).height, 0);
    }

    #[test]
    fn invalid_items_are_reported() {
        let good = item(0, 1, 1, 1);
        let id = ItemId(1);
        let found = |bad: Item| Problem::new(vec![good, bad]).unwrap_err();
        assert_eq!(found(item(3, 3, 1, 1)), ProblemError::EmptyRange { item: id, lower: 3, upper: 3 });
        assert_eq!(found(item(0, 1, 1, 0)), ProblemError::ZeroAlign { item: id });
        assert_eq!(found(item(0, 1, u64::MAX, 1)), ProblemError::TooLarge { item: id });
        assert_eq!(found(item(0, 1, u64::MAX, 256)), ProblemError::TooLarge { item: id });
    }
}
