//! The report of one step.

use crate::select::Kernels;
use serde::Serialize;

/// The report of one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct StepReport {
    /// From 1.
    pub step: u64,
    /// The loss of the batch, before its update.
    pub loss: f32,
    /// The largest change of any parameter; 0 if update metrics are off.
    pub update_max: f32,
    /// The norm of the whole gradient; 0 if update metrics are off.
    pub grad_norm: f32,
    /// Share of the batch classified correctly, before the update; NaN if it is not measured.
    #[serde(skip_serializing_if = "f32_is_nan")]
    pub accuracy: f32,
    pub lr: f32,
    /// The factor of the gradient of the loss in the next step; NaN without loss scaling.
    #[serde(skip_serializing_if = "f32_is_nan")]
    pub loss_scale: f32,
    /// Time of the step itself, in microseconds.
    pub step_us: f32,
    /// Time to fetch the batch, in microseconds.
    pub feed_us: f32,
    /// Samples that the step used, if steps differ in that; otherwise 0.
    #[serde(skip_serializing_if = "is_zero")]
    pub rows: u32,
    /// Positions of its sequences, if steps differ in that; otherwise 0.
    #[serde(skip_serializing_if = "is_zero")]
    pub length: u32,
    /// The number of its path among the session's names, if steps differ in that; otherwise 0.
    #[serde(skip_serializing_if = "is_zero")]
    pub path: u32,
    /// The number of the reason why it ran op by op among the session's names, if it did although a recording was
    /// requested; otherwise 0.
    #[serde(skip_serializing_if = "is_zero")]
    pub eager: u32,
    /// The number of the recording that it used, by the session's list of them; 0 where there is only one.
    #[serde(skip_serializing_if = "is_zero")]
    pub kind: u32,
    /// The kernels of this step and of those after it, if the run changed over to them before this step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernels: Option<Kernels>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
const fn is_zero(value: &u32) -> bool {
    *value == 0
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
fn f32_is_nan(value: &f32) -> bool {
    value.is_nan()
}
