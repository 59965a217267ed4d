//! Keeps unsaved edits safe from crashes.

use crate::model::{Preset, read_preset};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The recovery file of one window, with its unsaved edits.
///
/// Several windows may be open, so there are several files; a window owns the file whose lock it holds.
pub struct Recovery {
    path: PathBuf,
    _lock: std::fs::File,
}

impl Recovery {
    /// A file that no other window uses; one with edits left by a crash is preferred to an empty one. `None` if the
    /// folder cannot be used. Locks that previous windows have left are removed.
    ///
    /// Windows claim files one after the other, under a lock of the folder, so that no window finds a file that another
    /// one is about to remove.
    #[must_use]
    pub fn claim(folder: &Path) -> Option<Self> {
        const PLACES: usize = 16;
        /// A window needs only milliseconds to claim a file.
        const PATIENCE: Duration = Duration::from_secs(2);
        std::fs::create_dir_all(folder).ok()?;
        let turn = std::fs::File::create(folder.join("claim.lock")).ok()?;
        let asked = Instant::now();
        while turn.try_lock().is_err() {
            if asked.elapsed() > PATIENCE {
                return None;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let lock_of = |index: usize| folder.join(format!("window-{index}.lock"));
        let claim = |index: usize| {
            let lock = std::fs::File::create(lock_of(index)).ok()?;
            lock.try_lock().ok()?;
            Some(Self { path: folder.join(format!("unsaved-{index}.json")), _lock: lock })
        };
        let has_edits = |index: &usize| folder.join(format!("unsaved-{index}.json")).exists();
        let own = (0..PLACES).filter(has_edits).chain(0..PLACES).find_map(|index| Some((index, claim(index)?)));
        for index in (0..PLACES).filter(|index| own.as_ref().is_none_or(|(own, _)| own != index)) {
            let path = lock_of(index);
            if std::fs::File::open(&path).is_ok_and(|lock| lock.try_lock().is_ok()) {
                // If one cannot be removed, it does no harm.
                let _ = std::fs::remove_file(path);
            }
        }
        own.map(|(_, place)| place)
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The edits left by a crash, with the file that they belong to.
    #[must_use]
    pub fn left(&self) -> Option<(Preset, Option<PathBuf>)> {
        let value: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&self.path).ok()?).ok()?;
        let preset = read_preset(value["preset"].as_str()?).ok()?;
        Some((preset, value["origin"].as_str().map(PathBuf::from)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::studio::document::files::{FileWorker, Job};
    use crate::studio::document::presets::digits;
    use std::sync::Arc;

    #[test]
    fn edits_left_by_a_crash_are_found_by_the_next_window() {
        let folder = tempfile::tempdir().unwrap();
        let first = Recovery::claim(folder.path()).unwrap();
        let second = Recovery::claim(folder.path()).unwrap();
        assert_ne!(first.path(), second.path());
        let edits = (Arc::new(digits()), Some(PathBuf::from("/a/b.json")));
        let mut worker = FileWorker::default();
        assert!(worker.carry_out(Job::Recover(second.path().to_owned(), Some(edits))).is_none());
        drop(second);
        let third = Recovery::claim(folder.path()).unwrap();
        assert_eq!(third.left(), Some((digits(), Some("/a/b.json".into()))));
        worker.carry_out(Job::Recover(third.path().to_owned(), None));
        assert_eq!(third.left(), None);
        drop(first);
    }

    #[test]
    fn locks_that_nobody_holds_are_removed_and_windows_that_start_together_share_none() {
        let folder = tempfile::tempdir().unwrap();
        for index in 0..16 {
            std::fs::write(folder.path().join(format!("window-{index}.lock")), "").unwrap();
        }
        std::fs::write(folder.path().join("unsaved-5.json"), "{}").unwrap();
        let locks = || {
            let names =
                std::fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
            let mut names: Vec<String> = names.filter(|n| n.starts_with("window-")).collect();
            names.sort();
            names
        };
        let first = Recovery::claim(folder.path()).unwrap();
        assert!(first.path().ends_with("unsaved-5.json") && locks() == ["window-5.lock"]);
        // Windows start and end at the same time; each has a separate file while it exists.
        let taken = std::sync::Mutex::new(std::collections::HashSet::from([first.path().to_owned()]));
        std::thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        let place = Recovery::claim(folder.path()).unwrap();
                        assert!(taken.lock().unwrap().insert(place.path().to_owned()));
                        std::thread::yield_now();
                        taken.lock().unwrap().remove(place.path());
                    }
                });
            }
        });
        drop(first);
        let last = Recovery::claim(folder.path()).unwrap();
        assert_eq!((locks().len(), last.path().ends_with("unsaved-5.json")), (1, true));
    }
}
