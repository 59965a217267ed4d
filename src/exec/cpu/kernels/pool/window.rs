//! Windows over an image, the channels that lanes run over, and the index tensor of a maximum pooling.

use crate::exec::cpu::kernels::lanes::{LANES, Lanes};
use crate::ops::PoolGeometry;

/// The index tensor of a maximum pooling: `u8`, or `u16` for windows of more than 256 positions.
#[derive(Clone, Copy)]
pub(super) struct Index {
    at: *mut u8,
    wide: bool,
}

impl Index {
    pub(super) fn new(at: *mut u8, g: &PoolGeometry) -> Self {
        Self { at, wide: g.size[0] * g.size[1] > 256 }
    }

    /// Stores the first `n` lanes, small whole numbers, from element `at` on.
    #[inline(always)]
    pub(super) unsafe fn store<V: Lanes>(self, at: usize, value: V, n: usize) {
        if self.at.is_null() {
            return;
        }
        // SAFETY: the caller promises the elements, and positions are below 65,536.
        unsafe {
            let value = value.to_array().map(|k| k.to_int_unchecked::<i32>());
            if self.wide {
                copy_some(value.map(|k| k as u16).as_ptr(), self.at.cast::<u16>().add(at), n);
            } else {
                copy_some(value.map(|k| k as u8).as_ptr(), self.at.add(at), n);
            }
        }
    }

    /// The first `n` lanes from element `at` on, zero in the others.
    #[inline(always)]
    pub(super) unsafe fn load<V: Lanes>(self, at: usize, n: usize) -> V {
        // SAFETY: the caller promises the elements.
        unsafe {
            if self.wide {
                let mut values = [0u16; LANES];
                copy_some(self.at.cast::<u16>().add(at), values.as_mut_ptr(), n);
                V::from_array(values.map(f32::from))
            } else {
                let mut values = [0u8; LANES];
                copy_some(self.at.add(at), values.as_mut_ptr(), n);
                V::from_array(values.map(f32::from))
            }
        }
    }
}

/// Copies `n` values, at most 16, in pieces of fixed sizes: a function call for a few bytes would take longer than
/// everything else.
#[inline(always)]
unsafe fn copy_some<T: Copy>(from: *const T, to: *mut T, n: usize) {
    let mut done = 0;
    // SAFETY: the caller promises `n` values at both places.
    unsafe {
        if n == LANES {
            return from.copy_to_nonoverlapping(to, LANES);
        }
        if n & 8 != 0 {
            from.copy_to_nonoverlapping(to, 8);
            done = 8;
        }
        if n & 4 != 0 {
            from.add(done).copy_to_nonoverlapping(to.add(done), 4);
            done += 4;
        }
        if n & 2 != 0 {
            from.add(done).copy_to_nonoverlapping(to.add(done), 2);
            done += 2;
        }
        if n & 1 != 0 {
            *to.add(done) = *from.add(done);
        }
    }
}

/// Runs `$body` for every group of `$n` channels from `$c` on; `$n` is the constant 16 except for the last group.
macro_rules! for_channels {
    ($channels:expr, |$c:ident, $n:ident| $body:block) => {{
        let mut $c = 0;
        while $c + LANES <= $channels {
            let $n = LANES;
            $body
            $c += LANES;
        }
        if $c < $channels {
            let $n = $channels - $c;
            $body
        }
    }};
}

pub(super) use for_channels;

/// Calls `$function` for a window, with its size as constant parameters if it is inside the image and of a common size,
/// and with zeros otherwise.
macro_rules! for_window {
    ($g:expr, $down:expr, $across:expr, $function:ident::<$($type:ty),*>($($argument:expr),*)) => {
        match ($g.size, $down.len == $g.size[0] && $across.len == $g.size[1]) {
            ([2, 2], true) => $function::<$($type,)* 2>($($argument),*),
            ([3, 3], true) => $function::<$($type,)* 3>($($argument),*),
            _ => $function::<$($type,)* 0>($($argument),*),
        }
    };
}

pub(super) use for_window;

/// The part of a window along one axis that is inside the input.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Span {
    /// Its first row or column of the input, and its first position in the whole window.
    pub(super) input: usize,
    pub(super) place: usize,
    /// Its positions.
    pub(super) len: usize,
}

impl Span {
    /// The range of input positions of output `out`'s window along `axis`.
    #[inline(always)]
    pub(super) fn new(g: &PoolGeometry, axis: usize, out: usize) -> Self {
        let (start, padding) = (out * g.stride[axis], g.padding[axis]);
        let size = [g.h, g.w][axis];
        let place = padding.saturating_sub(start);
        let end = (size + padding).saturating_sub(start).min(g.size[axis]);
        // A window that consists only of padding has no positions.
        Self { input: (start + place - padding).min(size - 1), place, len: end.saturating_sub(place) }
    }
}

/// Positions of a window down and across: `K` if it is not zero.
#[inline(always)]
pub(super) fn extent<const K: usize>([down, across]: [Span; 2]) -> (usize, usize) {
    if K > 0 { (K, K) } else { (down.len, across.len) }
}
