//! The network on screen, for the threads that measure or check it.

use crate::model::Preset;
use crate::studio::jobs::devices::Machine;
use crate::studio::view_models::plan::PlanView;
use crate::train::SessionSpec;
use std::path::PathBuf;
use std::sync::Arc;

/// The network to be measured or checked.
#[derive(Clone)]
pub struct PlannedNetwork {
    pub revision: u64,
    pub preset: Arc<Preset>,
    pub base: PathBuf,
    /// The target of the plan.
    pub machine: Arc<Machine>,
    pub plan: Arc<PlanView>,
}

impl PlannedNetwork {
    /// The network as a session that is used to measure or check it.
    #[must_use]
    pub fn spec(&self) -> SessionSpec {
        let (machine, tuning) = (Some(self.machine.target.clone()), self.machine.tuning.clone());
        SessionSpec { machine, tuning, ..SessionSpec::new((*self.preset).clone(), self.base.clone()) }
    }
}
