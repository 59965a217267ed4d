//! Recurrent layers, position by position, as defined by [`Cell`].

use crate::exec::cpu::kernels::reference::args::{Args, Buf};
use crate::exec::cpu::kernels::reference::real::Real;
use crate::model::{Activation, Cell};
use crate::ops::{OpKind, RecurrenceGeometry};

/// Runs an operation of this family, and says whether it is one.
pub(super) fn run<T: Real>(args: Args, op: &OpKind) -> bool {
    match op {
        OpKind::Recurrence(op) => forward::<T>(args, &op.geometry),
        OpKind::RecurrenceBwd(op) => backward::<T>(args, &op.geometry),
        _ => return false,
    }
    true
}

/// The position at a step.
fn position(g: &RecurrenceGeometry, step: usize) -> usize {
    if g.reverse { g.positions - 1 - step } else { step }
}

/// The row of `[batch, positions]` for a sample at a step.
fn row(g: &RecurrenceGeometry, sample: usize, step: usize) -> usize {
    sample * g.positions + position(g, step)
}

fn forward<T: Real>(args: Args, g: &RecurrenceGeometry) {
    use crate::ops::slot::recurrence as slot;
    let (x, weight, bias): (Buf<T>, Buf<T>, Buf<T>) = (args.buf(slot::X), args.buf(slot::WEIGHT), args.buf(slot::BIAS));
    let (other, y): (Buf<T>, Buf<T>) = (args.buf(slot::OTHER), args.buf(slot::Y));
    let (gates, inner, before): (Buf<T>, Buf<T>, Buf<T>) =
        (args.buf(slot::GATES), args.buf(slot::INNER), args.buf(slot::BEFORE));
    let (units, wide, own) = (g.units, g.wide(), g.output_start());
    for sample in 0..g.batch {
        (0..units).for_each(|u| before.set(row(g, sample, 0) * units + u, T::ZERO));
        for step in 0..g.positions {
            let at = row(g, sample, step);
            let state = |k: usize| before.get(at * units + k);
            // The product with the state and its bias.
            let product = |column: usize| {
                // Before the first position the state is zero, independently of the weight.
                let terms = if step == 0 { 0 } else { units };
                let sum = (0..terms).fold(T::ZERO, |sum, k| sum + state(k) * weight.get(k * wide + column));
                sum + bias.get(column)
            };
            for u in 0..units {
                let gate = |i: usize| at * wide + i * units + u;
                let input = |i: usize| x.get(gate(i));
                let set = |i: usize, value: T| {
                    gates.set(gate(i), value);
                    value
                };
                let full = |i: usize, f: Activation| set(i, (input(i) + product(i * units + u)).act(f));
                let new = match g.cell {
                    Cell::RnnTanh => full(0, Activation::Tanh),
                    Cell::RnnRelu => full(0, Activation::Relu),
                    Cell::Gru => {
                        let (r, z) = (full(0, Activation::Sigmoid), full(1, Activation::Sigmoid));
                        let product = product(2 * units + u);
                        inner.set(at * units + u, product);
                        let n = set(2, (input(2) + r * product).act(Activation::Tanh));
                        (T::of(1.0) - z) * n + z * state(u)
                    }
                    Cell::Lstm => {
                        let [i, f] = [0, 1].map(|i| full(i, Activation::Sigmoid));
                        let (cell, o) = (full(2, Activation::Tanh), full(3, Activation::Sigmoid));
                        let c = previous(g, inner, sample, step, u).map_or(i * cell, |c| f * c + i * cell);
                        inner.set(at * units + u, c.kept());
                        o * c.act(Activation::Tanh)
                    }
                };
                if step + 1 < g.positions {
                    before.set(row(g, sample, step + 1) * units + u, new.kept());
                }
                let out = if g.last { sample } else { at };
                if !g.last || step + 1 == g.positions {
                    let width = own + units;
                    y.set(out * width + own + u, new);
                    if g.joins() {
                        y.set(out * width + u, other.get(out * units + u));
                    }
                }
            }
        }
    }
}

/// A unit's inner value at the preceding step; `None` at the first step, where it is zero.
fn previous<T: Real>(g: &RecurrenceGeometry, inner: Buf<T>, sample: usize, step: usize, u: usize) -> Option<T> {
    step.checked_sub(1).map(|step| inner.get(row(g, sample, step) * g.units + u))
}

fn backward<T: Real>(args: Args, g: &RecurrenceGeometry) {
    use crate::ops::slot::recurrence_bwd as slot;
    let weight: Buf<T> = args.buf(slot::WEIGHT);
    let (dx, dhidden): (Buf<T>, Buf<T>) = (args.buf(slot::DX), args.buf(slot::DHIDDEN));
    let (units, wide) = (g.units, g.wide());
    for sample in 0..g.batch {
        let mut carry = vec![Carry { state: T::ZERO, inner: T::ZERO }; units];
        for step in (0..g.positions).rev() {
            for (u, carry) in carry.iter_mut().enumerate() {
                *carry = unit_back(args, g, [sample, step, u], *carry);
            }
            let at = row(g, sample, step);
            let hidden = dhidden.or(dx);
            for (k, carry) in carry.iter_mut().enumerate() {
                let sum = (0..wide)
                    .fold(T::ZERO, |sum, column| sum + hidden.get(at * wide + column) * weight.get(k * wide + column));
                carry.state = carry.state + sum;
            }
        }
    }
}

/// The gradients that pass from a position to the preceding one: of a unit's state, without the part that passes
/// through the product, and of its inner value.
#[derive(Clone, Copy)]
struct Carry<T> {
    state: T,
    inner: T,
}

/// Writes the gradients of a unit's gates at a step; returns those that pass to the preceding step.
fn unit_back<T: Real>(args: Args, g: &RecurrenceGeometry, [sample, step, u]: [usize; 3], carry: Carry<T>) -> Carry<T> {
    use crate::ops::slot::recurrence_bwd as slot;
    let (dy, gates): (Buf<T>, Buf<T>) = (args.buf(slot::DY), args.buf(slot::GATES));
    let (inner, before): (Buf<T>, Buf<T>) = (args.buf(slot::INNER), args.buf(slot::BEFORE));
    let (dx, dhidden): (Buf<T>, Buf<T>) = (args.buf(slot::DX), args.buf(slot::DHIDDEN));
    let (units, wide, at) = (g.units, g.wide(), row(g, sample, step));
    let out = if g.last { sample } else { at };
    let is_given = !g.last || step + 1 == g.positions;
    let given = || dy.get(out * g.output_width() + g.output_start() + u);
    let dh = if is_given { carry.state + given() } else { carry.state };
    let value = |i: usize| gates.get(at * wide + i * units + u);
    let set = |i: usize, gradient: T| dx.set(at * wide + i * units + u, gradient.kept());
    let set_hidden = |i: usize, gradient: T| dhidden.set(at * wide + i * units + u, gradient.kept());
    let one = T::of(1.0);
    let (sigmoid, tanh) = (Activation::Sigmoid, Activation::Tanh);
    match g.cell {
        Cell::RnnTanh => set(0, dh * value(0).act_grad(tanh)),
        Cell::RnnRelu => set(0, dh * value(0).act_grad(Activation::Relu)),
        Cell::Gru => {
            let ([r, z, n], product) = ([0, 1, 2].map(value), inner.get(at * units + u));
            let dz = dh * (before.get(at * units + u) - n) * z.act_grad(sigmoid);
            let dn = dh * (one - z) * n.act_grad(tanh);
            let dr = dn * product * r.act_grad(sigmoid);
            [dr, dz, dn].into_iter().enumerate().for_each(|(i, gradient)| set(i, gradient));
            [dr, dz, dn * r].into_iter().enumerate().for_each(|(i, gradient)| set_hidden(i, gradient));
            return Carry { state: dh * z, ..carry };
        }
        Cell::Lstm => {
            let ([i, f, cell, o], c) = ([0, 1, 2, 3].map(value), inner.get(at * units + u).act(tanh));
            let dc = carry.inner + dh * o * c.act_grad(tanh);
            let df = previous(g, inner, sample, step, u).map_or(T::ZERO, |c| dc * c * f.act_grad(sigmoid));
            set(0, dc * cell * i.act_grad(sigmoid));
            set(1, df);
            set(2, dc * i * cell.act_grad(tanh));
            set(3, dh * c * o.act_grad(sigmoid));
            return Carry { state: T::ZERO, inner: dc * f };
        }
    }
    Carry { state: T::ZERO, inner: T::ZERO }
}
