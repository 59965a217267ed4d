//! Times of kernels and library algorithms that were measured on a GPU, which are used instead of estimates.
//!
//! Plain data. It is measured by `train::gpu_times` and stored in a file; this module only looks it up.

use crate::ops::OpKind;
use crate::select::cuda::real::Real;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The time that is stored for an algorithm that a library does not offer after all.
pub const NOT_OFFERED_US: f64 = 1e30;

/// The time that is stored for an algorithm whose results differ from those of a custom kernel.
pub const WRONG_US: f64 = 1e31;

/// Measured times of one device with its driver and libraries.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GpuTimes {
    /// The device's name with the versions of driver and libraries; times of other devices or versions are not used.
    pub device: String,
    /// By [`GpuTimes::key`], then by kernel id: microseconds.
    pub times: BTreeMap<String, BTreeMap<String, f64>>,
}

impl GpuTimes {
    /// The key of an operation: its type, and its kind with every dimension.
    #[must_use]
    pub fn key(kind: &OpKind, real: Real) -> String {
        // Plain data with text keys always serialises; an empty key would match nothing.
        format!("{} {}", real.name(), serde_json::to_string(kind).unwrap_or_default())
    }

    /// The times of an operation, if it was measured.
    #[must_use]
    pub fn of(&self, kind: &OpKind, real: Real) -> Option<&BTreeMap<String, f64>> {
        self.times.get(&Self::key(kind, real))
    }

    /// Stores the least time of a kernel.
    pub fn keep(&mut self, key: &str, kernel: &str, us: f64) {
        let known = self.times.entry(key.to_owned()).or_default().entry(kernel.to_owned()).or_insert(f64::INFINITY);
        *known = known.min(us);
    }
}
