//! `residual` and `repeat`; and the blocks that an export replaces by the layers of a path.

use super::{At, Exported};
use crate::model::Layer;
use crate::model::layers::{BranchLayer, EarlyExit, Repeat, Residual};
use crate::train::export::onnx_graph::Writer;

impl Exported for Residual {
    fn pytorch(&self, _layer: &Layer) -> String {
        "Residual(".to_owned()
    }

    fn pytorch_choosing(&self, _layer: &Layer, choice: &str) -> String {
        format!("ChosenResidual({choice}, {:?}, ", self.keep)
    }

    fn onnx(&self, w: &mut Writer, at: At<'_>) -> String {
        let y = at.inside(w, 0, at.x.clone());
        w.node("Add", &[&at.x, &y], &[])
    }
}

/// In ONNX its layers are repeated.
impl Exported for Repeat {
    fn pytorch(&self, _layer: &Layer) -> String {
        format!("Repeat({}, ", self.times)
    }

    fn pytorch_choosing(&self, _layer: &Layer, choice: &str) -> String {
        format!("ChosenRepeat({choice}, ")
    }

    fn onnx(&self, w: &mut Writer, at: At<'_>) -> String {
        (0..self.times).fold(at.x.clone(), |x, _| at.inside(w, 0, x))
    }
}

/// A layer that chooses, in any network: the class of its module in Python, which has the choice as its first argument.
/// ONNX gets the layers of a path instead.
macro_rules! always_choosing {
    ($($Layer:ident: $class:literal),+) => {$(
        impl Exported for $Layer {
            fn pytorch(&self, layer: &Layer) -> String {
                unreachable!("{} always chooses", layer.label())
            }

            fn pytorch_choosing(&self, _layer: &Layer, choice: &str) -> String {
                format!(concat!($class, "({}, "), choice)
            }

            fn onnx(&self, _w: &mut Writer, at: At<'_>) -> String {
                unreachable!("{} is written as the layers of a path", at.layer.label())
            }
        }
    )+};
}

always_choosing! { BranchLayer: "Branch", EarlyExit: "EarlyExit" }
