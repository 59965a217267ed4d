//! What this processor can do.

use super::cores::usable_cores;
use crate::select::{Isa, MOST_THREADS, Target};

/// The best instruction set that kernels are written for and this processor has. `STEPGRAPH_ISA` (`portable`, `avx2`, `avx512`) lowers it, to compare.
#[must_use]
pub fn detect_isa() -> Isa {
    let best = native_isa();
    match std::env::var("STEPGRAPH_ISA").as_deref() {
        Ok("portable") => Isa::Portable,
        Ok("avx2") => best.min(Isa::Avx2),
        _ => best,
    }
}

#[cfg(target_arch = "x86_64")]
fn native_isa() -> Isa {
    let avx512 = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl");
    if avx512 {
        Isa::Avx512
    } else if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        Isa::Avx2
    } else {
        Isa::Portable
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn native_isa() -> Isa {
    Isa::Portable
}

/// The number of threads that `STEPGRAPH_THREADS` asks for.
#[must_use]
pub fn asked_threads() -> Option<usize> {
    let text = std::env::var("STEPGRAPH_THREADS").ok()?;
    text.parse().ok().filter(|t| (1..=MOST_THREADS).contains(t))
}

/// Threads where it is not known what step they are to share: two, where there are two cores. `STEPGRAPH_THREADS`
/// overrides it.
#[must_use]
pub fn default_threads() -> usize {
    asked_threads().unwrap_or_else(|| usable_cores().min(2))
}

/// This machine's CPU as a target.
#[must_use]
pub fn host_target(threads: usize) -> Target {
    Target::cpu(detect_isa(), threads)
}

/// The processor's name, where the system tells.
#[must_use]
pub fn cpu_name() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|l| l.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}
