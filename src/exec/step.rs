//! A compiled step in memory, on whatever device it was planned for.

use super::cpu::Pool;
use super::{ExecError, available_bytes, cpu, cuda, room};
use crate::compile::Compiled;
use crate::lower::{LValue, LValueId, Layout};
use crate::model::ParamId;
use crate::plan::Place;
use crate::select::Device;
use crate::tensor::{Bytes, DType, Element, HostTensor};
use bytemuck::Pod;
use std::borrow::Cow;
use std::sync::Arc;

/// How a step is run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Executor {
    /// The recording, all at once.
    #[default]
    Replay,
    /// Op by op: kernel looked up, arguments resolved, threads gathered for each.
    Eager,
}

/// How a step was recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Recording {
    /// Why a replay runs op by op, where it does.
    pub why_eager: Option<String>,
    /// Calls of kernels and libraries that a replay makes.
    pub calls: usize,
    /// Nodes of the captured graph; 0 on a CPU.
    pub nodes: usize,
    /// Arguments that were compared with the plan's: on a CPU at every replay, on a GPU when the graph's nodes were
    /// read at capture.
    pub held_arguments: usize,
    /// Addresses of live constants that every launch of a graph is checked against; 0 on a CPU, where they are among
    /// the arguments.
    pub live_constants: usize,
    /// Steps that one launch makes where the data set lies on the device; 0 where batches come from the host.
    pub steps_a_launch: usize,
}

/// A compiled step with its memory.
pub enum Step {
    Cpu(Box<cpu::Step>),
    Cuda(Box<cuda::Step>),
}

impl Step {
    /// Takes the memory of a compiled step, seals it, and records it. `threads` is the number of threads of the pools that will run it on a CPU.
    ///
    /// # Errors
    /// Where memory is short, or the device cannot be used.
    pub fn new(compiled: Arc<Compiled>, threads: usize) -> Result<Self, ExecError> {
        match compiled.selection.target.device {
            Device::Cpu(_) => cpu::Step::new(compiled, threads).map(|s| Self::Cpu(Box::new(s))),
            Device::Cuda(facts) => {
                let gpu = cuda::gpu(facts.ordinal).map_err(ExecError::Gpu)?;
                cuda::Step::new(compiled, gpu).map(|s| Self::Cuda(Box::new(s)))
            }
        }
    }

    /// Refuses a compiled step whose memory, with `beside` bytes that are taken after it, is not free now, on the
    /// device or here.
    ///
    /// # Errors
    /// Where memory is short, or the device cannot be used.
    pub fn check_room(compiled: &Compiled, beside: u64) -> Result<(), ExecError> {
        let needed = compiled.plan.arena_bytes.saturating_add(beside);
        let free = match compiled.selection.target.device {
            Device::Cpu(_) => available_bytes(),
            Device::Cuda(facts) => {
                let gpu = cuda::gpu(facts.ordinal).map_err(ExecError::Gpu)?;
                Some(gpu.free_bytes().map_err(ExecError::Gpu)?)
            }
        };
        match free.filter(|free| needed > *free) {
            Some(free) => Err(ExecError::OutOfMemory { needed: Bytes(needed), available: Bytes(free) }),
            None => Ok(()),
        }
    }

    /// A step (an evaluation) that shares the parameters and running statistics of `owner`.
    ///
    /// # Errors
    /// Where memory is short, or the owner trains another network.
    pub fn sharing(compiled: Arc<Compiled>, owner: &Self) -> Result<Self, ExecError> {
        match owner {
            Self::Cpu(owner) => cpu::Step::sharing(compiled, owner).map(|s| Self::Cpu(Box::new(s))),
            Self::Cuda(owner) => cuda::Step::sharing(compiled, owner).map(|s| Self::Cuda(Box::new(s))),
        }
    }

    /// The artefacts it was made from.
    #[must_use]
    pub fn compiled(&self) -> &Arc<Compiled> {
        match self {
            Self::Cpu(step) => step.compiled(),
            Self::Cuda(step) => step.compiled(),
        }
    }

    /// Runs the whole step once. On a GPU this returns before the step is done; reading a value waits for it.
    ///
    /// # Errors
    /// Where the ledger finds a recorded address that the plan does not have, or on a GPU that memory, graph or a live
    /// constant is another than at capture; nothing was run then.
    pub fn run(&mut self, executor: Executor, pool: &mut Pool) -> Result<(), ExecError> {
        match self {
            Self::Cpu(step) => step.run(executor, pool),
            Self::Cuda(step) => step.run(executor),
        }
    }

    /// Replays the recording once. Allocates nothing on a CPU.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn replay(&mut self, pool: &mut Pool) -> Result<(), ExecError> {
        match self {
            Self::Cpu(step) => step.replay(pool),
            Self::Cuda(step) => step.replay(),
        }
    }

    /// Replays `count` steps back to back; a GPU runs several in one launch.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn replay_many(&mut self, count: usize, pool: &mut Pool) -> Result<(), ExecError> {
        match self {
            Self::Cpu(step) => (0..count).try_for_each(|_| step.replay(pool)),
            Self::Cuda(step) => step.replay_many(count),
        }
    }

    /// How it was recorded.
    #[must_use]
    pub fn recording(&self) -> Recording {
        match self {
            Self::Cpu(step) => {
                Recording { calls: step.calls(), held_arguments: step.held_arguments(), ..Recording::default() }
            }
            Self::Cuda(step) => {
                let (calls, nodes) = step.launches();
                Recording {
                    why_eager: step.why_eager().map(str::to_owned),
                    calls,
                    nodes,
                    held_arguments: step.held_arguments(),
                    live_constants: step.live_constants_held(),
                    steps_a_launch: step.most_steps(),
                }
            }
        }
    }

    /// Waits until everything that was started is done.
    ///
    /// # Errors
    /// What went wrong on the device since the last wait.
    pub fn synchronize(&self) -> Result<(), ExecError> {
        match self {
            Self::Cpu(_) => Ok(()),
            Self::Cuda(step) => step.synchronize(),
        }
    }

    /// Runs operations `from..to` eagerly.
    ///
    /// # Errors
    /// Where a kernel is missing.
    pub fn run_ops(&mut self, from: usize, to: usize, pool: &mut Pool) -> Result<(), ExecError> {
        match self {
            Self::Cpu(step) => step.run_ops(from, to, pool),
            Self::Cuda(step) => step.run_ops(from, to),
        }
    }

    /// Runs the step once each way and puts back everything that survives a step: caches are warm, and nothing has changed.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn warm_up(&mut self, pool: &mut Pool) -> Result<(), ExecError> {
        match self {
            Self::Cpu(step) => step.warm_up(pool),
            Self::Cuda(step) => step.warm_up(),
        }
    }

    /// Everything that survives a step, byte for byte.
    ///
    /// # Errors
    /// What went wrong on the device.
    pub fn snapshot(&mut self) -> Result<Vec<u8>, ExecError> {
        match self {
            Self::Cpu(step) => Ok(step.snapshot()),
            Self::Cuda(step) => step.snapshot(),
        }
    }

    /// As [`Self::snapshot`], into memory of the same size. Allocates nothing.
    ///
    /// # Errors
    /// What went wrong on the device.
    pub fn snapshot_into(&mut self, saved: &mut [u8]) -> Result<(), ExecError> {
        match self {
            Self::Cpu(step) => step.snapshot_into(saved),
            Self::Cuda(step) => step.snapshot_into(saved)?,
        }
        Ok(())
    }

    /// Puts back what [`Self::snapshot`] took from this step.
    ///
    /// # Errors
    /// What went wrong on the device.
    pub fn restore(&mut self, saved: &[u8]) -> Result<(), ExecError> {
        match self {
            Self::Cpu(step) => step.restore(saved),
            Self::Cuda(step) => step.restore(saved)?,
        }
        Ok(())
    }

    /// The whole arena's bytes, to compare.
    ///
    /// # Errors
    /// What went wrong on the device.
    pub fn arena(&self) -> Result<Cow<'_, [u8]>, ExecError> {
        match self {
            Self::Cpu(step) => Ok(Cow::Borrowed(step.arena())),
            Self::Cuda(step) => step.arena().map(Cow::Owned),
        }
    }

    /// Starts or stops keeping the ids of executed kernels.
    pub fn set_trace(&mut self, on: bool) {
        match self {
            Self::Cpu(step) => step.set_trace(on),
            Self::Cuda(step) => step.set_trace(on),
        }
    }

    /// The ids of the kernels executed since tracing began.
    #[must_use]
    pub fn trace(&self) -> Vec<String> {
        match self {
            Self::Cpu(step) => step.trace(),
            Self::Cuda(step) => step.trace(),
        }
    }

    /// The median time of each operation by itself over `rounds`, in microseconds.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn time_calls(&mut self, rounds: usize, pool: &mut Pool) -> Result<Vec<f64>, ExecError> {
        match self {
            Self::Cpu(step) => step.time_calls(rounds, pool),
            Self::Cuda(step) => step.time_calls(rounds),
        }
    }

    /// What a replay costs besides its kernels, in microseconds a step: on a CPU the ledger and the calls, then that with the threads'
    /// meetings; on a GPU, twice, the host's part of a launch, and this makes steps.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn time_bookkeeping(&mut self, rounds: usize, pool: &mut Pool) -> Result<[f64; 2], ExecError> {
        match self {
            Self::Cpu(step) => step.time_bookkeeping(rounds, pool),
            Self::Cuda(step) => step.time_bookkeeping(rounds).map(|us| [us, us]),
        }
    }

    /// Sets which values are read after every step, so that a GPU fetches them by one copy.
    ///
    /// # Errors
    /// Where memory is short.
    pub fn watch(&mut self, ids: &[LValueId]) -> Result<(), ExecError> {
        match self {
            Self::Cpu(_) => Ok(()),
            Self::Cuda(step) => step.watch(ids),
        }
    }

    /// A value's elements as they lie in memory; real values of half width are widened to `f32`.
    ///
    /// # Errors
    /// Where the value has no place, or holds another type.
    pub fn stored<T: Element>(&self, id: LValueId) -> Result<Cow<'_, [T]>, ExecError> {
        match self {
            Self::Cpu(step) => step.stored(id).map(Cow::Borrowed),
            Self::Cuda(step) => step.stored(id).map(Cow::Owned),
        }
    }

    /// Lets `fill` overwrite a value's elements in memory order; what it does not write is unspecified.
    ///
    /// # Errors
    /// As [`Self::stored`].
    pub fn fill<T: Element>(&mut self, id: LValueId, fill: impl FnOnce(&mut [T])) -> Result<(), ExecError> {
        match self {
            Self::Cpu(step) => step.stored_mut(id).map(fill),
            Self::Cuda(step) => step.fill(id, fill),
        }
    }

    /// Overwrites a value with elements in memory order.
    ///
    /// # Errors
    /// As [`Self::stored`], and where the number of elements differs.
    pub fn write<T: Element>(&mut self, id: LValueId, values: &[T]) -> Result<(), ExecError> {
        let value = self.compiled().plan.program.value(id);
        let (name, expected) = (value.name.as_str(), value.shape.len());
        if expected != values.len() {
            return Err(ExecError::Size { name: name.to_owned(), expected, found: values.len() });
        }
        self.fill(id, |out: &mut [T]| out.copy_from_slice(values))
    }

    /// A value in logical order, whatever lies in its memory now.
    ///
    /// # Errors
    /// As [`Self::stored`].
    pub fn tensor(&self, id: LValueId) -> Result<HostTensor, ExecError> {
        match self.compiled().plan.program.value(id).dtype {
            DType::F64 => self.logical::<f64>(id),
            DType::F32 | DType::F16 | DType::Bf16 => self.logical::<f32>(id),
            DType::I64 => self.logical::<i64>(id),
            DType::I32 => self.logical::<i32>(id),
            DType::U16 => self.logical::<u16>(id),
            DType::U8 => self.logical::<u8>(id),
        }
    }

    fn logical<T: Element + Default>(&self, id: LValueId) -> Result<HostTensor, ExecError> {
        let stored = self.stored::<T>(id)?;
        let shape = self.compiled().plan.program.value(id).shape.clone();
        HostTensor::from_slice(shape, &self.ordered(id, &stored)).map_err(|e| ExecError::NoValue(e.to_string()))
    }

    /// The value named so, where the step has it.
    ///
    /// # Errors
    /// Where it has not.
    pub fn find(&self, name: &str) -> Result<LValueId, ExecError> {
        self.compiled().plan.program.find(name).ok_or_else(|| ExecError::NoValue(name.to_owned()))
    }

    /// A parameter or running statistic, row-major in its logical shape.
    ///
    /// # Errors
    /// As [`Self::stored`].
    pub fn param<T: Element + Default>(&self, id: ParamId) -> Result<Vec<T>, ExecError> {
        let slot = &self.compiled().plan.program.params[id.0 as usize];
        Ok(slot.order.to_logical(&self.stored::<T>(slot.value)?))
    }

    /// Sets a parameter or running statistic from values in its logical order.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn set_param<T: Element + Default>(&mut self, id: ParamId, values: &[T]) -> Result<(), ExecError> {
        let slot = self.compiled().plan.program.params[id.0 as usize].clone();
        let found = values.len();
        let expected = self.compiled().plan.program.value(slot.value).shape.len();
        if found != expected {
            let name = self.compiled().model.param(id).name.clone();
            return Err(ExecError::Size { name, expected, found });
        }
        let stored = slot.order.to_stored(values);
        match self {
            Self::Cpu(_) => self.write(slot.value, &stored),
            Self::Cuda(step) => step.put_once(slot.value, &stored),
        }
    }

    /// The gradient of a trained parameter in its logical order, as the last backward pass left it.
    ///
    /// # Errors
    /// As [`Self::stored`].
    pub fn grad<T: Element + Default>(&self, id: ParamId) -> Result<Vec<T>, ExecError> {
        let compiled = self.compiled();
        let slot = &compiled.plan.program.params[id.0 as usize];
        let grad =
            slot.grad.ok_or_else(|| ExecError::NoValue(format!("gradient of {}", compiled.model.param(id).name)))?;
        Ok(slot.order.to_logical(&self.stored::<T>(grad)?))
    }

    /// Copies a batch of samples in logical order (`[N, C, H, W]` or `[N, features]`) to where the step reads it.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn set_x<T: Element + Default>(&mut self, samples: &[T]) -> Result<(), ExecError> {
        let x = self.compiled().plan.program.samples();
        let layout = self.compiled().plan.program.value(x).layout;
        match layout {
            Layout::Plain => self.write(x, samples),
            Layout::ChannelsLast { .. } => self.write(x, &samples_to_stored(samples, layout)),
        }
    }
}

/// A value with its place.
pub(super) fn located(compiled: &Compiled, id: LValueId) -> Result<(Place, &LValue), ExecError> {
    let value = compiled.plan.program.value(id);
    let place = compiled.plan.place(id).ok_or_else(|| ExecError::NoValue(value.name.clone()))?;
    Ok((place, value))
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
pub(crate) fn samples_to_stored<T: Pod>(logical: &[T], layout: Layout) -> Cow<'_, [T]> {
    let Layout::ChannelsLast { c, h, w } = layout else { return Cow::Borrowed(logical) };
    let size = c * h * w;
    let mut out = room(logical.len());
    for sample in logical.chunks_exact(size.max(1)) {
        out.extend((0..size).map(|i| sample[logical_index(i, c, h, w)]));
    }
    Cow::Owned(out)
}
