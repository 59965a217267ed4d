//! The backward loop over the positions.

use super::super::gemm::machine::Machine;
use super::super::lanes::Lanes;
use super::cells::{Backward, backward};
use super::groups::{Groups, PanelProduct, row};
use super::pack::pack_back;
use crate::exec::cpu::call::{Call, Part};
use crate::ops::slot::recurrence_bwd as slot;
use crate::ops::{OpKind, RecurrenceGeometry};
use crate::select::cpu_recurrence::{carry_len, packed_back_len};

/// The buffers of the operation.
#[derive(Clone, Copy)]
struct Walk<'a> {
    g: &'a RecurrenceGeometry,
    dy: *const f32,
    gates: *const f32,
    inner: *const f32,
    before: *const f32,
    dx: *mut f32,
    dhidden: *mut f32,
    /// The packed weight.
    packed: *const f32,
    /// `[batch, units]`: the gradient of the state that passes to the preceding position.
    carry: *mut f32,
    /// The same for the inner value of an LSTM.
    carry_inner: *mut f32,
}

/// Runs one part of a phase.
///
/// # Safety
/// As for [`KernelFn`](crate::exec::cpu::call::KernelFn), and the instruction set is available.
#[inline(always)]
pub unsafe fn run<M: Machine>(call: &Call, part: Part) {
    let OpKind::RecurrenceBwd(op) = &call.op else { return };
    let g = &op.geometry;
    let work = call.arg::<f32>(slot::WORK);
    // SAFETY: the buffers are as the operation says, and scratch memory as selection does.
    unsafe {
        if part.phase == 0 {
            pack_back::<M>(g, call.arg(slot::WEIGHT), work, part);
            return;
        }
        let carry = work.wrapping_add(packed_back_len(g, M::ISA));
        let walk = Walk {
            g,
            dy: call.arg(slot::DY),
            gates: call.arg(slot::GATES),
            inner: call.arg(slot::INNER),
            before: call.arg(slot::BEFORE),
            dx: call.arg(slot::DX),
            dhidden: call.arg(slot::DHIDDEN),
            packed: work,
            carry,
            carry_inner: carry.wrapping_add(carry_len(g)),
        };
        let groups = Groups::of(g, M::ISA, part);
        for group in 0..groups.count {
            let (first, count) = groups.at(group);
            for step in (0..g.positions).rev() {
                for sample in first..first + count {
                    walk.functions::<M::L>(sample, step);
                }
                if step > 0 {
                    walk.product::<M>(first, count, step);
                }
            }
        }
    }
}

impl Walk<'_> {
    /// The gradients of a sample's gates at a step.
    #[inline(always)]
    unsafe fn functions<V: Lanes>(&self, sample: usize, step: usize) {
        let (g, units, wide) = (self.g, self.g.units, self.g.wide());
        let (at, is_last) = (row(g, sample, step), step + 1 == g.positions);
        let out = if g.last { sample } else { at };
        let rows = Backward {
            gates: self.gates.wrapping_add(at * wide),
            inner: self.inner.wrapping_add(at * units),
            previous: (step > 0).then(|| self.inner.wrapping_add(row(g, sample, step.max(1) - 1) * units)),
            state: self.before.wrapping_add(at * units),
            dy: (is_last || !g.last).then(|| self.dy.wrapping_add(out * g.output_width() + g.output_start())),
            carry: self.carry.wrapping_add(sample * units),
            carry_inner: self.carry_inner.wrapping_add(sample * units),
            is_last,
            dx: self.dx.wrapping_add(at * wide),
            dhidden: self.dhidden.wrapping_add(at * wide),
            units,
        };
        // SAFETY: rows are within the buffers.
        unsafe { backward::<V>(g.cell, &rows) };
    }

    /// The gradient of the states before a step, from that of their product.
    #[inline(always)]
    unsafe fn product<M: Machine>(&self, first: usize, count: usize, step: usize) {
        let (g, units, wide) = (self.g, self.g.units, self.g.wide());
        let has_own = g.cell.has_hidden_gradient();
        let hidden = if has_own { self.dhidden } else { self.dx };
        let product =
            PanelProduct { panels: self.packed, depth: wide, columns: units, add: has_own, bias: std::ptr::null() };
        let a = |i: usize| hidden.wrapping_add(row(g, first + i, step) * wide).cast_const();
        // SAFETY: rows are within the buffers.
        unsafe { product.run::<M>(count, a, |i| self.carry.wrapping_add((first + i) * units)) };
    }
}
