//! The highest rates of this machine, measured on the threads of a step: floating-point operations, and bytes moved
//! within each level of memory.
//!
//! An operation cannot take less time than its arithmetic at the first rate, or than its bytes at the rates of memory:
//! data that preceding operations have left in a cache come at that cache's rate, and only the part that exceeds the
//! inner caches comes from further out. Each rate is the best of many short trials of several ways to move numbers.
//! Resources that every core has for itself are measured on one core and multiplied. So no operation is faster than its
//! floor.

mod rates;

use crate::exec::cpu::pool::Pool;
use crate::select::Isa;
use rates::{Footprint, Sharing, arithmetic_rate, traffic_rate};
use serde::Serialize;
use std::path::Path;

/// The size of the data that are moved from memory is limited by this, in bytes of all threads.
const LARGEST: u64 = 256 << 20;
/// The data that are moved within a cache are at most this many times the capacity of the inner one. The share that the
/// inner one holds is small then, and a pass over half of a third cache of several hundred MiB would take seconds.
const MOST_OF_INNER: u64 = 16;
/// The number of those bytes that one pass covers on each thread, small enough for a pass to finish between two
/// interruptions.
const WINDOW: usize = 1 << 20;
/// Sizes of a core's first and second cache and of the shared third one, if the system does not report them.
const USUAL_CACHES: [u64; 3] = [32 << 10, 512 << 10, 8 << 20];

/// One level of memory.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Level {
    /// `L1`, `L2`, `L3` or `memory`.
    pub name: &'static str,
    /// The capacity for all threads together; absent for memory.
    pub holds_bytes: Option<u64>,
    /// Bytes that the threads worked on when its rate was measured.
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

/// The least time of an operation, in microseconds, and what determines it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Floor {
    pub us: f64,
    /// `arithmetic`, or the level of memory whose rate determines it.
    pub bound: &'static str,
}

impl Floor {
    /// The same bound, but at most `us`.
    #[must_use]
    pub fn at_most(self, us: f64) -> Self {
        Self { us: self.us.min(us), ..self }
    }
}

impl Ceilings {
    /// Measures the ceilings with the arithmetic of `isa`, which this processor must have, on the threads of the pool.
    /// Takes about 1.5 s on a virtual machine with 480 MiB of third cache.
    #[must_use]
    pub fn measure(isa: Isa, pool: &mut Pool) -> Self {
        let threads = pool.threads();
        let caches = cache_bytes();
        let cores = threads as u64;
        let thirds = cores.min(third_caches());
        let capacity = [caches[0] * cores, caches[1] * cores, (caches[2] * thirds).max(caches[1] * cores)];
        let flops_per_us = arithmetic_rate(isa, pool);
        let mut levels = Vec::with_capacity(4);
        let mut inner = 0;
        let caches = [("L1", Sharing::Core), ("L2", Sharing::Core), ("L3", Sharing::Machine)];
        for ((name, sharing), holds) in caches.into_iter().zip(capacity) {
            // Half of a level leaves room for other data; slightly more than the capacity of the inner level is an
            // equally good sample of this one.
            let most = if inner == 0 { holds } else { MOST_OF_INNER * inner };
            let footprints = [holds / 2, (2 * inner).max(holds / 4).min(holds * 3 / 4)].map(|bytes| {
                let bytes = (bytes.min(most).min(LARGEST) / cores) as usize;
                Footprint { bytes, window: bytes }
            });
            let (bytes_per_us, copied_bytes) = traffic_rate(isa, pool, sharing, &footprints);
            levels.push(Level { name, holds_bytes: Some(holds), copied_bytes, bytes_per_us });
            inner = holds;
        }
        let memory = Footprint { bytes: ((capacity[2] * 4).min(LARGEST) / cores) as usize, window: WINDOW };
        let (bytes_per_us, copied_bytes) = traffic_rate(isa, pool, Sharing::Machine, &[memory]);
        levels.push(Level { name: "memory", holds_bytes: None, copied_bytes, bytes_per_us });
        let mut out = Self { isa, threads, flops_per_us, levels };
        out.settle();
        out
    }

    /// Data in an inner level are at least as near as data further out: a slower rate there only shows the overhead of
    /// starting short loops.
    fn settle(&mut self) {
        for inner in (0..self.levels.len().saturating_sub(1)).rev() {
            self.levels[inner].bytes_per_us = self.levels[inner].bytes_per_us.max(self.levels[inner + 1].bytes_per_us);
        }
    }

    /// The higher of each rate of two measurements, if both were made with the same threads, because other load only
    /// lowers a rate. Otherwise `self`.
    #[must_use]
    pub fn or_better(mut self, other: &Self) -> Self {
        if (self.isa, self.threads, self.levels.len()) != (other.isa, other.threads, other.levels.len()) {
            return self;
        }
        self.flops_per_us = self.flops_per_us.max(other.flops_per_us);
        for (own, level) in self.levels.iter_mut().zip(&other.levels) {
            own.bytes_per_us = own.bytes_per_us.max(level.bytes_per_us);
        }
        self
    }

    /// A lower limit for the time of an operation with this much arithmetic on this many bytes, even if all threads
    /// share it and never wait.
    #[must_use]
    pub fn floor(&self, flops: u64, bytes: u64) -> Floor {
        let mut floor = Floor { us: flops as f64 / self.flops_per_us, bound: "arithmetic" };
        let mut nearer = 0;
        for level in &self.levels {
            let us = bytes.saturating_sub(nearer) as f64 / level.bytes_per_us;
            if us > floor.us {
                floor = Floor { us, bound: level.name };
            }
            nearer += level.holds_bytes.unwrap_or(0);
        }
        floor
    }
}

/// The folder in which the system describes a cache of the first core.
fn cache_folder(index: usize) -> String {
    format!("/sys/devices/system/cpu/cpu0/cache/index{index}")
}

/// The sizes of the data caches of the first core, as far as the system reports them.
fn cache_bytes() -> [u64; 3] {
    let mut out = USUAL_CACHES;
    for index in 0..8 {
        let folder = cache_folder(index);
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

/// The number of third caches of the machine, as far as the system reports them; at least 1.
fn third_caches() -> u64 {
    let sharing = (0..8).find_map(|index| {
        let read = |name: &str| std::fs::read_to_string(Path::new(&cache_folder(index)).join(name)).ok();
        read("level").filter(|level| level.trim() == "3").and_then(|_| read("shared_cpu_list"))
    });
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").ok();
    let [sharing, online] = [sharing, online].map(|text| text.map_or(0, |text| cpus_of_text(text.trim())));
    if sharing == 0 { 1 } else { online.div_ceil(sharing).max(1) }
}

/// The number of processors in a list as the system writes it, such as `0-3,8`.
fn cpus_of_text(text: &str) -> u64 {
    let count = |range: &str| {
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        let ends = from.trim().parse::<u64>().ok().zip(to.trim().parse::<u64>().ok());
        ends.map_or(0, |(from, to)| (to + 1).saturating_sub(from))
    };
    text.split(',').map(count).sum()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::cpu::detect::detect_isa;

    fn two_levels() -> Ceilings {
        let level = |name, holds_bytes, bytes_per_us| Level { name, holds_bytes, copied_bytes: 1, bytes_per_us };
        let levels = vec![level("L2", Some(1000), 500.0), level("memory", None, 10.0)];
        Ceilings { isa: Isa::Portable, threads: 1, flops_per_us: 100.0, levels }
    }

    #[test]
    fn the_floor_is_the_larger_of_arithmetic_and_of_the_bytes_that_must_come_from_each_level() {
        let c = two_levels();
        assert_eq!(c.floor(1000, 1000), Floor { us: 10.0, bound: "arithmetic" });
        assert_eq!(c.floor(0, 1000), Floor { us: 2.0, bound: "L2" });
        // A thousand of them may be in the cache; the rest comes from memory.
        assert_eq!(c.floor(0, 1010), Floor { us: 2.02, bound: "L2" });
        assert_eq!(c.floor(0, 1500), Floor { us: 50.0, bound: "memory" });
    }

    #[test]
    fn the_higher_rates_of_two_measurements_are_kept() {
        let mut slow = two_levels();
        (slow.flops_per_us, slow.levels[0].bytes_per_us) = (50.0, 900.0);
        let both = two_levels().or_better(&slow);
        assert_eq!((both.flops_per_us, both.levels[0].bytes_per_us, both.levels[1].bytes_per_us), (100.0, 900.0, 10.0));
        assert_eq!(two_levels().or_better(&Ceilings { threads: 2, ..slow }), two_levels());
        assert_eq!(["0-3,8", "0", "", "2-3"].map(cpus_of_text), [5, 1, 0, 2]);
    }

    #[test]
    fn the_rates_of_this_machine_can_be_measured() {
        let c = Ceilings::measure(detect_isa(), &mut Pool::new(2).unwrap());
        assert!(c.flops_per_us > 10.0 && c.levels.iter().all(|l| l.bytes_per_us > 10.0), "{c:?}");
        assert_eq!(c.levels.iter().map(|l| l.name).collect::<Vec<_>>(), ["L1", "L2", "L3", "memory"]);
        assert!(c.levels.is_sorted_by(|inner, outer| inner.bytes_per_us >= outer.bytes_per_us), "{c:?}");
    }

    #[test]
    fn sizes_in_the_systems_format_are_parsed() {
        assert_eq!(
            [size_of_text("48K"), size_of_text("32M"), size_of_text("7")],
            [Some(49_152), Some(1 << 25), Some(7)]
        );
        assert_eq!([size_of_text(""), size_of_text("0K"), size_of_text("3 pages")], [None; 3]);
    }
}
