//! What all optimizers have in common: where they find what they update, and the formula of their rule, which is
//! written once for every kind of number.

use super::chunks::FLAT_CHUNK;
use super::geometry::Segment;
use serde::{Deserialize, Serialize};
use std::ops::{Add, Div, Mul, Sub};

/// A vector that an update replaces: the slot of its value before the update, and of the one after it.
pub type UpdatedSlots = [usize; 2];

/// Where an optimizer finds what it updates. Passes that cut, join or move updates read this, whatever the rule of the
/// optimizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpdateSlots {
    pub param: UpdatedSlots,
    /// The vectors of as many elements as the parameters that the rule keeps from step to step, in its own order.
    pub states: &'static [UpdatedSlots],
    /// Learning rate and weight decay.
    pub hyper: usize,
    /// Corrections of the states, where the rule has any.
    pub corr: Option<usize>,
    /// The copy of the parameters in the type that products read.
    pub shadow: usize,
}

/// What an update of the flat parameters does besides its rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StepOptions {
    /// Whether `hyper` has a third value that gradients are multiplied by.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub clipped: bool,
    /// The segments, by number, whose parameters do not decay.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exempt: Vec<usize>,
}

impl StepOptions {
    /// Whether it does nothing besides its rule.
    #[must_use]
    pub fn is_usual(&self) -> bool {
        *self == Self::default()
    }

    /// Elements of `hyper`: the rate, the decay, and what gradients are multiplied by.
    #[must_use]
    pub const fn rates(&self) -> usize {
        if self.clipped { 3 } else { 2 }
    }
}

/// An update of the flat parameters, whatever its rule. Elements outside the segments are not changed.
#[derive(Clone, Copy, Debug)]
pub struct FlatUpdate<'a> {
    /// Elements of the flat vectors.
    pub len: usize,
    pub segments: &'a [Segment],
    pub options: &'a StepOptions,
    pub slots: UpdateSlots,
    pub grad: usize,
    pub update_max: usize,
    pub grad_norm_seg: usize,
    pub work: usize,
}

impl FlatUpdate<'_> {
    /// The bytes that it must touch of an argument of `len` elements: of a flat vector no more than its segments.
    #[must_use]
    pub fn segment_bytes(&self, len: usize, elem: usize) -> u64 {
        let all = (len * elem) as u64;
        let of_segments = || self.segments.iter().map(|s| (s.len * elem) as u64).sum::<u64>().min(all);
        if len == self.len { of_segments() } else { all }
    }

    /// Floats of scratch memory for its metrics: a pair for each segment and each chunk.
    #[must_use]
    pub fn metric_floats(&self) -> usize {
        2 * (self.segments.len() + self.len.div_ceil(FLAT_CHUNK))
    }

    /// The bytes of all vectors, of rates and corrections, and of the metrics, once each.
    #[must_use]
    pub fn bytes_moved(&self, elem: usize) -> u64 {
        let vectors = 3 + 2 * self.slots.states.len();
        let rates = self.options.rates() + if self.slots.corr.is_some() { 2 } else { 0 };
        ((vectors * self.len + rates + 2 * self.segments.len()) * elem) as u64
    }
}

/// Answers what [`Operation`](super::Operation) asks of an update of the flat parameters: from its table of slots, and
/// from the [`UpdateSlots`] that the expression gives.
macro_rules! flat_update {
    ($table:ident, |$op:ident| $slots:expr) => {
        crate::ops::slots::table!($table);

        fn flat_update(&self) -> Option<crate::ops::FlatUpdate<'_>> {
            let $op = self;
            Some(crate::ops::FlatUpdate {
                len: self.len,
                segments: &self.segments,
                options: &self.options,
                slots: $slots,
                grad: $table::GRAD,
                update_max: $table::UPDATE_MAX,
                grad_norm_seg: $table::GRAD_NORM_SEG,
                work: $table::WORK,
            })
        }

        fn update(&self) -> Option<crate::ops::UpdateSlots> {
            self.flat_update().map(|update| update.slots)
        }

        fn dims(&self) -> String {
            format!("len={} segments={}", self.len, self.segments.len())
        }

        fn bytes_moved(&self, elem: usize) -> u64 {
            self.flat_update().map_or(0, |update| update.bytes_moved(elem))
        }

        fn least_bytes(&self, _slot: usize, len: usize, elem: usize) -> u64 {
            self.flat_update().map_or(0, |update| update.segment_bytes(len, elem))
        }

        fn scratch_floats(&self) -> usize {
            self.flat_update().map_or(0, |update| update.metric_floats())
        }
    };
}
pub(super) use flat_update;

/// The name of a rule with its constants, as a kernel that is compiled for it takes them: numbers, then flags.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleText {
    pub name: &'static str,
    pub constants: Vec<f64>,
    pub flags: Vec<bool>,
}

/// The vectors that a rule keeps, at most.
pub const MOST_STATES: usize = 2;

/// What the formula of a rule is computed with: one number of any precision, a number with a bound for its error, or
/// several numbers at once.
pub trait Number:
    Copy + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self> + 'static
{
    /// The nearest number of this kind.
    fn constant(value: f64) -> Self;

    /// The square root.
    fn root(self) -> Self;

    /// `self * x * x`. Plain loops multiply from left to right; kernels that work on several numbers at once square
    /// first.
    fn times_square(self, x: Self) -> Self;

    /// -1 below zero, 1 above it, and the number itself where it is neither: zero, and NaN.
    fn sign(self) -> Self;
}

/// What changes from step to step.
#[derive(Clone, Copy, Debug)]
pub struct Rates<N> {
    /// The learning rate.
    pub lr: N,
    /// The weight decay.
    pub wd: N,
    /// The corrections of the states; zero where the rule has none.
    pub corr: [N; 2],
}

/// The formula by which an optimizer updates one parameter. The plain loops, the loops that bound rounding errors, and
/// the CPU's fast kernel all compute this.
pub trait Rule: 'static {
    /// The operation that updates the flat parameters by this rule.
    type Step;
    /// What the formula needs besides the parameter, the same for all elements.
    type Terms<N: Number>: Copy;
    /// The vectors that it keeps.
    const STATES: usize;

    fn terms<N: Number>(step: &Self::Step, rates: Rates<N>) -> Self::Terms<N>;

    /// The new parameter; the first [`Self::STATES`] of the states are replaced.
    fn step<N: Number>(terms: &Self::Terms<N>, old: N, grad: N, states: &mut [N; MOST_STATES]) -> N;
}
