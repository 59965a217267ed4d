//! Loops that only move numbers or compute with them, and the highest speed of this machine at them.

use crate::exec::cpu::kernels::lanes::{self, LANES, Lanes};
use crate::exec::cpu::pool::Pool;
use crate::select::Isa;
use crate::tensor::{HUGE_PAGE, room};
use std::hint::black_box;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// The approximate duration of one trial: short enough to finish between two interruptions on a busy machine.
const TRIAL_US: f64 = 120.0;
/// The number of trials of each rate; the best one is used, because other load can only slow a trial down.
const TRIALS: usize = 30;

/// The best rate of `work(thread, rounds)` on the first `threads` threads of the pool, each of which does `per_round`
/// units in a round: units in a microsecond, of all threads together.
fn best_rate(pool: &mut Pool, threads: usize, per_round: f64, work: &(dyn Fn(usize, usize) + Sync)) -> f64 {
    let began = Instant::now();
    // Each thread reads the clock around its own loop, so that starting and synchronising the threads is not included.
    let spans: Vec<Mutex<[Instant; 2]>> = (0..threads).map(|_| Mutex::new([began; 2])).collect();
    let mut timed = |rounds: usize| {
        pool.wake();
        pool.share(0, &|part| {
            if let Some(span) = spans.get(part.index) {
                let start = Instant::now();
                work(part.index, rounds);
                *span.lock().unwrap_or_else(PoisonError::into_inner) = [start, Instant::now()];
            }
        });
        let ends = spans.iter().map(|span| *span.lock().unwrap_or_else(PoisonError::into_inner));
        let whole = ends.reduce(|a, b| [a[0].min(b[0]), a[1].max(b[1])]);
        whole.map_or(0.01, |[start, end]| ((end - start).as_secs_f64() * 1e6).max(0.01))
    };
    timed(1);
    let mut rounds = 1;
    while timed(rounds) < TRIAL_US && rounds < 1 << 24 {
        rounds *= 2;
    }
    let best = (0..TRIALS).map(|_| timed(rounds)).fold(f64::INFINITY, f64::min);
    per_round * (threads * rounds) as f64 / best
}

/// How the measured resource is shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sharing {
    /// Every core has its own: all threads together reach at most this multiple of the rate of one. A busy machine may
    /// never run all of them at the same time for long enough to measure them together.
    Core,
    /// All cores share it.
    Machine,
}

/// The best rate of all threads of the pool at `work`, as in [`best_rate`].
fn pool_rate(pool: &mut Pool, sharing: Sharing, per_round: f64, work: &(dyn Fn(usize, usize) + Sync)) -> f64 {
    let (all, alone) = (pool.threads(), best_rate(pool, 1, per_round, work));
    match sharing {
        _ if all == 1 => alone,
        Sharing::Core => alone * all as f64,
        // One thread alone may be faster than all of them if they interfere with each other.
        Sharing::Machine => alone.max(best_rate(pool, all, per_round, work)),
    }
}

/// A way to move numbers: kernels read and write in different proportions, and a machine is not equally fast at all of
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mix {
    Read,
    Copy,
    /// Reads two for each one that is written.
    Add,
}

impl Mix {
    const ALL: [Self; 3] = [Self::Read, Self::Copy, Self::Add];

    /// Arrays that a pass touches.
    const fn arrays(self) -> usize {
        match self {
            Self::Read => 1,
            Self::Copy => 2,
            Self::Add => 3,
        }
    }
}

/// The elements of a large page.
const PAGE_FLOATS: usize = HUGE_PAGE / size_of::<f32>();

/// The smallest number of elements that a loop works on.
const GRAIN: usize = UNROLL * LANES;

/// The number of elements in `bytes` that each array of a mix has, in whole grains.
const fn floats(mix: Mix, bytes: usize) -> usize {
    let grains = bytes / size_of::<f32>() / mix.arrays() / GRAIN;
    if grains == 0 { GRAIN } else { grains * GRAIN }
}

/// The part of a thread's memory that a mix works on.
struct Own<'a> {
    arrays: [&'a mut [f32]; 3],
    /// The number of elements of each array that a pass covers, and the first element of the next pass.
    window: usize,
    at: usize,
}

impl<'a> Own<'a> {
    /// Arrays in a memory that [`memories`] made for the footprint.
    fn new(mix: Mix, memory: &'a mut [f32], footprint: Footprint) -> Self {
        let (len, window) = (floats(mix, footprint.bytes), floats(mix, footprint.window.min(footprint.bytes)));
        let count = |i: usize| if i < mix.arrays() { len } else { 0 };
        let skipped = memory.as_ptr().align_offset(HUGE_PAGE).min(PAGE_FLOATS);
        let (a, rest) = memory[skipped..].split_at_mut(count(0));
        let (b, rest) = rest.split_at_mut(count(1));
        let (to, _) = rest.split_at_mut(count(2));
        Self { arrays: [a, b, to], window, at: 0 }
    }

    fn pass(&mut self, isa: Isa, mix: Mix) {
        let range = self.at..self.at + self.window;
        let [a, b, to] = &mut self.arrays;
        match mix {
            Mix::Read => {
                read(isa, black_box(&a[range.clone()]));
            }
            Mix::Copy => black_box(&mut b[range.clone()]).copy_from_slice(black_box(&a[range.clone()])),
            Mix::Add => add(isa, black_box(&a[range.clone()]), &b[range.clone()], &mut to[range.clone()]),
        }
        self.at = if range.end + self.window <= a.len() { range.end } else { 0 };
    }
}

/// Memory for each thread, for all of these footprints and one page more, in large pages if the system has them: it may
/// take seconds to provide what is not reused.
fn memories(threads: usize, footprints: &[Footprint]) -> Vec<Vec<f32>> {
    let bytes = footprints.iter().map(|footprint| footprint.bytes).max().unwrap_or(0);
    let len = (bytes / size_of::<f32>()).max(3 * GRAIN).next_multiple_of(PAGE_FLOATS) + PAGE_FLOATS;
    let made = |_| {
        let mut memory = room(len);
        memory.resize(len, 0.5);
        memory
    };
    (0..threads).map(made).collect()
}

/// The number of bytes that every thread works on, and the number of bytes in one pass.
#[derive(Clone, Copy, Debug)]
pub(super) struct Footprint {
    pub bytes: usize,
    pub window: usize,
}

/// The best rate at which the pool's threads move bytes of any of these footprints, in bytes in a microsecond, and the
/// bytes of all threads at that rate.
pub(super) fn traffic_rate(isa: Isa, pool: &mut Pool, sharing: Sharing, footprints: &[Footprint]) -> (f64, u64) {
    let mut best = (0.0, 0);
    let mut memories = memories(pool.threads(), footprints);
    for footprint in footprints {
        for mix in Mix::ALL {
            // The lock only transfers the memory to a thread, and is taken once in each trial.
            let owns: Vec<Mutex<Own<'_>>> =
                memories.iter_mut().map(|memory| Mutex::new(Own::new(mix, memory, *footprint))).collect();
            let moved = owns.first().map_or(0, |o| o.lock().unwrap_or_else(PoisonError::into_inner).window)
                * mix.arrays()
                * size_of::<f32>();
            let work = |thread: usize, rounds: usize| {
                let mut own = owns[thread].lock().unwrap_or_else(PoisonError::into_inner);
                (0..rounds).for_each(|_| own.pass(isa, mix));
            };
            let rate = pool_rate(pool, sharing, moved as f64, &work);
            if rate > best.0 {
                best = (rate, (footprint.bytes * pool.threads()) as u64);
            }
        }
    }
    best
}

/// The number of registers that a loop uses in parallel.
const UNROLL: usize = 8;

/// Calls a generic loop compiled for an instruction set.
macro_rules! compiled_for {
    ($isa:expr, $body:ident($($name:ident: $type:ty),*)) => {{
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
        fn avx512($($name: $type),*) {
            $body::<lanes::Avx512>($($name),*);
        }
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma")]
        fn avx2($($name: $type),*) {
            $body::<lanes::Avx2>($($name),*);
        }
        match $isa {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a target names an instruction set only where the processor has it.
            Isa::Avx512 => unsafe { avx512($($name),*) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Isa::Avx2 => unsafe { avx2($($name),*) },
            _ => $body::<lanes::Portable>($($name),*),
        }
    }};
}

fn read(isa: Isa, from: &[f32]) {
    compiled_for!(isa, read_all(from: &[f32]));
}

#[inline(always)]
fn read_all<V: Lanes>(from: &[f32]) {
    let mut sums = [V::zero(); UNROLL];
    for chunk in from.chunks_exact(UNROLL * LANES) {
        for (i, sum) in sums.iter_mut().enumerate() {
            // SAFETY: the chunk has a group of lanes for each sum.
            *sum = *sum + unsafe { V::load(chunk.as_ptr().add(i * LANES)) };
        }
    }
    black_box(sums.map(Lanes::to_array));
}

fn add(isa: Isa, a: &[f32], b: &[f32], to: &mut [f32]) {
    compiled_for!(isa, add_all(a: &[f32], b: &[f32], to: &mut [f32]));
}

#[inline(always)]
fn add_all<V: Lanes>(a: &[f32], b: &[f32], to: &mut [f32]) {
    for ((a, b), to) in a.chunks_exact(LANES).zip(b.chunks_exact(LANES)).zip(to.chunks_exact_mut(LANES)) {
        // SAFETY: each chunk has a group of lanes.
        unsafe { (V::load(a.as_ptr()) + V::load(b.as_ptr())).store(to.as_mut_ptr()) };
    }
}

/// Multiplications and additions in each round of the loops below.
const FLOPS_PER_ROUND: usize = 2 * 12 * 16;

/// The best rate of arithmetic, in floating-point operations in a microsecond.
pub(super) fn arithmetic_rate(isa: Isa, pool: &mut Pool) -> f64 {
    let work = |_: usize, rounds: usize| {
        black_box(arithmetic(isa, rounds));
    };
    pool_rate(pool, Sharing::Core, FLOPS_PER_ROUND as f64, &work)
}

/// Runs `rounds` rounds of twelve independent chains of 16 numbers each: enough to hide the latency of all known cores,
/// and few enough to fit in registers.
fn arithmetic(isa: Isa, rounds: usize) -> f32 {
    match isa {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a target names an instruction set only where the processor has it.
        Isa::Avx512 => unsafe { avx512(rounds) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Isa::Avx2 => unsafe { avx2(rounds) },
        _ => portable(rounds),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn avx512(rounds: usize) -> f32 {
    use std::arch::x86_64::*;
    let (scale, shift) = (_mm512_set1_ps(black_box(0.5)), _mm512_set1_ps(black_box(1.0)));
    // The chains start with different values, so that the compiler cannot merge them.
    let mut chains: [__m512; 12] = std::array::from_fn(|i| _mm512_set1_ps(black_box(i as f32)));
    for _ in 0..rounds {
        for chain in &mut chains {
            *chain = _mm512_fmadd_ps(*chain, scale, shift);
        }
    }
    chains.into_iter().map(|c| _mm512_reduce_add_ps(c)).sum()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn avx2(rounds: usize) -> f32 {
    use std::arch::x86_64::*;
    let (scale, shift) = (_mm256_set1_ps(black_box(0.5)), _mm256_set1_ps(black_box(1.0)));
    let mut chains: [__m256; 12] = std::array::from_fn(|i| _mm256_set1_ps(black_box(i as f32)));
    // A register holds eight numbers here, so that a round updates the chains twice.
    for _ in 0..2 * rounds {
        for chain in &mut chains {
            *chain = _mm256_fmadd_ps(*chain, scale, shift);
        }
    }
    chains.into_iter().map(|c| _mm_cvtss_f32(_mm256_castps256_ps128(c))).sum()
}

/// Multiplies and adds separately, as the portable products do; four numbers fill a register of the baseline.
fn portable(rounds: usize) -> f32 {
    let (scale, shift) = (black_box(0.5f32), black_box(1.0f32));
    let mut chains: [[f32; 4]; 12] = std::array::from_fn(|i| [black_box(i as f32); 4]);
    for _ in 0..4 * rounds {
        for chain in &mut chains {
            *chain = chain.map(|v| v * scale + shift);
        }
    }
    chains.iter().flatten().sum()
}
