//! Attention between positions, and its derivative.

use super::Operation;
use super::geometry::Scalar;
use super::operation::operation;
use super::slots::slots;
use serde::{Deserialize, Serialize};

/// The number of random numbers for one group of keys; each row of probabilities begins with a new group.
pub const DROPOUT_GROUP: usize = 64;

/// The largest number of features of a head for which GPUs have kernels.
pub const MOST_HEAD_DIM: usize = 320;

/// The base of the angles by which rotary embedding rotates pairs of features.
const ROTARY_BASE: f64 = 10_000.0;

/// The common geometry of attention and its derivative. A row of the packed values `[batch, positions, packed]` has the
/// queries of all heads, then the keys and then the values of all key and value heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AttentionGeometry {
    pub batch: usize,
    pub positions: usize,
    pub heads: usize,
    /// The number of heads of keys and values; consecutive query heads share each of them.
    pub kv_heads: usize,
    pub head_dim: usize,
    /// Whether a position attends to itself and earlier ones only.
    pub causal: bool,
    /// Whether queries and keys are rotated by angles that are proportional to their position (rotary embedding).
    pub rotary: bool,
    /// The share of probabilities that is dropped during training.
    pub dropout: Scalar,
    /// The stream of the random numbers of `dropout`.
    pub stream: u32,
}

impl AttentionGeometry {
    /// That of GPT-2 with 124 million parameters: 16 sequences of 1,024 positions, 12 heads of 64 features.
    #[cfg(test)]
    pub(crate) fn gpt2() -> Self {
        Self {
            batch: 16,
            positions: 1024,
            heads: 12,
            kv_heads: 12,
            head_dim: 64,
            causal: true,
            rotary: false,
            dropout: Scalar::new(0.0),
            stream: 0,
        }
    }

    /// Rows of the packed values.
    #[must_use]
    pub const fn rows(&self) -> usize {
        self.batch * self.positions
    }

    /// Columns of the output.
    #[must_use]
    pub const fn width(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Columns of the packed values.
    #[must_use]
    pub const fn packed(&self) -> usize {
        (self.heads + 2 * self.kv_heads) * self.head_dim
    }

    /// The first columns of a head's queries, keys and values.
    #[must_use]
    pub const fn columns(&self, head: usize) -> [usize; 3] {
        let (kv, d) = (head / self.group(), self.head_dim);
        [head * d, (self.heads + kv) * d, (self.heads + self.kv_heads + kv) * d]
    }

    /// Query heads that share keys and values.
    #[must_use]
    pub const fn group(&self) -> usize {
        self.heads / self.kv_heads
    }

    /// The factor of scores: one divided by the root of `head_dim`.
    #[must_use]
    pub fn scale(&self) -> f64 {
        1.0 / (self.head_dim as f64).sqrt()
    }

    /// The number of keys that a position attends to: those before this index.
    #[must_use]
    pub const fn keys(&self, position: usize) -> usize {
        if self.causal { position + 1 } else { self.positions }
    }

    /// The number of pairs of a query and a key that it attends to.
    #[must_use]
    pub const fn pairs(&self) -> usize {
        let of_head = if self.causal { self.positions * (self.positions + 1) / 2 } else { self.positions.pow(2) };
        self.batch * self.heads * of_head
    }

    /// Groups of random numbers of one row of probabilities.
    #[must_use]
    pub const fn dropout_groups(&self) -> usize {
        self.positions.div_ceil(DROPOUT_GROUP)
    }

    /// The index of the random number of a probability; `row` counts queries of all samples and heads.
    #[must_use]
    pub const fn dropout_place(&self, row: usize, key: usize) -> usize {
        row * self.dropout_groups() * DROPOUT_GROUP + key
    }

    /// Cosine and sine of the angle by which the features `pair` and `pair + head_dim / 2` of a position are rotated
    /// (Su and others, *RoFormer*, 2021).
    #[must_use]
    pub fn rotation(&self, position: usize, pair: usize) -> [f64; 2] {
        let angle = position as f64 * ROTARY_BASE.powf(-2.0 * pair as f64 / self.head_dim as f64);
        [angle.cos(), angle.sin()]
    }

    fn dims(&self) -> String {
        let Self { batch, positions, heads, kv_heads, head_dim, .. } = self;
        let groups = if heads == kv_heads { String::new() } else { format!(" kv={kv_heads}") };
        let flags = [(self.causal, " causal"), (self.rotary, " rotary"), (self.has_dropout(), " dropout")];
        let flags: String = flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, text)| text).collect();
        format!("b={batch} t={positions} h={heads}{groups} d={head_dim}{flags}")
    }

    /// Whether there is dropout of probabilities.
    #[must_use]
    pub fn has_dropout(&self) -> bool {
        self.dropout.get() > 0.0
    }
}

/// `y`: each query's mean of the values, weighted by the softmax of its scaled products with the keys. `lse` is the
/// logarithm of the sum of the exponentials of its scores, `[batch, heads, positions]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Attention {
    pub geometry: AttentionGeometry,
}

slots! {
    pub mod attention(op: Attention) {
        QKV: in activation [op.geometry.rows() * op.geometry.packed()],
        COUNTER: in live [2] if op.geometry.has_dropout(),
        Y: out activation [op.geometry.rows() * op.geometry.width()],
        LSE: out [op.geometry.rows() * op.geometry.heads],
        WORK: scratch,
    }
}

/// The properties of one direction: products over all pairs, FLOPs of a pair's softmax, and how often the matrices of
/// queries, keys and values and those of concatenated heads are read or written.
macro_rules! direction {
    ($Direction:ident: $slots:ident, $name:literal, products $products:literal, softmax $softmax:literal,
        packed $packed:literal, width $width:literal) => {
        operation! {
            $Direction: $slots, $name, |op| {
                dims: op.geometry.dims(),
                flops: (op.geometry.pairs() * (2 * $products * op.geometry.head_dim + $softmax)) as u64,
                least_flops: (op.geometry.pairs() * 2 * $products * op.geometry.head_dim) as u64,
                bytes_moved(elem): {
                    let g = &op.geometry;
                    (g.rows() * ($packed * g.packed() + $width * g.width() + g.heads) * elem) as u64
                },
                work_ps: work_ps(&op.geometry, $products),
                has_gpu_kernel: op.geometry.head_dim <= MOST_HEAD_DIM,
            }
        }
    };
}

direction!(Attention: attention, "attention", products 2, softmax 4, packed 1, width 1);

/// The gradient of the input of [`Attention`]. Probabilities are computed again from `lse`, dropped ones from the same
/// random numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AttentionBwd {
    pub geometry: AttentionGeometry,
}

slots! {
    pub mod attention_bwd(op: AttentionBwd) {
        DY: in activation [op.geometry.rows() * op.geometry.width()],
        QKV: in activation [op.geometry.rows() * op.geometry.packed()],
        Y: in activation [op.geometry.rows() * op.geometry.width()],
        LSE: in [op.geometry.rows() * op.geometry.heads],
        COUNTER: in live [2] if op.geometry.has_dropout(),
        DX: out activation [op.geometry.rows() * op.geometry.packed()],
        WORK: scratch,
    }
}

direction!(AttentionBwd: attention_bwd, "attention_bwd", products 5, softmax 6, packed 2, width 2);

/// Picoseconds of this many products over all pairs, with an exponential for each pair.
fn work_ps(g: &AttentionGeometry, products: usize) -> usize {
    let random = if g.has_dropout() { 1_500 } else { 0 };
    g.pairs() * (products * g.head_dim * 20 + 400 + random) + g.rows() * g.packed() * 300
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_columns_and_angles() {
        let g = AttentionGeometry {
            batch: 2,
            positions: 5,
            heads: 4,
            kv_heads: 2,
            head_dim: 6,
            causal: true,
            rotary: true,
            dropout: Scalar::new(0.1),
            stream: 3,
        };
        assert_eq!((g.rows(), g.width(), g.packed(), g.group()), (10, 24, 48, 2));
        assert_eq!([0, 1, 3].map(|h| g.columns(h)), [[0, 24, 36], [6, 24, 36], [18, 30, 42]]);
        assert_eq!((g.pairs(), g.keys(2)), (2 * 4 * 15, 3));
        assert_eq!(AttentionGeometry { causal: false, ..g }.pairs(), 2 * 4 * 25);
        assert_eq!(g.dropout_place(3, 4), 3 * 64 + 4);
        assert_eq!(g.rotation(0, 2), [1.0, 0.0]);
        assert_eq!(g.rotation(7, 0), [7f64.cos(), 7f64.sin()]);
        let angle = 3.0 / 10_000f64.powf(1.0 / 3.0);
        let turned = g.rotation(3, 1);
        assert!((turned[0] - angle.cos()).abs() < 1e-15 && (turned[1] - angle.sin()).abs() < 1e-15);
        assert_eq!(Attention { geometry: g }.dims(), "b=2 t=5 h=4 kv=2 d=6 causal rotary dropout");
    }
}
