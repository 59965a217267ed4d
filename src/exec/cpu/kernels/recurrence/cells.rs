//! The functions of the gates and their derivatives, for a row of units.

use super::super::lanes::{LANES, Lanes};
use super::super::math;
use crate::model::Cell;

/// The rows of a sample at a position.
pub struct Forward {
    /// The input part of the gates, which may share the memory of `gates`.
    pub input: *const f32,
    /// The arguments of the functions, except for the last gate of a GRU; receives the functions' values.
    pub gates: *mut f32,
    /// A GRU's product for the last gate; receives an LSTM's `c'`.
    pub inner: *mut f32,
    /// The inner values of the preceding position, if there is one.
    pub previous: Option<*const f32>,
    /// The preceding state.
    pub state: *const f32,
    /// The destinations of the new state: for the next position, and in the output.
    pub next: Option<*mut f32>,
    pub y: Option<*mut f32>,
    pub units: usize,
}

/// Computes the functions of a position.
///
/// # Safety
/// Every row that the cell uses has a number for each unit, or for each gate of each unit.
#[inline(always)]
pub unsafe fn forward<V: Lanes>(cell: Cell, rows: &Forward) {
    let units = rows.units;
    for j in (0..units).step_by(LANES) {
        let n = (units - j).min(LANES);
        // SAFETY: promised by the caller.
        unsafe {
            let state = match cell {
                Cell::RnnTanh => function::<V>(rows, 0, j, n, math::tanh::<V>),
                Cell::RnnRelu => function::<V>(rows, 0, j, n, math::relu),
                Cell::Gru => {
                    let r = function::<V>(rows, 0, j, n, math::sigmoid::<V>);
                    let z = function::<V>(rows, 1, j, n, math::sigmoid::<V>);
                    let input = V::load_n(rows.input.add(2 * units + j), n);
                    let new = (input + r * V::load_n(rows.inner.add(j), n)).map(math::tanh::<V>);
                    new.store_n(rows.gates.add(2 * units + j), n);
                    (V::splat(1.0) - z) * new + z * V::load_n(rows.state.add(j), n)
                }
                Cell::Lstm => {
                    let i = function::<V>(rows, 0, j, n, math::sigmoid::<V>);
                    let f = function::<V>(rows, 1, j, n, math::sigmoid::<V>);
                    let new = function::<V>(rows, 2, j, n, math::tanh::<V>);
                    let o = function::<V>(rows, 3, j, n, math::sigmoid::<V>);
                    let c = match rows.previous {
                        Some(previous) => f * V::load_n(previous.add(j), n) + i * new,
                        None => i * new,
                    };
                    c.store_n(rows.inner.add(j), n);
                    o * c.map(math::tanh::<V>)
                }
            };
            for to in [rows.next, rows.y].into_iter().flatten() {
                state.store_n(to.add(j), n);
            }
        }
    }
}

/// Replaces arguments by the function's values, for some units of a gate.
#[inline(always)]
unsafe fn function<V: Lanes>(rows: &Forward, gate: usize, j: usize, n: usize, f: impl Fn(f32) -> f32) -> V {
    // SAFETY: promised by the caller.
    unsafe {
        let at = rows.gates.add(gate * rows.units + j);
        let value = V::load_n(at, n).map(f);
        value.store_n(at, n);
        value
    }
}

/// The derivative of the sigmoid function at its value.
#[inline(always)]
fn sigmoid_slope<V: Lanes>(y: V) -> V {
    y * (V::splat(1.0) - y)
}

/// The derivative of the hyperbolic tangent at its value.
#[inline(always)]
fn tanh_slope<V: Lanes>(y: V) -> V {
    // Both factors keep their digits when the square is close to 1.
    (V::splat(1.0) - y) * (V::splat(1.0) + y)
}

/// The rows of a sample at a position, for the derivative.
pub struct Backward {
    pub gates: *const f32,
    pub inner: *const f32,
    /// The inner values of the preceding position, if there is one.
    pub previous: Option<*const f32>,
    /// The preceding state.
    pub state: *const f32,
    /// The gradient of the state from the output, if the output includes this position.
    pub dy: Option<*const f32>,
    /// The gradients of the state and of the inner value from the following position, if there is one; they receive
    /// those for the preceding position, without the part that passes through the product.
    pub carry: *mut f32,
    pub carry_inner: *mut f32,
    pub is_last: bool,
    /// Receives the gradients of the input part, which may share the memory of `gates`.
    pub dx: *mut f32,
    /// Receives the gradients of the state's product, if they differ from those.
    pub dhidden: *mut f32,
    pub units: usize,
}

/// Computes the derivative of a position.
///
/// # Safety
/// As for [`forward`].
#[inline(always)]
pub unsafe fn backward<V: Lanes>(cell: Cell, rows: &Backward) {
    let (units, one) = (rows.units, V::splat(1.0));
    for j in (0..units).step_by(LANES) {
        let n = (units - j).min(LANES);
        // SAFETY: promised by the caller.
        unsafe {
            let dh = rows.gradient::<V>(j, n);
            match cell {
                Cell::RnnTanh => rows.set::<V>(0, j, n, dh * tanh_slope(rows.gate::<V>(0, j, n))),
                Cell::RnnRelu => {
                    let y = rows.gate::<V>(0, j, n);
                    rows.set::<V>(0, j, n, V::select(y.le(V::zero()), V::zero(), dh));
                }
                Cell::Gru => {
                    let (r, z) = (rows.gate::<V>(0, j, n), rows.gate::<V>(1, j, n));
                    let new = rows.gate::<V>(2, j, n);
                    let dn = dh * (one - z) * tanh_slope(new);
                    let dr = dn * V::load_n(rows.inner.add(j), n) * sigmoid_slope(r);
                    let dz = dh * (V::load_n(rows.state.add(j), n) - new) * sigmoid_slope(z);
                    rows.set::<V>(0, j, n, dr);
                    rows.set::<V>(1, j, n, dz);
                    rows.set::<V>(2, j, n, dn);
                    dr.store_n(rows.dhidden.add(j), n);
                    dz.store_n(rows.dhidden.add(units + j), n);
                    (dn * r).store_n(rows.dhidden.add(2 * units + j), n);
                    (dh * z).store_n(rows.carry.add(j), n);
                }
                Cell::Lstm => {
                    let (i, f) = (rows.gate::<V>(0, j, n), rows.gate::<V>(1, j, n));
                    let (new, o) = (rows.gate::<V>(2, j, n), rows.gate::<V>(3, j, n));
                    let c = V::load_n(rows.inner.add(j), n).map(math::tanh::<V>);
                    let own = dh * o * tanh_slope(c);
                    let dc = if rows.is_last { own } else { V::load_n(rows.carry_inner.add(j), n) + own };
                    let df = match rows.previous {
                        Some(previous) => dc * V::load_n(previous.add(j), n) * sigmoid_slope(f),
                        None => V::zero(),
                    };
                    rows.set::<V>(0, j, n, dc * new * sigmoid_slope(i));
                    rows.set::<V>(1, j, n, df);
                    rows.set::<V>(2, j, n, dc * i * tanh_slope(new));
                    rows.set::<V>(3, j, n, dh * c * sigmoid_slope(o));
                    (dc * f).store_n(rows.carry_inner.add(j), n);
                }
            }
        }
    }
}

impl Backward {
    /// The gradient of the new state: from the output, and from the following position.
    #[inline(always)]
    unsafe fn gradient<V: Lanes>(&self, j: usize, n: usize) -> V {
        // SAFETY: promised by the caller.
        unsafe {
            let Some(dy) = self.dy else { return V::load_n(self.carry.add(j), n) };
            let dy = V::load_n(dy.add(j), n);
            if self.is_last { dy } else { V::load_n(self.carry.add(j), n) + dy }
        }
    }

    #[inline(always)]
    unsafe fn gate<V: Lanes>(&self, gate: usize, j: usize, n: usize) -> V {
        // SAFETY: promised by the caller.
        unsafe { V::load_n(self.gates.add(gate * self.units + j), n) }
    }

    #[inline(always)]
    unsafe fn set<V: Lanes>(&self, gate: usize, j: usize, n: usize, gradient: V) {
        // SAFETY: promised by the caller.
        unsafe { gradient.store_n(self.dx.add(gate * self.units + j), n) };
    }
}
