//! Kernel times that are kept between runs of the program: one file in the user's cache folder, for all devices.
//!
//! The file only makes steps faster. Errors in it are reported and otherwise ignored.

use crate::exec::cpu::cpu_name;
use crate::select::{Isa, Target, TunedDevice, Tuning};
use crate::tensor::write_atomic;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The version of the file's format.
const FORMAT: u32 = 1;
/// Kernels change between versions of the program, and their times with them; the kernels of a development build are
/// not fully optimised.
const PROGRAM: &str =
    if cfg!(debug_assertions) { concat!(env!("CARGO_PKG_VERSION"), "-dev") } else { env!("CARGO_PKG_VERSION") };
/// A larger file was not written by this program.
const MAX_BYTES: u64 = 64 << 20;

/// The file's contents.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents {
    format: u32,
    program: String,
    devices: Vec<Tuning>,
    /// Times of whole steps with several numbers of threads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    steps: Vec<StepTimes>,
}

/// Times of a whole step with several numbers of threads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepTimes {
    /// The name that the processor reports.
    pub cpu: String,
    pub isa: Isa,
    /// The key of the step.
    pub key: String,
    /// Microseconds of a step by number of threads.
    pub us: BTreeMap<usize, f64>,
}

/// The largest number of steps; the oldest are dropped.
const MOST_STEPS: usize = 200;

/// The file in which times are stored.
#[derive(Clone, Debug)]
pub struct TuningFile {
    path: PathBuf,
}

/// True if `STEPGRAPH_NO_TUNING` is set to anything but 0: then kernels are chosen by estimate, even if times are
/// stored.
#[must_use]
pub fn tuning_is_off() -> bool {
    std::env::var_os("STEPGRAPH_NO_TUNING").is_some_and(|v| !v.is_empty() && v != "0")
}

/// The stored times for a target on this machine, if there are any and they are not disabled.
///
/// # Errors
/// If there is a file that cannot be used, as text; then kernels are chosen by estimate.
pub fn remembered_times(target: &Target) -> Result<Option<Arc<Tuning>>, String> {
    let device = TunedDevice::of(target, processor());
    match (TuningFile::of_user(), device) {
        (Some(file), Some(device)) if !tuning_is_off() => Ok(file.load(&device)?.map(Arc::new)),
        _ => Ok(None),
    }
}

/// The processor's name under which times are stored.
#[must_use]
pub fn processor() -> String {
    cpu_name().unwrap_or_else(|| "unknown".into())
}

impl TuningFile {
    /// A file at this path, which need not exist.
    #[must_use]
    pub const fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// The user's own file, if the system has a place for it.
    #[must_use]
    pub fn of_user() -> Option<Self> {
        directories::ProjectDirs::from("", "", "stepgraph").map(|d| Self::at(d.cache_dir().join("tuning.json")))
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The times stored for a device; `None` if there are none.
    ///
    /// # Errors
    /// If there is a file that cannot be used, as text.
    pub fn load(&self, device: &TunedDevice) -> Result<Option<Tuning>, String> {
        Ok(self.contents()?.devices.into_iter().find(|t| t.device == *device))
    }

    /// The steps that were timed with several numbers of threads.
    ///
    /// # Errors
    /// If there is a file that cannot be used, as text.
    pub fn steps(&self) -> Result<Vec<StepTimes>, String> {
        Ok(self.contents()?.steps)
    }

    /// Adds times to the file, replacing older ones of the same device and operations. A file that cannot be used is
    /// replaced.
    ///
    /// # Errors
    /// If it cannot be written; then the old file is unchanged.
    pub fn remember(&self, newer: Tuning) -> std::io::Result<()> {
        let mut contents = self.contents().unwrap_or_else(|_| Contents::empty());
        match contents.devices.iter_mut().find(|t| t.device == newer.device) {
            Some(known) => known.merge(newer),
            None => contents.devices.push(newer),
        }
        self.write(&contents)
    }

    /// Adds the times of a step to the file, replacing older ones of the same step.
    ///
    /// # Errors
    /// As [`Self::remember`].
    pub fn remember_step(&self, newer: StepTimes) -> std::io::Result<()> {
        let mut contents = self.contents().unwrap_or_else(|_| Contents::empty());
        let same = |s: &StepTimes| (&s.cpu, s.isa, &s.key) == (&newer.cpu, newer.isa, &newer.key);
        contents.steps.retain(|s| !same(s));
        contents.steps.push(newer);
        let old = contents.steps.len().saturating_sub(MOST_STEPS);
        contents.steps.drain(..old);
        self.write(&contents)
    }

    fn write(&self, contents: &Contents) -> std::io::Result<()> {
        if let Some(folder) = self.path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let mut text = serde_json::to_vec_pretty(contents)?;
        text.push(b'\n');
        write_atomic(&self.path, &text)
    }

    fn contents(&self) -> Result<Contents, String> {
        let ignored = |why: String| format!("{}: remembered kernel times are ignored: {why}", self.path.display());
        let mut text = Vec::new();
        match File::open(&self.path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Contents::empty()),
            Err(e) => return Err(ignored(e.to_string())),
            Ok(file) => file.take(MAX_BYTES).read_to_end(&mut text).map_err(|e| ignored(e.to_string()))?,
        };
        let found: Contents =
            serde_json::from_slice(&text).map_err(|e| ignored(format!("the file is damaged ({e})")))?;
        if found.format != FORMAT || found.program != PROGRAM {
            let theirs = format!("they are of version {} and this is {PROGRAM}", found.program);
            return Err(ignored(theirs));
        }
        Ok(found)
    }
}

impl Contents {
    fn empty() -> Self {
        Self { format: FORMAT, program: PROGRAM.to_owned(), devices: Vec::new(), steps: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::{self, OpKind};
    use crate::select::{Timing, Variant};

    fn tuning(cpu: &str, len: usize, us: f64) -> Tuning {
        let mut out = Tuning::new(TunedDevice { cpu: cpu.into(), isa: Isa::Avx2, threads: 2 });
        let timing = Timing { variant: Variant::Fast(Isa::Avx2), shared: true, us };
        out.times.insert(Tuning::key(&OpKind::Fill(ops::Fill { len })), vec![timing]);
        out
    }

    #[test]
    fn times_are_remembered_by_device_and_operation() {
        let folder = tempfile::tempdir().unwrap();
        let file = TuningFile::at(folder.path().join("deeper").join("tuning.json"));
        let (first, other) = (tuning("a", 1, 1.0), tuning("b", 1, 9.0));
        assert_eq!(file.load(&first.device), Ok(None));
        for t in [&first, &other, &tuning("a", 2, 3.25), &tuning("a", 1, 2.0)] {
            file.remember(t.clone()).unwrap();
        }
        let found = file.load(&first.device).unwrap().unwrap();
        assert_eq!(found.of(&OpKind::Fill(ops::Fill { len: 1 }))[0].us, 2.0);
        assert_eq!(found.of(&OpKind::Fill(ops::Fill { len: 2 }))[0].us, 3.25);
        assert_eq!(file.load(&other.device).unwrap(), Some(other));
        let us = [(1, 2.0), (2, 1.5)].into();
        let step = StepTimes { cpu: "a".into(), isa: Isa::Avx2, key: "k".into(), us };
        file.remember_step(StepTimes { us: BTreeMap::new(), ..step.clone() }).unwrap();
        file.remember_step(step.clone()).unwrap();
        file.remember(tuning("c", 1, 1.0)).unwrap();
        assert_eq!((file.steps().unwrap(), file.load(&first.device).unwrap().is_some()), (vec![step], true));
        assert_eq!(std::fs::read_dir(folder.path().join("deeper")).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn an_unusable_file_is_reported_and_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let file = TuningFile::at(folder.path().join("tuning.json"));
        let own = tuning("a", 1, 1.0);
        file.remember(own.clone()).unwrap();
        let good = std::fs::read_to_string(file.path()).unwrap();
        let spoilt = [
            "not JSON".to_owned(),
            good[..good.len() / 2].to_owned(),
            good.replace("\"format\": 1", "\"format\": 2"),
            good.replace(&format!("\"program\": \"{PROGRAM}\""), "\"program\": \"0.0.1\""),
            good.replace("\"us\"", "\"time\""),
        ];
        for text in spoilt {
            std::fs::write(file.path(), &text).unwrap();
            let message = file.load(&own.device).unwrap_err();
            assert!(message.contains("ignored") && message.contains("tuning.json"), "{message}");
            file.remember(own.clone()).unwrap();
            assert_eq!(file.load(&own.device).unwrap().as_ref(), Some(&own));
        }
    }
}
