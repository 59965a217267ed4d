//! `global_avg_pool`: the mean of each channel of an image, or of each feature over all positions of a sequence.

use super::{LayerKind, LayerType, NextActivation};
use crate::model::infer::Infer;
use crate::tensor::Shape;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GlobalAvgPool;

impl LayerType for GlobalAvgPool {
    const KIND: LayerKind = LayerKind::new(
        "global_avg_pool",
        "GlobalAvgPool",
        "The mean of each channel over the whole image, or of each feature over all positions.",
    );

    fn example() -> Self {
        Self
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Option<Shape> {
        if let [_, features] = cx.input.0[..] {
            return Some(Shape::from([features]));
        }
        let [channels, ..] = cx.image("global_avg_pool")?;
        Some(Shape::from([channels]))
    }

    fn next_activation(&self) -> NextActivation {
        NextActivation::Beyond
    }
}
