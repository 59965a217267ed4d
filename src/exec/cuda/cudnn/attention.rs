//! Attention and its gradient as graphs of cuDNN's: the products, the softmax and the mask, operation by operation, in
//! the order in which its engines for attention look for them.
//!
//! The scores are `[batch, heads, positions, positions]`. They, the probabilities and their gradients are never written
//! to memory, except for the gradient of the scores: to be the same in every run, the gradient keeps it in the
//! workspace of the plan. (The other form adds to the gradient of the queries in any order.)
//!
//! Source: <https://docs.nvidia.com/deeplearning/cudnn/frontend/latest/operations/Attention.html>.

use super::backend::{Attr, DataType, Kind, Library, Pointwise, Raw, Reduction};
use super::graph::{Builder, Graph, Shape, data_type};
use super::request::Operand;
use crate::exec::cuda::error::CudaError;
use crate::ops::AttentionGeometry;
use crate::select::cuda::Real;
use std::sync::Arc;

const FLOAT: DataType = DataType::CUDNN_DATA_FLOAT;

/// Attention. Writes the results of the heads, and the logarithms of the sums of exponentials.
pub(super) fn attention(library: &Arc<Library>, g: &AttentionGeometry, real: Real) -> Result<Graph, CudaError> {
    let mut b = AttentionBuilder { b: Builder::new(library), g, real };
    let [q, k, v] = [b.query()?, b.transposed(1)?, b.part(2, Operand::Packed)?];
    let scale = b.scale()?;
    let scores = b.scores(q, k, scale)?;
    let scores = b.masked(scores)?;
    let rows = b.rows();
    let most = b.b.between(rows, FLOAT)?;
    b.reduce(Reduction::CUDNN_REDUCE_TENSOR_MAX, scores, most)?;
    let less = b.function(Pointwise::CUDNN_POINTWISE_SUB, &[scores, most])?;
    let exponentials = b.function(Pointwise::CUDNN_POINTWISE_EXP, &[less])?;
    let sum = b.b.between(rows, FLOAT)?;
    b.reduce(Reduction::CUDNN_REDUCE_TENSOR_ADD, exponentials, sum)?;
    let logarithm = b.b.between(rows, FLOAT)?;
    b.apply(Pointwise::CUDNN_POINTWISE_LOG, &[sum], logarithm)?;
    let lse = b.b.tensor(rows, FLOAT, (Operand::Lse, 0))?;
    b.apply(Pointwise::CUDNN_POINTWISE_ADD, &[most, logarithm], lse)?;
    // The factors of a product have the type of the step.
    let probabilities = b.b.between(b.square(), data_type(real))?;
    b.apply(Pointwise::CUDNN_POINTWISE_DIV, &[exponentials, sum], probabilities)?;
    let y = b.heads(Operand::Heads)?;
    b.product(probabilities, v, y)?;
    b.b.finish()
}

/// The gradients of queries, keys and values.
pub(super) fn attention_bwd(library: &Arc<Library>, g: &AttentionGeometry, real: Real) -> Result<Graph, CudaError> {
    let mut b = AttentionBuilder { b: Builder::new(library), g, real };
    let [q, k, v] = [b.query()?, b.transposed(1)?, b.transposed(2)?];
    let [y, dy] = [b.heads(Operand::Heads)?, b.heads(Operand::HeadsGrad)?];
    let rows = b.rows();
    let lse = b.b.tensor(rows, FLOAT, (Operand::Lse, 0))?;
    // The sums of `dy y` over the features of each query.
    let products = b.b.between(b.heads_shape(), FLOAT)?;
    b.apply(Pointwise::CUDNN_POINTWISE_MUL, &[dy, y], products)?;
    let unscaled = b.b.between(rows, FLOAT)?;
    b.reduce(Reduction::CUDNN_REDUCE_TENSOR_ADD, products, unscaled)?;
    let one = b.b.number(1.0)?;
    let sums = b.b.tensor(rows, FLOAT, (Operand::Sums, 0))?;
    b.apply(Pointwise::CUDNN_POINTWISE_MUL, &[unscaled, one], sums)?;
    // The probabilities, and the gradient of the values.
    let scale = b.scale()?;
    let scores = b.scores(q, k, scale)?;
    let less = b.function(Pointwise::CUDNN_POINTWISE_SUB, &[scores, lse])?;
    let masked = b.masked(less)?;
    let probabilities = b.function(Pointwise::CUDNN_POINTWISE_EXP, &[masked])?;
    let (of_keys, dv) = (b.turned(probabilities)?, b.part(2, Operand::PackedGrad)?);
    b.product(of_keys, dy, dv)?;
    // The gradient of the scores, and those of keys and queries.
    let d_probabilities = b.b.between(b.square(), FLOAT)?;
    b.product(dy, v, d_probabilities)?;
    let less = b.function(Pointwise::CUDNN_POINTWISE_SUB, &[d_probabilities, sums])?;
    let unscaled = b.function(Pointwise::CUDNN_POINTWISE_MUL, &[less, probabilities])?;
    let d_scores = b.function(Pointwise::CUDNN_POINTWISE_MUL, &[unscaled, scale])?;
    let (of_keys, dk) = (b.turned(d_scores)?, b.part(1, Operand::PackedGrad)?);
    b.product(of_keys, q, dk)?;
    let (keys, dq) = (b.b.between(b.part_shape(), data_type(real))?, b.part(0, Operand::PackedGrad)?);
    b.reshape(k, keys)?;
    b.product(d_scores, keys, dq)?;
    b.b.finish()
}

/// A graph of attention that is being built.
struct AttentionBuilder<'a> {
    b: Builder<'a>,
    g: &'a AttentionGeometry,
    real: Real,
}

impl AttentionBuilder<'_> {
    /// The queries, the keys or the values of all heads, `[batch, heads, positions, head_dim]`, in packed rows.
    const fn part_shape(&self) -> Shape {
        let (g, row) = (self.g, self.g.packed());
        Shape { sizes: [g.batch, g.heads, g.positions, g.head_dim], strides: [g.positions * row, g.head_dim, row, 1] }
    }

    /// The results of all heads, `[batch, heads, positions, head_dim]`, in rows of `width`.
    const fn heads_shape(&self) -> Shape {
        let (g, row) = (self.g, self.g.width());
        Shape { strides: [g.positions * row, g.head_dim, row, 1], ..self.part_shape() }
    }

    /// A number for each query.
    const fn rows(&self) -> Shape {
        let g = self.g;
        Shape { sizes: [g.batch, g.heads, g.positions, 1], strides: [g.heads * g.positions, g.positions, 1, 1] }
    }

    /// A number for each query and key.
    const fn square(&self) -> Shape {
        let AttentionGeometry { batch, heads, positions: n, .. } = *self.g;
        Shape { sizes: [batch, heads, n, n], strides: [heads * n * n, n * n, n, 1] }
    }

    /// The location of queries (0), keys (1) or values (2) in the rows of packed values.
    const fn place(&self, part: usize, operand: Operand) -> (Operand, u64) {
        (operand, (self.g.columns(0)[part] * self.real.size()) as u64)
    }

    /// Queries (0), keys (1) or values (2), or their gradients.
    fn part(&mut self, part: usize, operand: Operand) -> Result<Raw, CudaError> {
        self.b.tensor(self.part_shape(), data_type(self.real), self.place(part, operand))
    }

    fn query(&mut self) -> Result<Raw, CudaError> {
        self.part(0, Operand::Packed)
    }

    /// Keys (1) or values (2), `[batch, heads, head_dim, positions]`.
    fn transposed(&mut self, part: usize) -> Result<Raw, CudaError> {
        let shape = swapped(self.part_shape());
        self.b.tensor(shape, data_type(self.real), self.place(part, Operand::Packed))
    }

    /// The results of the heads, or their gradient.
    fn heads(&mut self, operand: Operand) -> Result<Raw, CudaError> {
        self.b.tensor(self.heads_shape(), data_type(self.real), (operand, 0))
    }

    fn scale(&mut self) -> Result<Raw, CudaError> {
        self.b.number(self.g.scale() as f32)
    }

    /// The scaled products of queries and keys.
    fn scores(&mut self, q: Raw, k: Raw, scale: Raw) -> Result<Raw, CudaError> {
        let products = self.b.between(self.square(), FLOAT)?;
        self.product(q, k, products)?;
        self.function(Pointwise::CUDNN_POINTWISE_MUL, &[products, scale])
    }

    /// Scores, or minus infinity for keys that a position does not attend to.
    fn masked(&mut self, scores: Raw) -> Result<Raw, CudaError> {
        if !self.g.causal {
            return Ok(scores);
        }
        let mut indices = [scores; 2];
        for (index, axis) in indices.iter_mut().zip([2, 3]) {
            let of = self.b.between(self.square(), DataType::CUDNN_DATA_INT32)?;
            let attributes = [
                (Attr::CUDNN_ATTR_OPERATION_POINTWISE_XDESC, scores),
                (Attr::CUDNN_ATTR_OPERATION_POINTWISE_YDESC, of),
            ];
            self.b.pointwise(Pointwise::CUDNN_POINTWISE_GEN_INDEX, Some(axis), &attributes)?;
            *index = of;
        }
        let attends = self.b.between(self.square(), DataType::CUDNN_DATA_BOOLEAN)?;
        self.apply(Pointwise::CUDNN_POINTWISE_CMP_GE, &indices, attends)?;
        let nothing = self.b.number(f32::NEG_INFINITY)?;
        self.function(Pointwise::CUDNN_POINTWISE_BINARY_SELECT, &[scores, nothing, attends])
    }

    /// A function of each score.
    fn function(&mut self, function: Pointwise, from: &[Raw]) -> Result<Raw, CudaError> {
        let to = self.b.between(self.square(), FLOAT)?;
        self.apply(function, from, to)?;
        Ok(to)
    }

    /// A function of up to three tensors.
    fn apply(&mut self, function: Pointwise, from: &[Raw], to: Raw) -> Result<(), CudaError> {
        let sources = [
            Attr::CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
            Attr::CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
            Attr::CUDNN_ATTR_OPERATION_POINTWISE_TDESC,
        ];
        let mut attributes: Vec<(Attr, Raw)> = sources.into_iter().zip(from.iter().copied()).collect();
        attributes.push((Attr::CUDNN_ATTR_OPERATION_POINTWISE_YDESC, to));
        self.b.pointwise(function, None, &attributes)
    }

    /// The last two axes of scores exchanged, in the type of the step.
    fn turned(&mut self, scores: Raw) -> Result<Raw, CudaError> {
        let to = self.b.between(swapped(self.square()), data_type(self.real))?;
        self.reshape(scores, to)?;
        Ok(to)
    }

    fn reshape(&mut self, from: Raw, to: Raw) -> Result<(), CudaError> {
        let attributes =
            [(Attr::CUDNN_ATTR_OPERATION_RESHAPE_XDESC, from), (Attr::CUDNN_ATTR_OPERATION_RESHAPE_YDESC, to)];
        self.b.operation(Kind::CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, &attributes)
    }

    /// The product of matrices, with sums in float.
    fn product(&mut self, a: Raw, b: Raw, to: Raw) -> Result<(), CudaError> {
        let what = self.b.descriptor(Kind::CUDNN_BACKEND_MATMUL_DESCRIPTOR)?;
        what.set(Attr::CUDNN_ATTR_MATMUL_COMP_TYPE, &[FLOAT])?;
        let what = self.b.keep(what.finalize("product")?);
        let attributes = [
            (Attr::CUDNN_ATTR_OPERATION_MATMUL_ADESC, a),
            (Attr::CUDNN_ATTR_OPERATION_MATMUL_BDESC, b),
            (Attr::CUDNN_ATTR_OPERATION_MATMUL_CDESC, to),
            (Attr::CUDNN_ATTR_OPERATION_MATMUL_DESC, what),
        ];
        self.b.operation(Kind::CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, &attributes)
    }

    /// The sum or the maximum over the last axis.
    fn reduce(&mut self, how: Reduction, from: Raw, to: Raw) -> Result<(), CudaError> {
        let what = self.b.descriptor(Kind::CUDNN_BACKEND_REDUCTION_DESCRIPTOR)?;
        what.set(Attr::CUDNN_ATTR_REDUCTION_OPERATOR, &[how])?.set(Attr::CUDNN_ATTR_REDUCTION_COMP_TYPE, &[FLOAT])?;
        let what = self.b.keep(what.finalize("reduction")?);
        let attributes = [
            (Attr::CUDNN_ATTR_OPERATION_REDUCTION_XDESC, from),
            (Attr::CUDNN_ATTR_OPERATION_REDUCTION_YDESC, to),
            (Attr::CUDNN_ATTR_OPERATION_REDUCTION_DESC, what),
        ];
        self.b.operation(Kind::CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, &attributes)
    }
}

/// The same elements with the last two axes exchanged.
const fn swapped(shape: Shape) -> Shape {
    let Shape { sizes: [a, b, c, d], strides: [e, f, g, h] } = shape;
    Shape { sizes: [a, b, d, c], strides: [e, f, h, g] }
}
