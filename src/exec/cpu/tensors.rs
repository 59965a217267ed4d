//! A step's values as bytes of its memory.

use super::step::Step;
use crate::exec::error::ExecError;
use crate::exec::location::located;
use crate::lower::LValueId;
use std::sync::Arc;

impl Step {
    /// The bytes of a value as they are in memory, for any type.
    ///
    /// # Errors
    /// If the value has no memory.
    pub fn bytes(&self, id: LValueId) -> Result<&[u8], ExecError> {
        let (place, value) = located(&self.compiled, id)?;
        // SAFETY: the plan gives the value this place and size, and no step runs while `self` is borrowed.
        Ok(unsafe { self.env.slice(&self.compiled.plan, place, value.bytes() as usize) })
    }

    /// Like [`Self::bytes`], mutable.
    ///
    /// # Errors
    /// As [`Self::bytes`].
    pub fn bytes_mut(&mut self, id: LValueId) -> Result<&mut [u8], ExecError> {
        let compiled = Arc::clone(&self.compiled);
        let (place, value) = located(&self.compiled, id)?;
        // SAFETY: as in `bytes`, and `self` is borrowed exclusively.
        Ok(unsafe { self.env.slice_mut(&compiled.plan, place, value.bytes() as usize) })
    }
}
