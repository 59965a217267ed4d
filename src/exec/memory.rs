//! How much memory the machine has to spare.

use std::fs;
use std::path::Path;

/// Bytes of memory that can be taken without swapping, where the system tells: those of the machine, or of the container or group that this program is in,
/// whichever are fewer.
#[must_use]
pub fn available_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    let groups = fs::read_to_string("/proc/self/cgroup").ok();
    let own = groups.iter().flat_map(|text| text.lines()).find_map(|line| line.strip_prefix("0::/"));
    let granted = own.and_then(|own| granted_bytes(Path::new("/sys/fs/cgroup"), own));
    Some(granted.map_or(kib * 1024, |bytes| bytes.min(kib * 1024)))
}

/// What is left of the memory that a control group (version 2) and those around it may take; nothing where none has a limit.
fn granted_bytes(root: &Path, own: &str) -> Option<u64> {
    let inside = root.join(own);
    let groups = inside.ancestors().take_while(|group| group.starts_with(root));
    let left = groups.filter_map(|group| {
        let read = |file: &str| fs::read_to_string(group.join(file)).ok();
        let number = |file: &str| read(file)?.trim().parse::<u64>().ok();
        let (most, taken) = (number("memory.max")?, number("memory.current")?);
        // Pages of files that nobody uses are given back when memory is short.
        let text = read("memory.stat").unwrap_or_default();
        let files = text.lines().find_map(|l| l.strip_prefix("inactive_file ")?.trim().parse().ok()).unwrap_or(0);
        Some(most.saturating_sub(taken.saturating_sub(files)))
    });
    left.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tightest_group_counts() {
        let root = tempfile::tempdir().unwrap();
        let group = |name: &str, most: &str, taken: &str, files: &str| {
            let folder = root.path().join(name);
            fs::create_dir_all(&folder).unwrap();
            for (file, text) in [("memory.max", most), ("memory.current", taken), ("memory.stat", files)] {
                fs::write(folder.join(file), format!("{text}\n")).unwrap();
            }
        };
        assert_eq!(granted_bytes(root.path(), ""), None);
        group("a", "1000", "400", "anon 300\ninactive_file 100\nslab 1");
        group("a/b", "max", "200", "inactive_file 50");
        assert_eq!(granted_bytes(root.path(), "a/b"), Some(700));
        group("a/b", "500", "200", "");
        assert_eq!(granted_bytes(root.path(), "a/b"), Some(300));
        group("a/b", "500", "600", "");
        assert_eq!(granted_bytes(root.path(), "a/b"), Some(0));
        assert_eq!(granted_bytes(root.path(), "elsewhere"), None);
    }
}
