//! A convolution with what follows it, described to cuDNN.

use super::backend::{Attr, DataType, Descriptor, Kind, Library, Pointwise, Raw};
use super::request::{ConvKind, DnnArgs, Fused, PlanRequest};
use crate::exec::cuda::error::CudaError;
use crate::ops::ConvGeometry;
use crate::select::cuda::Real;
use cudarc::cudnn::sys;
use std::ptr::null_mut;
use std::sync::Arc;

/// Alignment in bytes that plans assume for every tensor.
pub(super) const ALIGNMENT: u64 = 16;

/// The tensors of a graph that have an address.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    X = 1,
    W,
    Y,
    Bias,
    Saved,
}

impl Role {
    pub(super) const fn address(self, args: &DnnArgs) -> u64 {
        match self {
            Self::X => args.x,
            Self::W => args.w,
            Self::Y => args.y,
            Self::Bias => args.bias,
            Self::Saved => args.saved,
        }
    }
}

/// A convolution with what follows it, as cuDNN sees it.
pub(super) struct Graph {
    pub(super) graph: Descriptor,
    pub(super) roles: Vec<Role>,
    /// Tensors and operations, which live as long as the graph.
    _parts: Vec<Descriptor>,
}

/// The format in which a result is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stored {
    /// In the step's type.
    Own,
    /// As float, by the convolution itself.
    Float,
    /// As float, converted by an identity operation after the convolution, in engines that are compiled for a graph.
    Widened,
}

impl Graph {
    /// The graph whose result is stored as in `stored`; the other images and the weight are of the step's type.
    pub(super) fn new(library: &Arc<Library>, wanted: &PlanRequest, stored: Stored) -> Result<Self, CudaError> {
        let PlanRequest { kind, ref geometry, real, fused, .. } = *wanted;
        let result = match kind {
            ConvKind::Forward => Role::Y,
            ConvKind::BwdX => Role::X,
            ConvKind::BwdW => Role::W,
        };
        let allowed = match kind {
            ConvKind::Forward => Fused { relu_grad: false, ..fused },
            ConvKind::BwdX => Fused { relu_grad: fused.relu_grad, ..Fused::default() },
            ConvKind::BwdW => Fused::default(),
        };
        if allowed != fused {
            return Err(format!("{kind:?} cannot be followed by {fused:?}").into());
        }
        let mut b = Builder {
            library,
            geometry,
            roles: Vec::new(),
            parts: Vec::new(),
            operations: Vec::new(),
            next_virtual: 100,
        };
        let widened = stored == Stored::Widened;
        let stored = if stored == Stored::Own { data_type(real) } else { DataType::CUDNN_DATA_FLOAT };
        let left = [fused.bias, fused.relu, fused.relu_grad, widened].into_iter().filter(|b| *b).count();
        let mut tensors = [null_mut(); 3];
        for (tensor, role) in tensors.iter_mut().zip([Role::X, Role::W, Role::Y]) {
            *tensor = if role != result {
                b.tensor(role, data_type(real))?
            } else if left == 0 {
                b.tensor(role, stored)?
            } else {
                b.between(role)?
            };
        }
        b.convolution(kind, tensors)?;
        let last = tensors[[Role::X, Role::W, Role::Y].iter().position(|r| *r == result).unwrap_or(0)];
        Followers { result, stored, left, last }.add(&mut b, wanted, widened)?;
        let graph = Descriptor::new(library, Kind::CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)?;
        if !library.handle.is_null() {
            graph.set(Attr::CUDNN_ATTR_OPERATIONGRAPH_HANDLE, &[library.handle])?;
        }
        graph.set(Attr::CUDNN_ATTR_OPERATIONGRAPH_OPS, &b.operations)?;
        Ok(Self { graph: graph.finalize("operation graph")?, roles: b.roles, _parts: b.parts })
    }
}

/// The operations after a convolution, while they are added.
struct Followers {
    result: Role,
    stored: DataType,
    /// Operations that are not added yet.
    left: usize,
    /// The result of the last operation so far.
    last: Raw,
}

impl Followers {
    /// The tensor that the next operation writes: the result if the operation is the last one, otherwise a virtual one.
    fn next(&mut self, b: &mut Builder) -> Result<Raw, CudaError> {
        self.left -= 1;
        if self.left == 0 { b.tensor(self.result, self.stored) } else { b.between(self.result) }
    }

    /// Adds the operations in the order in which they are applied.
    fn add(mut self, b: &mut Builder, wanted: &PlanRequest, widened: bool) -> Result<(), CudaError> {
        if wanted.fused.bias {
            let bias = b.tensor(Role::Bias, DataType::CUDNN_DATA_FLOAT)?;
            let from = [Attr::CUDNN_ATTR_OPERATION_POINTWISE_XDESC, Attr::CUDNN_ATTR_OPERATION_POINTWISE_BDESC];
            let to = Attr::CUDNN_ATTR_OPERATION_POINTWISE_YDESC;
            self.combine(b, Pointwise::CUDNN_POINTWISE_ADD, (from, to), bias)?;
        }
        if wanted.fused.relu {
            self.apply(b, Pointwise::CUDNN_POINTWISE_RELU_FWD)?;
        }
        if wanted.fused.relu_grad {
            // cuDNN computes the derivative from relu's input; its output is positive at the same places.
            let saved = b.tensor(Role::Saved, data_type(wanted.real))?;
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
        b: &mut Builder,
        function: Pointwise,
        (from, to): ([Attr; 2], Attr),
        other: Raw,
    ) -> Result<(), CudaError> {
        let out = self.next(b)?;
        b.pointwise(function, &[(from[0], self.last), (from[1], other), (to, out)])?;
        self.last = out;
        Ok(())
    }

    /// Adds a function of one tensor.
    fn apply(&mut self, b: &mut Builder, function: Pointwise) -> Result<(), CudaError> {
        let out = self.next(b)?;
        let tensors = [
            (Attr::CUDNN_ATTR_OPERATION_POINTWISE_XDESC, self.last),
            (Attr::CUDNN_ATTR_OPERATION_POINTWISE_YDESC, out),
        ];
        b.pointwise(function, &tensors)?;
        self.last = out;
        Ok(())
    }
}

/// The type in which a step's reals are stored in memory.
pub(super) const fn data_type(real: Real) -> DataType {
    match real {
        Real::F32 | Real::Tf32 => DataType::CUDNN_DATA_FLOAT,
        Real::Bf16 => DataType::CUDNN_DATA_BFLOAT16,
        Real::F16 => DataType::CUDNN_DATA_HALF,
    }
}

/// A graph that is being built.
struct Builder<'a> {
    library: &'a Arc<Library>,
    geometry: &'a ConvGeometry,
    roles: Vec<Role>,
    parts: Vec<Descriptor>,
    operations: Vec<Raw>,
    next_virtual: i64,
}

impl Builder<'_> {
    fn keep(&mut self, part: Descriptor) -> Raw {
        self.parts.push(part);
        self.parts.last().map_or(null_mut(), |p| p.raw)
    }

    /// A tensor of the given `[n, c, h, w]` that is stored channels-last.
    fn add_tensor(&mut self, id: i64, dtype: DataType, dims: [usize; 4], is_virtual: bool) -> Result<Raw, CudaError> {
        let [n, c, h, w] = dims.map(|d| d as i64);
        let tensor = Descriptor::new(self.library, Kind::CUDNN_BACKEND_TENSOR_DESCRIPTOR)?;
        tensor
            .set(Attr::CUDNN_ATTR_TENSOR_UNIQUE_ID, &[id])?
            .set(Attr::CUDNN_ATTR_TENSOR_DATA_TYPE, &[dtype])?
            .set(Attr::CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, &[ALIGNMENT as i64])?
            .set(Attr::CUDNN_ATTR_TENSOR_DIMENSIONS, &[n, c, h, w])?
            .set(Attr::CUDNN_ATTR_TENSOR_STRIDES, &[h * w * c, 1, w * c, c])?
            .set(Attr::CUDNN_ATTR_TENSOR_IS_VIRTUAL, &[is_virtual])?;
        Ok(self.keep(tensor.finalize("tensor")?))
    }

    fn dims(&self, role: Role) -> [usize; 4] {
        let g = self.geometry;
        match role {
            Role::X | Role::Saved => [g.n, g.c, g.h, g.w],
            Role::W => [g.f, g.c / g.groups.max(1), g.kernel[0], g.kernel[1]],
            Role::Y => [g.n, g.f, g.ho, g.wo],
            Role::Bias => [1, g.f, 1, 1],
        }
    }

    /// A tensor with an address.
    fn tensor(&mut self, role: Role, dtype: DataType) -> Result<Raw, CudaError> {
        self.roles.push(role);
        self.add_tensor(role as i64, dtype, self.dims(role), false)
    }

    /// A float tensor between two operations, shaped like `role`; it is never written to memory.
    fn between(&mut self, role: Role) -> Result<Raw, CudaError> {
        self.next_virtual += 1;
        self.add_tensor(self.next_virtual, DataType::CUDNN_DATA_FLOAT, self.dims(role), true)
    }

    fn convolution(&mut self, kind: ConvKind, [x, w, y]: [Raw; 3]) -> Result<(), CudaError> {
        let g = self.geometry;
        let pair = |v: [usize; 2]| v.map(|d| d as i64);
        let conv = Descriptor::new(self.library, Kind::CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR)?;
        conv.set(Attr::CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, &[2_i64])?
            .set(Attr::CUDNN_ATTR_CONVOLUTION_COMP_TYPE, &[DataType::CUDNN_DATA_FLOAT])?
            .set(Attr::CUDNN_ATTR_CONVOLUTION_CONV_MODE, &[sys::cudnnConvolutionMode_t::CUDNN_CROSS_CORRELATION])?
            .set(Attr::CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, &pair(g.padding))?
            .set(Attr::CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, &pair(g.padding))?
            .set(Attr::CUDNN_ATTR_CONVOLUTION_DILATIONS, &pair(g.dilation))?
            .set(Attr::CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, &pair(g.stride))?;
        let conv = self.keep(conv.finalize("convolution")?);
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
        let node = Descriptor::new(self.library, operation)?;
        for (attr, value) in attrs.into_iter().zip([conv, x, w, y]) {
            node.set(attr, &[value])?;
        }
        node.set(attrs[4], &[1_f32])?.set(attrs[5], &[0_f32])?;
        let node = self.keep(node.finalize("convolution operation")?);
        self.operations.push(node);
        Ok(())
    }

    /// An operation on each element; `tensors` are its attributes.
    fn pointwise(&mut self, mode: Pointwise, tensors: &[(Attr, Raw)]) -> Result<(), CudaError> {
        let what = Descriptor::new(self.library, Kind::CUDNN_BACKEND_POINTWISE_DESCRIPTOR)?;
        what.set(Attr::CUDNN_ATTR_POINTWISE_MODE, &[mode])?
            .set(Attr::CUDNN_ATTR_POINTWISE_MATH_PREC, &[DataType::CUDNN_DATA_FLOAT])?;
        if matches!(mode, Pointwise::CUDNN_POINTWISE_RELU_FWD | Pointwise::CUDNN_POINTWISE_RELU_BWD) {
            let propagate = sys::cudnnNanPropagation_t::CUDNN_PROPAGATE_NAN;
            what.set(Attr::CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, &[propagate])?;
        }
        let what = self.keep(what.finalize("pointwise")?);
        let node = Descriptor::new(self.library, Kind::CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)?;
        node.set(Attr::CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, &[what])?;
        for (attr, tensor) in tensors {
            node.set(*attr, &[*tensor])?;
        }
        let node = self.keep(node.finalize("pointwise operation")?);
        self.operations.push(node);
        Ok(())
    }
}
