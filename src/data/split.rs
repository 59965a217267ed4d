//! Which samples train and which are held out.

use super::DataError;
use crate::model::{DataSpec, Rng, SplitKind};

/// The generator's stream for the split, separate from every other use of a run's seed.
const STREAM: u64 = 0x6461_7461_0001;

/// Sample numbers of the two parts: disjoint, both ascending, together all samples except those of a series that
/// overlap the held-out part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Split {
    pub train: Vec<u32>,
    pub held_out: Vec<u32>,
}

/// Divides `n` samples as `spec` says; a share is rounded up, so that a fifth of 1,797 is 360. Samples that share data
/// with held-out ones are in neither part.
///
/// # Errors
/// If consecutive samples would be shuffled, or `spec.held_out` is negative, not finite, a count that is not whole, or
/// leaves nothing to train on.
pub fn split(n: usize, spec: &DataSpec, seed: u64) -> Result<Split, DataError> {
    let share = spec.held_out;
    let refused = |expected: String| {
        Err(DataError::field(
            "held_out",
            share,
            expected,
            "give a share such as 0.2, a count such as 360, or 0 to hold nothing out",
        ))
    };
    if spec.split == SplitKind::Shuffled && spec.source.is_ordered() {
        let help = "of a text or series the last part is held out";
        return Err(DataError::field("split", "\"shuffled\"", "\"last\"", help));
    }
    let Ok(total) = u32::try_from(n) else {
        return Err(DataError::field("type", format!("{n} samples"), "at most 4294967295", "use fewer samples"));
    };
    if !share.is_finite() || share < 0.0 {
        return refused("a share from 0 to below 1, or a count".to_owned());
    }
    if share >= 1.0 && share.fract() != 0.0 {
        return refused("a whole number of samples, because it is not below 1".to_owned());
    }
    let held = spec.held_out_of(n);
    if n > 0 && held == n {
        return refused(format!("fewer than all {n} samples"));
    }
    let mut train: Vec<u32> = (0..total).collect();
    if spec.split == SplitKind::Shuffled {
        Rng::new(seed, STREAM).shuffle(&mut train);
    }
    let mut held_out = train.split_off(n - held);
    if held > 0 {
        train.truncate(train.len().saturating_sub(spec.source.overlap()));
    }
    train.sort_unstable();
    held_out.sort_unstable();
    Ok(Split { train, held_out })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::DataSource;

    fn spec(held_out: f64, split: SplitKind) -> DataSpec {
        DataSpec { held_out, split, ..DataSpec::of(DataSource::Digits) }
    }

    #[test]
    fn the_last_samples_or_a_shuffled_share_are_held_out() {
        let last = split(10, &spec(3.0, SplitKind::Last), 0).unwrap();
        assert_eq!((last.train, last.held_out), ((0..7).collect(), vec![7, 8, 9]));
        let a = split(1797, &spec(0.2, SplitKind::Shuffled), 5).unwrap();
        assert_eq!((a.train.len(), a.held_out.len()), (1437, 360));
        assert_eq!(a, split(1797, &spec(0.2, SplitKind::Shuffled), 5).unwrap());
        assert_ne!(a, split(1797, &spec(0.2, SplitKind::Shuffled), 6).unwrap());
        let mut all = [a.train.clone(), a.held_out.clone()].concat();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..1797) && a.train.is_sorted() && a.held_out.is_sorted());
    }

    #[test]
    fn counts_round_and_nothing_may_be_held_out() {
        for (n, share, held) in [(70, 0.1, 7), (150, 0.2, 30), (9, 0.0, 0), (10, 1.0, 1), (3, 0.5, 2), (0, 0.0, 0)] {
            assert_eq!(split(n, &spec(share, SplitKind::Last), 0).unwrap().held_out.len(), held, "{n} {share}");
        }
    }

    #[test]
    fn impossible_counts_are_errors() {
        for share in [-0.1, f64::NAN, f64::INFINITY, 2.5, 10.0, 11.0, 0.99, 1e300] {
            let text = split(10, &spec(share, SplitKind::Last), 0).unwrap_err().to_string();
            assert!(text.starts_with("data.held_out: found "), "{text}");
        }
    }
}
