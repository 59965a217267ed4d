//! Matrix products and convolutions.

use super::Operation;
use super::geometry::{ConvGeometry, Epilogue, Trans};
use super::operation::{is_zero, operation};
use super::slots::slots;
use super::windows::{Windows, touched_bytes};
use serde::{Deserialize, Serialize};

/// A matrix product `c[m, n] = a b`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Gemm {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub trans: Trans,
    /// Adds to the previous value of `c` instead of overwriting it.
    pub accumulate: bool,
    pub epilogue: Epilogue,
    /// Elements of all results of the launch that it shares with other products on purpose; zero where it has no such
    /// company.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub together: usize,
}

impl Gemm {
    /// A product that does nothing besides.
    #[must_use]
    pub const fn plain(m: usize, n: usize, k: usize, trans: Trans) -> Self {
        let epilogue = Epilogue { bias: false, act: None, save_z: false, act_grad: None };
        Self { m, n, k, trans, accumulate: false, epilogue, together: 0 }
    }
}

/// A convolution of `x [n, h, w, c]` with a weight `[kh, kw, c / groups, f]`, and its epilogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Conv2d {
    pub geometry: ConvGeometry,
    pub epilogue: Epilogue,
}

/// Gradient of a convolution's input, from `dy` and the weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Conv2dBwdX {
    pub geometry: ConvGeometry,
    pub epilogue: Epilogue,
}

/// Gradient of a convolution's weight, from `x` and `dy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Conv2dBwdW {
    pub geometry: ConvGeometry,
    pub accumulate: bool,
}

/// The common interface of products: the order of their slots, so that the same code computes all epilogues.
pub trait Product: Operation {
    /// Elements of the first factor, of the second, and of the result.
    fn lens(&self) -> [usize; 3];

    /// Elements of a bias.
    fn columns(&self) -> usize;

    /// Whether the result is added to the previous value.
    fn accumulates(&self) -> bool {
        false
    }
}

slots! {
    /// The factors `a` and `b`, the result `c`, and the arguments of an epilogue. `bias_half` is the bias in the type
    /// of the factors, which libraries require.
    pub mod product(op: impl Product) {
        A: in [op.lens()[0]],
        B: in [op.lens()[1]],
        BIAS: in [op.columns()] if op.epilogue().bias,
        SAVED: in [op.lens()[2]] if op.epilogue().act_grad.is_some(),
        C_PREV: in [op.lens()[2]] if op.accumulates(),
        C: out [op.lens()[2]],
        Z: out [op.lens()[2]] if op.epilogue().save_z,
        WORK: scratch,
        BIAS_HALF: in [op.columns()] if OPTIONAL,
    }
}

impl Product for Gemm {
    fn lens(&self) -> [usize; 3] {
        [self.m * self.k, self.k * self.n, self.m * self.n]
    }

    fn columns(&self) -> usize {
        self.n
    }

    fn accumulates(&self) -> bool {
        self.accumulate
    }
}

operation! {
    Gemm: product, match op.trans {
            Trans::Nn => "gemm",
            Trans::Nt => "gemm_nt",
            Trans::Tn => "gemm_tn",
        }, |op| {
        epilogue: op.epilogue,
        dims: format!("m={} n={} k={}", op.m, op.n, op.k),
        flops: (2 * op.m * op.n * op.k) as u64,
        least_flops: op.flops(),
        weight: (op.trans != Trans::Tn).then_some(product::B),
        is_activation(slot): match slot {
            product::A | product::SAVED | product::Z => true,
            product::B => op.trans == Trans::Tn,
            product::C => op.trans != Trans::Tn,
            _ => false,
        },
    }
}

/// Like `operation!`, with the properties that all convolutions share; before them, which of input, weight and output
/// are the two factors and the result, the channels of the result, and whether it is added to the previous value.
macro_rules! convolution {
    (
        $Op:ident: $name:literal, |$x:ident, $weight:ident, $y:ident| $lens:expr, |$op:ident| {
            columns: $columns:expr,
            accumulates: $accumulates:expr,
            $($rows:tt)+
        }
    ) => {
        impl Product for $Op {
            fn lens(&self) -> [usize; 3] {
                let [$x, $weight, $y] = self.geometry.elements();
                $lens
            }

            fn columns(&self) -> usize {
                let $op = self;
                $columns
            }

            fn accumulates(&self) -> bool {
                let $op = self;
                let _ = $op;
                $accumulates
            }
        }

        operation! {
            $Op: product, $name, |$op| {
                dims: conv_dims(&$op.geometry),
                flops: conv_flops(&$op.geometry),
                least_flops: conv_least_flops(&$op.geometry),
                least_flops_with_tiles: conv_least_flops_with_tiles(&$op.geometry),
                $($rows)+
            }
        }
    };
}

convolution! {
    Conv2d: "conv2d", |x, weight, y| [x, weight, y], |op| {
        columns: op.geometry.f,
        accumulates: false,
        epilogue: op.epilogue,
        least_bytes(slot, len, elem): conv_input_bytes(&op.geometry, slot, (len * elem) as u64),
        weight: Some(product::B),
        is_activation(slot): matches!(slot, product::A | product::SAVED | product::Z | product::C),
    }
}

convolution! {
    Conv2dBwdX: "conv2d_bwd_x", |x, weight, y| [y, weight, x], |op| {
        columns: op.geometry.c,
        accumulates: false,
        epilogue: op.epilogue,
        weight: Some(product::B),
        is_activation(slot): matches!(slot, product::A | product::SAVED | product::Z | product::C),
    }
}

convolution! {
    Conv2dBwdW: "conv2d_bwd_w", |x, weight, y| [x, y, weight], |op| {
        columns: op.geometry.f,
        accumulates: op.accumulate,
        least_bytes(slot, len, elem): conv_input_bytes(&op.geometry, slot, (len * elem) as u64),
        is_activation(slot): matches!(slot, product::A | product::B),
    }
}

fn conv_dims(g: &ConvGeometry) -> String {
    format!("{}x{}x{}x{} {}x{} -> {}x{}x{}", g.n, g.h, g.w, g.c, g.kernel[0], g.kernel[1], g.ho, g.wo, g.f)
}

fn conv_flops(g: &ConvGeometry) -> u64 {
    (2 * g.n * g.ho * g.wo * g.f * g.kernel[0] * g.kernel[1] * (g.c / g.groups.max(1))) as u64
}

fn conv_least_flops(g: &ConvGeometry) -> u64 {
    let [rows, columns] = Windows::of_conv(g).map(|w| w.taps());
    (2 * g.n * g.f * (g.c / g.groups.max(1)) * rows * columns) as u64
}

/// A library that works on tiles needs only 4 of 9 multiplications of a 3 by 3 window with stride 1 (Lavin and Gray,
/// "Fast algorithms for convolutional neural networks").
fn conv_least_flops_with_tiles(g: &ConvGeometry) -> u64 {
    let has_tiles = (g.kernel, g.stride, g.dilation) == ([3; 2], [1; 2], [1; 2]);
    if has_tiles { conv_least_flops(g) * 4 / 9 } else { conv_least_flops(g) }
}

/// The bytes of an argument that a convolution must access; only the first argument is an image with elements that no
/// window may reach.
fn conv_input_bytes(g: &ConvGeometry, slot: usize, all: u64) -> u64 {
    if slot == product::A { touched_bytes(all, Windows::of_conv(g)) } else { all }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_moves_its_factors_and_its_result() {
        let gemm = Gemm::plain(2, 3, 5, Trans::Nn);
        assert_eq!(gemm.bytes_moved(4), 4 * (10 + 15 + 6));
        assert_eq!(gemm.flops(), 60);
        let epilogue = Epilogue { bias: true, save_z: true, ..Epilogue::default() };
        let op = Gemm { accumulate: true, epilogue, ..gemm };
        assert_eq!(op.bytes_moved(8), 8 * (10 + 15 + 12 + 3 + 6));
    }

    #[test]
    fn a_bias_has_a_value_for_each_channel_of_the_result() {
        let geometry = ConvGeometry { c: 2, f: 3, ..ConvGeometry::UNIT };
        let epilogue = Epilogue { bias: true, ..Epilogue::default() };
        let (forward, backward) = (Conv2d { geometry, epilogue }, Conv2dBwdX { geometry, epilogue });
        assert_eq!((forward.columns(), backward.columns()), (3, 2));
        assert_eq!(forward.bytes_moved(4), 4 * (2 + 6 + 3 + 3));
        assert_eq!(backward.bytes_moved(4), 4 * (3 + 6 + 2 + 2));
    }
}
