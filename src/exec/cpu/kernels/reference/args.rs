//! What the plain loops reach memory through: buffers by slot, and the tail of a product.

use super::real::Real;
use crate::exec::cpu::call::Call;
use crate::ops::Epilogue;

/// The arguments of the call that is running. Made by [`super::run`] alone, whose contract vouches for every pointer in
/// it.
#[derive(Clone, Copy)]
pub(super) struct Args<'a> {
    call: &'a Call,
}

impl<'a> Args<'a> {
    pub(super) const fn new(call: &'a Call) -> Self {
        Self { call }
    }

    /// The buffer in slot `slot`. Elements are reached through [`Buf::get`] and [`Buf::set`], at indices within the
    /// operation's dimensions.
    pub(super) fn buf<E: Copy>(self, slot: usize) -> Buf<E> {
        Buf(self.call.arg(slot))
    }
}

/// A bound buffer, or none. Read and written element by element, so that an output may share the memory of an input.
#[derive(Clone, Copy)]
pub(super) struct Buf<E>(*mut E);

impl<E: Copy> Buf<E> {
    /// Whether the slot is used.
    pub(super) fn is_bound(self) -> bool {
        !self.0.is_null()
    }

    /// A buffer of the plain loops' own, which must not move while it is used.
    pub(super) fn over(values: &mut [E]) -> Self {
        Self(values.as_mut_ptr())
    }

    /// The buffer from an element on.
    pub(super) fn starting_at(self, index: usize) -> Self {
        Self(self.0.wrapping_add(index))
    }

    /// This buffer, or `other` where the slot is unused.
    pub(super) fn or(self, other: Self) -> Self {
        if self.is_bound() { self } else { other }
    }

    pub(super) fn get(self, index: usize) -> E {
        debug_assert!(self.is_bound());
        // SAFETY: the caller of [`super::run`] promises valid pointers for the operation's dimensions, and the loops
        // stay within them.
        unsafe { self.0.add(index).read() }
    }

    pub(super) fn set(self, index: usize, value: E) {
        debug_assert!(self.is_bound());
        // SAFETY: as for `get`.
        unsafe { self.0.add(index).write(value) }
    }
}

impl<T: Real> Buf<T> {
    /// The element, or `default` where the slot is unused.
    pub(super) fn get_or(self, index: usize, default: T) -> T {
        if self.is_bound() { self.get(index) } else { default }
    }

    /// Writes the element where the slot is used.
    pub(super) fn put(self, index: usize, value: T) {
        if self.is_bound() {
            self.set(index, value);
        }
    }

    /// Writes `value`, or adds it to what is there.
    pub(super) fn store(self, index: usize, value: T, accumulate: bool) {
        if self.is_bound() {
            self.set(index, if accumulate { self.get(index) + value } else { value });
        }
    }
}

/// The tail of a product or convolution: slots `bias [n]`, `saved [m, n]`, `c [m, n]`, `z [m, n]`.
#[derive(Clone, Copy)]
pub(super) struct Tail<T> {
    bias: Buf<T>,
    saved: Buf<T>,
    c: Buf<T>,
    z: Buf<T>,
    accumulate: bool,
    epilogue: Epilogue,
}

impl<T: Real> Tail<T> {
    pub(super) fn new(args: Args, accumulate: bool, epilogue: Epilogue) -> Self {
        use crate::ops::slot::product as slot;
        Self {
            bias: args.buf(slot::BIAS),
            saved: args.buf(slot::SAVED),
            c: args.buf(slot::C),
            z: args.buf(slot::Z),
            accumulate,
            epilogue,
        }
    }

    /// Finishes and stores element `index`, of column `col`, from its sum of products.
    pub(super) fn store(self, index: usize, col: usize, sum: T) {
        let mut value = if self.accumulate { self.c.get(index) + sum } else { sum };
        if self.epilogue.bias {
            value = value + self.bias.get(col);
        }
        if self.epilogue.save_z {
            self.z.put(index, value);
        }
        if let Some(func) = self.epilogue.act {
            value = value.act(func);
        }
        if let Some(func) = self.epilogue.act_grad {
            value = value * self.saved.get(index).act_grad(func);
        }
        self.c.set(index, value);
    }
}
