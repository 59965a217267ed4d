//! Tables of slots: the names of an operation's arguments, the order in which kernels see their pointers, whether they
//! are read or written, how many elements they hold, and which of them must be bound.

use serde::{Deserialize, Serialize};

/// Whether an operation reads a slot, writes it, does both in place, or uses it as scratch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dir {
    In,
    Out,
    InOut,
    Work,
}

impl Dir {
    /// Whether the operation reads what is in the slot's memory.
    #[must_use]
    pub const fn is_read(self) -> bool {
        matches!(self, Self::In | Self::InOut)
    }

    /// Whether the operation leaves a value in the slot's memory.
    #[must_use]
    pub const fn is_written(self) -> bool {
        matches!(self, Self::Out | Self::InOut)
    }

    /// Whether a slot of this direction is among the requested ones: a slot that is read and written is both an input
    /// and an output.
    #[must_use]
    pub fn is_among(self, wanted: Self) -> bool {
        self == wanted || self == Self::InOut && wanted != Self::Work
    }
}

/// An argument's place in an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    pub name: &'static str,
    pub dir: Dir,
    /// Whether it holds activations or their gradients; for products this depends on the operation (see
    /// [`Operation::is_activation`](super::Operation::is_activation)).
    pub activation: bool,
    /// Whether a value that is read from it is a live constant: a number like the learning rate or the step, which
    /// is read from memory at every replay.
    pub live: bool,
}

/// Declares the table of an operation, or of several that share it, as a module of its slots:
///
/// ```text
/// slots! {
///     pub mod layer_norm(op: LayerNorm) {
///         X: in activation [op.rows * op.cols],
///         GAMMA_PREV: in [op.cols] if op.accumulate,
///         COUNTER: in live [2],
///         TICKET: in_out [1] if OPTIONAL,
///         WORK: scratch,
///     }
/// }
/// ```
///
/// Each line is a slot in the order in which kernels see their pointers: its name, whether it is read (`in`), written
/// (`out`), both (`in_out`) or `scratch`, whether it holds activations or a `live` constant, how many elements it
/// holds, and a condition under which it must be bound; without a condition it must always be bound. `*_prev` is the
/// value before an update or accumulation: if both are bound, it has the address of the output. A `ticket` is a counter
/// of finished blocks that is zero before and after a kernel; only executors whose kernels need one bind it. `scratch`
/// memory has the size that the kernel requests, and its contents are undefined before and after.
///
/// The module contains a constant for each slot, the table itself, and the two functions that `table!` uses for the
/// trait.
macro_rules! slots {
    ($(#[$doc:meta])* pub mod $module:ident($op:ident: $ty:ty) {
        $($slot:ident: $dir:ident $($holds:ident)? $([$extent:expr])? $(if $needed:expr)?),+ $(,)?
    }) => {
        $(#[$doc])*
        pub mod $module {
            use super::*;
            use crate::ops::slots::{Slot, slots};

            slots!(@positions 0; $($slot)+);

            /// The slots in the order in which kernels see their pointers.
            pub const SLOTS: &[Slot] = &[$(Slot {
                name: {
                    const UPPER: &str = stringify!($slot);
                    const LOWER: [u8; UPPER.len()] = crate::ops::slots::lower_case(UPPER);
                    match std::str::from_utf8(&LOWER) {
                        Ok(name) => name,
                        Err(_) => UPPER,
                    }
                },
                dir: slots!(@dir $dir),
                activation: slots!(@activation $($holds)?),
                live: slots!(@live $($holds)?),
            }),+];

            /// The elements that a slot holds; `None` for scratch memory.
            #[must_use]
            pub fn extent($op: &$ty, slot: usize) -> Option<usize> {
                let _ = $op;
                match slot {
                    $($slot => slots!(@extent $($extent)?),)+
                    _ => None,
                }
            }

            /// Whether a slot must be bound.
            #[must_use]
            pub fn is_needed($op: &$ty, slot: usize) -> bool {
                const OPTIONAL: bool = false;
                let _ = ($op, OPTIONAL);
                match slot {
                    $($slot => slots!(@needed $dir $($needed)?),)+
                    _ => false,
                }
            }
        }
    };
    (@positions $at:expr; $slot:ident $($rest:ident)*) => {
        pub const $slot: usize = $at;
        slots!(@positions $at + 1; $($rest)*);
    };
    (@positions $at:expr;) => {};
    (@dir in) => { crate::ops::Dir::In };
    (@dir out) => { crate::ops::Dir::Out };
    (@dir in_out) => { crate::ops::Dir::InOut };
    (@dir scratch) => { crate::ops::Dir::Work };
    (@activation activation) => { true };
    (@activation $($other:ident)?) => { false };
    (@live live) => { true };
    (@live $($other:ident)?) => { false };
    (@extent $extent:expr) => { Some($extent) };
    (@extent) => { None };
    (@needed $dir:ident $needed:expr) => { $needed };
    (@needed scratch) => { false };
    (@needed $dir:ident) => { true };
}
pub(crate) use slots;

/// Implements the slot methods of [`Operation`](super::Operation) with a table declared by `slots!`.
macro_rules! table {
    ($module:ident) => {
        fn slots(&self) -> &'static [crate::ops::Slot] {
            $module::SLOTS
        }

        fn extent(&self, slot: usize) -> Option<usize> {
            $module::extent(self, slot)
        }

        fn is_needed(&self, slot: usize) -> bool {
            $module::is_needed(self, slot)
        }
    };
}
pub(crate) use table;

/// The letters of an identifier in lower case.
pub(super) const fn lower_case<const N: usize>(upper: &str) -> [u8; N] {
    let (bytes, mut lower, mut i) = (upper.as_bytes(), [0; N], 0);
    while i < N {
        lower[i] = bytes[i].to_ascii_lowercase();
        i += 1;
    }
    lower
}
