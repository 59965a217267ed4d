//! Types that operations consist of: layouts of factors, epilogues of products, windows over images, frozen scalars,
//! segments of the flat vectors.

use crate::model::{Activation, Cell};
use serde::{Deserialize, Serialize};

/// How the two factors of a matrix product are stored; the product is always row-major `[m, n]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Trans {
    /// `a [m, k]`, `b [k, n]`: forward, `x W`.
    Nn,
    /// `a [m, k]`, `b [n, k]`: gradient of the input, `dy Wᵀ`.
    Nt,
    /// `a [k, m]`, `b [k, n]`: gradient of the weight, `xᵀ dy`.
    Tn,
}

/// What is applied to each element of a product before it is stored, in this order: add the previous value
/// (`accumulate` of the operation), add the bias, store the pre-activation, apply the activation or multiply by an
/// activation's derivative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Epilogue {
    /// Adds `bias [n]` to each row.
    pub bias: bool,
    /// Applies an activation function.
    pub act: Option<Activation>,
    /// Also writes the value before the activation, for functions whose derivative needs it.
    pub save_z: bool,
    /// Multiplies by this function's derivative, taken at `saved` (see [`Activation::saves_output`]).
    pub act_grad: Option<Activation>,
}

impl Epilogue {
    /// True if nothing is applied.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The geometry of a two-dimensional convolution. `x [n, h, w, c]`, weight `[kh, kw, c / groups, f]`, `y [n, ho, wo,
/// f]`. The padding is that before the first row and column; after the last one it follows from the output's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ConvGeometry {
    pub n: usize,
    pub h: usize,
    pub w: usize,
    pub c: usize,
    pub f: usize,
    pub kernel: [usize; 2],
    pub stride: [usize; 2],
    pub padding: [usize; 2],
    pub dilation: [usize; 2],
    pub groups: usize,
    pub ho: usize,
    pub wo: usize,
}

impl ConvGeometry {
    /// One image of one pixel, and a filter of one tap, from which other geometries are constructed.
    pub(crate) const UNIT: Self = Self {
        n: 1,
        h: 1,
        w: 1,
        c: 1,
        f: 1,
        kernel: [1; 2],
        stride: [1; 2],
        padding: [0; 2],
        dilation: [1; 2],
        groups: 1,
        ho: 1,
        wo: 1,
    };

    /// Whether the padding is the same on both sides of each axis; the padding at the end is known from the output's
    /// size.
    #[must_use]
    pub fn is_padded_alike(&self) -> bool {
        let is_alike = |axis: usize, size: usize, out: usize| {
            let reach = self.dilation[axis] * (self.kernel[axis] - 1) + 1;
            (size + 2 * self.padding[axis]).checked_sub(reach).is_some_and(|rest| rest / self.stride[axis] + 1 == out)
        };
        is_alike(0, self.h, self.ho) && is_alike(1, self.w, self.wo)
    }

    /// Elements of the input, the weight and the output.
    #[must_use]
    pub fn elements(&self) -> [usize; 3] {
        let weight = self.kernel[0] * self.kernel[1] * (self.c / self.groups.max(1)) * self.f;
        [self.n * self.h * self.w * self.c, weight, self.n * self.ho * self.wo * self.f]
    }
}

/// The geometry of a pooling window. `x [n, h, w, c]`, `y [n, ho, wo, c]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PoolGeometry {
    pub n: usize,
    pub h: usize,
    pub w: usize,
    pub c: usize,
    pub size: [usize; 2],
    pub stride: [usize; 2],
    pub padding: [usize; 2],
    pub ho: usize,
    pub wo: usize,
}

impl PoolGeometry {
    /// Elements of the input.
    #[must_use]
    pub const fn inputs(&self) -> usize {
        self.n * self.h * self.w * self.c
    }

    /// Elements of the output.
    #[must_use]
    pub const fn outputs(&self) -> usize {
        self.n * self.ho * self.wo * self.c
    }

    /// The number of elements that all windows read, including those in the padding.
    #[must_use]
    pub const fn reads(&self) -> usize {
        self.outputs() * self.size[0] * self.size[1]
    }

    /// Bytes of one element of a maximum pooling's index.
    #[must_use]
    pub const fn index_bytes(&self) -> usize {
        if self.size[0] * self.size[1] > 256 { 2 } else { 1 }
    }
}

/// How one direction of a recurrent layer loops over a batch of sequences. Rows of the input are `[batch, positions]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RecurrenceGeometry {
    pub cell: Cell,
    pub batch: usize,
    pub positions: usize,
    pub units: usize,
    /// From the last position to the first.
    pub reverse: bool,
    /// Whether the layer is bidirectional; then the outputs of both directions are concatenated.
    pub bidirectional: bool,
    /// Whether the output is only the final state.
    pub last: bool,
}

impl RecurrenceGeometry {
    /// Positions of all sequences.
    #[must_use]
    pub const fn rows(&self) -> usize {
        self.batch * self.positions
    }

    /// Values of all gates at a position.
    #[must_use]
    pub const fn wide(&self) -> usize {
        self.cell.gates() * self.units
    }

    /// States in the output of a direction.
    #[must_use]
    pub const fn states(&self) -> usize {
        if self.last { self.batch } else { self.rows() }
    }

    /// Whether the operation writes the output of both directions.
    #[must_use]
    pub const fn joins(&self) -> bool {
        self.bidirectional && self.reverse
    }

    /// Values in a row of the layer's output.
    #[must_use]
    pub const fn output_width(&self) -> usize {
        if self.bidirectional { 2 * self.units } else { self.units }
    }

    /// The first value of the direction in such a row.
    #[must_use]
    pub const fn output_start(&self) -> usize {
        if self.joins() { self.units } else { 0 }
    }

    /// Floating-point operations of the products with the weight of the state, or of those of the derivative: the first
    /// state is zero, and its gradient is not needed.
    #[must_use]
    pub const fn product_flops(&self) -> usize {
        2 * self.batch * (self.positions - 1) * self.units * self.wide()
    }

    /// Picoseconds of these products on one core.
    #[must_use]
    pub const fn product_ps(&self) -> usize {
        self.product_flops() * 7
    }
}

/// A scalar frozen into an operation. Kept as bits so that operations compare and hash exactly.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Scalar(u64);

impl Scalar {
    #[must_use]
    pub fn new(value: f64) -> Self {
        Self(value.to_bits())
    }
    #[must_use]
    pub fn get(self) -> f64 {
        f64::from_bits(self.0)
    }
}

impl std::fmt::Debug for Scalar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.get())
    }
}

impl Serialize for Scalar {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_f64(self.get())
    }
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        f64::deserialize(d).map(Self::new)
    }
}

/// A contiguous range of the flat parameter vector that belongs to one parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Segment {
    /// First element in the flat vector; a multiple of 64 elements.
    pub start: usize,
    /// Elements that belong to the parameter; the padding up to the next segment stays zero.
    pub len: usize,
}
