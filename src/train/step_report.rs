//! What one step reports.

use serde::Serialize;

/// What one step reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct StepReport {
    /// From 1.
    pub step: u64,
    /// The loss of the batch, before its update.
    pub loss: f32,
    /// The largest change of any parameter; 0 where update metrics are off.
    pub update_max: f32,
    /// The length of the whole gradient; 0 where update metrics are off, infinite where its square is above `f32`'s
    /// range.
    pub grad_norm: f32,
    /// Share of the batch classified right, before the update; NaN where it is not measured.
    #[serde(skip_serializing_if = "f32_is_nan")]
    pub accuracy: f32,
    pub lr: f32,
    /// What the gradient of the loss is multiplied by in the next step; NaN where nothing is scaled.
    #[serde(skip_serializing_if = "f32_is_nan")]
    pub loss_scale: f32,
    /// Time of the step itself, in microseconds.
    pub step_us: f32,
    /// Time to bring the batch, in microseconds.
    pub feed_us: f32,
    /// Samples that the step used, where steps differ in that; otherwise 0.
    #[serde(skip_serializing_if = "is_zero")]
    pub rows: u32,
    /// Positions of its sequences, where steps differ in that; otherwise 0.
    #[serde(skip_serializing_if = "is_zero")]
    pub length: u32,
    /// The number of its path among the session's names, where steps differ in that; otherwise 0.
    #[serde(skip_serializing_if = "is_zero")]
    pub path: u32,
    /// The number of the reason why it ran op by op among the session's names, where it did and a recording was asked
    /// for; otherwise 0.
    #[serde(skip_serializing_if = "is_zero")]
    pub eager: u32,
    /// The number of the recording that it used, by the session's list of them; 0 where there is only one.
    #[serde(skip_serializing_if = "is_zero")]
    pub kind: u32,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
const fn is_zero(value: &u32) -> bool {
    *value == 0
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
fn f32_is_nan(value: &f32) -> bool {
    value.is_nan()
}
