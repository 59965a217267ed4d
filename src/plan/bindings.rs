//! Binds a selection: which values share memory, the live range of each value, and where it is stored.

use super::arena::{self, Budget, Item, Problem, Report};
use super::inplace::{alias_in_place, roots};
use super::{ALIGN, BindingPlan, Buffer, BufferId, EXTERNAL, Part, Place, StateKey, referee};
use crate::ir::{Mode, Role};
use crate::lower::{LValueId, Program};
use crate::ops::Dir;
use crate::select::Selection;
use crate::tensor::{DType, Shape, align_up};
use thiserror::Error;

/// Why a program cannot be bound.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum PlanError {
    #[error("the buffers cannot be placed: {0}")]
    Problem(#[from] arena::ProblemError),
    #[error("the arena's referee rejects the placement: {0}")]
    Arena(#[from] arena::Violation),
    #[error("the plan's referee: {0}")]
    Dataflow(#[from] referee::DataflowError),
    #[error("the step takes more than {limit} bytes")]
    TooLarge { limit: u64 },
}

/// More bytes than this are considered a mistake.
const MAX_BYTES: u64 = 1 << 46;

struct Binder {
    program: Program,
    buffers: Vec<Buffer>,
    buffer_of: Vec<Option<BufferId>>,
    starts: Vec<usize>,
    workspaces: Vec<Option<BufferId>>,
}

/// Binds a selection: decides what runs in place, the live range of each value, and where it is stored; the result is
/// checked by the referees.
///
/// # Errors
/// If the program is too large to place, or a referee rejects the result (which would be a defect of this program).
pub fn bind(selection: &Selection, budget: Budget) -> Result<BindingPlan, PlanError> {
    let mut program = selection.program.clone();
    alias_in_place(&mut program, &selection.groups);
    let count = program.values.len();
    let mut b = Binder {
        starts: vec![0; count],
        buffer_of: vec![None; count],
        workspaces: vec![None; program.ops.len()],
        buffers: Vec::new(),
        program,
    };
    b.make_buffers();
    b.make_workspaces(selection);
    b.lives();
    b.widen(&selection.groups);
    let (report, persistent_bytes) = b.place(budget)?;
    let places = (0..count)
        .map(|i| {
            let buffer = b.buffer_of[i]?;
            let size = b.program.values[i].dtype.size() as u64;
            Some(Place { buffer, offset: b.buffers[buffer.0 as usize].offset + b.starts[i] as u64 * size })
        })
        .collect();
    let plan = BindingPlan {
        places,
        workspaces: b.workspaces,
        groups: selection.groups.clone(),
        persistent_bytes,
        arena_bytes: persistent_bytes + report.placement.height,
        lower_bound_bytes: persistent_bytes + report.lower_bound,
        unshared_bytes: persistent_bytes + report.unshared,
        report,
        buffers: b.buffers,
        program: b.program,
    };
    referee::check(&plan)?;
    Ok(plan)
}

impl Binder {
    /// One buffer for every root that any operation or the host touches.
    fn make_buffers(&mut self) {
        let roots = roots(&self.program);
        let mut used = vec![false; self.program.values.len()];
        for op in &self.program.ops {
            for id in op.args.iter().flatten() {
                used[roots[id.0 as usize].0.0 as usize] = true;
            }
        }
        for (index, (root, start)) in roots.iter().enumerate() {
            self.starts[index] = *start;
            let root_value = self.program.value(*root);
            if !used[root.0 as usize] && !root_value.persistent {
                continue;
            }
            let r = root.0 as usize;
            let id = *self.buffer_of[r].get_or_insert_with(|| {
                let value = root_value.clone();
                self.buffers.push(Buffer {
                    bytes: align_up(value.bytes().max(1), ALIGN),
                    name: value.name,
                    role: value.role,
                    shape: value.shape,
                    dtype: value.dtype,
                    offset: 0,
                    live: [usize::MAX, 0],
                    key: StateKey::of_root(&self.program, *root),
                    persistent: value.persistent,
                    layer: value.layer,
                    values: Vec::new(),
                    parts: Vec::new(),
                    writers: Vec::new(),
                    readers: Vec::new(),
                });
                BufferId(self.buffers.len() as u32 - 1)
            });
            self.buffer_of[index] = Some(id);
            self.buffers[id.0 as usize].values.push(LValueId(index as u32));
        }
        self.tell_keys_apart();
        self.make_parts();
    }

    /// Numbers the keys of buffers with the same name, such as the counters of several operations of one kind.
    fn tell_keys_apart(&mut self) {
        let mut seen = std::collections::HashMap::new();
        for key in self.buffers.iter_mut().filter_map(|b| b.key.as_mut()) {
            let count = seen.entry(key.clone()).and_modify(|n| *n += 1).or_insert(0usize);
            if *count > 0 {
                key.of = format!("{} {count}", key.of);
            }
        }
    }

    /// The parameters inside flat vectors.
    fn make_parts(&mut self) {
        for buffer in &mut self.buffers {
            let root = buffer.values.iter().copied().find(|v| self.program.value(*v).alias.is_none());
            let mut seen = std::collections::HashSet::new();
            for &id in &buffer.values {
                let value = self.program.value(id);
                let start = self.starts[id.0 as usize];
                if value.param.is_none() || Some(id) == root || !seen.insert(start) {
                    continue;
                }
                let size = value.dtype.size() as u64;
                let (name, shape) = (value.name.clone(), value.shape.clone());
                let bytes = align_up(value.bytes().max(1), ALIGN * size / 4);
                buffer.parts.push(Part {
                    name,
                    shape,
                    start: start as u64 * size,
                    bytes,
                    layer: value.layer,
                    value: id,
                });
            }
            buffer.parts.sort_by_key(|p| p.start);
        }
    }

    fn make_workspaces(&mut self, selection: &Selection) {
        for (index, choice) in selection.choices.iter().enumerate() {
            if choice.workspace_bytes == 0 {
                continue;
            }
            let op = &self.program.ops[index];
            self.workspaces[index] = Some(BufferId(self.buffers.len() as u32));
            self.buffers.push(Buffer {
                name: format!("work.{index}.{}", choice.kernel),
                role: Role::Workspace,
                shape: Shape::from([choice.workspace_bytes as usize]),
                dtype: DType::U8,
                bytes: align_up(choice.workspace_bytes, ALIGN),
                offset: 0,
                live: [index, index + 1],
                persistent: false,
                key: None,
                layer: op.layer,
                values: Vec::new(),
                parts: Vec::new(),
                writers: vec![index],
                readers: vec![index],
            });
        }
    }

    fn lives(&mut self) {
        let ops = self.program.ops.len();
        for (index, op) in self.program.ops.iter().enumerate() {
            for dir in [Dir::In, Dir::Out] {
                for (_, value) in op.bound(dir) {
                    let Some(id) = self.buffer_of[value.0 as usize] else { continue };
                    let buffer = &mut self.buffers[id.0 as usize];
                    buffer.live = [buffer.live[0].min(index), buffer.live[1].max(index + 1)];
                    let list = if dir == Dir::In { &mut buffer.readers } else { &mut buffer.writers };
                    if list.last() != Some(&index) {
                        list.push(index);
                    }
                }
            }
        }
        for buffer in self.buffers.iter_mut().filter(|b| b.persistent) {
            buffer.live = [0, ops.max(1)];
        }
    }

    /// A buffer that a member of a group accesses is in use while any member runs.
    fn widen(&mut self, groups: &[u32]) {
        if groups.is_empty() {
            return;
        }
        let first = |op: usize| groups.partition_point(|g| *g < groups[op]);
        let past = |op: usize| groups.partition_point(|g| *g <= groups[op]);
        for buffer in self.buffers.iter_mut().filter(|b| !b.persistent && b.live[0] < b.live[1]) {
            buffer.live = [first(buffer.live[0]), past(buffer.live[1] - 1)];
        }
    }

    /// Persistent buffers one after the other, followed by those that the arena's planners place.
    fn place(&mut self, budget: Budget) -> Result<(Report, u64), PlanError> {
        let total = self.buffers.iter().try_fold(0u64, |sum, b| sum.checked_add(b.bytes));
        if total.is_none_or(|t| t > MAX_BYTES) {
            return Err(PlanError::TooLarge { limit: MAX_BYTES });
        }
        let (mut persistent, mut external) = (0, EXTERNAL);
        let is_training = self.program.mode == Mode::Train;
        for buffer in self.buffers.iter_mut().filter(|b| b.persistent) {
            // Buffers of an evaluation that have a key belong to the training step.
            let is_own = is_training || buffer.key.is_none();
            let next = if is_own { &mut persistent } else { &mut external };
            buffer.offset = *next;
            *next += buffer.bytes;
        }
        let transient: Vec<usize> = (0..self.buffers.len()).filter(|&i| !self.buffers[i].persistent).collect();
        let item = |&i: &usize| {
            let Buffer { live, bytes, .. } = &self.buffers[i];
            Item { lower: live[0] as u64, upper: live[1] as u64, size: *bytes, align: ALIGN }
        };
        let problem = Problem::new(transient.iter().map(item).collect())?;
        let report = arena::plan_best(&problem, budget);
        arena::referee::check(&problem, &report.placement)?;
        for (&i, offset) in transient.iter().zip(&report.placement.offsets) {
            self.buffers[i].offset = persistent + offset;
        }
        Ok((report, persistent))
    }
}
