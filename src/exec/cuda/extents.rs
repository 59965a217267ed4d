//! The ranges of bytes that an operation reads and writes, as places of the plan.

use super::arguments::Range;
use crate::compile::Compiled;
use crate::ops::Dir;

/// The bytes that an operation writes, including scratch memory and counters.
pub(super) fn writes(compiled: &Compiled, op: usize) -> Vec<Range> {
    let plan = &compiled.plan;
    let operation = &plan.program.ops[op];
    let slots = operation.kind.slots().iter().enumerate();
    let written = slots.filter(|(_, slot)| slot.dir != Dir::In);
    written.filter_map(|(index, slot)| extent(compiled, op, index, slot.dir)).collect()
}

/// The bytes that an operation reads.
pub(super) fn reads(compiled: &Compiled, op: usize) -> Vec<Range> {
    let slots = compiled.plan.program.ops[op].kind.slots().iter().enumerate();
    slots.filter(|(_, slot)| slot.dir.is_read()).filter_map(|(index, _)| extent(compiled, op, index, Dir::In)).collect()
}

/// The bytes of an operation's argument.
pub(super) fn extent(compiled: &Compiled, op: usize, slot: usize, dir: Dir) -> Option<Range> {
    let plan = &compiled.plan;
    let place = plan.argument(op, slot)?;
    let bytes = match dir {
        Dir::Work => plan.buffer(place.buffer).bytes,
        Dir::In | Dir::Out | Dir::InOut => plan.program.value(plan.program.ops[op].args[slot]?).bytes(),
    };
    Some((place.offset, place.offset + bytes))
}
