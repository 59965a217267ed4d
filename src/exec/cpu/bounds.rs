//! A step on numbers that carry a bound for their rounding error: what its kernels may be off by, element by element.

use super::call::{Call, MAX_ARGS, Part};
use super::kernels::reference::bounded::{Bounded, take_undecided};
use super::kernels::reference::{self, Real};
use crate::compile::Compiled;
use crate::exec::{ExecError, StepBackend};
use crate::lower::LValueId;
use crate::ops::Dir;
use crate::tensor::DType;
use std::sync::Arc;

/// The memory of one value that is no alias.
enum Memory<N> {
    Reals(Vec<N>),
    /// Labels, counters, masks and indices, byte for byte as the step has them; aligned to 8 bytes.
    Raw(Vec<u64>),
}

/// What rounding to the type in which a step stores its activations adds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Storage {
    /// Relative to the value; 0 where activations are stored in `f32`.
    pub relative: f64,
    /// In absolute terms, for types whose smallest numbers are large.
    pub absolute: f64,
}

/// The values of a compiled step as [`Bounded`] numbers. The program must be one that the reference kernels can run.
pub struct BoundedStep<const SUM: i32, const PRODUCT: i32> {
    compiled: Arc<Compiled>,
    /// By value; `None` for aliases and for what was not needed yet.
    memory: Vec<Option<Memory<Bounded<SUM, PRODUCT>>>>,
    storage: Storage,
}

impl<const SUM: i32, const PRODUCT: i32> BoundedStep<SUM, PRODUCT> {
    #[must_use]
    pub fn new(compiled: Arc<Compiled>, storage: Storage) -> Self {
        let memory = compiled.plan.program.values.iter().map(|_| None).collect();
        Self { compiled, memory, storage }
    }

    /// Takes over what is in the memory of `step` before it runs: the batch, and everything that survives a step. All
    /// of it counts as exact.
    ///
    /// # Errors
    /// Where `step` was made from another program.
    pub fn load_state(&mut self, step: &dyn StepBackend) -> Result<(), ExecError> {
        let compiled = Arc::clone(&self.compiled);
        let program = &compiled.plan.program;
        let ids = (0..program.values.len()).map(|i| LValueId(i as u32));
        let before = |id: &LValueId| program.value(*id).persistent || program.inputs.contains(*id);
        for id in ids.filter(before).filter(|id| compiled.plan.place(*id).is_some()) {
            self.load(step, id)?;
        }
        Ok(())
    }

    /// Takes over the arguments of operation `op` as they are in the memory of `step`, which must be of the same
    /// program.
    ///
    /// # Errors
    /// As [`Self::load_state`].
    pub fn load_arguments(&mut self, step: &dyn StepBackend, op: usize) -> Result<(), ExecError> {
        let compiled = Arc::clone(&self.compiled);
        compiled.plan.program.ops[op].args.iter().flatten().try_for_each(|id| self.load(step, *id))
    }

    fn load(&mut self, step: &dyn StepBackend, id: LValueId) -> Result<(), ExecError> {
        let (root, _) = self.compiled.plan.program.root(id);
        let value = self.compiled.plan.program.value(root);
        let bytes = step.bytes(root)?;
        let exact = |v: f64| Bounded::exact(v);
        let memory = match value.dtype {
            DType::F64 => {
                Memory::Reals(bytemuck::pod_collect_to_vec::<u8, f64>(&bytes).into_iter().map(exact).collect())
            }
            DType::F32 => {
                let reals = bytemuck::pod_collect_to_vec::<u8, f32>(&bytes);
                Memory::Reals(reals.into_iter().map(|v| exact(f64::from(v))).collect())
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

    /// Runs operations `from..to` with the reference kernels, and says how many maxima had their place decided by
    /// rounding.
    ///
    /// # Errors
    /// Where an operation has no reference kernel.
    pub fn run(&mut self, from: usize, to: usize) -> Result<u64, ExecError> {
        take_undecided();
        let compiled = Arc::clone(&self.compiled);
        for (index, op) in compiled.plan.program.ops.iter().enumerate().take(to).skip(from) {
            if op.kind.is_for_gpus() {
                let kernel = format!("{} with error bounds", op.kind.name());
                return Err(ExecError::MissingKernel { op: index, kernel });
            }
            let mut ptr = [std::ptr::null_mut(); MAX_ARGS];
            for ((slot, at), arg) in op.kind.slots().iter().zip(&mut ptr).zip(&op.args) {
                if let Some(id) = arg.filter(|_| slot.dir != Dir::Work) {
                    *at = self.pointer(id);
                }
            }
            let kernel = reference::resolve::<Bounded<SUM, PRODUCT>>();
            let (op_kind, phases, parallel, around) = (op.kind.clone(), 1, false, None);
            let call = Call { run: kernel.run, op: op_kind, ptr, table: kernel.table, phases, parallel, around };
            // SAFETY: every pointer is to memory of this step that holds the whole value, in numbers of the kernel's
            // type or as the plan's own integers, and nothing else runs on it.
            unsafe { (call.run)(&call, Part::WHOLE) };
            op.writes().for_each(|id| self.store(id));
        }
        Ok(take_undecided())
    }

    /// The address of a value's first element; its memory is made where it is not there yet.
    fn pointer(&mut self, id: LValueId) -> *mut u8 {
        let (root, start) = self.compiled.plan.program.root(id);
        let value = self.compiled.plan.program.value(root);
        let memory = self.memory[root.0 as usize].get_or_insert_with(|| match value.dtype {
            DType::F64 | DType::F32 => Memory::Reals(vec![Bounded::ZERO; value.shape.len()]),
            _ => Memory::Raw(vec![0; value.bytes().div_ceil(8) as usize]),
        });
        match memory {
            Memory::Reals(reals) => reals[start..].as_mut_ptr().cast(),
            Memory::Raw(words) => bytemuck::cast_slice_mut::<u64, u8>(words)[start * value.dtype.size()..].as_mut_ptr(),
        }
    }

    /// Stores a value for operations to read, and adds what storing rounds by where it does not survive the step.
    fn store(&mut self, id: LValueId) {
        let program = &self.compiled.plan.program;
        let (root, start) = program.root(id);
        let storage = if program.value(root).persistent { Storage::default() } else { self.storage };
        let len = program.value(id).shape.len();
        if let Some(Memory::Reals(reals)) = &mut self.memory[root.0 as usize] {
            for real in &mut reals[start..start + len] {
                *real = real.stored();
                if real.value != 0.0 || real.error != 0.0 {
                    real.error += storage.relative * real.value.abs() + storage.absolute;
                }
            }
        }
    }

    /// A real value's elements in memory order; `None` where it holds no reals or was never reached.
    #[must_use]
    pub fn reals(&self, id: LValueId) -> Option<&[Bounded<SUM, PRODUCT>]> {
        let program = &self.compiled.plan.program;
        let (root, start) = program.root(id);
        match &self.memory[root.0 as usize] {
            Some(Memory::Reals(reals)) => Some(&reals[start..start + program.value(id).shape.len()]),
            _ => None,
        }
    }

    /// The bytes of a value that holds no reals; `None` where it does, or was never reached.
    #[must_use]
    pub fn raw(&self, id: LValueId) -> Option<&[u8]> {
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
