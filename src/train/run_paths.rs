//! The paths that the steps of a run take through a network whose layers choose.
//!
//! For each step a path is represented by one number, its *code*, which is computed without allocating. Two codes may
//! mean the same path, because a layer that the path does not reach may choose another value; a cache by code then
//! stores it twice. The path itself is made when something is compiled or named.

use crate::model::{Choices, Model};
use std::sync::Arc;

/// The paths of a run.
pub(super) struct RunPaths {
    choices: Choices,
    /// Whether there are layers that choose, even if they always choose the same.
    are_chosen: bool,
    seed: u64,
}

impl RunPaths {
    /// The paths of a run of a network with this seed.
    pub(super) fn new(model: &Model, seed: u64) -> Self {
        Self { choices: Choices::of(model), are_chosen: model.chooses(), seed }
    }

    /// Whether a step may take a path other than that of an evaluation.
    pub(super) const fn are_chosen(&self) -> bool {
        self.are_chosen
    }

    /// Whether steps differ in their paths.
    pub(super) fn vary(&self) -> bool {
        self.choices.vary()
    }

    /// The code of a step's path; steps count from 1.
    pub(super) fn code_at(&self, step: u64) -> u64 {
        self.choices.code_at(step, self.seed)
    }

    /// The path of a step by its name.
    pub(super) fn name_at(&self, model: &Model, step: u64) -> String {
        model.path_at(step, self.seed).to_string()
    }

    /// The network along the path of a step.
    pub(super) fn along(&self, model: &Arc<Model>, step: u64) -> Model {
        Model::along_in(model, &model.path_at(step, self.seed))
    }
}
