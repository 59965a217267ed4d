//! A classifier of many classes with its loss and its gradients, in chunks of rows.

use super::Operation;
use super::geometry::{Epilogue, Scalar, Trans};
use super::operation::operation;
use super::product::Gemm;
use super::softmax::softmax_ps;

operation! {
    /// A last dense layer with its loss and its gradients, computed for `chunk` rows at a time, so that the scores of
    /// all rows never exist at the same time.
    ///
    /// The scores are the product of `a [rows, features]` and `b [features, classes]`, or the transpose of `b [classes,
    /// features]` if `tied`, with `bias` if bound; `loss [1]` and `accuracy [1]` are those of `SoftmaxCeFused`. With
    /// `dlogits` as in that operation, `dx [rows, features]` is the product of `dlogits` and `b` transposed, `dweight`
    /// that of `a` transposed and `dlogits` (if `tied`, the transpose of it), and `db [classes]` the sum of `dlogits`
    /// over rows. If a gradient accumulates, it is added to the previous value, chunk by chunk in order.
    pub struct ClassifierCe {
        pub rows: usize,
        pub features: usize,
        pub classes: usize,
        pub smoothing: Scalar,
        pub tied: bool,
        pub bias: bool,
        pub input_grad: bool,
        pub accumulate: bool,
        pub accumulate_bias: bool,
        /// The number of rows whose scores exist at the same time; at least 1.
        pub chunk: usize,
    }
    slots classifier_ce(op) {
        A: in activation [op.rows * op.features],
        B: in [op.features * op.classes],
        BIAS: in [op.classes] if op.bias,
        LABELS: in [op.rows],
        DWEIGHT_PREV: in [op.features * op.classes] if op.accumulate,
        DB_PREV: in [op.classes] if op.accumulate_bias,
        DX: out activation [op.rows * op.features] if op.input_grad,
        DWEIGHT: out [op.features * op.classes],
        DB: out [op.classes] if op.bias,
        LOSS: out [1],
        ACCURACY: out [1] if OPTIONAL,
        WORK: scratch,
    }
    "classifier_ce" => {
        dims: {
            let Self { rows, features, classes, chunk, .. } = op;
            format!("rows={rows} features={features} classes={classes} chunk={chunk}")
        },
        flops: op.least_flops() + (7 * op.rows * op.classes) as u64,
        least_flops: 2 * op.multiplications() as u64,
        bytes_moved(elem): {
            let weight = op.features * op.classes;
            let weights = weight * (2 + usize::from(op.accumulate)) + 2 * op.classes * usize::from(op.bias);
            let inputs = op.rows * op.features * (1 + usize::from(op.input_grad));
            ((weights + inputs + 2) * elem + op.rows * size_of::<i32>()) as u64
        },
        // The gradient of a chunk's input is written after the last read of the chunk's input.
        in_place: &[(classifier_ce::A, classifier_ce::DX)],
        work_ps: {
            /// The time of a core's multiply-add in a large product.
            const MULTIPLY_PS: usize = 13;
            op.multiplications() * MULTIPLY_PS + softmax_ps(op.rows, op.classes)
        },
        has_gpu_kernel: false,
        weight: Some(classifier_ce::B),
    }
}

/// The products of one chunk of a classifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkProducts {
    /// Scores of `a` and `b`.
    pub scores: Gemm,
    /// The gradient of the weight: of `a` and the gradient of the scores, or, if the weight is tied, of the gradient of
    /// the scores and `a`.
    pub weight: Gemm,
    /// The gradient of the input, from the gradient of the scores and `b`, if it is computed.
    pub input: Option<Gemm>,
}

impl ClassifierCe {
    /// The number of chunks.
    #[must_use]
    pub const fn chunks(&self) -> usize {
        self.rows.div_ceil(self.chunk)
    }

    /// The first row of a chunk, and its number of rows.
    #[must_use]
    pub const fn rows_of(&self, chunk: usize) -> (usize, usize) {
        let from = chunk * self.chunk;
        (from, if self.rows - from < self.chunk { self.rows - from } else { self.chunk })
    }

    /// The products of a chunk. Only the first overwrites gradients that do not accumulate.
    #[must_use]
    pub fn products(&self, chunk: usize) -> ChunkProducts {
        let Self { features, classes, tied, bias, accumulate, .. } = *self;
        let (_, rows) = self.rows_of(chunk);
        let plain = Gemm::plain;
        let scores = plain(rows, classes, features, if tied { Trans::Nt } else { Trans::Nn });
        let (m, n) = if tied { (classes, features) } else { (features, classes) };
        let input = plain(rows, features, classes, if tied { Trans::Nn } else { Trans::Nt });
        ChunkProducts {
            scores: Gemm { epilogue: Epilogue { bias, ..Epilogue::default() }, ..scores },
            weight: Gemm { accumulate: accumulate || chunk > 0, ..plain(m, n, rows, Trans::Tn) },
            input: self.input_grad.then_some(input),
        }
    }

    /// Multiplications of all products.
    fn multiplications(&self) -> usize {
        self.rows * self.features * self.classes * if self.input_grad { 3 } else { 2 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_cover_every_row_once_and_only_the_first_overwrites() {
        let of = |rows, chunk| ClassifierCe {
            rows,
            features: 5,
            classes: 7,
            smoothing: Scalar::new(0.0),
            tied: true,
            bias: true,
            input_grad: true,
            accumulate: false,
            accumulate_bias: false,
            chunk,
        };
        for (rows, chunk, sizes) in [(1, 16, vec![1]), (32, 16, vec![16, 16]), (33, 16, vec![16, 16, 1])] {
            let op = of(rows, chunk);
            let found: Vec<usize> = (0..op.chunks()).map(|i| op.rows_of(i).1).collect();
            assert_eq!(found, sizes);
            let adds: Vec<bool> = (0..op.chunks()).map(|i| op.products(i).weight.accumulate).collect();
            assert_eq!(adds, (0..op.chunks()).map(|i| i > 0).collect::<Vec<_>>());
        }
        let op = of(33, 16);
        let ChunkProducts { scores, weight, input } = op.products(2);
        assert_eq!((scores.m, scores.n, scores.k, scores.trans), (1, 7, 5, Trans::Nt));
        assert_eq!((weight.m, weight.n, weight.k, weight.trans), (7, 5, 1, Trans::Tn));
        assert_eq!(input.map(|g| (g.m, g.n, g.k, g.trans)), Some((1, 5, 7, Trans::Nn)));
        let untied = ClassifierCe { tied: false, input_grad: false, ..op }.products(0);
        assert_eq!((untied.scores.trans, untied.weight.m, untied.input), (Trans::Nn, 5, None));
    }
}
