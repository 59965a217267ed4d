//! The samples that parameters were trained on: a sample is held out only if no part of the run has trained on it.
//!
//! A run that is resumed with other rows in its files, or started from other weights, has trained on samples of which
//! only a checksum is stored. It is not known whether the current samples are among them, so from then on no metric is
//! called held-out.

use crate::model::{DataSpec, SplitKind};
use serde::{Deserialize, Serialize};

/// How a run's samples are divided into training and held-out ones, as the preset or the command says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Division {
    pub(super) held_out: f64,
    split: String,
}

impl Division {
    pub(super) fn of(data: &DataSpec) -> Self {
        Self { held_out: data.held_out, split: data.split.name().to_owned() }
    }

    /// Which samples are held out.
    pub(super) fn kind(&self) -> SplitKind {
        if self.split == SplitKind::Last.name() { SplitKind::Last } else { SplitKind::Shuffled }
    }

    /// Whether the same samples of the same data are held out.
    fn is_as(&self, other: &Self, has_same_seed: bool) -> bool {
        let is_same_part = self.kind() == other.kind() && (self.kind() == SplitKind::Last || has_same_seed);
        self.held_out == other.held_out && (self.held_out == 0.0 || is_same_part)
    }
}

/// Samples that a run has trained on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct TrainedOn {
    /// The checksum of all samples, including held-out ones; `None` for the batches of a file, and if an older version
    /// wrote the weights.
    pub(super) data_digest: Option<String>,
    /// The seed, which determines a shuffled split.
    pub(super) seed: Option<u64>,
    /// How they were divided; `None` for the batches of a file.
    pub(super) division: Option<Division>,
}

impl TrainedOn {
    /// Whether both have trained on the same samples, as far as is known: data that an older version did not write are
    /// assumed to be the same.
    pub(super) fn is_as(&self, other: &Self) -> bool {
        fn agree<T: PartialEq>(a: Option<&T>, b: Option<&T>) -> bool {
            a.zip(b).is_none_or(|(a, b)| a == b)
        }
        match (&self.division, &other.division) {
            (None, None) => true,
            (Some(own), Some(others)) => {
                let has_same_seed = agree(self.seed.as_ref(), other.seed.as_ref());
                agree(self.data_digest.as_ref(), other.data_digest.as_ref()) && own.is_as(others, has_same_seed)
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(digest: Option<&str>, seed: u64, held_out: f64, split: SplitKind) -> TrainedOn {
        let division = Division { held_out, split: split.name().to_owned() };
        TrainedOn { data_digest: digest.map(str::to_owned), seed: Some(seed), division: Some(division) }
    }

    #[test]
    fn samples_are_the_same_if_data_and_split_are() {
        let own = samples(Some("a"), 1, 0.2, SplitKind::Shuffled);
        assert!(own.is_as(&own.clone()) && own.is_as(&samples(None, 1, 0.2, SplitKind::Shuffled)));
        for other in [
            samples(Some("b"), 1, 0.2, SplitKind::Shuffled),
            samples(Some("a"), 2, 0.2, SplitKind::Shuffled),
            samples(Some("a"), 1, 0.1, SplitKind::Shuffled),
            samples(Some("a"), 1, 0.2, SplitKind::Last),
            samples(Some("a"), 1, 0.0, SplitKind::Shuffled),
            TrainedOn::default(),
        ] {
            assert!(!own.is_as(&other) && !other.is_as(&own), "{other:?}");
        }
        // The last samples do not depend on a seed, and neither does an empty held-out part.
        assert!(samples(Some("a"), 1, 0.2, SplitKind::Last).is_as(&samples(Some("a"), 2, 0.2, SplitKind::Last)));
        assert!(samples(Some("a"), 1, 0.0, SplitKind::Last).is_as(&samples(Some("a"), 2, 0.0, SplitKind::Shuffled)));
        assert!(TrainedOn::default().is_as(&TrainedOn::default()));
    }
}
