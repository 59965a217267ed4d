//! The factors of an update, computed inside the step: the learning rate of a schedule, and gradient clipping by norm.

use super::Operation;
use super::chunks::FLAT_CHUNK;
use super::geometry::{Scalar, Segment};
use super::operation::operation;
use super::slots::slots;
use crate::model::{Schedule, ScheduleKind};
use serde::{Deserialize, Serialize};

/// `grad_norm_seg [segments]`: the norm of each segment of the flat gradient, divided by the number of `batches` that
/// the gradient sums. The order of summation depends only on the vector and not on the number of threads. If `scaler`
/// is bound, it is that of `ScaleUpdate`, and gradients are multiplied by its third value.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GradNorms {
    pub len: usize,
    pub segments: Vec<Segment>,
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub batches: usize,
}

pub(super) const fn one() -> usize {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
pub(super) const fn is_one(count: &usize) -> bool {
    *count == 1
}

slots! {
    pub mod grad_norms(op: GradNorms) {
        GRAD: in [op.len],
        GRAD_NORM_SEG: out [op.segments.len()],
        WORK: scratch,
        SCALER: in [crate::ops::SCALER] if OPTIONAL,
    }
}

operation! {
    GradNorms: grad_norms, "grad_norms", |op| {
        dims: format!("len={} segments={}", op.len, op.segments.len()),
        flops: 2 * op.len as u64,
        bytes_moved(elem): ((op.len + op.segments.len()) * elem) as u64,
        // Only the segments of the flat vector are read.
        least_bytes(_slot, len, elem): {
            let held = if len == op.len { op.segments.iter().map(|s| s.len).sum::<usize>().min(len) } else { len };
            (held * elem) as u64
        },
        // A norm for each piece of a segment in a chunk.
        scratch_floats: op.segments.len() + op.len.div_ceil(FLAT_CHUNK),
    }
}

operation! {
    /// `rates [2] = rate of this step, weight decay`, from `hyper [2]`, the base rate and the decay, by a schedule over
    /// the step of `counter` and the `steps` of the run. If `clip_norm` is not zero, a third value is the factor of
    /// gradients: `min(1, clip_norm / (norm + 1e-6))` with the norm of all segments, which is 0 if there are none; NaN
    /// if the norm is NaN. If the gradient is the sum of several `batches`, that value always exists and is divided by
    /// their number.
    pub struct UpdateRates {
        pub schedule: ScheduleKind,
        pub warmup: usize,
        #[serde(rename = "final")]
        pub last: Scalar,
        pub every: usize,
        pub factor: Scalar,
        pub clip_norm: Scalar,
        pub segments: usize,
        #[serde(default = "one", skip_serializing_if = "is_one")]
        pub batches: usize,
    }
    slots update_rates(op) {
        HYPER: in live [2],
        COUNTER: in live [2] if !op.schedule().is_constant(),
        STEPS: in live [1] if op.schedule.has_end(),
        GRAD_NORM_SEG: in [op.segments] if op.clips() && op.segments > 0,
        RATES: out [op.rates()],
    }
    "update_rates" => {
        dims: match op.clips() {
            true => format!("{} segments={}", op.schedule.name(), op.segments),
            false => op.schedule.name().to_owned(),
        },
        flops: 8 + if op.clips() { 2 * op.segments as u64 } else { 0 },
        bytes_moved(elem): {
            let norms = if op.clips() { op.segments + 1 } else { 0 };
            (3 * size_of::<i64>() + (4 + norms) * elem) as u64
        },
        whole_constants: match op.schedule {
            ScheduleKind::Step => &["warmup", "every"],
            _ => &["warmup"],
        },
    }
}

impl UpdateRates {
    #[must_use]
    pub fn new(schedule: Schedule, clip_norm: f64, segments: usize) -> Self {
        let Schedule { kind, warmup, last, every, factor } = schedule;
        let [last, factor, clip_norm] = [last, factor, clip_norm].map(Scalar::new);
        Self { schedule: kind, warmup, last, every, factor, clip_norm, segments, batches: 1 }
    }

    #[must_use]
    pub fn schedule(&self) -> Schedule {
        let Self { schedule: kind, warmup, last, every, factor, .. } = *self;
        Schedule { kind, warmup, last: last.get(), every, factor: factor.get() }
    }

    /// Whether gradients are clipped.
    #[must_use]
    pub fn clips(&self) -> bool {
        self.clip_norm.get() > 0.0
    }

    /// Whether there is a factor of the gradients.
    #[must_use]
    pub fn scales(&self) -> bool {
        self.clips() || self.batches > 1
    }

    /// Elements of the result.
    #[must_use]
    pub fn rates(&self) -> usize {
        if self.scales() { 3 } else { 2 }
    }

    /// The factor of gradients whose mean has this norm.
    #[must_use]
    pub fn scale(&self, norm: f64) -> f64 {
        let limit = if self.clips() { self.clip_norm.get() / (norm + 1e-6) } else { 1.0 };
        // NaN is returned unchanged.
        (if limit > 1.0 { 1.0 } else { limit }) / self.batches as f64
    }
}
