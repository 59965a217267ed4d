//! Threads that share a step.
//!
//! A step of small operations lasts tens of microseconds, so that waking a sleeping thread for each operation would
//! cost more than the work. The caller runs the list and publishes each shared phase; the other threads spin and claim
//! parts. Each thread claims the part with its own number first, so that it finds in its caches what it computed in the
//! phase before. If the system has taken a thread's core away, another one claims its part, so that a busy machine
//! slows a step but does not stall it. Results do not depend on which thread ran which part. Threads without work spin
//! for a limited time before they sleep; a thread that falls asleep during a long call is woken for the next shared
//! phase.

use super::call::Part;
use crate::exec::error::ExecError;
use std::any::Any;
use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle, Thread};

/// Keeps a counter on a separate cache line, so that spinning on it does not slow down other threads.
#[repr(align(128))]
struct Line<T>(T);

/// The function that runs a claimed part, on any thread.
type Job = *const (dyn Fn(Part) + Sync);

struct Shared {
    /// The number of the current phase; phases are counted from 1.
    epoch: Line<AtomicU64>,
    /// For each part, the last phase in which it was claimed.
    claimed: Box<[Line<AtomicU64>]>,
    job: UnsafeCell<Option<(Job, usize)>>,
    /// Parts of the current phase that are done.
    done: Line<AtomicUsize>,
    asleep: Line<AtomicUsize>,
    /// Counts the wake-ups that the caller requests.
    calls: Line<AtomicU32>,
    stop: AtomicBool,
    /// Whether a part panicked in the current phase, and with what the first one did.
    panicked: AtomicBool,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    count: usize,
}

// SAFETY: `job` is written only while no part is claimable, before the release store of `epoch` that claimants acquire.
unsafe impl Sync for Shared {}
// SAFETY: the pointer inside is only used while the caller of `share` keeps its target alive.
unsafe impl Send for Shared {}

/// Iterations that an idle thread spins before it sleeps: about 100 us.
const SPINS_BEFORE_SLEEP: u32 = 20_000;
/// Iterations that the caller spins while others finish, before it yields its core.
const SPINS_BEFORE_YIELD: u32 = 2_000;

impl Shared {
    /// Claims and runs parts of phase `epoch` until none is left, that with the number `own` first.
    fn work(&self, epoch: u64, own: usize) {
        for index in (own..self.count).chain(0..own) {
            // A part that was claimed in this phase, or in a later one, has another value.
            let claim = &self.claimed[index].0;
            let before = epoch - 1;
            if claim.load(Ordering::Relaxed) != before
                || claim.compare_exchange(before, epoch, Ordering::AcqRel, Ordering::Relaxed).is_err()
            {
                continue;
            }
            // SAFETY: the claim succeeded, so the phase is the published one and its caller waits until this part is
            // done.
            if let Some((job, phase)) = unsafe { *self.job.get() } {
                let part = Part { index, count: self.count, phase };
                // SAFETY: as above, the job is alive. A panic continues in the caller, after the other parts are done:
                // they use the job too.
                let result = catch_unwind(AssertUnwindSafe(|| unsafe { (*job)(part) }));
                if let Err(panic) = result {
                    self.panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(panic);
                    self.panicked.store(true, Ordering::Relaxed);
                }
            }
            self.done.0.fetch_add(1, Ordering::Release);
        }
    }
}

/// A fixed set of threads; the caller is the first of them.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<(Thread, Option<JoinHandle<()>>)>,
    epoch: u64,
}

impl Pool {
    /// A pool of `threads` threads, the caller's included; at least 1.
    ///
    /// # Errors
    /// If the system refuses to start a thread.
    pub fn new(threads: usize) -> Result<Self, ExecError> {
        let count = threads.max(1);
        let shared = Arc::new(Shared {
            epoch: Line(AtomicU64::new(0)),
            claimed: (0..count).map(|_| Line(AtomicU64::new(0))).collect(),
            job: UnsafeCell::new(None),
            done: Line(AtomicUsize::new(0)),
            asleep: Line(AtomicUsize::new(0)),
            calls: Line(AtomicU32::new(0)),
            stop: AtomicBool::new(false),
            panicked: AtomicBool::new(false),
            panic: Mutex::new(None),
            count,
        });
        let mut pool = Self { shared, workers: Vec::with_capacity(count - 1), epoch: 0 };
        for index in 1..count {
            let shared = Arc::clone(&pool.shared);
            let name = format!("stepgraph-cpu-{index}");
            let spawned = thread::Builder::new().name(name.clone()).spawn(move || worker(&shared, index));
            let handle = spawned.map_err(|e| ExecError::Thread { name, why: e.to_string() })?;
            pool.workers.push((handle.thread().clone(), Some(handle)));
        }
        Ok(pool)
    }

    /// The number of threads, including the caller.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Wakes the sleeping threads before the first phase of a list, so that they are awake when it is published.
    pub fn wake(&self) {
        if self.workers.is_empty() {
            return;
        }
        // Sequentially consistent with a worker's announcement of sleep, so that one of the two sees the other.
        self.shared.calls.0.fetch_add(1, Ordering::SeqCst);
        if self.shared.asleep.0.load(Ordering::SeqCst) > 0 {
            self.workers.iter().for_each(|(thread, _)| thread.unpark());
        }
    }

    /// Wakes the threads that are known to sleep. Costs one load if there are none. A thread that falls asleep at the
    /// same time is missed, and woken at the next phase.
    #[inline]
    fn wake_sleepers(&self) {
        if self.shared.asleep.0.load(Ordering::Relaxed) > 0 {
            self.wake();
        }
    }

    /// Runs `job` once for every part of phase `phase`, with as many parts as there are threads, and returns when all
    /// are done. Allocates nothing.
    ///
    /// # Panics
    /// If a part panics, after all parts have ended.
    pub fn share(&mut self, phase: usize, job: &(dyn Fn(Part) + Sync)) {
        let shared = &*self.shared;
        if self.workers.is_empty() {
            job(Part { index: 0, count: 1, phase });
            return;
        }
        // SAFETY: the lifetime is erased only until this function returns, and it returns after every part is done.
        let erased: Job = unsafe { std::mem::transmute::<*const (dyn Fn(Part) + Sync), Job>(std::ptr::from_ref(job)) };
        // SAFETY: every part of the last phase is done and none is claimable, so no thread reads the job.
        unsafe { *shared.job.get() = Some((erased, phase)) };
        shared.done.0.store(0, Ordering::Relaxed);
        self.epoch += 1;
        shared.epoch.0.store(self.epoch, Ordering::Release);
        self.wake_sleepers();
        shared.work(self.epoch, 0);
        let mut spins = 0u32;
        while shared.done.0.load(Ordering::Acquire) < shared.count {
            spins += 1;
            if spins > SPINS_BEFORE_YIELD {
                thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
        if shared.panicked.load(Ordering::Relaxed)
            && let Some(panic) = shared.panic.lock().unwrap_or_else(PoisonError::into_inner).take()
        {
            shared.panicked.store(false, Ordering::Relaxed);
            resume_unwind(panic);
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.calls.0.fetch_add(1, Ordering::SeqCst);
        for (thread, handle) in &mut self.workers {
            thread.unpark();
            if let Some(handle) = handle.take() {
                // A worker that panicked has already reported it.
                let _ = handle.join();
            }
        }
    }
}

fn worker(shared: &Shared, own: usize) {
    let (mut spins, mut seen) = (0, 0);
    loop {
        let now = shared.epoch.0.load(Ordering::Acquire);
        if now != seen {
            shared.work(now, own);
            (spins, seen) = (0, now);
            continue;
        }
        spins += 1;
        if spins < SPINS_BEFORE_SLEEP {
            std::hint::spin_loop();
            continue;
        }
        if shared.stop.load(Ordering::SeqCst) {
            return;
        }
        let calls = shared.calls.0.load(Ordering::SeqCst);
        shared.asleep.0.fetch_add(1, Ordering::SeqCst);
        while shared.calls.0.load(Ordering::SeqCst) == calls && !shared.stop.load(Ordering::SeqCst) {
            thread::park();
        }
        shared.asleep.0.fetch_sub(1, Ordering::SeqCst);
        spins = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_runs_once_and_phases_do_not_overlap() {
        for threads in [1, 2, 5] {
            let mut pool = Pool::new(threads).unwrap();
            let counts: Vec<AtomicU64> = (0..threads).map(|_| AtomicU64::new(0)).collect();
            let broken = AtomicU64::new(0);
            for round in 0..400u64 {
                pool.wake();
                pool.share(round as usize % 3, &|part| {
                    let before = counts[part.index].fetch_add(1, Ordering::SeqCst);
                    if before != round || part.phase != round as usize % 3 || part.count != threads {
                        broken.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
            assert_eq!(broken.load(Ordering::SeqCst), 0);
            assert!(counts.iter().all(|c| c.load(Ordering::SeqCst) == 400));
        }
    }

    #[test]
    fn a_panic_of_any_part_continues_in_the_caller_after_the_other_parts() {
        let mut pool = Pool::new(3).unwrap();
        for broken in 0..3 {
            let ended = AtomicU64::new(0);
            let result = catch_unwind(AssertUnwindSafe(|| {
                pool.share(0, &|part| {
                    assert_ne!(part.index, broken, "part {broken} fails");
                    ended.fetch_add(1, Ordering::SeqCst);
                });
            }));
            let message = result.unwrap_err().downcast::<String>().unwrap();
            assert!(message.contains(&format!("part {broken} fails")), "{message}");
            assert_eq!(ended.load(Ordering::SeqCst), 2);
            // The pool can still be used.
            let count = AtomicU64::new(0);
            pool.share(0, &|_| {
                count.fetch_add(1, Ordering::SeqCst);
            });
            assert_eq!(count.load(Ordering::SeqCst), 3);
        }
    }

    #[test]
    fn a_sleeping_pool_finishes_a_phase() {
        let mut pool = Pool::new(3).unwrap();
        for wake in [true, false, true] {
            asleep(&pool);
            let count = AtomicU64::new(0);
            if wake {
                pool.wake();
            }
            pool.share(0, &|_| {
                count.fetch_add(1, Ordering::SeqCst);
            });
            assert_eq!(count.load(Ordering::SeqCst), 3);
        }
    }

    /// Threads fall asleep while the caller runs a long call alone. They must take part in the shared calls after it.
    #[test]
    fn threads_that_fell_asleep_are_woken_for_the_next_phase() {
        let mut pool = Pool::new(3).unwrap();
        pool.wake();
        asleep(&pool);
        // Each part waits until every part has started, which requires three threads that are awake.
        let begun = AtomicU64::new(0);
        let late = AtomicBool::new(false);
        pool.share(0, &|_| {
            begun.fetch_add(1, Ordering::SeqCst);
            let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
            while begun.load(Ordering::SeqCst) < 3 && !late.load(Ordering::SeqCst) {
                late.store(std::time::Instant::now() > until, Ordering::SeqCst);
                thread::yield_now();
            }
        });
        assert!(!late.load(Ordering::SeqCst), "a sleeping thread was not woken");
    }

    /// Waits until every thread except the caller's sleeps.
    fn asleep(pool: &Pool) {
        while pool.shared.asleep.0.load(Ordering::SeqCst) < pool.threads() - 1 {
            thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}
