//! The order in which training uses its samples.
//!
//! An epoch is one shuffled pass over the training part. Its order depends only on the seed and the epoch's number, so
//! that a [`Position`] of two numbers is enough to continue a run with exactly the batches it would have used, and a
//! [`BatchPlace`] is enough for a device to find its samples. Samples that are left at the end of an epoch and are
//! fewer than a batch are dropped, so that every step has the same shape; optionally they make a shorter batch.

use super::{BatchPlace, DataError, Shuffle};
use serde::{Deserialize, Serialize};

/// The generator's first stream for shuffles; epoch `n` uses the `n`-th stream after it.
pub(crate) const STREAM: u64 = 0x6461_7461_0100_0000;

/// The progress of a run through its data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// Passes that began before this one.
    pub epoch: u64,
    /// Samples of this epoch that were already used.
    pub cursor: usize,
}

/// An endless sequence of batches of sample numbers; its buffers are allocated once.
#[derive(Clone, Debug)]
pub struct Batches {
    /// The training part, in the split's order.
    train: Vec<u32>,
    /// `train`, shuffled for the epoch in `shuffled`.
    order: Vec<u32>,
    shuffled: Option<u64>,
    batch: usize,
    /// Whether the samples left at the end of an epoch make a batch.
    is_last_short: bool,
    seed: u64,
    position: Position,
}

impl Batches {
    /// Batches of `batch` samples of the training part, from the first epoch on.
    ///
    /// # Errors
    /// If `train` has fewer samples than one batch, or `batch` is 0.
    pub fn new(train: Vec<u32>, batch: usize, seed: u64) -> Result<Self, DataError> {
        if batch == 0 || train.len() < batch {
            return Err(DataError::Batch { train: train.len(), batch: batch.max(1) });
        }
        let (order, position) = (train.clone(), Position::default());
        Ok(Self { order, train, shuffled: None, batch, is_last_short: false, seed, position })
    }

    /// Like [`Self::new`], but the samples left at the end of an epoch make a shorter batch.
    ///
    /// # Errors
    /// If `train` is empty, or `batch` is 0.
    pub fn with_short_last(train: Vec<u32>, batch: usize, seed: u64) -> Result<Self, DataError> {
        let least = batch.min(train.len());
        Ok(Self { batch, is_last_short: true, ..Self::new(train, least, seed)? })
    }

    /// Sample numbers of the next batch; starts a new epoch if too few samples are left.
    #[expect(clippy::should_implement_trait, reason = "an iterator cannot lend its buffer, and would have to allocate")]
    pub fn next(&mut self) -> &[u32] {
        let start = self.pass();
        self.shuffled_from(start)
    }

    /// Like [`Self::next`], without advancing.
    pub fn peek(&mut self) -> &[u32] {
        let position = self.position;
        let start = self.pass();
        let next = self.position;
        self.shuffled_from(start);
        self.position = position;
        &self.order[start..next.cursor]
    }

    /// The batch that begins at this position and that was just returned.
    fn shuffled_from(&mut self, start: usize) -> &[u32] {
        let epoch = self.position.epoch;
        if self.shuffled != Some(epoch) {
            self.shuffle().fill(&self.train, &mut self.order);
            self.shuffled = Some(epoch);
        }
        &self.order[start..self.position.cursor]
    }

    /// The number of samples of a batch that is not short.
    #[must_use]
    pub const fn batch(&self) -> usize {
        self.batch
    }

    /// The number of samples of the short batch at the end of each epoch, if there is one.
    #[must_use]
    pub const fn short_last(&self) -> Option<usize> {
        let left = self.train.len() % self.batch;
        if self.is_last_short && left > 0 { Some(left) } else { None }
    }

    /// The number of samples of the next batch, and its position.
    #[must_use]
    pub const fn upcoming(&self) -> (usize, Position) {
        let (start, len) = self.following();
        (len, start)
    }

    /// Like [`Batches::next`], for a device that finds the samples itself in [`Batches::train`].
    pub fn next_place(&mut self) -> BatchPlace {
        let cursor = self.pass() as u32;
        BatchPlace::shuffled(self.shuffle(), cursor)
    }

    /// The training part, which shuffles permute.
    #[must_use]
    pub fn train(&self) -> &[u32] {
        &self.train
    }

    /// Advances by one batch, and returns its position in the epoch.
    const fn pass(&mut self) -> usize {
        let (start, len) = self.following();
        self.position = Position { epoch: start.epoch, cursor: start.cursor + len };
        start.cursor
    }

    /// The position of the next batch, and its number of samples.
    const fn following(&self) -> (Position, usize) {
        let left = self.train.len() - self.position.cursor;
        if left >= self.batch {
            return (self.position, self.batch);
        }
        if self.is_last_short && left > 0 {
            return (self.position, left);
        }
        let first = if self.train.len() < self.batch { self.train.len() } else { self.batch };
        (Position { epoch: self.position.epoch.wrapping_add(1), cursor: 0 }, first)
    }

    /// The position that a checkpoint stores, from which [`Batches::next`] continues.
    #[must_use]
    pub const fn position(&self) -> Position {
        self.position
    }

    /// Continues from a saved position.
    ///
    /// # Errors
    /// If the position cannot have come from these batches.
    pub fn resume(&mut self, position: Position) -> Result<(), DataError> {
        let Position { cursor, .. } = position;
        // An epoch ends with its short batch; runs that skip this batch have the same epochs.
        let is_end = cursor == self.train.len();
        if cursor > self.train.len() || (cursor % self.batch != 0 && !is_end) {
            return Err(DataError::Resume { cursor, batch: self.batch, train: self.train.len() });
        }
        self.position = position;
        Ok(())
    }

    /// The order of the current epoch.
    fn shuffle(&self) -> Shuffle {
        Shuffle::new(self.train.len() as u32, self.seed, STREAM.wrapping_add(self.position.epoch))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(batches: &mut Batches, count: usize) -> Vec<Vec<u32>> {
        (0..count).map(|_| batches.next().to_vec()).collect()
    }

    #[test]
    fn an_epoch_shows_every_sample_at_most_once_and_drops_the_rest() {
        let mut batches = Batches::new((100..110).collect(), 4, 9).unwrap();
        assert_eq!(batches.train.len() / batches.batch, 2);
        let mut epochs = Vec::new();
        for epoch in 0..5 {
            let mut seen = take(&mut batches, 2).concat();
            assert_eq!(batches.position(), Position { epoch, cursor: 8 });
            epochs.push(seen.clone());
            seen.sort_unstable();
            seen.dedup();
            assert!(seen.len() == 8 && seen.iter().all(|i| (100..110).contains(i)), "{seen:?}");
        }
        epochs.dedup();
        assert_eq!(epochs.len(), 5, "every epoch has its own order");
    }

    #[test]
    fn a_resumed_run_sees_the_same_batches() {
        for stop in 0..12 {
            let mut whole = Batches::new((0..23).collect(), 5, 1).unwrap();
            take(&mut whole, stop);
            let saved = whole.position();
            let mut resumed = Batches::new((0..23).collect(), 5, 1).unwrap();
            take(&mut resumed, 3);
            resumed.resume(saved).unwrap();
            assert_eq!(take(&mut whole, 9), take(&mut resumed, 9), "stopped after {stop}");
        }
    }

    #[test]
    fn a_short_last_batch_shows_every_sample_of_an_epoch() {
        let mut batches = Batches::with_short_last((100..110).collect(), 4, 9).unwrap();
        let whole = Batches::new((100..110).collect(), 4, 9).unwrap();
        assert_eq!((batches.short_last(), batches.batch(), whole.short_last()), (Some(2), 4, None));
        for epoch in 0..3 {
            let mut seen = Vec::new();
            for rows in [4, 4, 2] {
                let (upcoming, at) = batches.upcoming();
                let ahead = batches.peek().to_vec();
                let place = batches.clone().next_place();
                assert_eq!((upcoming, at.epoch, ahead.len()), (rows, epoch, rows));
                assert_eq!(batches.next(), ahead);
                let found: Vec<u32> =
                    (0..rows).map(|row| batches.train[place.sample(10, row as u32) as usize]).collect();
                assert_eq!(found, ahead);
                let mut resumed = Batches::with_short_last((100..110).collect(), 4, 9).unwrap();
                resumed.resume(batches.position()).unwrap();
                assert_eq!(resumed.next(), batches.clone().next());
                seen.extend(ahead);
            }
            seen.sort_unstable();
            assert_eq!(seen, (100..110).collect::<Vec<_>>());
        }
        // Fewer samples than a batch make one batch.
        let mut few = Batches::with_short_last(vec![1, 2], 4, 0).unwrap();
        assert_eq!((few.next().len(), few.next().len(), few.short_last()), (2, 2, Some(2)));
        assert!(Batches::with_short_last(vec![], 4, 0).is_err());
        // The first batches are the same as when the rest is dropped.
        let mut dropped = Batches::new((0..10).collect(), 4, 3).unwrap();
        let mut kept = Batches::with_short_last((0..10).collect(), 4, 3).unwrap();
        assert_eq!(take(&mut dropped, 2), take(&mut kept, 2));
    }

    #[test]
    fn buffers_are_not_reallocated() {
        let mut batches = Batches::new((0..8).collect(), 8, 1).unwrap();
        let place = batches.next().as_ptr();
        for _ in 0..20 {
            assert_eq!(batches.next().as_ptr(), place);
        }
    }

    #[test]
    fn too_little_data_and_positions_of_other_data_are_errors() {
        let text = Batches::new(vec![0, 1], 3, 0).unwrap_err().to_string();
        assert!(text.contains("found 2 training samples, expected at least one batch of 3"), "{text}");
        assert!(Batches::new(vec![0], 0, 0).is_err() && Batches::new(vec![], 1, 0).is_err());
        let mut batches = Batches::new((0..10).collect(), 4, 0).unwrap();
        for cursor in [3, 12, usize::MAX] {
            assert!(batches.resume(Position { epoch: 0, cursor }).is_err(), "{cursor}");
        }
        batches.resume(Position { epoch: u64::MAX, cursor: 8 }).unwrap();
        assert_eq!(batches.next().len(), 4);
    }

    #[test]
    fn the_order_of_a_seed_never_changes() {
        // These numbers come from an implementation of the generator and the shuffle in another language.
        let mut batches = Batches::new((0..8).collect(), 4, 0).unwrap();
        assert_eq!(take(&mut batches, 4).concat(), [2, 0, 1, 5, 4, 3, 7, 6, 5, 1, 7, 4, 0, 3, 6, 2]);
        let mut batches = Batches::new((0..11).collect(), 11, 5).unwrap();
        assert_eq!(batches.next(), [7, 10, 9, 8, 1, 4, 5, 0, 3, 6, 2]);
    }

    #[test]
    fn a_device_finds_the_same_samples() {
        let train: Vec<u32> = (50..73).collect();
        let mut listed = Batches::new(train.clone(), 5, 1).unwrap();
        let mut found = Batches::new(train, 5, 1).unwrap();
        for _ in 0..20 {
            let place = found.next_place();
            let samples: Vec<u32> = (0..5).map(|row| found.train()[place.sample(23, row) as usize]).collect();
            assert_eq!(listed.next(), samples);
            assert_eq!(listed.position(), found.position());
        }
    }
}
