//! Graphs of operations on tensors of fixed shape, described to cuDNN.

use super::backend::{Attr, DataType, Descriptor, Kind, Library, Pointwise, Raw};
use super::request::Operand;
use crate::exec::cuda::error::CudaError;
use crate::select::cuda::Real;
use cudarc::cudnn::sys;
use std::ptr::null_mut;
use std::sync::Arc;

/// Alignment in bytes that plans assume for every tensor.
pub(super) const ALIGNMENT: u64 = 16;

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

/// A tensor that has an address.
pub(super) struct BoundTensor {
    pub(super) id: i64,
    pub(super) operand: Operand,
    /// The distance of its first element from that of the operand.
    pub(super) offset_bytes: u64,
}

/// A finished graph.
pub(super) struct Graph {
    pub(super) graph: Descriptor,
    pub(super) tensors: Vec<BoundTensor>,
    /// Numbers that calls pass by value, with their ids. cuDNN is given their addresses, so they stay where they are.
    pub(super) numbers: Vec<(i64, Box<f32>)>,
    /// Tensors and operations, which live as long as the graph.
    _parts: Vec<Descriptor>,
}

/// The type in which a step's reals are stored in memory.
pub(super) const fn data_type(real: Real) -> DataType {
    match real {
        Real::F32 | Real::Tf32 => DataType::CUDNN_DATA_FLOAT,
        Real::Bf16 => DataType::CUDNN_DATA_BFLOAT16,
        Real::F16 => DataType::CUDNN_DATA_HALF,
    }
}

/// The sizes of a tensor and the distances of its elements, counted in elements.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) sizes: [usize; 4],
    pub(super) strides: [usize; 4],
}

/// A graph that is being built.
pub(super) struct Builder<'a> {
    library: &'a Arc<Library>,
    tensors: Vec<BoundTensor>,
    numbers: Vec<(i64, Box<f32>)>,
    parts: Vec<Descriptor>,
    operations: Vec<Raw>,
    last_id: i64,
}

impl<'a> Builder<'a> {
    pub(super) const fn new(library: &'a Arc<Library>) -> Self {
        Self {
            library,
            tensors: Vec::new(),
            numbers: Vec::new(),
            parts: Vec::new(),
            operations: Vec::new(),
            last_id: 0,
        }
    }

    pub(super) fn finish(self) -> Result<Graph, CudaError> {
        let graph = Descriptor::new(self.library, Kind::CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)?;
        if !self.library.handle.is_null() {
            graph.set(Attr::CUDNN_ATTR_OPERATIONGRAPH_HANDLE, &[self.library.handle])?;
        }
        graph.set(Attr::CUDNN_ATTR_OPERATIONGRAPH_OPS, &self.operations)?;
        let graph = graph.finalize("operation graph")?;
        Ok(Graph { graph, tensors: self.tensors, numbers: self.numbers, _parts: self.parts })
    }

    /// A descriptor that is to be filled.
    pub(super) fn descriptor(&self, kind: Kind) -> Result<Descriptor, CudaError> {
        Descriptor::new(self.library, kind)
    }

    /// Keeps a finished descriptor as long as the graph.
    pub(super) fn keep(&mut self, part: Descriptor) -> Raw {
        self.parts.push(part);
        self.parts.last().map_or(null_mut(), |p| p.raw)
    }

    fn add_tensor(
        &mut self,
        shape: Shape,
        dtype: DataType,
        finish: impl FnOnce(&Descriptor) -> Result<(), CudaError>,
    ) -> Result<Raw, CudaError> {
        self.last_id += 1;
        let tensor = self.descriptor(Kind::CUDNN_BACKEND_TENSOR_DESCRIPTOR)?;
        tensor
            .set(Attr::CUDNN_ATTR_TENSOR_UNIQUE_ID, &[self.last_id])?
            .set(Attr::CUDNN_ATTR_TENSOR_DATA_TYPE, &[dtype])?
            .set(Attr::CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, &[ALIGNMENT as i64])?
            .set(Attr::CUDNN_ATTR_TENSOR_DIMENSIONS, &shape.sizes.map(|n| n as i64))?
            .set(Attr::CUDNN_ATTR_TENSOR_STRIDES, &shape.strides.map(|n| n as i64))?;
        finish(&tensor)?;
        Ok(self.keep(tensor.finalize("tensor")?))
    }

    /// A tensor with an address.
    pub(super) fn tensor(
        &mut self,
        shape: Shape,
        dtype: DataType,
        (operand, offset_bytes): (Operand, u64),
    ) -> Result<Raw, CudaError> {
        let tensor = self.add_tensor(shape, dtype, |_| Ok(()))?;
        self.tensors.push(BoundTensor { id: self.last_id, operand, offset_bytes });
        Ok(tensor)
    }

    /// A tensor between two operations, which is never written to memory.
    pub(super) fn between(&mut self, shape: Shape, dtype: DataType) -> Result<Raw, CudaError> {
        self.add_tensor(shape, dtype, |tensor| tensor.set(Attr::CUDNN_ATTR_TENSOR_IS_VIRTUAL, &[true]).map(|_| ()))
    }

    /// A number.
    pub(super) fn number(&mut self, value: f32) -> Result<Raw, CudaError> {
        let shape = Shape { sizes: [1; 4], strides: [1; 4] };
        let number = self.add_tensor(shape, DataType::CUDNN_DATA_FLOAT, |tensor| {
            tensor.set(Attr::CUDNN_ATTR_TENSOR_IS_BY_VALUE, &[true]).map(|_| ())
        })?;
        self.numbers.push((self.last_id, Box::new(value)));
        Ok(number)
    }

    /// Adds an operation, whose attributes are descriptors.
    pub(super) fn operation(&mut self, kind: Kind, attributes: &[(Attr, Raw)]) -> Result<(), CudaError> {
        let operation = self.descriptor(kind)?;
        for (attribute, value) in attributes {
            operation.set(*attribute, &[*value])?;
        }
        self.add(operation)
    }

    /// Adds an operation whose attributes are set.
    pub(super) fn add(&mut self, operation: Descriptor) -> Result<(), CudaError> {
        let operation = self.keep(operation.finalize("operation")?);
        self.operations.push(operation);
        Ok(())
    }

    /// Adds a function of each element; `tensors` are its attributes. `axis` belongs to the function that returns the
    /// index of an element.
    pub(super) fn pointwise(
        &mut self,
        function: Pointwise,
        axis: Option<i64>,
        tensors: &[(Attr, Raw)],
    ) -> Result<(), CudaError> {
        let what = self.descriptor(Kind::CUDNN_BACKEND_POINTWISE_DESCRIPTOR)?;
        let precision = match function {
            Pointwise::CUDNN_POINTWISE_CMP_GE => DataType::CUDNN_DATA_BOOLEAN,
            _ => DataType::CUDNN_DATA_FLOAT,
        };
        what.set(Attr::CUDNN_ATTR_POINTWISE_MODE, &[function])?
            .set(Attr::CUDNN_ATTR_POINTWISE_MATH_PREC, &[precision])?;
        if matches!(function, Pointwise::CUDNN_POINTWISE_RELU_FWD | Pointwise::CUDNN_POINTWISE_RELU_BWD) {
            let propagate = sys::cudnnNanPropagation_t::CUDNN_PROPAGATE_NAN;
            what.set(Attr::CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, &[propagate])?;
        }
        if let Some(axis) = axis {
            what.set(Attr::CUDNN_ATTR_POINTWISE_AXIS, &[axis])?;
        }
        let what = self.keep(what.finalize("pointwise")?);
        let mut attributes = vec![(Attr::CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, what)];
        attributes.extend(tensors);
        self.operation(Kind::CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, &attributes)
    }
}
