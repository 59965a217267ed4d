//! Repair: items that end up too high are placed earlier in the next round.
//!
//! Each round places the items on the skyline in its own order. The keys of items that end above the bound grow by a
//! random factor between 1 and 2, so that the next round places them earlier. This is the squeaky-wheel optimization of
//! Joslin and Clements (1999). Four chains of rounds start from four keys.

use super::orders::{self, Key};
use super::problem::{Placement, Problem};
use super::sections::Sections;
use super::seed_mix::uniform;
use super::skyline;

/// The chains of rounds, and their progress.
pub(super) struct Repair<'a> {
    problem: &'a Problem,
    sections: &'a Sections,
    lower_bound: u64,
    /// For each chain, the key of every item including all growth so far.
    chains: Vec<Vec<f64>>,
    rounds: u64,
}

impl<'a> Repair<'a> {
    /// Starts from the items' own keys.
    pub fn new(problem: &'a Problem, sections: &'a Sections) -> Self {
        let chains = [Key::Total, Key::Duration, Key::Area, Key::Size]
            .map(|key| orders::values(problem, sections, key).into_iter().map(|value| value as f64).collect())
            .to_vec();
        Self { problem, sections, lower_bound: problem.lower_bound(), chains, rounds: 0 }
    }

    /// The next round of the next chain; the rounds are the same on every machine.
    pub fn next_round(&mut self) -> Placement {
        let count = self.chains.len() as u64;
        let keys = &mut self.chains[(self.rounds % count) as usize];
        let mut order: Vec<u32> = (0..keys.len() as u32).collect();
        order.sort_by(|&a, &b| keys[b as usize].total_cmp(&keys[a as usize]).then(a.cmp(&b)));
        let placement = skyline::plan(self.problem, self.sections, &order);
        for (id, item) in self.problem.items().iter().enumerate() {
            if placement.offsets[id] + item.extent() > self.lower_bound {
                keys[id] *= 1.0 + uniform((self.rounds << 32) + id as u64);
            }
        }
        // Only the order matters, so keys that have grown are scaled down before they overflow.
        let largest = keys.iter().copied().fold(1.0, f64::max);
        if largest > 1e200 {
            keys.iter_mut().for_each(|key| *key /= largest);
        }
        self.rounds += 1;
        placement
    }
}

#[cfg(test)]
mod tests {
    use super::super::referee;
    use super::super::samples::{Rng, cut_rectangle};
    use super::*;

    #[test]
    fn rounds_are_valid_repeatable_and_get_lower() {
        let problem = cut_rectangle(&mut Rng::new(3), 200, 60, 1024);
        let sections = Sections::new(&problem);
        let (mut repair, mut again) = (Repair::new(&problem, &sections), Repair::new(&problem, &sections));
        let mut heights = Vec::new();
        for _ in 0..200 {
            let placement = repair.next_round();
            assert_eq!(referee::check(&problem, &placement), Ok(()));
            assert_eq!(placement, again.next_round());
            heights.push(placement.height);
        }
        assert!(heights.iter().min() < heights[..4].iter().min());
    }
}
