//! Reading and writing a step's values from outside: batches, parameters, metrics, anything a person selects.

use super::Step;
use crate::exec::ExecError;
use crate::lower::{LValue, LValueId, Layout};
use crate::model::ParamId;
use crate::plan::Place;
use crate::tensor::{DType, Element, HostTensor};
use std::sync::Arc;

impl Step {
    fn located(&self, id: LValueId) -> Result<(Place, &LValue), ExecError> {
        let value = self.compiled.plan.program.value(id);
        let place = self.compiled.plan.place(id).ok_or_else(|| ExecError::NoValue(value.name.clone()))?;
        Ok((place, value))
    }

    /// A value's elements as they lie in memory.
    ///
    /// # Errors
    /// Where the value has no place, or holds another type.
    pub fn stored<T: Element>(&self, id: LValueId) -> Result<&[T], ExecError> {
        let (place, value) = self.located(id)?;
        let len = value.shape.len();
        if value.dtype != T::DTYPE {
            let name = format!("{} ({})", value.name, value.dtype);
            return Err(ExecError::NoValue(name));
        }
        // SAFETY: the plan gives the value this place, its type was compared, and no step runs while `self` is borrowed.
        Ok(unsafe { self.env.slice(&self.compiled.plan, place, len) })
    }

    /// A value's elements as they lie in memory, to write.
    ///
    /// # Errors
    /// As [`Self::stored`].
    pub fn stored_mut<T: Element>(&mut self, id: LValueId) -> Result<&mut [T], ExecError> {
        let compiled = Arc::clone(&self.compiled);
        let (place, value) = self.located(id)?;
        let len = value.shape.len();
        if value.dtype != T::DTYPE {
            return Err(ExecError::NoValue(format!("{} ({})", value.name, value.dtype)));
        }
        // SAFETY: as in `stored`, and `self` is borrowed exclusively.
        Ok(unsafe { self.env.slice_mut(&compiled.plan, place, len) })
    }

    /// Overwrites a value with elements in memory order.
    ///
    /// # Errors
    /// As [`Self::stored`], and where the number of elements differs.
    pub fn write<T: Element>(&mut self, id: LValueId, values: &[T]) -> Result<(), ExecError> {
        let name = self.compiled.plan.program.value(id).name.clone();
        let target = self.stored_mut::<T>(id)?;
        if target.len() != values.len() {
            return Err(ExecError::Size { name, expected: target.len(), found: values.len() });
        }
        target.copy_from_slice(values);
        Ok(())
    }

    /// A value in logical order, whatever lies in its memory now.
    ///
    /// # Errors
    /// As [`Self::stored`].
    pub fn tensor(&self, id: LValueId) -> Result<HostTensor, ExecError> {
        let value = self.compiled.plan.program.value(id);
        match value.dtype {
            DType::F64 => self.logical::<f64>(id),
            DType::F32 => self.logical::<f32>(id),
            DType::I64 => self.logical::<i64>(id),
            DType::I32 => self.logical::<i32>(id),
            DType::U16 => self.logical::<u16>(id),
            DType::U8 => self.logical::<u8>(id),
            DType::F16 | DType::Bf16 => Err(ExecError::NoValue(value.name.clone())),
        }
    }

    fn logical<T: Element + Default>(&self, id: LValueId) -> Result<HostTensor, ExecError> {
        let stored = self.stored::<T>(id)?;
        let value = self.compiled.plan.program.value(id);
        let order = value.param.and_then(|p| self.compiled.program.params.get(p.0 as usize)).map(|s| s.order);
        let values = match order {
            Some(order)
                if stored.len() == self.compiled.model.params[value.param.map_or(0, |p| p.0 as usize)].shape.len() =>
            {
                order.to_logical(stored)
            }
            _ => to_logical(stored, value.layout),
        };
        HostTensor::from_slice(value.shape.clone(), &values).map_err(|e| ExecError::NoValue(e.to_string()))
    }

    /// The value named so, where the step has it.
    ///
    /// # Errors
    /// Where it has not.
    pub fn find(&self, name: &str) -> Result<LValueId, ExecError> {
        self.compiled.plan.program.find(name).ok_or_else(|| ExecError::NoValue(name.to_owned()))
    }

    /// A parameter or running statistic, row-major in its logical shape.
    ///
    /// # Errors
    /// As [`Self::stored`].
    pub fn param<T: Element + Default>(&self, id: ParamId) -> Result<Vec<T>, ExecError> {
        let slot = &self.compiled.plan.program.params[id.0 as usize];
        Ok(slot.order.to_logical(self.stored::<T>(slot.value)?))
    }

    /// Sets a parameter or running statistic from values in its logical order.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn set_param<T: Element + Default>(&mut self, id: ParamId, values: &[T]) -> Result<(), ExecError> {
        let slot = self.compiled.plan.program.params[id.0 as usize].clone();
        let found = values.len();
        let expected = self.compiled.plan.program.value(slot.value).shape.len();
        if found != expected {
            let name = self.compiled.model.param(id).name.clone();
            return Err(ExecError::Size { name, expected, found });
        }
        self.write(slot.value, &slot.order.to_stored(values))
    }

    /// The gradient of a trained parameter in its logical order, as the last backward pass left it.
    ///
    /// # Errors
    /// As [`Self::stored`].
    pub fn grad<T: Element + Default>(&self, id: ParamId) -> Result<Vec<T>, ExecError> {
        let slot = &self.compiled.plan.program.params[id.0 as usize];
        let grad = slot
            .grad
            .ok_or_else(|| ExecError::NoValue(format!("gradient of {}", self.compiled.model.param(id).name)))?;
        Ok(slot.order.to_logical(self.stored::<T>(grad)?))
    }

    /// Copies a batch of samples in logical order (`[N, C, H, W]` or `[N, features]`) to where the step reads it.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn set_x<T: Element + Default>(&mut self, samples: &[T]) -> Result<(), ExecError> {
        let x = self.compiled.plan.program.x;
        let layout = self.compiled.plan.program.value(x).layout;
        match layout {
            Layout::Plain => self.write(x, samples),
            Layout::ChannelsLast { .. } => self.write(x, &to_stored(samples, layout)),
        }
    }
}

/// Where element `index` of a sample in memory order stands in logical order.
const fn logical_index(index: usize, c: usize, h: usize, w: usize) -> usize {
    let (ci, spot) = (index % c, index / c);
    ci * (h * w) + spot
}

/// Samples in logical order from samples as they lie.
#[must_use]
pub(crate) fn to_logical<T: Copy + Default>(stored: &[T], layout: Layout) -> Vec<T> {
    let Layout::ChannelsLast { c, h, w } = layout else { return stored.to_vec() };
    let size = c * h * w;
    let mut out = vec![T::default(); stored.len()];
    for (i, &v) in stored.iter().enumerate() {
        out[i / size * size + logical_index(i % size, c, h, w)] = v;
    }
    out
}

/// Samples as they lie from samples in logical order.
#[must_use]
pub(crate) fn to_stored<T: Copy + Default>(logical: &[T], layout: Layout) -> Vec<T> {
    let Layout::ChannelsLast { c, h, w } = layout else { return logical.to_vec() };
    let size = c * h * w;
    (0..logical.len()).map(|i| logical[i / size * size + logical_index(i % size, c, h, w)]).collect()
}
