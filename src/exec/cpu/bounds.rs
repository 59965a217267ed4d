//! Runs a step on numbers that carry a bound for their rounding error: the largest error of its kernels, element by
//! element.

use super::kernels::reference::bounded::{Bounded, take_undecided};
use super::values::Values;
use crate::compile::Compiled;
use crate::exec::backend::StepBackend;
use crate::exec::error::ExecError;
use crate::lower::LValueId;
use crate::rewrite::stored_in_half;
use std::sync::Arc;

/// The error of rounding to the type in which a step stores its activations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Storage {
    /// Relative to the value; 0 where activations are stored in `f32`.
    pub relative: f64,
    /// Absolute, for types whose smallest numbers are large.
    pub absolute: f64,
    /// The largest number of the type in which activations are stored, if the range matters: values that may exceed it
    /// may be infinite, and have no bound.
    pub largest: f64,
}

impl Default for Storage {
    /// Nothing is rounded.
    fn default() -> Self {
        Self { relative: 0.0, absolute: 0.0, largest: f64::INFINITY }
    }
}

/// The values of a compiled step as [`Bounded`] numbers. The program must be one that the reference kernels can run.
pub struct BoundedStep<const SUM: i32, const PRODUCT: i32> {
    values: Values<Bounded<SUM, PRODUCT>>,
    storage: Storage,
    /// By value, whether a step with half-width activations stores it in half width; empty if the type's range does not
    /// matter.
    narrow: Vec<bool>,
}

impl<const SUM: i32, const PRODUCT: i32> BoundedStep<SUM, PRODUCT> {
    #[must_use]
    pub fn new(compiled: Arc<Compiled>, storage: Storage) -> Self {
        let is_limited = storage.largest.is_finite();
        let narrow = if is_limited { stored_in_half(&compiled.plan.program) } else { Vec::new() };
        Self { values: Values::new(compiled), storage, narrow }
    }

    /// Copies the memory of `step` before it runs: the batch, and everything that survives a step. All values are
    /// considered exact except the batch, which is stored like activations.
    ///
    /// # Errors
    /// If `step` was made from another program.
    pub fn load_state(&mut self, step: &dyn StepBackend) -> Result<(), ExecError> {
        self.values.load_state(step, Bounded::exact)?;
        let inputs: Vec<LValueId> = self.values.compiled().plan.program.inputs.ids().collect();
        inputs.into_iter().for_each(|id| self.store(id));
        Ok(())
    }

    /// Copies the arguments of operation `op` from the memory of `step`, which must have the same program.
    ///
    /// # Errors
    /// As [`Self::load_state`].
    pub fn load_arguments(&mut self, step: &dyn StepBackend, op: usize) -> Result<(), ExecError> {
        self.values.load_arguments(step, op, Bounded::exact)
    }

    /// Runs operations `from..to` with the reference kernels, and returns how many maxima have a position that rounding
    /// may change.
    ///
    /// # Errors
    /// If an operation has no reference kernel.
    pub fn run(&mut self, from: usize, to: usize) -> Result<u64, ExecError> {
        take_undecided();
        let compiled = Arc::clone(self.values.compiled());
        for (index, op) in compiled.plan.program.ops.iter().enumerate().take(to).skip(from) {
            self.values.run(index, &mut [])?;
            op.writes().for_each(|id| self.store(id));
        }
        Ok(take_undecided())
    }

    /// Stores a value for the operations that read it, and adds the rounding error of storing unless the value survives
    /// the step.
    fn store(&mut self, id: LValueId) {
        let program = &self.values.compiled().plan.program;
        // The output may be stored for its readers, and is stored like all activations.
        let is_activation = program.inputs.contains(id) || program.root(id) == program.root(program.output);
        let is_kept = program.value(program.root(id).0).persistent && !is_activation;
        let mut storage = if is_kept { Storage::default() } else { self.storage };
        if !self.narrow.get(id.0 as usize).is_some_and(|narrow| *narrow) {
            storage.largest = f64::INFINITY;
        }
        for real in self.values.reals_mut(id) {
            *real = real.stored();
            if real.value != 0.0 || real.error != 0.0 {
                real.error += storage.relative * real.value.abs() + storage.absolute;
            }
            if real.value.abs() + real.error > storage.largest {
                real.error = f64::INFINITY;
            }
        }
    }

    /// A real value's elements in memory order; `None` if it contains no reals or was never computed.
    #[must_use]
    pub fn reals(&self, id: LValueId) -> Option<&[Bounded<SUM, PRODUCT>]> {
        self.values.reals(id)
    }

    /// The bytes of a value that contains no reals; `None` if it does, or was never computed.
    #[must_use]
    pub fn raw(&self, id: LValueId) -> Option<&[u8]> {
        self.values.raw(id)
    }
}
