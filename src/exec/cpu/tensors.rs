//! A step's values as slices of its memory.

use super::Step;
use crate::exec::ExecError;
use crate::exec::step::located;
use crate::lower::LValueId;
use crate::tensor::Element;
use std::sync::Arc;

impl Step {
    /// A value's elements as they lie in memory.
    ///
    /// # Errors
    /// Where the value has no place, or holds another type.
    pub fn stored<T: Element>(&self, id: LValueId) -> Result<&[T], ExecError> {
        let (place, value) = located(&self.compiled, id)?;
        let len = value.shape.len();
        if value.dtype != T::DTYPE {
            let name = format!("{} ({})", value.name, value.dtype);
            return Err(ExecError::NoValue(name));
        }
        // SAFETY: the plan gives the value this place, its type was compared, and no step runs while `self` is borrowed.
        Ok(unsafe { self.env.slice(&self.compiled.plan, place, len) })
    }

    /// The bytes of a value as they are in memory, whatever its type.
    ///
    /// # Errors
    /// Where the value has no place.
    pub fn raw(&self, id: LValueId) -> Result<&[u8], ExecError> {
        let (place, value) = located(&self.compiled, id)?;
        // SAFETY: the plan gives the value this place and size, and no step runs while `self` is borrowed.
        Ok(unsafe { self.env.slice(&self.compiled.plan, place, value.bytes() as usize) })
    }

    /// A value's elements as they lie in memory, to write.
    ///
    /// # Errors
    /// As [`Self::stored`].
    pub fn stored_mut<T: Element>(&mut self, id: LValueId) -> Result<&mut [T], ExecError> {
        let compiled = Arc::clone(&self.compiled);
        let (place, value) = located(&self.compiled, id)?;
        let len = value.shape.len();
        if value.dtype != T::DTYPE {
            return Err(ExecError::NoValue(format!("{} ({})", value.name, value.dtype)));
        }
        // SAFETY: as in `stored`, and `self` is borrowed exclusively.
        Ok(unsafe { self.env.slice_mut(&compiled.plan, place, len) })
    }
}
