//! First fit: each item is placed at the lowest gap that is free during its life.

use super::problem::{Item, Placement, Problem};

/// Places the items in the given order, each at the lowest offset that the earlier ones leave free.
///
/// `order` names every item once, by its position in the problem.
pub(super) fn plan(problem: &Problem, order: &[u32]) -> Placement {
    let items = problem.items();
    let mut offsets = vec![0; items.len()];
    let mut placed: Vec<Placed> = Vec::with_capacity(items.len());
    for &id in order {
        let item = &items[id as usize];
        if item.extent() == 0 {
            continue;
        }
        let offset = lowest_gap(&placed, item);
        offsets[id as usize] = offset;
        let at = placed.partition_point(|p| p.offset <= offset);
        placed.insert(at, Placed { offset, top: offset + item.extent(), lower: item.lower, upper: item.upper });
    }
    Placement::new(problem, offsets)
}

/// A placed item; the list of them is sorted by offset.
struct Placed {
    offset: u64,
    top: u64,
    lower: u64,
    upper: u64,
}

/// The lowest aligned offset at which the item overlaps no placed item, in bytes.
fn lowest_gap(placed: &[Placed], item: &Item) -> u64 {
    let extent = item.extent();
    let mut offset = 0u64;
    for p in placed {
        if p.lower >= item.upper || item.lower >= p.upper || p.top <= offset {
            continue;
        }
        if offset + extent <= p.offset {
            break;
        }
        offset = p.top.next_multiple_of(item.align);
    }
    offset
}

#[cfg(test)]
mod tests {
    use super::super::samples::random_problems;
    use super::*;

    #[test]
    fn every_item_takes_the_lowest_offset_that_was_free() {
        for problem in random_problems(5, 100, 15) {
            let items = problem.items();
            let order: Vec<u32> = (0..items.len() as u32).rev().collect();
            let offsets = plan(&problem, &order).offsets;
            for (place, &id) in order.iter().enumerate() {
                let item = &items[id as usize];
                if item.extent() == 0 {
                    continue;
                }
                let is_free = |offset: u64| {
                    order[..place].iter().all(|&other| {
                        let (before, at) = (&items[other as usize], offsets[other as usize]);
                        !item.meets(before) || offset + item.extent() <= at || at + before.extent() <= offset
                    })
                };
                let lowest = (0..).step_by(item.align as usize).find(|&offset| is_free(offset));
                assert_eq!(Some(offsets[id as usize]), lowest);
            }
        }
    }
}
