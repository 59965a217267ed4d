//! How plain loops access memory: buffers by slot, and the epilogue of a product.

use super::real::Real;
use crate::exec::cpu::call::Call;
use crate::ops::Epilogue;

/// The arguments of the running call. Made only by [`super::run`], whose contract guarantees that every pointer is
/// valid.
#[derive(Clone, Copy)]
pub(super) struct Args<'a> {
    call: &'a Call,
}

impl<'a> Args<'a> {
    pub(super) const fn new(call: &'a Call) -> Self {
        Self { call }
    }

    /// The buffer in slot `slot`. Elements are accessed with [`Buf::get`] and [`Buf::set`], at indices within the
    /// operation's dimensions.
    pub(super) fn buf<E: Copy>(self, slot: usize) -> Buf<E> {
        Buf(self.call.arg(slot))
    }
}

/// An optional bound buffer. It is read and written element by element, so that an output may share the memory of an
/// input.
#[derive(Clone, Copy)]
pub(super) struct Buf<E>(*mut E);

impl<E: Copy> Buf<E> {
    /// Whether the slot is used.
    pub(super) fn is_bound(self) -> bool {
        !self.0.is_null()
    }

    /// A buffer that belongs to the plain loops and must not move while it is used.
    pub(super) fn over(values: &mut [E]) -> Self {
        Self(values.as_mut_ptr())
    }

    /// The buffer from an element on.
    pub(super) fn starting_at(self, index: usize) -> Self {
        Self(self.0.wrapping_add(index))
    }

    /// This buffer, or `other` if the slot is unused.
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
    /// The element, or `default` if the slot is unused.
    pub(super) fn get_or(self, index: usize, default: T) -> T {
        if self.is_bound() { self.get(index) } else { default }
    }

    /// Writes the element if the slot is used.
    pub(super) fn put(self, index: usize, value: T) {
        if self.is_bound() {
            self.set(index, value);
        }
    }

    /// Writes `value`, or adds it to the previous value.
    pub(super) fn store(self, index: usize, value: T, accumulate: bool) {
        if self.is_bound() {
            self.set(index, if accumulate { self.get(index) + value } else { value });
        }
    }
}

/// The epilogue of a product or convolution: slots `bias [n]`, `saved [m, n]`, `c [m, n]`, `z [m, n]`.
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

    /// Applies the epilogue to element `index`, in column `col`, from its sum of products, and stores it.
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
