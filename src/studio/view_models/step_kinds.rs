//! Which recording every step of a run used, so that the shares in any range of steps are found without visiting all of
//! them.

/// The number of entries of one level that are combined in one entry of the next.
const FOLD: usize = 64;

/// How often each number occurs, by number.
type Counts = Vec<(u16, u32)>;

/// The number of the recording that each step of a run used, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepKinds {
    steps: Vec<u16>,
    /// For every complete range of 64 steps, then of 64 of these ranges, and so on.
    levels: Vec<Vec<Counts>>,
    /// Whether one of them is not 0.
    are_known: bool,
}

impl StepKinds {
    /// The number of steps.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.steps.len()
    }

    /// True where there is no step yet.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Whether steps have different recordings; a run whose steps are all the same stores none.
    #[must_use]
    pub const fn are_known(&self) -> bool {
        self.are_known
    }

    /// How often each number occurs in the steps `from..to`, counted from 0, by number.
    #[must_use]
    pub fn counts(&self, from: usize, to: usize) -> Counts {
        let to = to.min(self.steps.len());
        let mut out = Counts::new();
        let mut at = from;
        while at < to {
            // The longest range that begins here and ends in time.
            let (mut length, mut found) = (1, None);
            for level in &self.levels {
                let longer = length * FOLD;
                if !at.is_multiple_of(longer) || at + longer > to {
                    break;
                }
                (length, found) = (longer, level.get(at / longer));
            }
            match found {
                Some(counts) => counts.iter().for_each(|(kind, count)| add(&mut out, *kind, *count)),
                None => add(&mut out, self.steps[at], 1),
            }
            at += length;
        }
        out
    }

    fn push(&mut self, kind: u16) {
        self.steps.push(kind);
        self.are_known |= kind > 0;
        let mut length = 1;
        for level in 0.. {
            length *= FOLD;
            if !self.steps.len().is_multiple_of(length) {
                return;
            }
            let mut sum = Counts::new();
            match level {
                0 => self.steps[self.steps.len() - FOLD..].iter().for_each(|kind| add(&mut sum, *kind, 1)),
                _ => {
                    let below: &Vec<Counts> = &self.levels[level - 1];
                    let last = below[below.len() - FOLD..].iter().flatten();
                    last.for_each(|(kind, count)| add(&mut sum, *kind, *count));
                }
            }
            match self.levels.get_mut(level) {
                Some(sums) => sums.push(sum),
                None => self.levels.push(vec![sum]),
            }
        }
    }
}

impl Extend<u16> for StepKinds {
    fn extend<T: IntoIterator<Item = u16>>(&mut self, kinds: T) {
        kinds.into_iter().for_each(|kind| self.push(kind));
    }
}

impl FromIterator<u16> for StepKinds {
    fn from_iter<T: IntoIterator<Item = u16>>(kinds: T) -> Self {
        let mut out = Self::default();
        out.extend(kinds);
        out
    }
}

/// Adds to the count of a number.
fn add(counts: &mut Counts, kind: u16, count: u32) {
    match counts.binary_search_by_key(&kind, |(known, _)| *known) {
        Ok(at) => counts[at].1 += count,
        Err(at) => counts.insert(at, (kind, count)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_any_range_equal_those_of_its_steps() {
        let kind = |step: usize| (step * step / 7 % 5) as u16;
        let all: Vec<u16> = (0..10_000).map(kind).collect();
        let kinds: StepKinds = all.iter().copied().collect();
        assert_eq!((kinds.len(), kinds.levels.len(), kinds.levels[1].len()), (10_000, 2, 2));
        for (from, to) in [(0, 10_000), (1, 9_999), (63, 65), (64, 128), (4_096, 8_192), (4_000, 8_300), (7, 7)] {
            let mut expected = Counts::new();
            all[from..to].iter().for_each(|kind| add(&mut expected, *kind, 1));
            assert_eq!(kinds.counts(from, to), expected, "{from}..{to}");
        }
        assert_eq!(kinds.counts(9_990, 20_000), kinds.counts(9_990, 10_000));
        assert!(kinds.are_known() && !StepKinds::from_iter([0, 0]).are_known());
    }
}
