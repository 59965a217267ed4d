//! Detects the capabilities of this processor.

use super::cores::usable_cores;
use crate::select::{Isa, MOST_THREADS, Target};
use thiserror::Error;

/// The best instruction set that kernels are written for and this processor supports. `STEPGRAPH_ISA` selects a lower
/// one, for comparisons; a value that is not valid changes nothing.
#[must_use]
pub fn detect_isa() -> Isa {
    let best = native_isa();
    isa_variable().ok().flatten().map_or(best, |isa| best.min(isa))
}

/// The instruction set in `STEPGRAPH_ISA`; `None` if it is not set, or empty.
///
/// # Errors
/// If it is not `portable`, `avx2` or `avx512`, or this processor lacks it.
pub fn isa_variable() -> Result<Option<Isa>, String> {
    let Ok(asked) = std::env::var("STEPGRAPH_ISA") else { return Ok(None) };
    let best = native_isa();
    let found = [Isa::Portable, Isa::Avx2, Isa::Avx512].into_iter().find(|isa| isa.name() == asked);
    match found {
        _ if asked.is_empty() => Ok(None),
        Some(isa) if isa <= best => Ok(Some(isa)),
        Some(_) => Err(format!("STEPGRAPH_ISA is {asked:?}, which this processor lacks; {} is used", best.name())),
        None => Err(format!("STEPGRAPH_ISA is {asked:?}; expected portable, avx2 or avx512; {} is used", best.name())),
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

/// A value of `STEPGRAPH_THREADS` that is not a valid number of threads.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error(
    "STEPGRAPH_THREADS is \"{}\"; expected a whole number from 1 to {}; correct it, or unset it for the number that is \
     best for each step",
    .0.escape_debug(),
    MOST_THREADS
)]
pub struct WrongThreads(String);

/// The number of threads in `STEPGRAPH_THREADS`; `None` if it is not set, or empty.
///
/// # Errors
/// If it is set to anything other than a number of threads.
pub fn threads_variable() -> Result<Option<usize>, WrongThreads> {
    match std::env::var_os("STEPGRAPH_THREADS") {
        Some(text) if !text.is_empty() => threads_of(&text.to_string_lossy()).map(Some),
        _ => Ok(None),
    }
}

fn threads_of(text: &str) -> Result<usize, WrongThreads> {
    let found = text.parse().ok().filter(|t| (1..=MOST_THREADS).contains(t));
    found.ok_or_else(|| WrongThreads(text.to_owned()))
}

/// The number of threads in `STEPGRAPH_THREADS`, if it is set; commands that use it have refused an invalid value at
/// their start.
#[must_use]
pub fn asked_threads() -> Option<usize> {
    threads_variable().ok().flatten()
}

/// The number of threads if the step that they will share is not known: two, if there are two cores.
/// `STEPGRAPH_THREADS` overrides it.
#[must_use]
pub fn default_threads() -> usize {
    asked_threads().unwrap_or_else(|| usable_cores().min(2))
}

/// This machine's CPU as a target.
#[must_use]
pub fn host_target(threads: usize) -> Target {
    Target::cpu(detect_isa(), threads)
}

/// The processor's name, if the system reports it.
#[must_use]
pub fn cpu_name() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|l| l.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_number_of_threads_in_the_environment_is_refused() {
        assert_eq!((threads_of("1"), threads_of("64")), (Ok(1), Ok(64)));
        for text in ["abc", "0", "65", "9999", "-1", "2.5", " 2"] {
            let message = threads_of(text).unwrap_err().to_string();
            assert!(
                message.starts_with(&format!("STEPGRAPH_THREADS is \"{text}\"; expected a whole number")),
                "{message}"
            );
            assert!(message.contains("from 1 to 64; correct it, or unset it"), "{message}");
        }
    }
}
