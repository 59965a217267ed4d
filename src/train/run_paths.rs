//! The paths that the steps of a run take through a network whose layers choose.
//!
//! From step to step a path is one number, its *code*: the values of all layers that choose, as the digits of a number.
//! Two codes may mean one path, where a layer that is not met chooses otherwise; who keeps something by code keeps it
//! twice then. The path itself is made where something is compiled or named.

use crate::model::Model;

/// The paths of a run.
pub(super) struct RunPaths {
    seed: u64,
}

impl RunPaths {
    /// The paths of a run of a network with this seed.
    pub(super) fn new(_model: &Model, seed: u64) -> Self {
        Self { seed }
    }

    /// Whether steps differ in their paths.
    pub(super) const fn vary(&self) -> bool {
        false
    }

    /// The code of a step's path; steps count from 1.
    pub(super) const fn code_at(&self, _step: u64) -> u64 {
        0
    }

    /// The path of a step by its name.
    pub(super) fn name_at(&self, _model: &Model, _step: u64) -> String {
        let _ = self.seed;
        crate::exec::WHOLE.to_owned()
    }

    /// The network along the path of a step.
    pub(super) fn along(&self, model: &Model, _step: u64) -> Model {
        model.clone()
    }
}
