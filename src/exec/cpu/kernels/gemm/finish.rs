//! Activation functions and derivatives that are too slow for the innermost kernel: a second pass over a tile that has
//! just been stored, while it is in the first-level cache.

use super::micro::{Finish, Tile};
use super::simd::{MAX_LANES, Vector};
use crate::exec::cpu::kernels::lanes::Lanes;
use crate::exec::cpu::kernels::math;
use crate::model::Activation;
use crate::ops::Epilogue;

/// The part of an epilogue that remains after the innermost kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rest {
    act: Option<Activation>,
    act_grad: Option<Activation>,
}

/// Splits an epilogue into what the innermost kernel does and the rest, if any.
pub fn split(epilogue: &Epilogue) -> (Finish, Option<Rest>) {
    match (epilogue.act, epilogue.act_grad) {
        (None, None) => (Finish::None, None),
        (Some(Activation::Relu), None) => (Finish::Relu, None),
        (Some(Activation::LeakyRelu), None) => (Finish::LeakyRelu, None),
        (None, Some(Activation::Relu)) => (Finish::ReluGrad, None),
        (None, Some(Activation::LeakyRelu)) => (Finish::LeakyReluGrad, None),
        (act, act_grad) => (Finish::None, Some(Rest { act, act_grad })),
    }
}

impl Rest {
    /// Applies the rest to a stored tile of `rows` rows and `vectors` vectors.
    ///
    /// # Safety
    /// Runs only if `V` and `L` may be used; the tile's `c` and, for a derivative, `saved` are valid.
    #[inline(always)]
    pub unsafe fn apply<V: Vector, L: Lanes>(self, t: &Tile, rows: usize, vectors: usize) {
        // SAFETY: the tile is the caller's.
        unsafe {
            match self.act {
                None => {}
                Some(Activation::Relu) => each::<V>(t, rows, vectors, false, |x, _| math::relu(x)),
                Some(Activation::LeakyRelu) => each::<V>(t, rows, vectors, false, |x, _| math::leaky_relu(x)),
                Some(Activation::Gelu) => each::<V>(t, rows, vectors, false, |x, _| math::gelu::<L>(x)),
                Some(Activation::Silu) => each::<V>(t, rows, vectors, false, |x, _| math::silu::<L>(x)),
                Some(Activation::Sigmoid) => each::<V>(t, rows, vectors, false, |x, _| math::sigmoid::<L>(x)),
                Some(Activation::Tanh) => each::<V>(t, rows, vectors, false, |x, _| math::tanh::<L>(x)),
            }
            match self.act_grad {
                None => {}
                Some(f @ Activation::Relu) => each::<V>(t, rows, vectors, true, |x, s| x * math::derivative::<L>(f, s)),
                Some(f @ Activation::LeakyRelu) => {
                    each::<V>(t, rows, vectors, true, |x, s| x * math::derivative::<L>(f, s))
                }
                Some(Activation::Gelu) => each::<V>(t, rows, vectors, true, |x, s| x * math::gelu_grad::<L>(s)),
                Some(Activation::Silu) => each::<V>(t, rows, vectors, true, |x, s| x * math::silu_grad::<L>(s)),
                Some(f @ Activation::Sigmoid) => {
                    each::<V>(t, rows, vectors, true, |x, s| x * math::derivative::<L>(f, s))
                }
                Some(f @ Activation::Tanh) => each::<V>(t, rows, vectors, true, |x, s| x * math::derivative::<L>(f, s)),
            }
        }
    }
}

/// Replaces each element `x` of a tile by `f(x, saved)`, a vector at a time so that the loop over it is vector code.
///
/// # Safety
/// As for [`Rest::apply`].
#[inline(always)]
unsafe fn each<V: Vector>(t: &Tile, rows: usize, vectors: usize, with_saved: bool, f: impl Fn(f32, f32) -> f32) {
    let mut x = [0.0f32; MAX_LANES];
    let mut saved = [0.0f32; MAX_LANES];
    // SAFETY: only the last vector of a row, which is masked, may extend beyond the tile; the arrays hold a vector.
    unsafe {
        let mask = V::mask(t.lanes);
        for &row in &t.c_row[..rows] {
            for vector in 0..vectors {
                let (at, whole) = (row + vector * V::LANES, vector + 1 < vectors);
                let load = |from: *const f32| if whole { V::load(from) } else { V::load_mask(from, mask) };
                let c = t.c.add(at);
                load(c).store(x.as_mut_ptr());
                if with_saved {
                    load(t.saved.add(at)).store(saved.as_mut_ptr());
                }
                for (x, s) in x[..V::LANES].iter_mut().zip(&saved) {
                    *x = f(*x, *s);
                }
                let result = V::load(x.as_ptr());
                if whole { result.store(c) } else { result.store_mask(c, mask) }
            }
        }
    }
}
