//! A problem in the form that the searches use: which items overlap in time, section by section, and nothing that
//! changes during a search.

use super::sections::{Sections, Span};
use super::seed_mix::scramble;

/// The part of a problem that stays fixed during the search, in units of the largest common divisor of all extents.
#[derive(Debug)]
pub(super) struct Instance {
    pub spans: Vec<Span>,
    pub extents: Vec<u64>,
    /// The items that are alive at the same time as each item.
    pub meets: Vec<Vec<u32>>,
    /// The items of each section.
    pub members: Vec<Vec<u32>>,
    /// The number of sections that the preceding items span together.
    places: Vec<usize>,
    /// Two random words for each item, from which the memory's keys are computed.
    pub marks: Vec<[u64; 2]>,
}

impl Instance {
    /// An instance with these spans and extents; no extent may be 0.
    ///
    /// Sections whose items are all alive in the next one too are left out, because they add no restriction.
    pub fn new(sections: &Sections, spans: &[Span], extents: Vec<u64>) -> Self {
        let mut kept = vec![0usize; sections.count + 1];
        for span in spans {
            kept[span.end] = 1;
        }
        // `kept[s]` becomes how many kept sections are before section s.
        for s in 1..kept.len() {
            kept[s] += kept[s - 1];
        }
        let spans: Vec<Span> = spans.iter().map(|span| Span { first: kept[span.first], end: kept[span.end] }).collect();
        let mut members = vec![Vec::new(); kept[sections.count]];
        for (item, span) in spans.iter().enumerate() {
            for section in &mut members[span.first..span.end] {
                section.push(item as u32);
            }
        }
        let mut begins = vec![Vec::new(); members.len()];
        for (item, span) in spans.iter().enumerate() {
            begins[span.first].push(item as u32);
        }
        let meets = spans
            .iter()
            .enumerate()
            .map(|(item, span)| {
                let mut others = members[span.first].clone();
                others.extend(begins[span.first + 1..span.end].iter().flatten());
                others.retain(|&other| other as usize != item);
                others
            })
            .collect();
        let places = spans
            .iter()
            .scan(0, |sum, span| {
                let before = *sum;
                *sum += span.width();
                Some(before)
            })
            .collect();
        let marks = (0..spans.len() as u64).map(|item| [scramble(2 * item + 1), scramble(2 * item + 2)]).collect();
        Self { spans, extents, meets, members, places, marks }
    }

    /// A distinct number for each pair of an item and one of its sections.
    pub fn place(&self, item: usize, section: usize) -> usize {
        self.places[item] + section - self.spans[item].first
    }

    /// The largest sum of extents in any section.
    pub fn bound(&self) -> u64 {
        let total = |items: &Vec<u32>| items.iter().map(|&item| self.extents[item as usize]).sum();
        self.members.iter().map(total).max().unwrap_or(0)
    }

    /// The largest number of visits to an item in a section during one node.
    pub fn steps_a_node(&self) -> u64 {
        self.members.iter().map(|items| items.len() as u64).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::{Rng, full_problem};
    use super::*;

    #[test]
    fn fewer_sections_keep_the_bound_and_the_overlaps() {
        let mut rng = Rng::new(13);
        for _ in 0..50 {
            let problem = full_problem(&mut rng, 10, 30);
            let items = problem.items();
            let sections = Sections::new(&problem);
            let extents = items.iter().map(|item| item.extent()).collect();
            let instance = Instance::new(&sections, &sections.spans, extents);
            assert_eq!(instance.bound(), problem.lower_bound());
            assert!(instance.members.len() <= sections.count);
            for (id, item) in items.iter().enumerate() {
                let mut found = instance.meets[id].clone();
                found.sort_unstable();
                let meets = |other: &usize| *other != id && items[*other].meets(item);
                let plain: Vec<u32> = (0..items.len()).filter(meets).map(|other| other as u32).collect();
                assert_eq!(found, plain);
            }
        }
    }
}
