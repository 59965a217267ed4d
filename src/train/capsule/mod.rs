//! Capsules: a training run in one file, from which it is trained again and compared bit by bit.
//!
//! A capsule is a safetensors file. Its metadata contain the preset, the seed, the machine, the plan (operations,
//! kernels, relative addresses), and a checksum of the samples; its tensors are the initial parameters (`init.<name>`),
//! the reports of every step (`trace.loss` and others, `[steps]`, f32), and the parameters after the last step
//! (`final.<name>`). A replay trains again from the same start and compares bits.

mod replay;

pub use replay::{BitComparison, CapsuleReport, Difference};

use super::checkpoint::checksum;
use super::file_keys::CHECKSUM;
use super::runs::{PlanDigest, RunEntry, RunStore, RunsError};
use super::weights::read_tensors_of;
use super::{KernelsOfRun, Origin, Overrides, Session, SessionSpec, StepReport, TensorFile, TrainError};
use crate::data::Preprocessing;
use crate::model::{Preset, read_preset, write_preset};
use crate::select::Isa;
use crate::tensor::{HostTensor, TensorError, path_text, plural};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// The key of a capsule's metadata, and the version of its contents.
const KEY: &str = "stepgraph.capsule.1";

/// The data of a capsule other than its tensors.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CapsuleHeader {
    pub preset: String,
    /// The folder that relative paths in the preset were relative to.
    #[serde(default, with = "path_text")]
    pub base: PathBuf,
    pub seed: u64,
    pub steps: u64,
    pub program: String,
    /// The machine's name, and the properties that a plan for it depends on.
    pub device: String,
    pub isa: Option<Isa>,
    pub threads: usize,
    pub plan_hash: String,
    pub plan: PlanDigest,
    /// The checksum of samples and targets; `None` if batches were given.
    pub data_hash: Option<String>,
    /// How samples were prepared; `None` if batches were given, and in capsules of the first versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preprocessing: Option<Preprocessing>,
    /// Whether kernels were chosen by measured times.
    pub is_tuned: bool,
    /// The kernels of its steps on a GPU; absent on a CPU, and in capsules of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernels: Option<KernelsOfRun>,
}

/// A capsule in memory.
#[derive(Clone, Debug)]
pub struct Capsule {
    pub header: CapsuleHeader,
    pub preset: Preset,
    file: TensorFile,
    /// Whether the user named the data, which are then refused if they are not the capsule's.
    has_given_data: bool,
}

/// The quantities of a step that are compared.
type Compared = (&'static str, fn(&StepReport) -> f32);

/// The quantities of each step, in the order in which a difference is reported.
const TRACE: [Compared; 4] = [
    ("loss", |r| r.loss),
    ("accuracy", |r| r.accuracy),
    ("grad_norm", |r| r.grad_norm),
    ("update_max", |r| r.update_max),
];

fn broken(path: &Path) -> impl Fn(TensorError) -> TrainError + '_ {
    |e| TrainError::file(path, e.to_string(), "make the capsule again")
}

/// The checksum of a session's samples and targets.
fn data_hash(session: &Session) -> Option<String> {
    session.dataset().map(|(set, _)| set.digest())
}

impl Capsule {
    /// Trains `steps` steps from the start and records their reports. `watch` is called after every step with its
    /// number, and cancels if it returns false.
    ///
    /// # Errors
    /// If the run cannot be prepared or a step fails, and [`TrainError::Cancelled`] if it was cancelled.
    pub fn make(spec: &SessionSpec, steps: u64, mut watch: impl FnMut(u64) -> bool) -> Result<Self, TrainError> {
        let mut session = Session::prepare(spec)?;
        session.set_total(steps)?;
        let init = session.weights()?;
        let mut trace: [Vec<f32>; 4] = Default::default();
        while let Some(report) = session.step()? {
            for ((_, of), values) in TRACE.iter().zip(&mut trace) {
                values.push(of(&report));
            }
            if !watch(report.step) {
                return Err(TrainError::Cancelled);
            }
        }
        let plan = PlanDigest::of(session.compiled());
        let machine = spec.trains_on();
        let header = CapsuleHeader {
            preset: write_preset(&spec.preset),
            base: std::path::absolute(&spec.base).unwrap_or_else(|_| spec.base.clone()),
            seed: session.seed(),
            steps: session.done(),
            program: env!("CARGO_PKG_VERSION").to_owned(),
            isa: machine.as_cpu().map(|c| c.isa),
            device: machine.name,
            threads: spec.shared_by(),
            plan_hash: plan.sum(),
            plan,
            data_hash: data_hash(&session),
            preprocessing: session.dataset().map(|(set, _)| set.preprocessing.clone()),
            is_tuned: spec.tuning.is_some(),
            kernels: session.kernels(),
        };
        let end = session.weights()?;
        let named = |prefix: &str, list: Vec<(String, HostTensor)>| -> Vec<(String, HostTensor)> {
            list.into_iter().map(|(name, t)| (format!("{prefix}.{name}"), t)).collect()
        };
        let mut tensors = named("init", init);
        tensors.extend(named("final", end));
        for ((name, _), values) in TRACE.iter().zip(&trace) {
            let tensor = HostTensor::from_slice([values.len()], values).map_err(broken(Path::new("capsule")))?;
            tensors.push((format!("trace.{name}"), tensor));
        }
        let file = TensorFile { tensors, metadata: HashMap::default() };
        Ok(Self { header, preset: spec.preset.clone(), file, has_given_data: false })
    }

    /// Writes the complete capsule, or nothing.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), TrainError> {
        let text = serde_json::to_string(&self.header)
            .map_err(|e| TrainError::file(path, e.to_string(), "this is a defect"))?;
        let sum = checksum(&text, &self.file.tensors);
        self.file.write_with(path, &[(KEY.to_owned(), text), (CHECKSUM.to_owned(), sum)].into())
    }

    /// Reads a capsule.
    ///
    /// # Errors
    /// If the file is not a capsule, or is damaged.
    pub fn read(path: &Path) -> Result<Self, TrainError> {
        let help = "give a file that was made as a capsule";
        let file = read_tensors_of(path, "is not a capsule", help)?;
        let text = file.metadata.get(KEY).ok_or_else(|| TrainError::file(path, "is not a capsule", help))?;
        if file.metadata.get(CHECKSUM).is_none_or(|sum| *sum != checksum(text, &file.tensors)) {
            let message = "is damaged: its contents do not match its checksum";
            return Err(TrainError::file(path, message, "restore an older copy"));
        }
        let header: CapsuleHeader = serde_json::from_str(text)
            .map_err(|e| TrainError::file(path, format!("has a broken header: {e}"), help))?;
        let preset = read_preset(&header.preset).map_err(TrainError::Preset)?;
        let capsule = Self { header, preset, file, has_given_data: false };
        for (name, _) in TRACE {
            let steps = capsule.trace(name, path)?.len() as u64;
            if steps != capsule.header.steps {
                let message = format!("holds {steps} values of {name} for {} steps", capsule.header.steps);
                return Err(TrainError::file(path, message, "make the capsule again"));
            }
        }
        Ok(capsule)
    }

    fn trace(&self, name: &str, path: &Path) -> Result<Vec<f32>, TrainError> {
        let tensor = self.file.get(&format!("trace.{name}"));
        let tensor = tensor.ok_or_else(|| TrainError::file(path, format!("lacks trace.{name}"), "make it again"))?;
        tensor.to_vec().map_err(broken(path))
    }

    /// The folder that relative paths in the preset are relative to: the original one, if it exists here, and
    /// `otherwise` the given one.
    #[must_use]
    pub fn base(&self, otherwise: PathBuf) -> PathBuf {
        if self.header.base.is_dir() { self.header.base.clone() } else { otherwise }
    }

    /// Uses these files or folders as the data, which must equal those of the capsule; one for each path in the preset,
    /// in its order.
    ///
    /// # Errors
    /// If their number differs from the preset's.
    pub fn set_data(&mut self, paths: &[PathBuf]) -> Result<(), TrainError> {
        let mut own = self.preset.data.iter_mut().flat_map(|data| data.source.paths_mut()).collect::<Vec<_>>();
        if own.len() != paths.len() {
            let (given, wanted) = (paths.len(), own.len());
            let first = paths.first().map_or(Path::new("data"), PathBuf::as_path);
            let message = format!(
                "{given} {} of data {} given, and the capsule's preset names {wanted}",
                plural(given as u64, "path"),
                if given == 1 { "is" } else { "are" }
            );
            let help = "give as many as the preset names, in its order; bundled and drawn data need none";
            return Err(TrainError::file(first, message, help));
        }
        for (own, given) in own.iter_mut().zip(paths) {
            own.clone_from(&std::path::absolute(given).unwrap_or_else(|_| given.clone()));
        }
        self.has_given_data = true;
        Ok(())
    }

    /// The recorded losses in order.
    #[must_use]
    pub fn losses(&self) -> Vec<f32> {
        self.file.get("trace.loss").and_then(|t| t.to_vec().ok()).unwrap_or_default()
    }
}

/// How a kept run is trained again for a capsule: its preset, seed and the machine of its plan.
///
/// # Errors
/// If its preset cannot be read.
pub fn spec_of_run(store: &RunStore, entry: &RunEntry) -> Result<SessionSpec, RunsError> {
    let path = store.path(&entry.id).join("run.json");
    let damaged = || RunsError::Damaged { path, why: "its preset is of another version".into() };
    let preset = entry.record.read_preset().ok_or_else(damaged)?;
    let origin = if entry.has_weights { Origin::read(&store.weights(&entry.id)).ok().flatten() } else { None };
    Ok(SessionSpec {
        overrides: Overrides::seed(entry.record.seed),
        preprocessing: origin.and_then(|origin| origin.preprocessing),
        threads: entry.record.threads.clamp(1, 64),
        ..SessionSpec::new(preset, entry.record.base.clone())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::temporary::temporary_file;

    fn spec(name: &str) -> SessionSpec {
        let text = crate::model::BUNDLED.iter().find(|b| b.name == name).unwrap().text;
        SessionSpec { threads: 2, ..SessionSpec::new(read_preset(text).unwrap(), PathBuf::from(".")) }
    }

    #[test]
    fn a_capsule_is_replayed_bit_for_bit() {
        let (_folder, path) = temporary_file("run.capsule");
        Capsule::make(&spec("digits-mlp"), 25, |_| true).unwrap().write(&path).unwrap();
        let capsule = Capsule::read(&path).unwrap();
        assert_eq!((capsule.header.steps, capsule.losses().len()), (25, 25));
        let report = capsule.replay(PathBuf::from("."), None, None, |_| true).unwrap();
        assert!(report.bits.is_bit_equal && report.plan_differences.is_empty() && !report.has_other_data, "{report}");
        assert!(report.to_string().starts_with("digits-mlp: bit-equal over 25 steps"));
    }

    #[test]
    fn a_changed_value_is_found_at_its_step() {
        let mut capsule = Capsule::make(&spec("xor"), 12, |_| true).unwrap();
        let mut values = capsule.trace("grad_norm", Path::new("")).unwrap();
        values[6] = f32::from_bits(values[6].to_bits() ^ 1);
        let at = capsule.file.tensors.iter().position(|(n, _)| n == "trace.grad_norm").unwrap();
        capsule.file.tensors[at].1 = HostTensor::from_slice([12], &values).unwrap();
        let report = capsule.replay(PathBuf::from("."), None, None, |_| true).unwrap();
        let found = report.bits.first_difference.clone().unwrap();
        assert_eq!((found.step, found.quantity.as_str(), report.bits.is_bit_equal), (7, "grad_norm", false));
        assert!(report.to_string().contains("step 7 is the first that differs: grad_norm"));
    }

    #[test]
    fn another_plan_is_recognised_by_its_kernels() {
        let mut capsule = Capsule::make(&spec("xor"), 3, |_| true).unwrap();
        capsule.header.plan.ops[0] = "gemm another_kernel forward L0:Dense".into();
        capsule.header.data_hash = Some("0".into());
        let report = capsule.replay(PathBuf::from("."), None, None, |_| true).unwrap();
        assert!(
            report.has_other_data && report.plan_differences[0].starts_with("op 0: gemm another_kernel"),
            "{report}"
        );
        // The numbers are equal nevertheless, which is reported too.
        assert!(report.bits.is_bit_equal);
    }

    #[test]
    fn a_cancelled_replay_claims_no_agreement() {
        let capsule = Capsule::make(&spec("xor"), 9, |_| true).unwrap();
        let report = capsule.replay(PathBuf::from("."), None, None, |step| step < 4).unwrap();
        assert_eq!(
            (report.bits.replayed, report.bits.is_bit_equal, report.bits.first_difference.is_none()),
            (4, false, true)
        );
        assert!(report.to_string().contains("4 of 9 steps could be replayed"));
    }

    #[test]
    fn cancelling_while_a_capsule_is_made_gives_none() {
        for last in [1, 4, 9] {
            let made = Capsule::make(&spec("xor"), 9, |step| step < last);
            assert!(matches!(made, Err(TrainError::Cancelled)), "cancelled after step {last}");
        }
    }

    #[test]
    fn a_damaged_file_is_refused() {
        let (_folder, path) = temporary_file("run.capsule");
        Capsule::make(&spec("xor"), 3, |_| true).unwrap().write(&path).unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        assert!(Capsule::read(&path).unwrap_err().to_string().contains("is damaged"));
        std::fs::write(&path, "a letter").unwrap();
        assert!(Capsule::read(&path).is_err());
    }
}
