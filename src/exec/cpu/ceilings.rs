//! What this machine does at most, measured on the threads of a step: floating-point operations, and bytes copied within each level of memory.
//!
//! An operation cannot take less than its arithmetic at the first rate, nor less than its bytes at the second. Which level its bytes lie in is
//! taken from their number alone: the fastest level that holds all of them, as if the operations before had left them there. An operation that reads
//! much and writes little may go below that, because a copy writes as much as it reads.

use super::Pool;
use crate::select::Isa;
use serde::Serialize;
use std::hint::black_box;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// What one trial lasts, roughly.
const TRIAL_US: f64 = 1_500.0;
/// Trials of each rate; the best counts, because a busy machine only ever slows one.
const TRIALS: usize = 12;
/// A copy from memory is as large as this allows, in bytes for both sides and all threads.
const LARGEST_COPY: u64 = 256 << 20;
/// Sizes of a core's first and second cache and of the shared third, where the system does not tell.
const USUAL_CACHES: [u64; 3] = [32 << 10, 512 << 10, 8 << 20];

/// One level of memory.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Level {
    /// `L1`, `L2`, `L3` or `memory`.
    pub name: &'static str,
    /// What it holds for all threads together; absent for memory.
    pub holds_bytes: Option<u64>,
    /// Bytes read and written by one copy when its rate was measured.
    pub copied_bytes: u64,
    /// Bytes read and written in a microsecond.
    pub bytes_per_us: f64,
}

/// The measured ceilings of a machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ceilings {
    pub isa: Isa,
    pub threads: usize,
    /// Floating-point operations in a microsecond, multiplications and additions counted each.
    pub flops_per_us: f64,
    /// From the fastest to memory.
    pub levels: Vec<Level>,
}

/// The least time of an operation, in microseconds, and what sets it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Floor {
    pub us: f64,
    /// `arithmetic`, or the name of the level that its bytes lie in.
    pub bound: &'static str,
}

impl Ceilings {
    /// Measures the ceilings with the arithmetic of `isa`, which this processor must have, on all threads of the pool. Takes about a quarter of a second.
    #[must_use]
    pub fn measure(isa: Isa, pool: &mut Pool) -> Self {
        let threads = pool.threads();
        let caches = cache_bytes();
        let flops_per_us = arithmetic_rate(isa, pool);
        let cores = threads as u64;
        let capacity = [caches[0] * cores, caches[1] * cores, caches[2].max(caches[1] * cores)];
        let mut levels = Vec::with_capacity(4);
        for (name, holds) in ["L1", "L2", "L3"].into_iter().zip(capacity) {
            // Half of a level leaves room for whatever else lies there.
            let copied_bytes = (holds / 2).min(LARGEST_COPY);
            levels.push(Level {
                name,
                holds_bytes: Some(holds),
                copied_bytes,
                bytes_per_us: copy_rate(copied_bytes, pool),
            });
        }
        let copied_bytes = (capacity[2] * 4).min(LARGEST_COPY);
        levels.push(Level {
            name: "memory",
            holds_bytes: None,
            copied_bytes,
            bytes_per_us: copy_rate(copied_bytes, pool),
        });
        // What lies in an inner level is at least as near as what lies further out: a slower copy there only shows the price of starting a short one.
        for inner in (0..levels.len() - 1).rev() {
            levels[inner].bytes_per_us = levels[inner].bytes_per_us.max(levels[inner + 1].bytes_per_us);
        }
        Self { isa, threads, flops_per_us, levels }
    }

    /// The least time of an operation of so much arithmetic on so many bytes, if all threads share it and wait for nothing.
    #[must_use]
    pub fn floor(&self, flops: u64, bytes: u64) -> Floor {
        let arithmetic = Floor { us: flops as f64 / self.flops_per_us, bound: "arithmetic" };
        let level = self.levels.iter().find(|l| l.holds_bytes.is_none_or(|holds| bytes <= holds));
        let moved = level.map(|l| Floor { us: bytes as f64 / l.bytes_per_us, bound: l.name });
        moved.filter(|m| m.us > arithmetic.us).unwrap_or(arithmetic)
    }
}

/// The sizes of the data caches of the first core, as far as the system tells them.
fn cache_bytes() -> [u64; 3] {
    let mut out = USUAL_CACHES;
    for index in 0..8 {
        let folder = format!("/sys/devices/system/cpu/cpu0/cache/index{index}");
        let read = |name: &str| std::fs::read_to_string(Path::new(&folder).join(name)).ok();
        let (Some(level), Some(kind), Some(size)) = (read("level"), read("type"), read("size")) else { continue };
        let level = level.trim().parse::<usize>().ok().filter(|l| (1..=3).contains(l));
        let (Some(level), Some(bytes)) = (level, size_of_text(size.trim())) else { continue };
        if kind.trim() != "Instruction" {
            out[level - 1] = bytes;
        }
    }
    out
}

/// A size as the system writes it, such as `48K`; zero is no size.
fn size_of_text(text: &str) -> Option<u64> {
    let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let shift = match unit {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift).filter(|b| *b > 0)
}

/// The best rate of `work(rounds)`, which does `per_round` units a round, in units a microsecond.
fn best_rate(per_round: f64, mut work: impl FnMut(usize)) -> f64 {
    let mut timed = |rounds: usize| {
        let started = Instant::now();
        work(rounds);
        (started.elapsed().as_secs_f64() * 1e6).max(0.01)
    };
    timed(1);
    // Rounds double until a trial is long enough for the clock and for threads to meet.
    let mut rounds = 1;
    while timed(rounds) < TRIAL_US && rounds < 1 << 24 {
        rounds *= 2;
    }
    let best = (0..TRIALS).map(|_| timed(rounds)).fold(f64::INFINITY, f64::min);
    per_round * rounds as f64 / best
}

fn copy_rate(bytes: u64, pool: &mut Pool) -> f64 {
    let threads = pool.threads();
    let floats = (bytes as usize / 2 / threads / size_of::<f32>()).max(64);
    // Each thread has memory of its own; the lock is only there to hand it over and is taken once a trial.
    let sides: Vec<Mutex<(Vec<f32>, Vec<f32>)>> =
        (0..threads).map(|i| Mutex::new((vec![i as f32; floats], vec![0.5; floats]))).collect();
    let moved = 2 * floats * size_of::<f32>() * threads;
    best_rate(moved as f64, |rounds| {
        pool.wake();
        pool.share(0, &|part| {
            let mut own = sides[part.index].lock().unwrap_or_else(PoisonError::into_inner);
            let (from, to) = &mut *own;
            for _ in 0..rounds {
                black_box(&mut *to).copy_from_slice(black_box(&*from));
            }
        });
    })
}

/// Multiplications and additions a round of the loops below.
const FLOPS_PER_ROUND: usize = 2 * 12 * 16;

fn arithmetic_rate(isa: Isa, pool: &mut Pool) -> f64 {
    let flops = FLOPS_PER_ROUND * pool.threads();
    best_rate(flops as f64, |rounds| {
        pool.wake();
        pool.share(0, &|_| {
            black_box(arithmetic(isa, rounds));
        });
    })
}

/// Runs `rounds` rounds of twelve independent chains on 16 numbers each: enough to hide the latency of every core so far, and few enough for registers.
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
    // The chains start apart, so that the compiler cannot see them as one.
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
    // A register holds eight numbers here, so that a round goes over the chains twice.
    for _ in 0..2 * rounds {
        for chain in &mut chains {
            *chain = _mm256_fmadd_ps(*chain, scale, shift);
        }
    }
    chains.into_iter().map(|c| _mm_cvtss_f32(_mm256_castps256_ps128(c))).sum()
}

/// Multiplies and adds apart, as the portable products do; four numbers make a register of the baseline.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::cpu::detect_isa;

    fn two_levels() -> Ceilings {
        let level = |name, holds_bytes, bytes_per_us| Level { name, holds_bytes, copied_bytes: 1, bytes_per_us };
        let levels = vec![level("L2", Some(1000), 500.0), level("memory", None, 10.0)];
        Ceilings { isa: Isa::Portable, threads: 1, flops_per_us: 100.0, levels }
    }

    #[test]
    fn the_floor_is_the_larger_of_arithmetic_and_bytes_in_the_level_that_holds_them() {
        let c = two_levels();
        assert_eq!(c.floor(1000, 1000), Floor { us: 10.0, bound: "arithmetic" });
        assert_eq!(c.floor(0, 1000), Floor { us: 2.0, bound: "L2" });
        assert_eq!(c.floor(1000, 1001), Floor { us: 100.1, bound: "memory" });
    }

    #[test]
    fn this_machine_has_ceilings() {
        let c = Ceilings::measure(detect_isa(), &mut Pool::new(2).unwrap());
        assert!(c.flops_per_us > 10.0 && c.levels.iter().all(|l| l.bytes_per_us > 10.0), "{c:?}");
        assert_eq!(c.levels.iter().map(|l| l.name).collect::<Vec<_>>(), ["L1", "L2", "L3", "memory"]);
        assert!(c.levels.is_sorted_by(|inner, outer| inner.bytes_per_us >= outer.bytes_per_us), "{c:?}");
    }

    #[test]
    fn sizes_are_read_as_the_system_writes_them() {
        assert_eq!(
            [size_of_text("48K"), size_of_text("32M"), size_of_text("7")],
            [Some(49_152), Some(1 << 25), Some(7)]
        );
        assert_eq!([size_of_text(""), size_of_text("0K"), size_of_text("3 pages")], [None; 3]);
    }
}
