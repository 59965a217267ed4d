//! The values of a step in another number type than the step's own, on which the plain loops run.

use super::call::{Call, MAX_ARGS, Part};
use super::kernels::reference::{self, Real};
use crate::compile::Compiled;
use crate::exec::backend::StepBackend;
use crate::exec::error::ExecError;
use crate::lower::LValueId;
use crate::ops::Dir;
use crate::tensor::DType;
use std::sync::Arc;

/// The memory of one value that is not an alias.
enum Memory<N> {
    Reals(Vec<N>),
    /// Labels, counters, masks and indices, byte for byte as in the step; aligned to 8 bytes.
    Raw(Vec<u64>),
}

/// The values of a compiled step. The program must be one that the reference kernels can run.
pub(super) struct Values<N> {
    compiled: Arc<Compiled>,
    /// By value; `None` for aliases and for values that were not needed yet.
    memory: Vec<Option<Memory<N>>>,
}

impl<N: Real> Values<N> {
    pub(super) fn new(compiled: Arc<Compiled>) -> Self {
        let memory = compiled.plan.program.values.iter().map(|_| None).collect();
        Self { compiled, memory }
    }

    pub(super) const fn compiled(&self) -> &Arc<Compiled> {
        &self.compiled
    }

    /// Copies the memory of `step` before it runs: the batch, and everything that survives a step.
    pub(super) fn load_state(&mut self, step: &dyn StepBackend, number: fn(f64) -> N) -> Result<(), ExecError> {
        let compiled = Arc::clone(&self.compiled);
        let program = &compiled.plan.program;
        let ids = (0..program.values.len()).map(|i| LValueId(i as u32));
        let before = |id: &LValueId| program.value(*id).persistent || program.inputs.contains(*id);
        for id in ids.filter(before).filter(|id| compiled.plan.place(*id).is_some()) {
            self.load(step, id, number)?;
        }
        Ok(())
    }

    /// Copies the arguments of operation `op` from the memory of `step`, which must have the same program.
    pub(super) fn load_arguments(
        &mut self,
        step: &dyn StepBackend,
        op: usize,
        number: fn(f64) -> N,
    ) -> Result<(), ExecError> {
        let compiled = Arc::clone(&self.compiled);
        compiled.plan.program.ops[op].args.iter().flatten().try_for_each(|id| self.load(step, *id, number))
    }

    fn load(&mut self, step: &dyn StepBackend, id: LValueId, number: fn(f64) -> N) -> Result<(), ExecError> {
        let (root, _) = self.compiled.plan.program.root(id);
        let value = self.compiled.plan.program.value(root);
        let bytes = step.bytes(root)?;
        let memory = match value.dtype {
            DType::F64 => {
                Memory::Reals(bytemuck::pod_collect_to_vec::<u8, f64>(&bytes).into_iter().map(number).collect())
            }
            DType::F32 => {
                let reals = bytemuck::pod_collect_to_vec::<u8, f32>(&bytes);
                Memory::Reals(reals.into_iter().map(|v| number(f64::from(v))).collect())
            }
            _ => {
                let mut words = vec![0u64; value.bytes().div_ceil(8) as usize];
                bytemuck::cast_slice_mut(&mut words)[..value.bytes() as usize].copy_from_slice(&bytes);
                Memory::Raw(words)
            }
        };
        self.memory[root.0 as usize] = Some(memory);
        Ok(())
    }

    /// Runs operation `index` with its reference kernel. Slots that are named in `instead` read those numbers instead
    /// of their values.
    pub(super) fn run(&mut self, index: usize, instead: &mut [(&str, Vec<N>)]) -> Result<(), ExecError> {
        let compiled = Arc::clone(&self.compiled);
        let op = &compiled.plan.program.ops[index];
        if op.kind.is_for_gpus() {
            let kernel = format!("{} on plain loops", op.kind.name());
            return Err(ExecError::MissingKernel { op: index, kernel });
        }
        let mut ptr = [std::ptr::null_mut(); MAX_ARGS];
        for ((slot, at), arg) in op.kind.slots().iter().zip(&mut ptr).zip(&op.args) {
            if let Some(id) = arg.filter(|_| slot.dir != Dir::Work) {
                let other = instead.iter_mut().find(|(name, _)| *name == slot.name);
                *at = other.map_or_else(|| self.pointer(id), |(_, numbers)| numbers.as_mut_ptr().cast());
            }
        }
        let kernel = reference::resolve::<N>();
        let (op_kind, phases, parallel, around) = (op.kind.clone(), 1, false, None);
        let call = Call { run: kernel.run, op: op_kind, ptr, table: kernel.table, phases, parallel, around };
        // SAFETY: every pointer is to memory of this step, or of the caller, that holds the whole value, in numbers of
        // the kernel's type or as the plan's own integers, and nothing else runs on it.
        unsafe { (call.run)(&call, Part::WHOLE) };
        Ok(())
    }

    /// The address of a value's first element; its memory is allocated if it does not exist yet.
    fn pointer(&mut self, id: LValueId) -> *mut u8 {
        let (root, start) = self.compiled.plan.program.root(id);
        let value = self.compiled.plan.program.value(root);
        let memory = self.memory[root.0 as usize].get_or_insert_with(|| match value.dtype {
            DType::F64 | DType::F32 => Memory::Reals(vec![N::ZERO; value.shape.len()]),
            _ => Memory::Raw(vec![0; value.bytes().div_ceil(8) as usize]),
        });
        match memory {
            Memory::Reals(reals) => reals[start..].as_mut_ptr().cast(),
            Memory::Raw(words) => bytemuck::cast_slice_mut::<u64, u8>(words)[start * value.dtype.size()..].as_mut_ptr(),
        }
    }

    /// A real value's elements in memory order; empty if it contains no reals or was never computed.
    pub(super) fn reals_mut(&mut self, id: LValueId) -> &mut [N] {
        let program = &self.compiled.plan.program;
        let (root, start) = program.root(id);
        match &mut self.memory[root.0 as usize] {
            Some(Memory::Reals(reals)) => &mut reals[start..start + program.value(id).shape.len()],
            _ => &mut [],
        }
    }

    /// A real value's elements in memory order; `None` if it contains no reals or was never computed.
    pub(super) fn reals(&self, id: LValueId) -> Option<&[N]> {
        let program = &self.compiled.plan.program;
        let (root, start) = program.root(id);
        match &self.memory[root.0 as usize] {
            Some(Memory::Reals(reals)) => Some(&reals[start..start + program.value(id).shape.len()]),
            _ => None,
        }
    }

    /// The bytes of a value that contains no reals; `None` if it does, or was never computed.
    pub(super) fn raw(&self, id: LValueId) -> Option<&[u8]> {
        let program = &self.compiled.plan.program;
        let (root, start) = program.root(id);
        let value = program.value(id);
        match &self.memory[root.0 as usize] {
            Some(Memory::Raw(words)) => {
                Some(&bytemuck::cast_slice(words)[start * value.dtype.size()..][..value.bytes() as usize])
            }
            _ => None,
        }
    }
}
