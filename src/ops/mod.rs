//! The operations of a lowered program: what each computes, its dimensions and its arguments.
//!
//! An operation says *what* is done, with every dimension written out; selection decides which kernel does it. Images
//! are `[N, H, W, C]`.

mod dropout;
mod elementwise;
mod geometry;
mod kind;
mod loss;
mod norm;
mod optimizer;
mod pool;
mod product;
mod slots;

pub use dropout::{Dropout, DropoutBwd};
pub use elementwise::{Act, ActBwd, Add, AddAct, BiasAdd, BiasGrad, Cast, Fill, SignBits, Transpose};
pub use geometry::{ConvGeometry, Epilogue, Gemm, PoolGeometry, Scalar, Segment, Trans, dropout_threshold};
pub use kind::OpKind;
pub(crate) use kind::{PARTS_ALIGN, SCALER};
pub use loss::{Accuracy, DenseCe, LossMean, Mse, MseFused, MseGrad, SoftmaxCe, SoftmaxCeFused, SoftmaxCeGrad};
pub use norm::{BatchNorm, BatchNormBwd, BatchNormEval, LayerNorm, LayerNormBwd};
pub use optimizer::{AdamStep, BiasCorr, BiasStep, ScaleUpdate, SgdStep, StepMetrics, UpdateMetrics, WeightStep};
pub use pool::{AvgPool, AvgPoolBwd, GlobalAvgPool, GlobalAvgPoolBwd, MaxPool, MaxPoolBwd};
pub use product::{Conv2d, Conv2dBwdW, Conv2dBwdX};
pub use slots::{Dir, Slot};
