//! The common part of all optimizers: the slots of what they update, and the formula of their rule, which is written
//! once for every kind of number.

use super::chunks::FLAT_CHUNK;
use super::geometry::Segment;
use serde::{Deserialize, Serialize};
use std::ops::{Add, Div, Mul, Sub};

/// A vector that an update replaces: the slot of its value before the update, and of the one after it.
pub type UpdatedSlots = [usize; 2];

/// The slots that an optimizer updates. Passes that split, fuse or move updates use this, independently of the
/// optimizer's rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpdateSlots {
    pub param: UpdatedSlots,
    /// The state vectors of the rule, each as long as the parameters, in the rule's order.
    pub states: &'static [UpdatedSlots],
    /// Learning rate and weight decay.
    pub hyper: usize,
    /// Corrections of the states, if the rule has any.
    pub corr: Option<usize>,
    /// The copy of the parameters in the type that products read.
    pub shadow: usize,
}

/// Options of an update of the flat parameters in addition to its rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StepOptions {
    /// Whether `hyper` has a third value that gradients are multiplied by.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub clipped: bool,
    /// The segments, by number, whose parameters have no weight decay.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exempt: Vec<usize>,
}

impl StepOptions {
    /// Whether all options have their defaults.
    #[must_use]
    pub fn is_usual(&self) -> bool {
        *self == Self::default()
    }

    /// Elements of `hyper`: the rate, the decay, and the factor of gradients.
    #[must_use]
    pub const fn rates(&self) -> usize {
        if self.clipped { 3 } else { 2 }
    }
}

/// An update of the flat parameters by any rule. Elements outside the segments are not changed.
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
    /// The bytes that it must access of an argument of `len` elements: for a flat vector only its segments.
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

    /// The bytes of all vectors, of rates and corrections, and of the metrics, each counted once.
    #[must_use]
    pub fn bytes_moved(&self, elem: usize) -> u64 {
        let vectors = 3 + 2 * self.slots.states.len();
        let rates = self.options.rates() + if self.slots.corr.is_some() { 2 } else { 0 };
        ((vectors * self.len + rates + 2 * self.segments.len()) * elem) as u64
    }
}

/// Implements the methods of [`Operation`](super::Operation) for an update of the flat parameters: with its table of
/// slots, and with the [`UpdateSlots`] that the expression returns.
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

/// The name of a rule with its constants, as template arguments of a kernel: numbers, then flags.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleText {
    pub name: &'static str,
    pub constants: Vec<f64>,
    pub flags: Vec<bool>,
}

/// The largest number of state vectors of a rule.
pub const MOST_STATES: usize = 2;

/// The type that the formula of a rule is computed with: one number of any precision, a number with a bound for its
/// error, or several numbers at once.
pub trait Number:
    Copy + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self> + 'static
{
    /// The nearest number of this type.
    fn constant(value: f64) -> Self;

    /// The square root.
    fn root(self) -> Self;

    /// `self * x * x`. Plain loops multiply from left to right; kernels that process several numbers at once square
    /// first.
    fn times_square(self, x: Self) -> Self;

    /// -1 below zero, 1 above it, otherwise the number itself (zero or NaN).
    fn sign(self) -> Self;
}

/// The values that change from step to step.
#[derive(Clone, Copy, Debug)]
pub struct Rates<N> {
    /// The learning rate.
    pub lr: N,
    /// The weight decay.
    pub wd: N,
    /// The corrections of the states; zero if the rule has none.
    pub corr: [N; 2],
}

/// The formula by which an optimizer updates one parameter. The plain loops, the loops that compute bounds for rounding
/// errors, and the CPU's fast kernel all use it.
pub trait Rule: 'static {
    /// The operation that updates the flat parameters by this rule.
    type Step;
    /// Values of the formula that are the same for all elements.
    type Terms<N: Number>: Copy;
    /// The number of its state vectors.
    const STATES: usize;

    fn terms<N: Number>(step: &Self::Step, rates: Rates<N>) -> Self::Terms<N>;

    /// The new parameter; the first [`Self::STATES`] of the states are replaced.
    fn step<N: Number>(terms: &Self::Terms<N>, old: N, grad: N, states: &mut [N; MOST_STATES]) -> N;
}
