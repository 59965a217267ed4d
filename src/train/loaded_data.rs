//! Data sets that were loaded before in this process, because an edit of the network does not change its data.

use crate::data::{self, DataError, Dataset, Preprocessing, Request, expected_size};
use crate::model::DataSpec;
use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// The largest number of data sets that are kept, and the largest size of each in bytes: larger ones are read again.
const MOST: usize = 4;
const MOST_BYTES: u64 = 64 << 20;

/// A file that was changed more recently than this may be changed again without a new modification time.
const SETTLED_AFTER: Duration = Duration::from_secs(2);

/// Everything that determines a data set.
#[derive(Clone, PartialEq)]
struct Key {
    spec: DataSpec,
    request: Request,
    base: PathBuf,
    known: Option<Preprocessing>,
    /// Length and modification time of each file.
    files: Vec<(PathBuf, u64, SystemTime)>,
}

/// The most recent ones, newest last.
static LOADED: Mutex<Vec<(Key, Arc<Dataset>)>> = Mutex::new(Vec::new());

/// The data set of `spec`, as returned by [`data::load`], or by [`data::load_as`] if weights are `known`; the one that
/// was loaded before, if its files have not changed since.
///
/// # Errors
/// As [`data::load_as`].
pub(super) fn load(
    spec: &DataSpec,
    request: &Request,
    base: &Path,
    known: Option<&Preprocessing>,
) -> Result<Arc<Dataset>, DataError> {
    let key = key_of(spec, request, base, known);
    let kept = || LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, set)) = key.as_ref().and_then(|key| kept().iter().find(|(k, _)| k == key).cloned()) {
        return Ok(set);
    }
    let set = Arc::new(match known {
        Some(known) => data::load_as(spec, request, base, known)?,
        None => data::load(spec, request, base)?,
    });
    if let Some(key) = key {
        let mut kept = kept();
        kept.retain(|(k, _)| *k != key);
        let surplus = (kept.len() + 1).saturating_sub(MOST);
        kept.drain(..surplus);
        kept.push((key, Arc::clone(&set)));
    }
    Ok(set)
}

/// The key of a data set; `None` if it is not kept.
fn key_of(spec: &DataSpec, request: &Request, base: &Path, known: Option<&Preprocessing>) -> Option<Key> {
    let stamp = |path: PathBuf| {
        let path = base.join(path);
        let metadata = std::fs::metadata(&path).ok().filter(Metadata::is_file)?;
        let changed = metadata.modified().ok()?;
        let is_settled = changed.elapsed().is_ok_and(|age| age > SETTLED_AFTER);
        is_settled.then_some((path, metadata.len(), changed))
    };
    let files = spec.source.paths().into_iter().map(stamp).collect::<Option<Vec<_>>>()?;
    let is_small = expected_size(&spec.source, request, base).held <= MOST_BYTES;
    is_small.then(|| Key {
        spec: spec.clone(),
        request: request.clone(),
        base: base.to_owned(),
        known: known.cloned(),
        files,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{DataSource, check, read_preset};
    use crate::tensor::temporary::temporary_file;

    #[test]
    fn data_are_loaded_once_and_again_when_their_file_or_the_request_changes() {
        let (folder, path) = temporary_file("t.csv");
        let write = |text: &str, age: u64| {
            std::fs::write(&path, text).unwrap();
            let file = std::fs::File::options().write(true).open(&path).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(age)).unwrap();
        };
        let text = r#"{"version": 1, "name": "t", "input": {"shape": [2], "batch": 2},
            "layers": [{"type": "dense", "units": 3}], "loss": {"type": "softmax_cross_entropy"},
            "optimizer": {"type": "sgd", "lr": 0.1}, "data": {"type": "csv", "path": "t.csv", "target": "y"}}"#;
        let preset = read_preset(text).unwrap();
        let spec = preset.data.clone().unwrap();
        let model = check(&preset).model.unwrap();
        let load = |spec: &DataSpec, seed| load(spec, &Request::of(&model, seed), folder.path(), None).unwrap();
        write("a,b,y\n1,5,0\n2,5,1\n3,5,2\n", 10);
        let first = load(&spec, 0);
        assert!(Arc::ptr_eq(&first, &load(&spec, 0)));
        assert!(!Arc::ptr_eq(&first, &load(&spec, 1)));
        // The same length, but another modification time.
        write("a,b,y\n1,6,0\n2,5,1\n3,5,2\n", 20);
        let second = load(&spec, 0);
        assert!(first.x() != second.x());
        // Changed just now: it may not be complete.
        write("a,b,y\n1,5,0\n2,7,1\n3,5,2\n", 0);
        let third = load(&spec, 0);
        assert!(second.x() != third.x() && !Arc::ptr_eq(&third, &load(&spec, 0)));
        // Few are kept.
        for noise in [0.1, 0.2, 0.3, 0.4, 0.5] {
            let drawn = DataSpec { source: DataSource::Moons { samples: 20, noise }, ..spec.clone() };
            let set = load(&drawn, 0);
            assert!(Arc::ptr_eq(&set, &load(&drawn, 0)));
        }
        assert!(LOADED.lock().unwrap().len() <= MOST);
    }
}
