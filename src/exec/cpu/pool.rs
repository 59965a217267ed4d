//! Threads that share a step.
//!
//! A step of small operations lasts tens of microseconds, so that waking a sleeping thread for each operation would cost more than the work.
//! All threads walk the whole list together and meet at barriers; between steps they spin for a while before they sleep.

use crate::exec::ExecError;
use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle, Thread};

/// Keeps a counter on a cache line of its own, so that spinning on it disturbs nobody.
#[repr(align(128))]
struct Line<T>(T);

type Job = *const (dyn Fn(usize, &Barrier) + Sync);

struct Shared {
    /// Counts jobs; a worker runs when it changes.
    epoch: Line<AtomicU32>,
    job: UnsafeCell<Option<Job>>,
    /// Workers that finished the current job.
    done: Line<AtomicUsize>,
    asleep: Line<AtomicUsize>,
    stop: AtomicBool,
    barrier: Barrier,
}

// SAFETY: `job` is written only while no job runs, before the release store of `epoch` that workers acquire.
unsafe impl Sync for Shared {}
// SAFETY: the pointer inside is only used while the caller of `run` keeps its target alive.
unsafe impl Send for Shared {}

/// Where all threads of a job wait for each other.
pub struct Barrier {
    count: usize,
    arrived: Line<AtomicUsize>,
    generation: Line<AtomicU32>,
}

/// Spins before a thread lets others run: a barrier is usually reached by all within microseconds.
const SPINS_BEFORE_YIELD: u32 = 20_000;
/// Spins of an idle worker before it sleeps: about 100 us.
const SPINS_BEFORE_SLEEP: u32 = 40_000;

fn spin_until(condition: impl Fn() -> bool) {
    let mut spins = 0u32;
    while !condition() {
        spins = spins.wrapping_add(1);
        if spins > SPINS_BEFORE_YIELD {
            thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
    }
}

impl Barrier {
    /// Waits for all threads of the job.
    #[inline]
    pub fn wait(&self) {
        if self.count == 1 {
            return;
        }
        let generation = self.generation.0.load(Ordering::Relaxed);
        if self.arrived.0.fetch_add(1, Ordering::AcqRel) + 1 == self.count {
            self.arrived.0.store(0, Ordering::Relaxed);
            self.generation.0.store(generation.wrapping_add(1), Ordering::Release);
        } else {
            spin_until(|| self.generation.0.load(Ordering::Acquire) != generation);
        }
    }
}

/// A fixed set of threads; the caller is the first of them.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<(Thread, Option<JoinHandle<()>>)>,
}

impl Pool {
    /// A pool of `threads` threads, the caller's included; at least 1.
    ///
    /// # Errors
    /// Where the system refuses a thread.
    pub fn new(threads: usize) -> Result<Self, ExecError> {
        let count = threads.max(1);
        let shared = Arc::new(Shared {
            epoch: Line(AtomicU32::new(0)),
            job: UnsafeCell::new(None),
            done: Line(AtomicUsize::new(0)),
            asleep: Line(AtomicUsize::new(0)),
            stop: AtomicBool::new(false),
            barrier: Barrier { count, arrived: Line(AtomicUsize::new(0)), generation: Line(AtomicU32::new(0)) },
        });
        let mut pool = Self { shared, workers: Vec::with_capacity(count - 1) };
        for index in 1..count {
            let shared = Arc::clone(&pool.shared);
            let name = format!("stepgraph-cpu-{index}");
            let spawned = thread::Builder::new().name(name.clone()).spawn(move || worker(&shared, index));
            let handle = spawned.map_err(|e| ExecError::Thread { name, why: e.to_string() })?;
            pool.workers.push((handle.thread().clone(), Some(handle)));
        }
        Ok(pool)
    }

    /// Threads, the caller's included.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Runs `job` on every thread at once, with the thread's index, and returns when all are done. Allocates nothing.
    pub fn run(&mut self, job: &(dyn Fn(usize, &Barrier) + Sync)) {
        let shared = &*self.shared;
        if !self.workers.is_empty() {
            // SAFETY: the lifetime is erased only until this function returns, and it returns after every worker is done with the job.
            let erased: Job = unsafe { std::mem::transmute::<*const (dyn Fn(usize, &Barrier) + Sync), Job>(std::ptr::from_ref(job)) };
            // SAFETY: no worker reads the job between the end of the last run and the store of the epoch below.
            unsafe { *shared.job.get() = Some(erased) };
            shared.done.0.store(0, Ordering::Relaxed);
            // Sequentially consistent with the worker's announcement of sleep: one of the two sees the other.
            shared.epoch.0.fetch_add(1, Ordering::SeqCst);
            if shared.asleep.0.load(Ordering::SeqCst) > 0 {
                self.workers.iter().for_each(|(thread, _)| thread.unpark());
            }
        }
        job(0, &shared.barrier);
        let workers = self.workers.len();
        spin_until(|| shared.done.0.load(Ordering::Acquire) == workers);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.epoch.0.fetch_add(1, Ordering::SeqCst);
        for (thread, handle) in &mut self.workers {
            thread.unpark();
            if let Some(handle) = handle.take() {
                // A worker that panicked has said so already.
                let _ = handle.join();
            }
        }
    }
}

fn worker(shared: &Shared, index: usize) {
    let mut seen = 0;
    loop {
        let mut spins = 0;
        while shared.epoch.0.load(Ordering::Acquire) == seen {
            spins += 1;
            if spins < SPINS_BEFORE_SLEEP {
                std::hint::spin_loop();
                continue;
            }
            shared.asleep.0.fetch_add(1, Ordering::SeqCst);
            while shared.epoch.0.load(Ordering::SeqCst) == seen {
                thread::park();
            }
            shared.asleep.0.fetch_sub(1, Ordering::SeqCst);
        }
        seen = shared.epoch.0.load(Ordering::Acquire);
        if shared.stop.load(Ordering::SeqCst) {
            return;
        }
        // SAFETY: the epoch changed, so the caller of `run` stored a job and waits for `done` before it returns.
        if let Some(job) = unsafe { *shared.job.get() } {
            // SAFETY: as above, the job outlives this call.
            unsafe { (*job)(index, &shared.barrier) };
        }
        shared.done.0.fetch_add(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn every_thread_runs_every_job_and_barriers_hold() {
        for threads in [1, 2, 5] {
            let mut pool = Pool::new(threads).unwrap();
            let sum = AtomicU64::new(0);
            let broken = AtomicU64::new(0);
            for round in 0..200u64 {
                pool.run(&|index, barrier| {
                    sum.fetch_add(index as u64 + 1, Ordering::SeqCst);
                    barrier.wait();
                    let expected = (round + 1) * (threads * (threads + 1) / 2) as u64;
                    if sum.load(Ordering::SeqCst) != expected {
                        broken.fetch_add(1, Ordering::SeqCst);
                    }
                    barrier.wait();
                });
            }
            assert_eq!(broken.load(Ordering::SeqCst), 0);
        }
    }

    #[test]
    fn a_sleeping_pool_wakes() {
        let mut pool = Pool::new(3).unwrap();
        for _ in 0..3 {
            thread::sleep(std::time::Duration::from_millis(20));
            let count = AtomicU64::new(0);
            pool.run(&|_, _| drop(count.fetch_add(1, Ordering::SeqCst)));
            assert_eq!(count.load(Ordering::SeqCst), 3);
        }
    }
}
