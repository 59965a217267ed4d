//! A product with what follows it, as arguments of its kernels.

use crate::ops::{self, Gemm, OpKind, Trans};
use crate::select::cuda::custom::cpp_trans;
use crate::select::cuda::epilogue::{any_epilogue, epilogue_functions, epilogue_type};
use crate::select::cuda::optimizer::RuleType;

/// Bytes that all multiprocessors together read from L2 in a microsecond.
pub const L2_BYTES_PER_US: f64 = 5.5e6;

/// The number that holds the functions of an epilogue.
const FUNCTIONS: usize = 4;

/// The update of a weight by its gradient, as an epilogue.
pub struct Stepping {
    pub rule: RuleType,
    grain: usize,
    alone: bool,
}

/// A product, and its epilogue.
pub struct Product {
    pub gemm: Gemm,
    /// What follows if the product, a gradient, updates its weight immediately.
    pub stepping: Option<Stepping>,
}

impl Product {
    pub fn of(kind: &OpKind, alone: bool) -> Option<Self> {
        match *kind {
            OpKind::Gemm(gemm) => Some(Self { gemm, stepping: None }),
            OpKind::WeightStep(ops::WeightStep { m, n, k, grain, .. }) => {
                let gemm = Gemm::plain(m, n, k, Trans::Tn);
                Some(Self { gemm, stepping: Some(Stepping { rule: RuleType::of(kind)?, grain, alone }) })
            }
            _ => None,
        }
    }

    /// Microseconds for loading moments and parameters.
    pub fn stepping_us(&self) -> f64 {
        let moved = if self.stepping.is_some() { 20 * self.gemm.m * self.gemm.n } else { 0 };
        moved as f64 / L2_BYTES_PER_US
    }

    /// The numbers that general members read, before the address of the constants of an update: the sizes, and the
    /// functions of the epilogue if there are no such constants.
    pub fn numbers(&self, splits: usize) -> Vec<u64> {
        let mut numbers = [self.gemm.m, self.gemm.n, self.gemm.k, splits].map(|len| len as u64).to_vec();
        if self.constants().is_empty() {
            numbers.push(epilogue_functions(&self.gemm.epilogue));
        }
        numbers
    }

    /// The constants of an update that general members read, as a table.
    pub fn constants(&self) -> &[u32] {
        self.stepping.as_ref().map_or(&[], |stepping| &stepping.rule.words)
    }

    /// The arguments of every type for its product; those of general members leave the sizes open.
    pub fn problem(&self, is_general: bool) -> String {
        let Gemm { m, n, k, trans, accumulate, epilogue: e, .. } = self.gemm;
        let trans = cpp_trans(trans);
        let end = match &self.stepping {
            Some(Stepping { rule, grain, alone }) => {
                let rule = if is_general { &rule.any } else { &rule.own };
                format!("gemm::Stepping<{rule}, {grain}, {alone}>")
            }
            None if is_general => any_epilogue(&e, FUNCTIONS),
            None => epilogue_type(&e),
        };
        let [m, n, k] = [m, n, k].map(|len| if is_general { "ANY".to_owned() } else { len.to_string() });
        format!("{m}, {n}, {k}, {trans}, {accumulate}, {end}")
    }
}
