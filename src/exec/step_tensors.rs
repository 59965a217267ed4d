//! The parameters, gradients and inputs of a step in their logical order.

use super::error::ExecError;
use super::layout::samples_to_stored;
use super::step::Step;
use crate::lower::{LValueId, Layout};
use crate::model::ParamId;
use crate::tensor::Element;

impl Step {
    /// A parameter or running statistic, row-major in its logical shape.
    ///
    /// # Errors
    /// As [`Self::stored`].
    pub fn param<T: Element + Default>(&self, id: ParamId) -> Result<Vec<T>, ExecError> {
        let slot = &self.compiled().plan.program.params[id.0 as usize];
        Ok(slot.order.to_logical(&self.stored::<T>(slot.value)?))
    }

    /// Sets a parameter or running statistic from values in its logical order.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn set_param<T: Element + Default>(&mut self, id: ParamId, values: &[T]) -> Result<(), ExecError> {
        let slot = self.compiled().plan.program.params[id.0 as usize].clone();
        let found = values.len();
        let expected = self.compiled().plan.program.value(slot.value).shape.len();
        if found != expected {
            let name = self.compiled().model.param(id).name.clone();
            return Err(ExecError::Size { name, expected, found });
        }
        let stored = slot.order.to_stored(values);
        if self.compiled().plan.program.value(slot.value).dtype == T::DTYPE {
            self.store().revise();
            return self.backend.write_once(slot.value, bytemuck::cast_slice(&stored));
        }
        self.write(slot.value, &stored)
    }

    /// The gradient of a trained parameter in its logical order, as the last backward pass left it.
    ///
    /// # Errors
    /// As [`Self::stored`].
    pub fn grad<T: Element + Default>(&self, id: ParamId) -> Result<Vec<T>, ExecError> {
        let compiled = self.compiled();
        let slot = &compiled.plan.program.params[id.0 as usize];
        let grad =
            slot.grad.ok_or_else(|| ExecError::NoValue(format!("gradient of {}", compiled.model.param(id).name)))?;
        Ok(slot.order.to_logical(&self.stored::<T>(grad)?))
    }

    /// Copies a batch of the first input in logical order (`[N, C, H, W]` or `[N, features]`) to the memory that the
    /// step reads.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn set_x<T: Element + Default>(&mut self, samples: &[T]) -> Result<(), ExecError> {
        self.set_input(self.compiled().plan.program.samples(), samples)
    }

    /// Like [`Self::set_x`], for any input of the step.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn set_input<T: Element + Default>(&mut self, x: LValueId, samples: &[T]) -> Result<(), ExecError> {
        let layout = self.compiled().plan.program.value(x).layout;
        match layout {
            Layout::Plain => self.write(x, samples),
            Layout::ChannelsLast { .. } => self.write(x, &samples_to_stored(samples, layout)),
        }
    }
}
