//! How much free memory the machine has, and how much this process uses.

use std::fs;
use std::path::Path;

/// Memory that can be allocated without swapping, in bytes, if the system reports it: the smallest of the machine's
/// free memory, that of the container or control group of this program, and the rest within the limits of this process.
#[must_use]
pub fn available_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let free = sized(&text, "MemAvailable:")?;
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let (limits, status) = (fs::read_to_string("/proc/self/limits"), fs::read_to_string("/proc/self/status"));
    let limited = limits.ok().zip(status.ok()).and_then(|(limits, status)| left_of_limits(&limits, &status));
    [granted_bytes(Path::new("/sys/fs/cgroup"), &groups), limited].into_iter().flatten().chain([free]).min()
}

/// The memory that this process uses now, if the system reports it.
#[must_use]
pub fn resident_bytes() -> Option<u64> {
    sized(&fs::read_to_string("/proc/self/status").ok()?, "VmRSS:")
}

/// The largest memory that this process has used so far, if the system reports it.
#[must_use]
pub fn peak_bytes() -> Option<u64> {
    sized(&fs::read_to_string("/proc/self/status").ok()?, "VmHWM:")
}

/// Gives memory that was freed back to the system, if the allocator is glibc's. Without this call, glibc keeps a free
/// page until all memory above it in its heap is free too. A few long-lived allocations among many short ones, such as
/// those of plans, then keep much free memory. The call takes milliseconds, and allocations of other threads wait.
pub fn return_free_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        unsafe extern "C" {
            fn malloc_trim(pad: usize) -> std::ffi::c_int;
        }
        // SAFETY: glibc's function with its signature (malloc.h). It takes the allocator's own locks and returns only
        // pages without allocations. Its result says whether there were any.
        let _ = unsafe { malloc_trim(0) };
    }
}

/// The value, in bytes, of a line in the system's tables that uses units of 1024 bytes.
fn sized(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|l| l.strip_prefix(name))?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kib * 1024)
}

/// The remainder within the limits of a process on its address space and its data; `None` if it has none.
fn left_of_limits(limits: &str, status: &str) -> Option<u64> {
    let left = |limit: &str, taken: &str| {
        let line = limits.lines().find_map(|l| l.strip_prefix(limit))?;
        let most: u64 = line.split_whitespace().next()?.parse().ok()?;
        Some(most.saturating_sub(sized(status, taken).unwrap_or(0)))
    };
    [left("Max address space", "VmSize:"), left("Max data size", "VmData:")].into_iter().flatten().min()
}

/// The files of a control group with its limit and its use, and the line of its statistics about cached files that are
/// not in use.
struct GroupFiles {
    most: &'static str,
    taken: &'static str,
    files: &'static str,
}

/// The files of version 2, and of version 1.
const VERSION_2: GroupFiles = GroupFiles { most: "memory.max", taken: "memory.current", files: "inactive_file " };
const VERSION_1: GroupFiles =
    GroupFiles { most: "memory.limit_in_bytes", taken: "memory.usage_in_bytes", files: "total_inactive_file " };

/// The remaining memory of the control groups of this process, as named in `/proc/self/cgroup`; `None` if no group has
/// a limit.
fn granted_bytes(root: &Path, groups: &str) -> Option<u64> {
    let left = groups.lines().filter_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, own) = rest.split_once(':')?;
        let own = own.trim_start_matches('/');
        match controllers {
            "" => left_of_group(root, own, &VERSION_2),
            _ if controllers.split(',').any(|c| c == "memory") => left_of_group(&root.join("memory"), own, &VERSION_1),
            _ => None,
        }
    });
    left.min()
}

/// The remaining memory of a control group and its ancestors.
fn left_of_group(root: &Path, own: &str, names: &GroupFiles) -> Option<u64> {
    let inside = root.join(own);
    let groups = inside.ancestors().take_while(|group| group.starts_with(root));
    let left = groups.filter_map(|group| {
        let read = |file: &str| fs::read_to_string(group.join(file)).ok();
        let number = |file: &str| read(file)?.trim().parse::<u64>().ok();
        let (most, taken) = (number(names.most)?, number(names.taken)?);
        // The system releases pages of unused files when memory is short.
        let text = read("memory.stat").unwrap_or_default();
        let files = text.lines().find_map(|l| l.strip_prefix(names.files)?.trim().parse().ok()).unwrap_or(0);
        Some(most.saturating_sub(taken.saturating_sub(files)))
    });
    left.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes a group's limit, its use, and its statistics.
    fn write(folder: &Path, names: &GroupFiles, [most, taken, files]: [&str; 3]) {
        fs::create_dir_all(folder).unwrap();
        for (file, text) in [(names.most, most), (names.taken, taken), ("memory.stat", files)] {
            fs::write(folder.join(file), format!("{text}\n")).unwrap();
        }
    }

    #[test]
    fn the_control_group_with_the_least_memory_counts() {
        let root = tempfile::tempdir().unwrap();
        let group = |name: &str, texts: [&str; 3]| write(&root.path().join(name), &VERSION_2, texts);
        let left = |own: &str| granted_bytes(root.path(), &format!("0::/{own}\n"));
        assert_eq!(left(""), None);
        group("a", ["1000", "400", "anon 300\ninactive_file 100\nslab 1"]);
        group("a/b", ["max", "200", "inactive_file 50"]);
        assert_eq!(left("a/b"), Some(700));
        group("a/b", ["500", "200", ""]);
        assert_eq!(left("a/b"), Some(300));
        group("a/b", ["500", "600", ""]);
        assert_eq!(left("a/b"), Some(0));
        assert_eq!(left("elsewhere"), None);
    }

    #[test]
    fn control_groups_of_version_1_count_too() {
        let root = tempfile::tempdir().unwrap();
        let groups = "12:cpu,cpuacct:/a\n4:memory:/a/b\n0::/a\n";
        assert_eq!(granted_bytes(root.path(), groups), None);
        let memory = root.path().join("memory");
        write(&memory, &VERSION_1, ["9223372036854771712", "700", ""]);
        write(&memory.join("a/b"), &VERSION_1, ["900", "500", "cache 1\ntotal_inactive_file 200"]);
        assert_eq!(granted_bytes(root.path(), groups), Some(600));
        // Inside a container, its own group is the outermost one that is visible.
        write(&memory, &VERSION_1, ["800", "700", ""]);
        assert_eq!(granted_bytes(root.path(), "4:memory:/docker/x\n"), Some(100));
    }

    #[test]
    fn limits_of_the_process_count() {
        let limits = |space: &str, data: &str| {
            format!(
                "Limit  Soft Limit  Hard Limit  Units\nMax data size   {data}  unlimited  bytes\n\
                 Max address space   {space}  unlimited  bytes\n"
            )
        };
        let status = "VmPeak:\t  9 kB\nVmSize:\t  2 kB\nVmData:\t  1 kB\n";
        assert_eq!(left_of_limits(&limits("unlimited", "unlimited"), status), None);
        assert_eq!(left_of_limits(&limits("10240", "unlimited"), status), Some(8192));
        assert_eq!(left_of_limits(&limits("10240", "2048"), status), Some(1024));
        assert_eq!(left_of_limits(&limits("1024", "unlimited"), status), Some(0));
    }
}
