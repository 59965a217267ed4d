//! A lock: one thread at a time uses memory that several steps share.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

/// A reentrant mutex: one thread at a time is inside, and may enter again. Entering takes no lock if no other thread is
/// inside, and leaving takes none if no thread waits, so that the cost for a small step is not measurable.
#[derive(Default)]
pub(super) struct Turns {
    /// The thread that is inside; 0 if there is none.
    owner: AtomicUsize,
    /// How often the owner has entered and not left; only the owner accesses it.
    depth: UnsafeCell<usize>,
    waiting: AtomicUsize,
    gate: Mutex<()>,
    left: Condvar,
}

// SAFETY: `depth` is touched only by the thread whose number is in `owner`, and passing that number on orders the
// accesses.
unsafe impl Sync for Turns {}
// SAFETY: plain numbers.
unsafe impl Send for Turns {}

/// A number for this thread that no other living thread has, and that is not 0: the address of a thread-local value.
fn number_of_thread() -> usize {
    thread_local! {
        static PLACE: u8 = const { 0 };
    }
    PLACE.with(|place| std::ptr::from_ref(place) as usize)
}

impl Turns {
    /// Waits until no other thread is in.
    pub(super) fn enter(&self) {
        let me = number_of_thread();
        if self.owner.load(Ordering::Relaxed) != me && !self.take(me) {
            self.wait(me);
        }
        // SAFETY: this thread is the owner.
        unsafe { *self.depth.get() += 1 };
    }

    fn take(&self, me: usize) -> bool {
        self.owner.compare_exchange(0, me, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    #[cold]
    fn wait(&self, me: usize) {
        let mut gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        // A thread that leaves after this sees that another one waits, and wakes it once the gate is free.
        self.waiting.fetch_add(1, Ordering::SeqCst);
        while !self.take(me) {
            gate = self.left.wait(gate).unwrap_or_else(PoisonError::into_inner);
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }

    /// Ends what the last [`Self::enter`] of this thread began.
    pub(super) fn leave(&self) {
        // SAFETY: this thread is the owner.
        let depth = unsafe {
            *self.depth.get() -= 1;
            *self.depth.get()
        };
        if depth > 0 {
            return;
        }
        self.owner.store(0, Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            drop(self.gate.lock().unwrap_or_else(PoisonError::into_inner));
            self.left.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_thread_enters_at_a_time_and_it_may_enter_again() {
        let (turns, sum) = (Turns::default(), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        turns.enter();
                        turns.enter();
                        // Two steps instead of one, so that a second thread inside would lose counts.
                        let before = sum.load(Ordering::Relaxed);
                        std::hint::spin_loop();
                        sum.store(before + 1, Ordering::Relaxed);
                        turns.leave();
                        turns.leave();
                    }
                });
            }
        });
        assert_eq!(sum.into_inner(), 8000);
    }
}
