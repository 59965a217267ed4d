//! `residual` and `repeat`; and the blocks of which an export has the layers of a path.

use super::{At, Exported};
use crate::model::Layer;
use crate::model::layers::{BranchLayer, EarlyExit, LayerType, Repeat, Residual};
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

/// In ONNX it is written as often as it is applied.
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

/// A block that always chooses: of it an export has the layers of a path.
macro_rules! always_chooses {
    ($($Block:ident),*) => {
        $(impl Exported for $Block {
            fn pytorch(&self, layer: &Layer) -> String {
                unreachable!("{} always chooses", layer.label())
            }

            fn pytorch_choosing(&self, _layer: &Layer, choice: &str) -> String {
                format!("{}({choice}, ", Self::KIND.class)
            }

            fn onnx(&self, _w: &mut Writer, at: At<'_>) -> String {
                unreachable!("{} is written as the layers of a path", at.layer.label())
            }
        })*
    };
}

always_chooses!(BranchLayer, EarlyExit);
