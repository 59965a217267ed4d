//! Where the plan puts a value.

use super::ExecError;
use crate::compile::Compiled;
use crate::lower::{LValue, LValueId};
use crate::plan::{BindingPlan, Buffer, Place};

/// A value with its place.
pub(super) fn located(compiled: &Compiled, id: LValueId) -> Result<(Place, &LValue), ExecError> {
    let value = compiled.plan.program.value(id);
    let place = compiled.plan.place(id).ok_or_else(|| ExecError::NoValue(value.name.clone()))?;
    Ok((place, value))
}

/// Where the memory of `owner` has the buffers that `plan` does not own, by buffer of `plan`; nothing for its own ones.
/// This is the only place that says which buffers of two plans are the same.
///
/// # Errors
/// Where the owner lacks one.
pub(super) fn shared_offsets(plan: &BindingPlan, owner: &BindingPlan) -> Result<Vec<Option<u64>>, ExecError> {
    let offset = |buffer: &Buffer| {
        if !buffer.external {
            return Ok(None);
        }
        let theirs = owner.buffers.iter().find(|b| b.name == buffer.name && b.bytes == buffer.bytes);
        theirs.map(|b| Some(b.offset)).ok_or_else(|| ExecError::NoValue(buffer.name.clone()))
    };
    plan.buffers.iter().map(offset).collect()
}
