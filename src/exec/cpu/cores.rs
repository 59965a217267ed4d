//! The processor's cores that this program may use.

use std::collections::BTreeSet;
use std::fs;

/// The number of cores that this program may use: those of its processors, limited by the CPU time that control groups
/// grant. Two hardware threads of a core compete for its execution units, so that a core counts once.
#[must_use]
pub fn usable_cores() -> usize {
    // Counts the processors that this thread may run on, within the limits of control groups of both versions.
    let granted = std::thread::available_parallelism().map_or(1, usize::from);
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let allowed = status.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:")).map(numbers).unwrap_or_default();
    let siblings = |cpu: usize| {
        let folder = format!("/sys/devices/system/cpu/cpu{cpu}/topology");
        let read = |file: &str| fs::read_to_string(format!("{folder}/{file}")).ok();
        read("core_cpus_list").or_else(|| read("thread_siblings_list"))
    };
    granted.min(cores_of(&allowed, siblings).unwrap_or(granted)).max(1)
}

/// The cores that these processors belong to, if the system reports for each processor which others share its core.
fn cores_of(allowed: &[usize], siblings: impl Fn(usize) -> Option<String>) -> Option<usize> {
    let cores: Option<BTreeSet<Vec<usize>>> = allowed.iter().map(|cpu| siblings(*cpu).map(|s| numbers(&s))).collect();
    cores.map(|c| c.len()).filter(|count| *count > 0)
}

/// The numbers of a list such as `0-3,8`; entries that are no numbers are ignored.
fn numbers(list: &str) -> Vec<usize> {
    let stretch = |part: &str| {
        let (from, to) = part.trim().split_once('-').unwrap_or((part.trim(), part.trim()));
        Some(from.parse().ok()?..=to.parse::<usize>().ok()?.min(1 << 16))
    };
    list.split(',').filter_map(stretch).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_one_core_count_once() {
        assert_eq!(numbers("0-3,8, 10-11\n"), [0, 1, 2, 3, 8, 10, 11]);
        assert_eq!(numbers("\n"), [0usize; 0]);
        // Four cores of two threads each, numbered as Linux does.
        let pairs = |cpu: usize| Some(format!("{},{}\n", cpu % 4, cpu % 4 + 4));
        let all: Vec<usize> = (0..8).collect();
        assert_eq!(cores_of(&all, pairs), Some(4));
        assert_eq!(cores_of(&[0, 4], pairs), Some(1));
        assert_eq!(cores_of(&[0, 1, 5], pairs), Some(2));
        assert_eq!(cores_of(&all, |cpu| Some(cpu.to_string())), Some(8));
        assert_eq!(cores_of(&all, |cpu| (cpu > 0).then(|| cpu.to_string())), None);
        assert_eq!(cores_of(&[], pairs), None);
    }

    #[test]
    fn at_least_one_core_is_found() {
        let all = std::thread::available_parallelism().map_or(1, usize::from);
        assert!((1..=all).contains(&usable_cores()));
    }
}
