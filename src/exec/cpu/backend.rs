//! The CPU as a backend: its memory is the host's, and its recording is a list of calls.

use super::step::Step;
use crate::compile::Compiled;
use crate::exec::backend::{
    Backend, BatchFeed, Capabilities, MemoryOf, RecordedAs, RecordedGraphs, Recording, StepBackend, Undo,
};
use crate::exec::backend::{Fault, Ways};
use crate::exec::block::Block;
use crate::exec::cpu::pool::Pool;
use crate::exec::env::allocate;
use crate::exec::error::ExecError;
use crate::exec::memory::available_bytes;
use crate::exec::ready_times::ReadyTimes;
use crate::exec::store::StepMemory;
use crate::lower::LValueId;
use std::borrow::Cow;
use std::sync::Arc;

/// How steps run on a processor.
const CAPABILITIES: Capabilities =
    Capabilities { memory: MemoryOf::Host, record: RecordedAs::Calls, queues_steps: false, records_beside: true };

/// The processor that this program runs on.
pub(in crate::exec) struct CpuBackend;

impl Backend for CpuBackend {
    fn allocate(&self, sizes: &[u64]) -> Result<Vec<Box<dyn Block>>, ExecError> {
        allocate(sizes)
    }

    fn make_step(
        &self,
        compiled: Arc<Compiled>,
        memory: StepMemory,
        threads: usize,
        _ways: Ways,
    ) -> Result<Box<dyn StepBackend>, ExecError> {
        Ok(Box::new(Step::new(compiled, memory, threads)?))
    }

    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    fn free_bytes(&self) -> Result<Option<u64>, ExecError> {
        Ok(available_bytes())
    }
}

impl StepBackend for Step {
    fn compiled(&self) -> &Arc<Compiled> {
        self.compiled()
    }

    fn ready_times(&self) -> &ReadyTimes {
        self.ready_times()
    }

    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    fn memory(&self) -> &StepMemory {
        self.env.memory()
    }

    fn replay(&mut self, pool: &mut Pool) -> Result<(), ExecError> {
        self.replay(pool)
    }

    fn run_ops(&mut self, from: usize, to: usize, pool: &mut Pool) -> Result<(), ExecError> {
        self.run_ops(from, to, pool)
    }

    fn recording(&self) -> Recording {
        Recording { calls: self.calls(), held_arguments: self.held_arguments(), ..Recording::default() }
    }

    fn arena(&self) -> Result<Cow<'_, [u8]>, ExecError> {
        Ok(Cow::Borrowed(self.arena()))
    }

    fn bytes(&self, id: LValueId) -> Result<Cow<'_, [u8]>, ExecError> {
        self.bytes(id).map(Cow::Borrowed)
    }

    fn fill_bytes(&mut self, id: LValueId, fill: &mut dyn FnMut(&mut [u8])) -> Result<(), ExecError> {
        self.bytes_mut(id).map(fill)
    }

    fn set_trace(&mut self, on: bool) {
        self.set_trace(on);
    }

    fn trace(&self) -> Vec<String> {
        self.trace()
    }

    fn time_calls(&mut self, rounds: usize, pool: &mut Pool) -> Result<Vec<f64>, ExecError> {
        self.time_calls(rounds, pool)
    }

    fn time_bookkeeping(&mut self, rounds: usize, pool: &mut Pool) -> Result<[f64; 2], ExecError> {
        self.time_bookkeeping(rounds, pool)
    }
}

/// Batches are read from the host's memory.
impl BatchFeed for Step {}

/// An address that was moved in a recorded call.
struct Moved {
    op: usize,
    slot: usize,
}

impl RecordedGraphs for Step {
    fn inject(&mut self, fault: Fault) -> Result<Option<Undo>, ExecError> {
        let Fault::Argument { op, slot, .. } = fault else { return Ok(None) };
        self.inject_fault(op, slot);
        Ok(Some(Undo(Box::new(Moved { op, slot }))))
    }

    fn undo(&mut self, undo: Undo) -> Result<(), ExecError> {
        if let Ok(moved) = undo.0.downcast::<Moved>() {
            self.undo_fault(moved.op, moved.slot);
        }
        Ok(())
    }
}
