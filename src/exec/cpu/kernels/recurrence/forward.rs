//! The forward loop over the positions.

use super::super::gemm::machine::Machine;
use super::super::gemm::simd::Vector;
use super::super::lanes::{LANES, Lanes};
use super::cells::{Forward, forward};
use super::groups::{Groups, PanelProduct, row};
use super::pack::pack;
use crate::exec::cpu::call::{Call, Part};
use crate::ops::slot::recurrence as slot;
use crate::ops::{OpKind, RecurrenceGeometry};
use crate::select::cpu_recurrence::{added_columns, panels};

/// The buffers of the operation.
#[derive(Clone, Copy)]
struct Walk<'a> {
    g: &'a RecurrenceGeometry,
    x: *const f32,
    bias: *const f32,
    other: *const f32,
    y: *mut f32,
    gates: *mut f32,
    inner: *mut f32,
    before: *mut f32,
    /// The packed weight.
    packed: *const f32,
}

/// Runs one part of a phase.
///
/// # Safety
/// As for [`KernelFn`](crate::exec::cpu::call::KernelFn), and the instruction set is available.
#[inline(always)]
pub unsafe fn run<M: Machine>(call: &Call, part: Part) {
    let OpKind::Recurrence(op) = &call.op else { return };
    let g = &op.geometry;
    let work = call.arg::<f32>(slot::WORK);
    // SAFETY: the buffers are as the operation says, and scratch memory as selection does.
    unsafe {
        if part.phase == 0 {
            pack::<M>(g, call.arg(slot::WEIGHT), work, part);
            return;
        }
        let walk = Walk {
            g,
            x: call.arg(slot::X),
            bias: call.arg(slot::BIAS),
            other: call.arg(slot::OTHER),
            y: call.arg(slot::Y),
            gates: call.arg(slot::GATES),
            inner: call.arg(slot::INNER),
            before: call.arg(slot::BEFORE),
            packed: work,
        };
        let groups = Groups::of(g, M::ISA, part);
        for group in 0..groups.count {
            let (first, count) = groups.at(group);
            for step in 0..g.positions {
                walk.products::<M>(first, count, step);
                for sample in first..first + count {
                    walk.functions::<M::L>(sample, step);
                }
            }
        }
    }
}

impl Walk<'_> {
    /// Adds the products of the preceding states to the input part of the gates; at the first step, which has no
    /// preceding state, only the bias.
    #[inline(always)]
    unsafe fn products<M: Machine>(&self, first: usize, count: usize, step: usize) {
        let (g, units, wide) = (self.g, self.g.units, self.g.wide());
        let added = added_columns(g);
        let at = |i: usize| row(g, first + i, step);
        // SAFETY: rows are within the buffers.
        unsafe {
            if self.x != self.gates.cast_const() {
                (0..count).for_each(|i| {
                    self.gates.add(at(i) * wide).copy_from_nonoverlapping(self.x.add(at(i) * wide), added);
                });
            }
            if step == 0 {
                for i in 0..count {
                    self.before.add(at(i) * units).write_bytes(0, units);
                    add_to::<M::L>(self.bias, self.gates.add(at(i) * wide), added);
                    if added < wide {
                        self.inner.add(at(i) * units).copy_from_nonoverlapping(self.bias.add(added), units);
                    }
                }
                return;
            }
            let state = |i: usize| self.before.add(at(i) * units).cast_const();
            let (packed, bias) = (self.packed, self.bias);
            let product = PanelProduct { panels: packed, depth: units, columns: added, add: true, bias };
            product.run::<M>(count, state, |i| self.gates.add(at(i) * wide));
            if added < wide {
                let panels = packed.add(panels(g, M::ISA).1 * 2 * M::V::LANES * units);
                let bias = bias.add(added);
                let product = PanelProduct { panels, depth: units, columns: wide - added, add: false, bias };
                product.run::<M>(count, state, |i| self.inner.add(at(i) * units));
            }
        }
    }

    /// Computes the functions of a sample's gates at a step, and its new state.
    #[inline(always)]
    unsafe fn functions<V: Lanes>(&self, sample: usize, step: usize) {
        let (g, units, wide) = (self.g, self.g.units, self.g.wide());
        let (at, is_last) = (row(g, sample, step), step + 1 == g.positions);
        let out = if g.last { sample } else { at };
        let (own, width) = (g.output_start(), g.output_start() + units);
        let is_given = is_last || !g.last;
        // SAFETY: rows are within the buffers; an inner value before the first position is not read.
        unsafe {
            let y = self.y.wrapping_add(out * width);
            let rows = Forward {
                input: self.x.add(at * wide),
                gates: self.gates.add(at * wide),
                inner: self.inner.wrapping_add(at * units),
                previous: (step > 0)
                    .then(|| self.inner.wrapping_add(row(g, sample, step.max(1) - 1) * units).cast_const()),
                state: self.before.add(at * units),
                next: (!is_last).then(|| self.before.add(row(g, sample, step + 1) * units)),
                y: is_given.then(|| y.wrapping_add(own)),
                units,
            };
            forward::<V>(g.cell, &rows);
            if is_given && g.joins() {
                y.copy_from_nonoverlapping(self.other.add(out * units), units);
            }
        }
    }
}

/// Adds `len` numbers to others.
#[inline(always)]
unsafe fn add_to<V: Lanes>(from: *const f32, to: *mut f32, len: usize) {
    for at in (0..len).step_by(LANES) {
        let n = (len - at).min(LANES);
        // SAFETY: both hold `len` numbers.
        unsafe { (V::load_n(to.add(at), n) + V::load_n(from.add(at), n)).store_n(to.add(at), n) };
    }
}
