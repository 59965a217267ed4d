//! The plan for running a step: every buffer with its role, live range and place.

use super::arena::{self, Item, Problem, Report};
use super::{ALIGN, StateKey};
use crate::ir::Role;
use crate::lower::{LValueId, Op, Program};
use crate::model::LayerId;
use crate::ops::Dir;
use crate::tensor::{DType, Shape, position_id};
use serde::{Deserialize, Serialize};
use std::ops::Range;

position_id! {
    /// A buffer of a plan: its position in [`BindingPlan::buffers`].
    BufferId
}

/// A range of memory with one owner at a time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Buffer {
    pub name: String,
    pub role: Role,
    pub shape: Shape,
    pub dtype: DType,
    /// Bytes taken, padding up to the alignment included.
    pub bytes: u64,
    /// First byte in the arena; a multiple of [`ALIGN`].
    pub offset: u64,
    /// First operation that writes or reads it, and one past the last; the whole step for what survives it.
    pub live: [usize; 2],
    /// True if it exists before the step or is read after it.
    pub persistent: bool,
    /// Its key among everything that survives the steps of the network; `None` if it belongs only to this step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<StateKey>,
    pub layer: Option<LayerId>,
    /// The values in it, the first of which names it.
    pub values: Vec<LValueId>,
    /// The parameters or their gradients or moments, for a flat vector.
    pub parts: Vec<Part>,
    /// Operations that write it and read it, in order.
    pub writers: Vec<usize>,
    pub readers: Vec<usize>,
}

/// One parameter's stretch of a flat vector.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Part {
    pub name: String,
    pub shape: Shape,
    /// First byte from the start of the buffer.
    pub start: u64,
    /// Bytes taken, padding included.
    pub bytes: u64,
    pub layer: Option<LayerId>,
    pub value: LValueId,
}

/// Where a value is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    pub buffer: BufferId,
    /// First byte in the arena.
    pub offset: u64,
}

/// A scalar of an operation: a constant baked into the recording, or a value read from memory at every replay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Constant {
    pub op: usize,
    pub name: String,
    /// The baked-in value, or the buffer that it is read from.
    pub value: String,
    pub live: bool,
}

/// A program with every value in its place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BindingPlan {
    /// The selected program, with values that are updated in place marked as aliases.
    pub program: Program,
    pub buffers: Vec<Buffer>,
    /// The place of every value, by [`LValueId`]; `None` for values that fusion has removed.
    pub places: Vec<Option<Place>>,
    /// The scratch buffer of every operation that has one.
    pub workspaces: Vec<Option<BufferId>>,
    /// The group of each operation, if members of a group may run at the same time; empty if every operation runs
    /// alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<u32>,
    /// The size of what survives the step, in bytes; it is stored first.
    pub persistent_bytes: u64,
    /// Bytes of the whole arena.
    pub arena_bytes: u64,
    /// The largest sum of live bytes: no placement is smaller.
    pub lower_bound_bytes: u64,
    /// The sum of all buffers.
    pub unshared_bytes: u64,
    /// How the buffers that share memory were placed.
    pub report: Report,
}

/// Buffers that belong to another plan have offsets from here on, outside every arena.
pub const EXTERNAL: u64 = 1 << 48;

impl Buffer {
    /// True if the memory belongs to another plan: an evaluation's parameters are those of the training step.
    #[must_use]
    pub const fn is_external(&self) -> bool {
        self.offset >= EXTERNAL
    }
}

impl BindingPlan {
    /// The place of a value, if it has one.
    #[must_use]
    pub fn place(&self, id: LValueId) -> Option<Place> {
        self.places[id.0 as usize]
    }

    /// The place of the argument in a slot of an operation, including scratch memory; `None` if the slot is unused.
    #[must_use]
    pub fn argument(&self, op: usize, slot: usize) -> Option<Place> {
        let operation = &self.program.ops[op];
        match operation.kind.slots()[slot].dir {
            Dir::Work => self.workspaces[op].map(|b| Place { buffer: b, offset: self.buffer(b).offset }),
            Dir::In | Dir::Out | Dir::InOut => operation.args[slot].and_then(|value| self.place(value)),
        }
    }

    #[must_use]
    pub fn buffer(&self, id: BufferId) -> &Buffer {
        &self.buffers[id.0 as usize]
    }

    /// Bytes of a buffer up to the end of its last value. The bytes after them are padding, which no operation needs.
    #[must_use]
    pub fn value_bytes(&self, id: BufferId) -> u64 {
        let buffer = self.buffer(id);
        let end = |value: &LValueId| Some(self.place(*value)?.offset + self.program.value(*value).bytes());
        buffer.values.iter().filter_map(end).max().map_or(buffer.bytes, |end| (end - buffer.offset).min(buffer.bytes))
    }

    /// The buffer of a value, and which of its parts the value is; no parts if it is the whole buffer.
    #[must_use]
    pub fn parts_of(&self, value: LValueId) -> Option<(BufferId, Range<usize>)> {
        let place = self.place(value)?;
        let buffer = self.buffer(place.buffer);
        let from = place.offset - buffer.offset;
        let to = from + self.program.value(value).bytes();
        let touches = |p: &&Part| p.start < to && from < p.start + p.bytes;
        let count = buffer.parts.iter().filter(touches).count();
        let first = buffer.parts.iter().position(|p| touches(&p)).unwrap_or(0);
        Some((place.buffer, if count == buffer.parts.len() { 0..0 } else { first..first + count }))
    }

    /// The operations that write to a part of a buffer, or that read it, in order.
    #[must_use]
    pub fn ops_of_part(&self, id: BufferId, part: usize, dir: Dir) -> Vec<usize> {
        let Some(buffer) = self.buffers.get(id.0 as usize) else { return Vec::new() };
        let ops = if dir == Dir::Out { &buffer.writers } else { &buffer.readers };
        let touches = |value: LValueId| {
            self.parts_of(value).is_some_and(|(b, parts)| b == id && (parts.is_empty() || parts.contains(&part)))
        };
        let binds = |op: &usize| self.program.ops.get(*op).is_some_and(|o| o.bound(dir).any(|(_, v)| touches(v)));
        ops.iter().copied().filter(binds).collect()
    }

    /// The arena's height divided by its lower bound.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        if self.lower_bound_bytes == 0 { 1.0 } else { self.arena_bytes as f64 / self.lower_bound_bytes as f64 }
    }

    /// The placement problem of the buffers that share memory, with their positions in [`Self::buffers`].
    ///
    /// # Errors
    /// Never for a plan that [`bind`](super::bind) made.
    pub fn problem(&self) -> Result<(Problem, Vec<BufferId>), arena::ProblemError> {
        let ids: Vec<BufferId> =
            (0..self.buffers.len() as u32).map(BufferId).filter(|b| !self.buffer(*b).persistent).collect();
        let item = |id: &BufferId| {
            let b = self.buffer(*id);
            Item { lower: b.live[0] as u64, upper: b.live[1] as u64, size: b.bytes, align: ALIGN }
        };
        Ok((Problem::new(ids.iter().map(item).collect())?, ids))
    }

    /// Live bytes at every operation.
    #[must_use]
    pub fn live_bytes(&self) -> Vec<u64> {
        let mut change = vec![0i64; self.program.ops.len() + 2];
        for b in self.buffers.iter().filter(|b| b.live[0] < b.live[1] && !b.is_external()) {
            change[b.live[0]] += b.bytes as i64;
            change[b.live[1]] -= b.bytes as i64;
        }
        let mut sum = 0i64;
        change[..self.program.ops.len()]
            .iter()
            .map(|c| {
                sum += c;
                sum as u64
            })
            .collect()
    }

    /// Every scalar of every operation, frozen or read from memory.
    #[must_use]
    pub fn constants(&self) -> Vec<Constant> {
        let mut out = Vec::new();
        for (index, op) in self.program.ops.iter().enumerate() {
            out.extend(frozen(op).into_iter().map(|(name, value)| Constant { op: index, name, value, live: false }));
            for (slot, value) in op.kind.slots().iter().zip(&op.args).filter(|(slot, _)| slot.live) {
                if let Some(value) = value {
                    let value = self.program.value(*value).name.clone();
                    out.push(Constant { op: index, name: slot.name.to_owned(), value, live: true });
                }
            }
        }
        out
    }
}

/// The scalars frozen into an operation: its fields that are neither sizes nor lists, and the number of parameters
/// without weight decay, if there are any.
fn frozen(op: &Op) -> Vec<(String, String)> {
    let Ok(serde_json::Value::Object(fields)) = serde_json::to_value(&op.kind) else { return Vec::new() };
    let scalar = |v: &serde_json::Value| v.is_f64() || v.is_boolean() || v.is_string();
    let whole = op.kind.whole_constants();
    let is_constant = |k: &str, v: &serde_json::Value| k != "op" && (scalar(v) || whole.contains(&k));
    let mut out: Vec<(String, String)> =
        fields.into_iter().filter(|(k, v)| is_constant(k, v)).map(|(k, v)| (k, v.to_string())).collect();
    if let Some(update) = op.kind.flat_update().filter(|update| !update.options.exempt.is_empty()) {
        let (exempt, all) = (update.options.exempt.len(), update.segments.len());
        out.push(("no_decay".into(), format!("{exempt} of {all} parameters")));
    }
    out
}
