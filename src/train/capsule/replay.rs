//! Replaying a capsule: training again from the same start, and comparing bits.

use super::{Capsule, TRACE, data_hash};
use crate::exec::cpu::host_target;
use crate::exec::cuda;
use crate::select::{Target as Machine, Tuning};
use crate::tensor::{HostTensor, plural};
use crate::train::runs::PlanDigest;
use crate::train::{Overrides, Session, SessionSpec, Start, TensorFile, TrainError};
use serde::Serialize;
use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The first value that is not bit-equal.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// Counted from 1; for a parameter, the step after which parameters were compared.
    pub step: u64,
    /// `loss`, or the name of a parameter after the last step.
    pub quantity: String,
    pub recorded: f32,
    pub replayed: f32,
}

/// How many replayed steps agree with those of the capsule.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct BitComparison {
    /// Steps that were replayed.
    pub replayed: u64,
    pub is_bit_equal: bool,
    pub first_difference: Option<Difference>,
}

/// The result of a replay.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CapsuleReport {
    pub preset: String,
    /// The number of steps in the capsule.
    pub steps: u64,
    #[serde(flatten)]
    pub bits: BitComparison,
    /// The differences of the plan, one on each line; empty if the plans are equal.
    pub plan_differences: Vec<String>,
    /// True if the samples are not those of the capsule.
    pub has_other_data: bool,
    /// The machines on which it was made and replayed.
    pub recorded_on: String,
    pub replayed_on: String,
}

impl fmt::Display for CapsuleReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.bits.is_bit_equal {
            let steps = plural(self.steps, "step");
            writeln!(f, "{}: bit-equal over {} {steps}, parameters included", self.preset, self.steps)?;
        } else if let Some(d) = &self.bits.first_difference {
            writeln!(
                f,
                "{}: not bit-equal; step {} is the first that differs: {} was {} ({:#010x}) and is {} ({:#010x})",
                self.preset,
                d.step,
                d.quantity,
                d.recorded,
                d.recorded.to_bits(),
                d.replayed,
                d.replayed.to_bits()
            )?;
        } else {
            writeln!(
                f,
                "{}: {} of {} {} could be replayed, and these are bit-equal",
                self.preset,
                self.bits.replayed,
                self.steps,
                plural(self.steps, "step")
            )?;
        }
        writeln!(f, "made on {}, replayed on {}", self.recorded_on, self.replayed_on)?;
        if self.has_other_data {
            writeln!(f, "the samples are not those that it was made with: compare the files that the preset names")?;
        }
        if self.plan_differences.is_empty() {
            return writeln!(f, "the plan is the same: operations, kernels, offsets");
        }
        /// The largest number of lines of differences that are shown.
        const SHOWN: usize = 20;
        writeln!(f, "the plan differs in {} places:", self.plan_differences.len())?;
        for line in self.plan_differences.iter().take(SHOWN) {
            writeln!(f, "  {line}")?;
        }
        if self.plan_differences.len() > SHOWN {
            writeln!(f, "  and {} more", self.plan_differences.len() - SHOWN)?;
        }
        Ok(())
    }
}

impl Capsule {
    /// Trains again from the recorded start and compares every step and the final parameters bit by bit. Relative paths
    /// in the preset start at `base`. Kernels are chosen by the stored times `tuning` if those of the capsule were.
    /// `watch` is called after every step with its number and ends the replay if it returns false.
    ///
    /// # Errors
    /// If the run cannot be prepared here, or a step fails.
    pub fn replay(
        &self,
        base: PathBuf,
        machine: Option<Machine>,
        tuning: Option<Arc<Tuning>>,
        watch: impl FnMut(u64) -> bool,
    ) -> Result<CapsuleReport, TrainError> {
        // The recorded initial parameters are passed in a file, as with `--init`.
        let folder = tempfile::tempdir().map_err(|cause| TrainError::Write { path: std::env::temp_dir(), cause })?;
        let init = folder.path().join("init.safetensors");
        TensorFile { tensors: self.parameters("init."), metadata: HashMap::default() }.write(&init)?;
        let here = host_target(self.header.threads.clamp(1, 64));
        let machine = machine.unwrap_or_else(|| self.machine(&here));
        let spec = SessionSpec {
            threads: self.header.threads.clamp(1, 64),
            machine: Some(machine.clone()),
            overrides: Overrides::seed(self.header.seed),
            start: Start::from_weights(init),
            tuning: tuning.filter(|_| self.header.is_tuned),
            preprocessing: self.header.preprocessing.clone(),
            ..SessionSpec::new(self.preset.clone(), base)
        };
        let mut session = Session::prepare(&spec)?;
        self.check_given_data(&session)?;
        session.set_total(self.header.steps)?;
        let mut report = CapsuleReport {
            preset: self.preset.name.clone(),
            steps: self.header.steps,
            bits: BitComparison::default(),
            plan_differences: self.header.plan.differences(&PlanDigest::of(session.compiled())),
            has_other_data: data_hash(&session) != self.header.data_hash,
            recorded_on: self.header.device.clone(),
            replayed_on: machine.name,
        };
        if self.replay_steps(&mut session, &mut report, watch)? {
            report.bits.first_difference = self.different_parameter(&session, report.bits.replayed)?;
            report.bits.is_bit_equal =
                report.bits.first_difference.is_none() && report.bits.replayed == self.header.steps;
        }
        Ok(report)
    }

    /// Recorded parameters, by their names after `prefix`.
    fn parameters(&self, prefix: &str) -> Vec<(String, HostTensor)> {
        let strip = |(n, t): &(String, HostTensor)| Some((n.strip_prefix(prefix)?.to_owned(), t.clone()));
        self.file.tensors.iter().filter_map(strip).collect()
    }

    /// Runs the recorded steps; false if one differs, which the report then names, or if `watch` ends the replay.
    fn replay_steps(
        &self,
        session: &mut Session,
        report: &mut CapsuleReport,
        mut watch: impl FnMut(u64) -> bool,
    ) -> Result<bool, TrainError> {
        let mut wanted = Vec::new();
        for (name, _) in TRACE {
            wanted.push(self.trace(name, Path::new("capsule"))?);
        }
        while let Some(made) = session.step()? {
            let index = report.bits.replayed as usize;
            report.bits.replayed += 1;
            for ((name, of), values) in TRACE.iter().zip(&wanted) {
                let (recorded, replayed) = (values.get(index).copied().unwrap_or(f32::NAN), of(&made));
                if recorded.to_bits() != replayed.to_bits() {
                    let quantity = (*name).to_owned();
                    report.bits.first_difference = Some(Difference { step: made.step, quantity, recorded, replayed });
                    return Ok(false);
                }
            }
            if !watch(made.step) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The first parameter that differs from the recorded one after the last step.
    fn different_parameter(&self, session: &Session, step: u64) -> Result<Option<Difference>, TrainError> {
        let end = self.parameters("final.");
        for (name, made) in session.weights()? {
            let kept = end.iter().find(|(n, _)| *n == name).and_then(|(_, t)| t.to_vec::<f32>().ok());
            let (kept, made) = (kept.unwrap_or_default(), made.to_vec::<f32>().unwrap_or_default());
            let differs = |(a, b): &(&f32, &f32)| a.to_bits() != b.to_bits();
            if let Some((&recorded, &replayed)) = kept.iter().zip(&made).find(differs) {
                return Ok(Some(Difference { step, quantity: name, recorded, replayed }));
            }
        }
        Ok(None)
    }

    /// Compares the data that the user named with those of the capsule, if it has their checksum.
    fn check_given_data(&self, session: &Session) -> Result<(), TrainError> {
        let (found, expected) = (data_hash(session), &self.header.data_hash);
        if !self.has_given_data || expected.is_none() || found == *expected {
            return Ok(());
        }
        let paths = self.preset.data.iter().flat_map(|data| data.source.paths());
        let first = paths.into_iter().next().unwrap_or_else(|| "data".into());
        let text = |sum: &Option<String>| sum.clone().unwrap_or_else(|| "none".to_owned());
        let message = format!(
            "does not hold the samples that the capsule was made with: their checksum is {} and should be {}",
            text(&found),
            text(expected)
        );
        Err(TrainError::file(&first, message, "name the data that the run was trained on"))
    }

    /// The machine of the capsule if this machine can run its plan, otherwise this machine. Kernels for an older
    /// instruction set run here too, and a capsule of a GPU is replayed on a GPU of the same name.
    fn machine(&self, here: &Machine) -> Machine {
        match (self.header.isa, here.as_cpu()) {
            (Some(isa), Some(cpu)) if isa <= cpu.isa => Machine::cpu(isa, cpu.threads),
            (None, _) => self.gpu().unwrap_or_else(|| here.clone()),
            _ => here.clone(),
        }
    }

    /// A GPU with the name of the capsule's GPU.
    fn gpu(&self) -> Option<Machine> {
        let usable = |device: &cuda::DeviceInfo| Some(cuda::usable(device.ordinal).ok()?.target());
        let found = cuda::probe().devices.iter().filter_map(usable).find(|target| target.name == self.header.device)?;
        // With the kernels of the recorded steps, whatever is set here.
        Some(match self.header.kernels {
            Some(kernels) => found.with_kernels(kernels.first),
            None => found,
        })
    }
}
