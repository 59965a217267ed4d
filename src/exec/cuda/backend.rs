//! A GPU as a backend: its steps are captured as graphs, and its values are in device memory.

use super::ceilings::GpuCeilings;
use super::device_block::allocate;
use super::faults::{Change, inject, undo};
use super::reference_check::compare;
use super::step::Step;
use super::timing::{library_of, time_bookkeeping, time_calls};
use crate::compile::Compiled;
use crate::data::BatchPlace;
use crate::exec::backend::{
    Backend, BatchFeed, Capabilities, MemoryOf, RecordedAs, RecordedGraphs, Recording, ReferenceCheck, StepBackend,
    Undo,
};
use crate::exec::backend::{Fault, GraphRead, Ways};
use crate::exec::block::Block;
use crate::exec::cpu::{Floor, Pool};
use crate::exec::cuda::gpu::{Gpu, gpu};
use crate::exec::error::ExecError;
use crate::exec::ready_times::ReadyTimes;
use crate::exec::store::StepMemory;
use crate::exec::stream::{DataSet, HeldData, StepRecord};
use crate::lower::LValueId;
use crate::tensor::zero_bytes;
use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

/// How steps run on a GPU.
const CAPABILITIES: Capabilities =
    Capabilities { memory: MemoryOf::Device, record: RecordedAs::Graphs, queues_steps: true, records_beside: true };

/// One GPU of this machine.
pub(in crate::exec) struct CudaBackend {
    ordinal: u32,
}

impl CudaBackend {
    pub(in crate::exec) const fn new(ordinal: u32) -> Self {
        Self { ordinal }
    }

    fn gpu(&self) -> Result<Arc<Gpu>, ExecError> {
        Ok(gpu(self.ordinal)?)
    }
}

impl Backend for CudaBackend {
    fn allocate(&self, sizes: &[u64]) -> Result<Vec<Box<dyn Block>>, ExecError> {
        let gpu = self.gpu()?;
        gpu.enter()?;
        allocate(sizes, &gpu)
    }

    fn make_step(
        &self,
        compiled: Arc<Compiled>,
        memory: StepMemory,
        _threads: usize,
        ways: Ways,
    ) -> Result<Box<dyn StepBackend>, ExecError> {
        let gpu = self.gpu()?;
        Ok(Box::new(match ways {
            Ways::All => Step::new(compiled, gpu, memory)?,
            Ways::OpByOp => Step::bound(compiled, gpu, memory)?,
        }))
    }

    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    fn free_bytes(&self) -> Result<Option<u64>, ExecError> {
        Ok(Some(self.gpu()?.free_bytes()?))
    }
}

impl StepBackend for Step {
    fn compiled(&self) -> &Arc<Compiled> {
        &self.ops.compiled
    }

    fn ready_times(&self) -> &ReadyTimes {
        &self.ready_times
    }

    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    fn memory(&self) -> &StepMemory {
        &self.ops.env.memory
    }

    fn replay(&mut self, _pool: &mut Pool) -> Result<(), ExecError> {
        self.replay()
    }

    fn replay_many(&mut self, count: usize, _pool: &mut Pool) -> Result<(), ExecError> {
        self.replay_many(count)
    }

    fn run_ops(&mut self, from: usize, to: usize, _pool: &mut Pool) -> Result<(), ExecError> {
        self.run_ops(from, to)
    }

    fn synchronize(&self) -> Result<(), ExecError> {
        Ok(self.synchronize()?)
    }

    fn recording(&self) -> Recording {
        Recording {
            why_eager: self.graphs.one().err().map(ToString::to_string),
            calls: self.recording.calls(&self.ops),
            nodes: self.graphs.nodes(),
            held_arguments: self.graphs.one().map_or(0, |graph| graph.arguments),
            live_constants: self.graphs.ledger.live.len(),
            steps_a_launch: self.most_fed(),
        }
    }

    fn arena(&self) -> Result<Cow<'_, [u8]>, ExecError> {
        let memory = self.ops.env.memory.arena.memory();
        let mut out = zero_bytes(memory.bytes() as usize);
        memory.read(0, &mut out)?;
        Ok(Cow::Owned(out))
    }

    fn bytes(&self, id: LValueId) -> Result<Cow<'_, [u8]>, ExecError> {
        self.bytes(id).map(Cow::Owned)
    }

    fn fill_bytes(&mut self, id: LValueId, fill: &mut dyn FnMut(&mut [u8])) -> Result<(), ExecError> {
        self.fill_bytes(id, fill)
    }

    fn write_once(&mut self, id: LValueId, bytes: &[u8]) -> Result<(), ExecError> {
        self.write_once(id, bytes)
    }

    fn watch(&mut self, ids: &[LValueId]) -> Result<(), ExecError> {
        Ok(Self::watch(self, ids)?)
    }

    fn set_trace(&mut self, on: bool) {
        self.set_trace(on);
    }

    fn trace(&self) -> Vec<String> {
        self.trace()
    }

    fn time_calls(&mut self, rounds: usize, _pool: &mut Pool) -> Result<Vec<f64>, ExecError> {
        time_calls(self, rounds)
    }

    fn time_bookkeeping(&mut self, rounds: usize, _pool: &mut Pool) -> Result<[f64; 2], ExecError> {
        time_bookkeeping(self, rounds).map(|us| [us, us])
    }

    fn library_of(&self, op: usize) -> Option<String> {
        library_of(self, op)
    }

    fn floors(&self) -> Result<Option<Vec<Floor>>, ExecError> {
        let selection = &self.ops.compiled.selection;
        let rates = GpuCeilings::measure(&self.ops.gpu, selection.real)?;
        Ok(Some(selection.choices.iter().map(|k| rates.floor(k.least_flops, k.bytes)).collect()))
    }

    fn compare_with_reference(&mut self, op: usize, seed: u64) -> Result<Option<ReferenceCheck>, ExecError> {
        compare(self, op, seed).map(Some)
    }
}

impl BatchFeed for Step {
    fn hold(&mut self, data: &DataSet<'_>) -> Result<bool, ExecError> {
        self.hold(data)
    }

    fn held(&self) -> Option<HeldData> {
        self.held()
    }

    fn share(&mut self, held: &HeldData, watched: &[LValueId]) -> Result<bool, ExecError> {
        self.share(held, watched)
    }

    fn prepare_launches(&mut self) -> Result<(), ExecError> {
        self.capture_several_fed()
    }

    fn launch_size(&self, left: u64) -> usize {
        self.launch_size(left)
    }

    fn has_free_slot(&self) -> bool {
        self.has_free_slot()
    }

    fn launch(&mut self, counter: u64, places: &[BatchPlace]) -> Result<(), ExecError> {
        self.launch(counter, places)
    }

    fn completed(&mut self) -> Result<&[StepRecord], ExecError> {
        Ok(self.completed()?)
    }

    fn abandon_launches(&mut self) -> Result<(), ExecError> {
        Ok(self.abandon_launches()?)
    }
}

impl RecordedGraphs for Step {
    fn graphs(&self) -> Vec<String> {
        self.graph_names()
    }

    fn read_graph(&self, graph: usize) -> Result<GraphRead, ExecError> {
        self.read_graph(graph)
    }

    fn check_graph(&self, graph: usize) -> Result<(), ExecError> {
        self.check_graph(graph)
    }

    fn capture_several(&mut self, most: usize) -> Result<bool, ExecError> {
        self.capture_several_fed()?;
        self.graphs.capture_several(&self.ops, &self.recording, most)
    }

    fn write_graph(&self, path: &Path) -> Result<bool, ExecError> {
        self.write_graph(path)?;
        Ok(true)
    }

    fn inject(&mut self, fault: Fault) -> Result<Option<Undo>, ExecError> {
        Ok(inject(self, fault)?.map(|change| Undo(Box::new(change))))
    }

    fn undo(&mut self, taken_back: Undo) -> Result<(), ExecError> {
        match taken_back.0.downcast::<Change>() {
            Ok(change) => Ok(undo(self, *change)?),
            Err(_) => Ok(()),
        }
    }
}
