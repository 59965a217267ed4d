//! The curve of a run on disk: chunks that are only ever appended, so that an interrupted run loses at most its last
//! chunk.
//!
//! A file is [`MAGIC`] followed by chunks. A chunk is its kind (`u32`), the length of its body (`u32`), the checksum of
//! the body (`u64`), and the body; all numbers are little endian. A chunk of steps contains the first step, the number
//! of steps, when the first and the last of them were made (milliseconds of running time), and a column for each
//! quantity: one value if they are all equal, all of them otherwise. A chunk of an evaluation contains its step, time,
//! loss and accuracy. Two more kinds contain how far each layer moved (`layers.rs`). A reader stops at the first chunk
//! that is incomplete, and skips kinds that it does not know.

use super::LayerCurves;
use super::chunks::{HEAD, Reader, chunk, put_chunk};
use super::layers::{LAYERS, UPDATES};
use super::outline::{Outline, Stretch, ms_of};
use crate::train::StepReport;

/// The first bytes of a curve file, including the version of the format.
pub const MAGIC: &[u8; 8] = b"SGCURVE1";

const STEPS: u32 = 1;
const EVALUATION: u32 = 2;
/// The number of steps of a chunk: a program that is killed during a large write loses only the incomplete chunk.
const CHUNK: usize = 1 << 12;
/// The largest number of missing steps in the middle of a run.
const LARGEST_GAP: u64 = 1 << 20;
/// The largest number of steps in a chunk that a reader accepts.
const MOST: usize = 1 << 16;

/// The end of the first chunk of a curve file, by the file's first bytes; `None` if there is none.
pub(super) fn first_chunk_ends(head: &[u8]) -> Option<u64> {
    let mut r = Reader(head.strip_prefix(MAGIC)?);
    let (_, length, _) = (r.u32()?, r.u32()?, r.u64()?);
    Some((MAGIC.len() + HEAD) as u64 + u64::from(length))
}

/// The quantities of a step, in the order of their columns in a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Quantity {
    Loss,
    Accuracy,
    UpdateMax,
    GradNorm,
    Lr,
    LossScale,
    StepUs,
    FeedUs,
}

impl Quantity {
    pub const ALL: [Self; 8] = [
        Self::Loss,
        Self::Accuracy,
        Self::UpdateMax,
        Self::GradNorm,
        Self::Lr,
        Self::LossScale,
        Self::StepUs,
        Self::FeedUs,
    ];

    /// The name in logs and tables; times are microseconds.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Loss => "loss",
            Self::Accuracy => "accuracy",
            Self::UpdateMax => "update_max",
            Self::GradNorm => "grad_norm",
            Self::Lr => "lr",
            Self::LossScale => "loss_scale",
            Self::StepUs => "step_us",
            Self::FeedUs => "feed_us",
        }
    }

    /// The value in a report.
    #[must_use]
    pub const fn of(self, report: &StepReport) -> f32 {
        match self {
            Self::Loss => report.loss,
            Self::Accuracy => report.accuracy,
            Self::UpdateMax => report.update_max,
            Self::GradNorm => report.grad_norm,
            Self::Lr => report.lr,
            Self::LossScale => report.loss_scale,
            Self::StepUs => report.step_us,
            Self::FeedUs => report.feed_us,
        }
    }
}

/// An evaluation on the held-out part.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EvaluationPoint {
    pub step: u64,
    /// Running time, in milliseconds.
    pub ms: f64,
    pub loss: f64,
    /// NaN if the network returns values instead of classes.
    pub accuracy: f64,
}

/// The curves of a run in memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curves {
    /// The number of steps before the first value: above 0 for a run that continued from a checkpoint.
    pub before: u64,
    columns: [Vec<f32>; 8],
    stretches: Vec<Stretch>,
    pub evaluations: Vec<EvaluationPoint>,
    /// How far each layer moved, over ranges of steps.
    pub layers: LayerCurves,
    /// True if the file ends with an incomplete chunk.
    pub is_torn: bool,
    /// Whether the run may have trained on the samples of its evaluations before, as its record says.
    pub maybe_trained: bool,
}

impl Curves {
    /// The name of the samples of the evaluations in files for other programs.
    #[must_use]
    pub const fn evaluated_name(&self) -> &'static str {
        if self.maybe_trained { "maybe_trained" } else { "held_out" }
    }

    /// The number of values of each quantity.
    #[must_use]
    pub fn len(&self) -> usize {
        self.columns[0].len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.columns[0].is_empty()
    }

    /// The last step made.
    #[must_use]
    pub fn last_step(&self) -> u64 {
        self.before + self.len() as u64
    }

    /// The values of a quantity, one for each step from `before + 1` on; NaN if it was not measured.
    #[must_use]
    pub fn values(&self, quantity: Quantity) -> &[f32] {
        &self.columns[quantity as usize]
    }

    /// The report of the value at `index`, from 0.
    #[must_use]
    pub fn report(&self, index: usize) -> StepReport {
        let at = |q: Quantity| self.values(q).get(index).copied().unwrap_or(f32::NAN);
        StepReport {
            step: self.before + index as u64 + 1,
            loss: at(Quantity::Loss),
            update_max: at(Quantity::UpdateMax),
            grad_norm: at(Quantity::GradNorm),
            accuracy: at(Quantity::Accuracy),
            lr: at(Quantity::Lr),
            loss_scale: at(Quantity::LossScale),
            step_us: at(Quantity::StepUs),
            feed_us: at(Quantity::FeedUs),
            ..StepReport::default()
        }
    }

    /// The running time at which the value at `index` was made, in milliseconds.
    #[must_use]
    pub fn ms(&self, index: usize) -> f64 {
        ms_of(&self.stretches, index)
    }

    /// The curves without their values, which are stored elsewhere.
    #[must_use]
    pub fn outline(self) -> Outline {
        let (before, last_step, is_torn) = (self.before, self.last_step(), self.is_torn);
        Outline { before, last_step, is_torn, layers: self.layers, stretches: self.stretches }
    }

    /// The running time of the whole run, in milliseconds.
    #[must_use]
    pub fn total_ms(&self) -> f64 {
        self.stretches.last().map_or(0.0, |s| s.to_ms)
    }

    /// The median of a quantity over its last 4096 values, without NaN; `None` if there are none.
    #[must_use]
    pub fn median(&self, quantity: Quantity) -> Option<f32> {
        let values = self.values(quantity);
        median(&values[values.len().saturating_sub(RECENT)..])
    }

    /// The mean of the last values of a quantity, at most 32 of them, because the last loss of a single batch is noisy.
    #[must_use]
    pub fn recent_mean(&self, quantity: Quantity) -> Option<f32> {
        let values = self.values(quantity);
        mean_of_last(values)
    }

    /// Adds more steps, made between two running times. Steps that were made before are replaced, because a run may go
    /// back to a checkpoint.
    pub fn append(&mut self, reports: &[StepReport], from_ms: f64, to_ms: f64) {
        let Some(first) = reports.first() else { return };
        self.make_room(first.step);
        let start = self.len();
        for (quantity, column) in Quantity::ALL.into_iter().zip(&mut self.columns) {
            column.extend(reports.iter().map(|r| quantity.of(r)));
        }
        self.stretches.push(Stretch { start, count: reports.len(), from_ms, to_ms });
    }

    /// Drops all but the last values and the last evaluation, from which closing metrics are computed.
    pub(super) fn keep_tail(&mut self) {
        if self.len() > 4 * RECENT {
            let gone = self.len() - RECENT;
            self.columns.iter_mut().for_each(|c| drop(c.drain(..gone)));
            self.before += gone as u64;
            self.stretches.clear();
        }
        if self.evaluations.len() > 1 {
            self.evaluations.drain(..self.evaluations.len() - 1);
        }
    }

    /// Makes `step` the last one: the run continues from its checkpoint.
    pub fn go_back(&mut self, step: u64) {
        self.make_room(step + 1);
    }

    /// Makes `step` the next one.
    fn make_room(&mut self, step: u64) {
        let before = step.saturating_sub(1);
        if !self.is_empty() && before < self.last_step() {
            self.layers.go_back(before);
        }
        if !self.is_empty() && before > self.last_step() && before - self.last_step() <= LARGEST_GAP {
            // A killed program may have written a checkpoint but not the last steps before it: their values are
            // missing.
            let (start, ms) = (self.len(), self.total_ms());
            let count = (before - self.last_step()) as usize;
            self.columns.iter_mut().for_each(|c| c.resize(start + count, f32::NAN));
            self.stretches.push(Stretch { start, count, from_ms: ms, to_ms: ms });
        }
        if self.is_empty() || before > self.last_step() || before < self.before {
            // Earlier values do not belong to this run.
            let (evaluations, layers) = (std::mem::take(&mut self.evaluations), std::mem::take(&mut self.layers));
            *self = Self { before, evaluations, layers, ..Self::default() };
        }
        let keep = (before - self.before) as usize;
        if keep < self.len() {
            self.columns.iter_mut().for_each(|c| c.truncate(keep));
            self.stretches.retain(|s| s.start < keep);
            if let Some(s) = self.stretches.last_mut() {
                s.count = s.count.min(keep - s.start);
            }
        }
        self.evaluations.retain(|e| e.step <= before);
    }

    /// The curves in a file's bytes; `None` if it is not a curve file.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        Self::read_sound(bytes).map(|(curves, _)| curves)
    }

    /// Like [`Self::read`], with the number of valid bytes.
    #[must_use]
    pub fn read_sound(bytes: &[u8]) -> Option<(Self, u64)> {
        let mut rest = bytes.strip_prefix(MAGIC)?;
        let mut curves = Self::default();
        while !rest.is_empty() {
            let Some((kind, body, after)) = chunk(rest) else {
                curves.is_torn = true;
                break;
            };
            let taken = match kind {
                STEPS => curves.take_steps(body).is_some(),
                EVALUATION => curves.take_evaluation(body).is_some(),
                // The meaning of the steps does not depend on these.
                LAYERS | UPDATES => {
                    curves.layers.take(kind, body);
                    true
                }
                _ => true,
            };
            if !taken {
                curves.is_torn = true;
                break;
            }
            rest = after;
        }
        Some((curves, (bytes.len() - rest.len()) as u64))
    }

    fn take_steps(&mut self, body: &[u8]) -> Option<()> {
        let mut r = Reader(body);
        let (first, count) = (r.u64()?, usize::try_from(r.u64()?).ok()?);
        let (from_ms, to_ms) = (r.f64()?, r.f64()?);
        // A length is compared with the limit before it is used: chunks have at most this many steps.
        if count == 0 || count > MOST || first == 0 {
            return None;
        }
        let mut columns: [Vec<f32>; 8] = Default::default();
        for column in &mut columns {
            match r.bytes(1)?[0] {
                0 => column.extend(std::iter::repeat_n(r.f32()?, count)),
                _ => {
                    let raw = r.bytes(count * 4)?;
                    column.extend(raw.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])));
                }
            }
        }
        self.make_room(first);
        let start = self.len();
        for (own, read) in self.columns.iter_mut().zip(&columns) {
            own.extend_from_slice(read);
        }
        self.stretches.push(Stretch { start, count, from_ms, to_ms });
        Some(())
    }

    fn take_evaluation(&mut self, body: &[u8]) -> Option<()> {
        let mut r = Reader(body);
        let point = EvaluationPoint { step: r.u64()?, ms: r.f64()?, loss: r.f64()?, accuracy: r.f64()? };
        self.evaluations.push(point);
        Some(())
    }
}

/// The number of values for medians.
const RECENT: usize = 4096;

/// The median of finite values.
fn median(values: &[f32]) -> Option<f32> {
    let mut sorted: Vec<f32> = values.iter().copied().filter(|v| v.is_finite()).collect();
    sorted.sort_by(f32::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}

/// The mean of the last values that are not NaN, at most 32.
#[must_use]
pub fn mean_of_last(values: &[f32]) -> Option<f32> {
    let last: Vec<f32> = values[values.len().saturating_sub(32)..].iter().copied().filter(|v| v.is_finite()).collect();
    (!last.is_empty()).then(|| last.iter().sum::<f32>() / last.len() as f32)
}

/// Appends consecutive steps, made between two running times.
pub fn put_steps(out: &mut Vec<u8>, reports: &[StepReport], from_ms: f64, to_ms: f64) {
    let total = reports.len().max(1) as f64;
    let (mut done, mut start_ms) = (0, from_ms);
    for part in reports.chunks(CHUNK) {
        done += part.len();
        let end_ms = from_ms + (to_ms - from_ms) * done as f64 / total;
        put_chunk(out, STEPS, |out| {
            out.extend(part[0].step.to_le_bytes());
            out.extend((part.len() as u64).to_le_bytes());
            out.extend(start_ms.to_le_bytes());
            out.extend(end_ms.to_le_bytes());
            for quantity in Quantity::ALL {
                let first = quantity.of(&part[0]);
                if part.iter().all(|r| quantity.of(r).to_bits() == first.to_bits()) {
                    out.push(0);
                    out.extend(first.to_le_bytes());
                } else {
                    out.push(1);
                    part.iter().for_each(|r| out.extend(quantity.of(r).to_le_bytes()));
                }
            }
        });
        start_ms = end_ms;
    }
}

/// Appends an evaluation.
pub fn put_evaluation(out: &mut Vec<u8>, point: &EvaluationPoint) {
    put_chunk(out, EVALUATION, |out| {
        out.extend(point.step.to_le_bytes());
        [point.ms, point.loss, point.accuracy].iter().for_each(|v| out.extend(v.to_le_bytes()));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(step: u64) -> StepReport {
        StepReport {
            step,
            loss: 1.0 / step as f32,
            update_max: 1e-3,
            grad_norm: 0.5,
            accuracy: f32::NAN,
            lr: 1e-3,
            loss_scale: f32::NAN,
            step_us: 10.0 + (step % 3) as f32,
            feed_us: 1.0,
            ..StepReport::default()
        }
    }

    fn file() -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        put_steps(&mut out, &(1..=100).map(report).collect::<Vec<_>>(), 0.0, 990.0);
        put_evaluation(&mut out, &EvaluationPoint { step: 100, ms: 995.0, loss: 0.25, accuracy: 0.75 });
        put_steps(&mut out, &(101..=150).map(report).collect::<Vec<_>>(), 1000.0, 2000.0);
        out
    }

    #[test]
    fn written_curves_are_read_back_exactly() {
        let curves = Curves::read(&file()).unwrap();
        assert_eq!((curves.len(), curves.last_step(), curves.is_torn), (150, 150, false));
        for i in 0..150 {
            let (found, wanted) = (curves.report(i), report(i as u64 + 1));
            for q in Quantity::ALL {
                assert_eq!(q.of(&found).to_bits(), q.of(&wanted).to_bits());
            }
        }
        assert_eq!(curves.evaluations.len(), 1);
        assert_eq!((curves.ms(0), curves.ms(99), curves.ms(149)), (0.0, 990.0, 2000.0));
        assert_eq!(curves.median(Quantity::StepUs), Some(11.0));
        assert_eq!(curves.median(Quantity::Accuracy), None);
    }

    #[test]
    fn an_incomplete_or_damaged_end_loses_only_its_chunk() {
        let whole = file();
        for cut in whole.len() - 200..whole.len() {
            let curves = Curves::read(&whole[..cut]).unwrap();
            assert!(curves.is_torn && curves.len() == 100 && curves.evaluations.len() == 1, "{cut}");
        }
        let mut spoilt = whole.clone();
        let last = spoilt.len() - 1;
        spoilt[last] ^= 1;
        assert_eq!(Curves::read(&spoilt).unwrap().len(), 100);
        assert_eq!(Curves::read(b"a letter"), None);
        // Lengths that no file can have must not cause allocations.
        let mut wrong = MAGIC.to_vec();
        put_chunk(&mut wrong, STEPS, |out| {
            out.extend([1u64.to_le_bytes(), u64::MAX.to_le_bytes(), [0; 8], [0; 8]].concat());
            out.extend([0; 64]);
        });
        let curves = Curves::read(&wrong).unwrap();
        assert!(curves.is_torn && curves.is_empty());
    }

    #[test]
    fn a_run_that_went_back_to_a_checkpoint_continues_from_there() {
        let mut out = file();
        put_steps(&mut out, &(51..=60).map(report).collect::<Vec<_>>(), 3000.0, 3100.0);
        let curves = Curves::read(&out).unwrap();
        assert_eq!((curves.len(), curves.evaluations.len()), (60, 0));
        let mut resumed = MAGIC.to_vec();
        put_steps(&mut resumed, &(501..=510).map(report).collect::<Vec<_>>(), 0.0, 10.0);
        let curves = Curves::read(&resumed).unwrap();
        assert_eq!((curves.before, curves.len(), curves.report(0).step), (500, 10, 501));
        // Steps that were made and never written leave a gap, and nothing before it is lost.
        let mut gap = file();
        put_steps(&mut gap, &(171..=180).map(report).collect::<Vec<_>>(), 3000.0, 3100.0);
        let curves = Curves::read(&gap).unwrap();
        assert_eq!((curves.len(), curves.report(170).step, curves.report(149).loss), (180, 171, report(150).loss));
        assert!(curves.values(Quantity::Loss)[150..170].iter().all(|v| v.is_nan()) && curves.evaluations.len() == 1);
    }

    #[test]
    fn a_million_steps_take_few_megabytes() {
        let mut out = MAGIC.to_vec();
        for chunk in 0..1000u64 {
            let reports: Vec<StepReport> = (chunk * 1000 + 1..=chunk * 1000 + 1000).map(report).collect();
            put_steps(&mut out, &reports, chunk as f64, chunk as f64 + 1.0);
        }
        assert!(out.len() < 12 << 20, "{}", out.len());
        assert_eq!(Curves::read(&out).unwrap().len(), 1_000_000);
    }
}
