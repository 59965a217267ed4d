//! The place of a value in the plan.

use crate::compile::Compiled;
use crate::exec::error::ExecError;
use crate::lower::{LValue, LValueId};
use crate::plan::Place;

/// A value with its place.
pub(super) fn located(compiled: &Compiled, id: LValueId) -> Result<(Place, &LValue), ExecError> {
    let value = compiled.plan.program.value(id);
    let place = compiled.plan.place(id).ok_or_else(|| ExecError::NoValue(value.name.clone()))?;
    Ok((place, value))
}
