//! Checks a placement against its problem without any code of the planners.
//!
//! The rule is simple: two items that are alive at the same time must not share a byte. The check runs in release
//! builds too, so it is fast: items are compared in the order in which they begin with those that are alive then.

use super::problem::{Item, ItemId, Placement, Problem};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// The first rule that a placement violates.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    #[error("the placement lists {found} offsets for {expected} items")]
    Count { expected: usize, found: usize },
    #[error("item {item} is at offset {offset}, which is not a multiple of its alignment {align}")]
    Alignment { item: ItemId, offset: u64, align: u64 },
    #[error("item {item} at offset {offset} reaches past the end of 64-bit addresses")]
    Range { item: ItemId, offset: u64 },
    #[error("items {first} and {second} are both alive at time {time} and both own the byte at offset {offset}")]
    Overlap { first: ItemId, second: ItemId, time: u64, offset: u64 },
    #[error("the placement states a height of {stated} bytes, but its items end at {measured}")]
    Height { stated: u64, measured: u64 },
}

/// An item as a rectangle in time and bytes.
struct Rectangle {
    lower: u64,
    upper: u64,
    bottom: u64,
    top: u64,
    item: ItemId,
}

/// Accepts a placement in which every item is aligned, no two live items share a byte, and the height is correct.
///
/// # Errors
/// The first [`Violation`], in the order: count, alignment and range, overlap, height.
pub fn check(problem: &Problem, placement: &Placement) -> Result<(), Violation> {
    let items = problem.items();
    if items.len() != placement.offsets.len() {
        return Err(Violation::Count { expected: items.len(), found: placement.offsets.len() });
    }
    let mut rectangles = Vec::with_capacity(items.len());
    for (index, (item, &offset)) in items.iter().zip(&placement.offsets).enumerate() {
        rectangles.push(rectangle(ItemId(index as u32), item, offset)?);
    }
    let measured = rectangles.iter().map(|r| r.top).max().unwrap_or(0);

    overlap(rectangles)?;
    if measured != placement.height {
        return Err(Violation::Height { stated: placement.height, measured });
    }
    Ok(())
}

/// Accepts rectangles of which no two share time and bytes. They are processed in the order in which they begin, and
/// those that are alive are sorted by their first byte: as these share nothing, a new one can overlap only the one
/// below it or the one above.
fn overlap(mut rectangles: Vec<Rectangle>) -> Result<(), Violation> {
    rectangles.retain(|r| r.bottom < r.top && r.lower < r.upper);
    rectangles.sort_by_key(|r| r.lower);
    let mut alive: BTreeMap<u64, &Rectangle> = BTreeMap::new();
    let mut ends = BinaryHeap::new();
    for new in &rectangles {
        while let Some(&Reverse((upper, bottom))) = ends.peek()
            && upper <= new.lower
        {
            alive.remove(&bottom);
            ends.pop();
        }
        let below = alive.range(..=new.bottom).next_back().filter(|(_, old)| old.top > new.bottom);
        let above = || alive.range(new.bottom..).next().filter(|(_, old)| old.bottom < new.top);
        if let Some((_, old)) = below.or_else(above) {
            return Err(Violation::Overlap {
                first: old.item.min(new.item),
                second: old.item.max(new.item),
                time: new.lower,
                offset: old.bottom.max(new.bottom),
            });
        }
        alive.insert(new.bottom, new);
        ends.push(Reverse((new.upper, new.bottom)));
    }
    Ok(())
}

/// Reads one item's rectangle, if its offset is valid.
fn rectangle(id: ItemId, item: &Item, offset: u64) -> Result<Rectangle, Violation> {
    if !offset.is_multiple_of(item.align) {
        return Err(Violation::Alignment { item: id, offset, align: item.align });
    }
    // The extent is computed again here, so that a mistake in the planners' arithmetic is not repeated.
    let padding = (item.align - item.size % item.align) % item.align;
    let top = offset
        .checked_add(item.size)
        .and_then(|end| end.checked_add(padding))
        .ok_or(Violation::Range { item: id, offset })?;
    Ok(Rectangle { lower: item.lower, upper: item.upper, bottom: offset, top, item: id })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem() -> Problem {
        let item = |lower, upper, size, align| Item { lower, upper, size, align };
        Problem::new(vec![item(0, 4, 10, 4), item(2, 6, 8, 4), item(4, 8, 12, 4)]).unwrap()
    }

    fn verdict(offsets: &[u64], height: u64) -> Result<(), Violation> {
        let offsets = offsets.to_vec();
        check(&problem(), &Placement { offsets, height })
    }

    #[test]
    fn a_valid_placement_passes() {
        assert_eq!(verdict(&[0, 12, 0], 20), Ok(()));
    }

    #[test]
    fn each_rule_has_its_own_failure() {
        assert_eq!(verdict(&[0, 12], 20), Err(Violation::Count { expected: 3, found: 2 }));
        assert_eq!(verdict(&[0, 14, 0], 22), Err(Violation::Alignment { item: ItemId(1), offset: 14, align: 4 }));
        assert_eq!(verdict(&[0, u64::MAX - 3, 0], 20), Err(Violation::Range { item: ItemId(1), offset: u64::MAX - 3 }));
        assert_eq!(
            verdict(&[0, 12, 16], 28),
            Err(Violation::Overlap { first: ItemId(1), second: ItemId(2), time: 4, offset: 16 })
        );
        assert_eq!(verdict(&[0, 12, 0], 24), Err(Violation::Height { stated: 24, measured: 20 }));
    }

    #[test]
    fn padding_belongs_to_its_item() {
        // Ten bytes at a multiple of four own twelve: offset 8 is refused although byte 10 is the last one used.
        assert!(matches!(verdict(&[0, 8, 20], 32), Err(Violation::Overlap { .. })));
    }

    #[test]
    fn items_that_follow_each_other_may_share_bytes() {
        assert_eq!(verdict(&[8, 0, 8], 20), Ok(()));
    }
}
