//! Matrix products and convolutions.

use super::Operation;
use super::geometry::{ConvGeometry, Epilogue, Trans};
use super::slots::{slots, table};
use super::windows::{Windows, touched_bytes};
use serde::{Deserialize, Serialize};

/// A matrix product `c[m, n] = a b`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Gemm {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub trans: Trans,
    /// Adds to what `c` holds instead of overwriting it.
    pub accumulate: bool,
    pub epilogue: Epilogue,
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

/// What the products share: the order of their slots, so that one piece of code finishes the results of all.
pub trait Product: Operation {
    /// Elements of the first factor, of the second, and of the result.
    fn lens(&self) -> [usize; 3];

    /// Elements of a bias.
    fn columns(&self) -> usize;

    /// Whether the result is added to what is there.
    fn accumulates(&self) -> bool {
        false
    }
}

slots! {
    /// The factors `a` and `b`, the result `c`, and what an epilogue reads and writes. `bias_half` is the bias in the
    /// type of the factors, which libraries ask for.
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

impl Operation for Gemm {
    table!(product);

    fn name(&self) -> &'static str {
        match self.trans {
            Trans::Nn => "gemm",
            Trans::Nt => "gemm_nt",
            Trans::Tn => "gemm_tn",
        }
    }

    fn epilogue(&self) -> Epilogue {
        self.epilogue
    }

    fn dims(&self) -> String {
        format!("m={} n={} k={}", self.m, self.n, self.k)
    }

    fn flops(&self) -> u64 {
        (2 * self.m * self.n * self.k) as u64
    }

    fn least_flops(&self) -> u64 {
        self.flops()
    }

    fn bytes_moved(&self, elem: usize) -> u64 {
        let [a, b, c] = self.lens();
        let result = (1 + usize::from(self.accumulate)) * c;
        ((a + b + result + epilogue_elements(&self.epilogue, self.m, self.n)) * elem) as u64
    }

    fn weight(&self) -> Option<usize> {
        (self.trans != Trans::Tn).then_some(product::B)
    }

    fn is_activation(&self, slot: usize) -> bool {
        match slot {
            product::A | product::SAVED | product::Z => true,
            product::B => self.trans == Trans::Tn,
            product::C => self.trans != Trans::Tn,
            _ => false,
        }
    }
}

impl Product for Conv2d {
    fn lens(&self) -> [usize; 3] {
        let [x, weight, y] = self.geometry.elements();
        [x, weight, y]
    }

    fn columns(&self) -> usize {
        self.geometry.f
    }
}

impl Operation for Conv2d {
    table!(product);

    fn name(&self) -> &'static str {
        "conv2d"
    }

    fn epilogue(&self) -> Epilogue {
        self.epilogue
    }

    fn has_gpu_kernel(&self) -> bool {
        self.geometry.is_padded_alike()
    }

    fn dims(&self) -> String {
        conv_dims(&self.geometry)
    }

    fn flops(&self) -> u64 {
        conv_flops(&self.geometry)
    }

    fn least_flops(&self) -> u64 {
        conv_least_flops(&self.geometry)
    }

    fn least_flops_with_tiles(&self) -> u64 {
        conv_least_flops_with_tiles(&self.geometry)
    }

    fn bytes_moved(&self, elem: usize) -> u64 {
        let g = &self.geometry;
        let beside = epilogue_elements(&self.epilogue, g.n * g.ho * g.wo, g.f);
        ((g.elements().iter().sum::<usize>() + beside) * elem) as u64
    }

    fn least_bytes(&self, slot: usize, len: usize, elem: usize) -> u64 {
        conv_input_bytes(&self.geometry, slot, (len * elem) as u64)
    }

    fn weight(&self) -> Option<usize> {
        Some(product::B)
    }

    fn is_activation(&self, slot: usize) -> bool {
        matches!(slot, product::A | product::SAVED | product::Z | product::C)
    }
}

impl Product for Conv2dBwdX {
    fn lens(&self) -> [usize; 3] {
        let [x, weight, y] = self.geometry.elements();
        [y, weight, x]
    }

    fn columns(&self) -> usize {
        self.geometry.f
    }
}

impl Operation for Conv2dBwdX {
    table!(product);

    fn name(&self) -> &'static str {
        "conv2d_bwd_x"
    }

    fn epilogue(&self) -> Epilogue {
        self.epilogue
    }

    fn has_gpu_kernel(&self) -> bool {
        self.geometry.is_padded_alike()
    }

    fn dims(&self) -> String {
        conv_dims(&self.geometry)
    }

    fn flops(&self) -> u64 {
        conv_flops(&self.geometry)
    }

    fn least_flops(&self) -> u64 {
        conv_least_flops(&self.geometry)
    }

    fn least_flops_with_tiles(&self) -> u64 {
        conv_least_flops_with_tiles(&self.geometry)
    }

    fn bytes_moved(&self, elem: usize) -> u64 {
        let g = &self.geometry;
        let beside = epilogue_elements(&self.epilogue, g.n * g.h * g.w, g.c);
        ((g.elements().iter().sum::<usize>() + beside) * elem) as u64
    }

    fn weight(&self) -> Option<usize> {
        Some(product::B)
    }

    fn is_activation(&self, slot: usize) -> bool {
        matches!(slot, product::A | product::SAVED | product::Z | product::C)
    }
}

impl Product for Conv2dBwdW {
    fn lens(&self) -> [usize; 3] {
        let [x, weight, y] = self.geometry.elements();
        [x, y, weight]
    }

    fn columns(&self) -> usize {
        self.geometry.f
    }

    fn accumulates(&self) -> bool {
        self.accumulate
    }
}

impl Operation for Conv2dBwdW {
    table!(product);

    fn name(&self) -> &'static str {
        "conv2d_bwd_w"
    }

    fn has_gpu_kernel(&self) -> bool {
        self.geometry.is_padded_alike()
    }

    fn dims(&self) -> String {
        conv_dims(&self.geometry)
    }

    fn flops(&self) -> u64 {
        conv_flops(&self.geometry)
    }

    fn least_flops(&self) -> u64 {
        conv_least_flops(&self.geometry)
    }

    fn least_flops_with_tiles(&self) -> u64 {
        conv_least_flops_with_tiles(&self.geometry)
    }

    fn bytes_moved(&self, elem: usize) -> u64 {
        let [x, weight, y] = self.geometry.elements();
        ((x + weight * (1 + usize::from(self.accumulate)) + y) * elem) as u64
    }

    fn least_bytes(&self, slot: usize, len: usize, elem: usize) -> u64 {
        conv_input_bytes(&self.geometry, slot, (len * elem) as u64)
    }

    fn is_activation(&self, slot: usize) -> bool {
        matches!(slot, product::A | product::B)
    }
}

/// Elements that an epilogue moves besides the result, for a result of `rows` by `cols`.
fn epilogue_elements(e: &Epilogue, rows: usize, cols: usize) -> usize {
    usize::from(e.bias) * cols + (usize::from(e.save_z) + usize::from(e.act_grad.is_some())) * rows * cols
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

/// Of the multiplications of a window of 3 by 3 that moves by one place, 4 in 9 are left where a library works on tiles
/// (Lavin and Gray, "Fast algorithms for convolutional neural networks").
fn conv_least_flops_with_tiles(g: &ConvGeometry) -> u64 {
    let has_tiles = (g.kernel, g.stride, g.dilation) == ([3; 2], [1; 2], [1; 2]);
    if has_tiles { conv_least_flops(g) * 4 / 9 } else { conv_least_flops(g) }
}

/// The bytes of an argument that a convolution must touch, of which only the first is an image with places that no
/// window may reach.
fn conv_input_bytes(g: &ConvGeometry, slot: usize, all: u64) -> u64 {
    if slot == product::A { touched_bytes(all, Windows::of_conv(g)) } else { all }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_moves_its_factors_and_its_result() {
        let gemm = Gemm { m: 2, n: 3, k: 5, trans: Trans::Nn, accumulate: false, epilogue: Epilogue::default() };
        assert_eq!(gemm.bytes_moved(4), 4 * (10 + 15 + 6));
        assert_eq!(gemm.flops(), 60);
        let epilogue = Epilogue { bias: true, save_z: true, ..Epilogue::default() };
        let op = Gemm { accumulate: true, epilogue, ..gemm };
        assert_eq!(op.bytes_moved(8), 8 * (10 + 15 + 12 + 3 + 6));
    }
}
