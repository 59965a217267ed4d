//! A convolution with what follows it, as a graph of cuDNN's.

use super::backend::{Attr, DataType, Kind, Library, Pointwise, Raw};
use super::graph::{Builder, Graph, Shape, Stored, data_type};
use super::request::{ConvKind, ConvTask, Fused, Operand};
use crate::exec::cuda::error::CudaError;
use crate::ops::ConvGeometry;
use crate::select::cuda::Real;
use cudarc::cudnn::sys;
use std::ptr::null_mut;
use std::sync::Arc;

/// The graph whose result is stored as in `stored`; the other images and the weight are of the step's type.
pub(super) fn convolution(
    library: &Arc<Library>,
    task: &ConvTask,
    real: Real,
    stored: Stored,
) -> Result<Graph, CudaError> {
    let ConvTask { kind, ref geometry, fused } = *task;
    let result = match kind {
        ConvKind::Forward => Operand::Y,
        ConvKind::BwdX => Operand::X,
        ConvKind::BwdW => Operand::W,
    };
    let allowed = match kind {
        ConvKind::Forward => Fused { relu_grad: false, ..fused },
        ConvKind::BwdX => Fused { relu_grad: fused.relu_grad, ..Fused::default() },
        ConvKind::BwdW => Fused::default(),
    };
    if allowed != fused {
        return Err(format!("{kind:?} cannot be followed by {fused:?}").into());
    }
    let mut b = ConvBuilder { b: Builder::new(library), geometry };
    let widened = stored == Stored::Widened;
    let stored = if stored == Stored::Own { data_type(real) } else { DataType::CUDNN_DATA_FLOAT };
    let left = [fused.bias, fused.relu, fused.relu_grad, widened].into_iter().filter(|b| *b).count();
    let mut tensors = [null_mut(); 3];
    for (tensor, operand) in tensors.iter_mut().zip([Operand::X, Operand::W, Operand::Y]) {
        *tensor = if operand != result {
            b.tensor(operand, data_type(real))?
        } else if left == 0 {
            b.tensor(operand, stored)?
        } else {
            b.between(operand)?
        };
    }
    b.product(kind, tensors)?;
    let last = tensors[[Operand::X, Operand::W, Operand::Y].iter().position(|r| *r == result).unwrap_or(0)];
    Followers { result, stored, left, last }.add(&mut b, fused, real, widened)?;
    b.b.finish()
}

/// The operations after a convolution, while they are added.
struct Followers {
    result: Operand,
    stored: DataType,
    /// Operations that are not added yet.
    left: usize,
    /// The result of the last operation so far.
    last: Raw,
}

impl Followers {
    /// The tensor that the next operation writes: the result if the operation is the last one, otherwise a virtual one.
    fn next(&mut self, b: &mut ConvBuilder) -> Result<Raw, CudaError> {
        self.left -= 1;
        if self.left == 0 { b.tensor(self.result, self.stored) } else { b.between(self.result) }
    }

    /// Adds the operations in the order in which they are applied.
    fn add(mut self, b: &mut ConvBuilder, fused: Fused, real: Real, widened: bool) -> Result<(), CudaError> {
        if fused.bias {
            let bias = b.tensor(Operand::Bias, DataType::CUDNN_DATA_FLOAT)?;
            let from = [Attr::CUDNN_ATTR_OPERATION_POINTWISE_XDESC, Attr::CUDNN_ATTR_OPERATION_POINTWISE_BDESC];
            let to = Attr::CUDNN_ATTR_OPERATION_POINTWISE_YDESC;
            self.combine(b, Pointwise::CUDNN_POINTWISE_ADD, (from, to), bias)?;
        }
        if fused.relu {
            self.apply(b, Pointwise::CUDNN_POINTWISE_RELU_FWD)?;
        }
        if fused.relu_grad {
            // cuDNN computes the derivative from relu's input; its output is positive at the same places.
            let saved = b.tensor(Operand::Saved, data_type(real))?;
            let from = [Attr::CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, Attr::CUDNN_ATTR_OPERATION_POINTWISE_XDESC];
            let to = Attr::CUDNN_ATTR_OPERATION_POINTWISE_DXDESC;
            self.combine(b, Pointwise::CUDNN_POINTWISE_RELU_BWD, (from, to), saved)?;
        }
        if widened {
            self.apply(b, Pointwise::CUDNN_POINTWISE_IDENTITY)?;
        }
        Ok(())
    }

    /// Adds a function of the last result and of another tensor, with the attributes of both and of the result.
    fn combine(
        &mut self,
        b: &mut ConvBuilder,
        function: Pointwise,
        (from, to): ([Attr; 2], Attr),
        other: Raw,
    ) -> Result<(), CudaError> {
        let out = self.next(b)?;
        b.b.pointwise(function, None, &[(from[0], self.last), (from[1], other), (to, out)])?;
        self.last = out;
        Ok(())
    }

    /// Adds a function of one tensor.
    fn apply(&mut self, b: &mut ConvBuilder, function: Pointwise) -> Result<(), CudaError> {
        let out = self.next(b)?;
        let tensors = [
            (Attr::CUDNN_ATTR_OPERATION_POINTWISE_XDESC, self.last),
            (Attr::CUDNN_ATTR_OPERATION_POINTWISE_YDESC, out),
        ];
        b.b.pointwise(function, None, &tensors)?;
        self.last = out;
        Ok(())
    }
}

/// A convolution's graph that is being built.
struct ConvBuilder<'a> {
    b: Builder<'a>,
    geometry: &'a ConvGeometry,
}

impl ConvBuilder<'_> {
    /// The shape of an operand, `[n, c, h, w]` for images, stored channels-last.
    const fn shape(&self, operand: Operand) -> Shape {
        let g = self.geometry;
        let sizes = match operand {
            Operand::W => [g.f, g.c / if g.groups == 0 { 1 } else { g.groups }, g.kernel[0], g.kernel[1]],
            Operand::Y => [g.n, g.f, g.ho, g.wo],
            Operand::Bias => [1, g.f, 1, 1],
            _ => [g.n, g.c, g.h, g.w],
        };
        let [_, c, h, w] = sizes;
        Shape { sizes, strides: [h * w * c, 1, w * c, c] }
    }

    /// A tensor with an address.
    fn tensor(&mut self, operand: Operand, dtype: DataType) -> Result<Raw, CudaError> {
        self.b.tensor(self.shape(operand), dtype, (operand, 0))
    }

    /// A float tensor between two operations, shaped like an operand.
    fn between(&mut self, operand: Operand) -> Result<Raw, CudaError> {
        self.b.between(self.shape(operand), DataType::CUDNN_DATA_FLOAT)
    }

    /// Adds the convolution itself.
    fn product(&mut self, kind: ConvKind, [x, w, y]: [Raw; 3]) -> Result<(), CudaError> {
        let g = self.geometry;
        let pair = |v: [usize; 2]| v.map(|d| d as i64);
        let conv = self.b.descriptor(Kind::CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR)?;
        conv.set(Attr::CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, &[2_i64])?
            .set(Attr::CUDNN_ATTR_CONVOLUTION_COMP_TYPE, &[DataType::CUDNN_DATA_FLOAT])?
            .set(Attr::CUDNN_ATTR_CONVOLUTION_CONV_MODE, &[sys::cudnnConvolutionMode_t::CUDNN_CROSS_CORRELATION])?
            .set(Attr::CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, &pair(g.padding))?
            .set(Attr::CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, &pair(g.padding))?
            .set(Attr::CUDNN_ATTR_CONVOLUTION_DILATIONS, &pair(g.dilation))?
            .set(Attr::CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, &pair(g.stride))?;
        let conv = self.b.keep(conv.finalize("convolution")?);
        // The operation, then its attributes: description, x, w, y, alpha, beta.
        let (operation, attrs) = match kind {
            ConvKind::Forward => (
                Kind::CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                [
                    Attr::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                    Attr::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                    Attr::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                    Attr::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                    Attr::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                    Attr::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
                ],
            ),
            ConvKind::BwdX => (
                Kind::CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                [
                    Attr::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                    Attr::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                    Attr::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                    Attr::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                    Attr::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                    Attr::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
                ],
            ),
            ConvKind::BwdW => (
                Kind::CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                [
                    Attr::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                    Attr::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                    Attr::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                    Attr::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                    Attr::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                    Attr::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
                ],
            ),
        };
        let node = self.b.descriptor(operation)?;
        for (attr, value) in attrs.into_iter().zip([conv, x, w, y]) {
            node.set(attr, &[value])?;
        }
        node.set(attrs[4], &[1_f32])?.set(attrs[5], &[0_f32])?;
        self.b.add(node)
    }
}
