//! What a device must be able to do to run compiled steps.
//!
//! Each kind of device implements these traits in its own folder; nobody else asks which kind it is. Calls go through a
//! `Box<dyn StepBackend>`, one a step and none an operation, so that what a call costs does not depend on the number of
//! operations.

use super::block::Block;
use super::cpu::ceilings::Floor;
use super::cpu::pool::Pool;
use super::store::StepMemory;
use crate::compile::Compiled;
use crate::data::BatchPlace;
use crate::exec::error::ExecError;
use crate::exec::ready_times::ReadyTimes;
use crate::exec::stream::{DataSet, StepRecord};
use crate::lower::LValueId;
use std::any::Any;
use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

/// A kind of device, or one of several.
pub trait Backend {
    /// Takes blocks of memory of these sizes, zeroed.
    ///
    /// # Errors
    /// Where not all of them are to be had, or the device cannot be used.
    fn allocate(&self, sizes: &[u64]) -> Result<Vec<Box<dyn Block>>, ExecError>;

    /// Seals the memory of a compiled step and records it. `threads` is the number of threads of the pools that will
    /// run it, where the host computes.
    ///
    /// # Errors
    /// Where the memory is not what the step needs, or the device cannot be used.
    fn make_step(
        &self,
        compiled: Arc<Compiled>,
        memory: StepMemory,
        threads: usize,
        ways: Ways,
    ) -> Result<Box<dyn StepBackend>, ExecError>;

    /// How its steps run.
    fn capabilities(&self) -> Capabilities;

    /// Bytes of the memory of steps that are free now, where that is known.
    ///
    /// # Errors
    /// Where the device cannot be used.
    fn free_bytes(&self) -> Result<Option<u64>, ExecError>;
}

/// How a step will run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ways {
    All,
    /// Op by op alone: what recording it takes is left out where a device supports that.
    OpByOp,
}

/// How a device runs steps, for those who choose how to use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    pub memory: MemoryOf,
    pub record: RecordedAs,
    /// A call returns before its step is done, so that the host is out of the way only where steps are queued.
    pub queues_steps: bool,
    /// Whether one thread can record steps while another one runs steps over the same store.
    pub records_beside: bool,
}

/// Whose memory the values of a step are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryOf {
    /// This program's: values are read and written in place, by the threads that also compute.
    Host,
    /// A device's: what is read or written is copied.
    Device,
}

/// What a step was recorded as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordedAs {
    /// A list of calls, whose arguments are all compared at every replay. The first replay is slower.
    Calls,
    /// Graphs, whose nodes can be read; every launch was made once when the step was recorded.
    Graphs,
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
    /// Steps that one launch makes where the data set is on the device; 0 where batches come from the host.
    pub steps_a_launch: usize,
}

/// What comparing one operation with plain loops gave.
#[derive(Clone, Debug, PartialEq)]
pub struct ReferenceCheck {
    pub op: usize,
    pub kernel: String,
    /// The largest part that an error takes of what is allowed.
    pub ratio: f64,
    /// Where that is; empty where there is no error.
    pub at: String,
    /// What is wrong, in words; empty where nothing is.
    pub wrong: String,
}

/// What was read from the nodes of one captured graph, all of it equal to the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphRead {
    /// What the graph does, in words.
    pub name: String,
    /// Nodes of any kind.
    pub nodes: usize,
    /// Nodes of this program's kernels; every word of their arguments was compared.
    pub kernels: usize,
    /// Addresses among those arguments.
    pub arguments: usize,
    /// Nodes that libraries put there.
    pub library_nodes: usize,
    /// Addresses of the operation that were found among the parameters of libraries' nodes, and are those that were
    /// there at capture.
    pub library_arguments: usize,
    /// Nodes in which nothing was compared: libraries' nodes without an address that can be recognised, copies, memory
    /// sets.
    pub unread: usize,
}

/// What a test changes in a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// An argument of an operation is moved by 64 bytes: in the recorded call on a CPU, in the last node of the graph
    /// that has it on a GPU.
    Argument { graph: usize, op: usize, slot: usize },
    /// The first argument of the last launch of the data feed is moved by 64 bytes, in its node.
    Feed { graph: usize },
    /// The arena is another allocation.
    Arena,
    /// What the graph is launched by is another instance of it.
    Instance { graph: usize },
    /// The recorded address of a live constant is moved by 64 bytes.
    LiveConstant(usize),
}

/// How a fault is taken back: known to the backend that injected it.
pub struct Undo(pub(super) Box<dyn Any + Send>);

/// A compiled step with its memory on some device.
pub trait StepBackend: BatchFeed + RecordedGraphs + Send {
    /// The artefacts it was made from.
    fn compiled(&self) -> &Arc<Compiled>;

    /// How long each stage of its recording took.
    fn ready_times(&self) -> &ReadyTimes;

    /// How the device runs steps.
    fn capabilities(&self) -> Capabilities;

    /// What it was recorded over.
    fn memory(&self) -> &StepMemory;

    /// Replays the recording once.
    ///
    /// # Errors
    /// Where something changed since it was recorded (nothing was run then), or the device fails.
    fn replay(&mut self, pool: &mut Pool) -> Result<(), ExecError>;

    /// Replays `count` steps back to back.
    ///
    /// # Errors
    /// As [`Self::replay`].
    fn replay_many(&mut self, count: usize, pool: &mut Pool) -> Result<(), ExecError> {
        (0..count).try_for_each(|_| self.replay(pool))
    }

    /// Runs operations `from..to` one by one.
    ///
    /// # Errors
    /// Where a kernel is missing, or the device fails.
    fn run_ops(&mut self, from: usize, to: usize, pool: &mut Pool) -> Result<(), ExecError>;

    /// Waits until everything that was started is done.
    ///
    /// # Errors
    /// What went wrong on the device since the last wait.
    fn synchronize(&self) -> Result<(), ExecError> {
        Ok(())
    }

    /// How it was recorded.
    fn recording(&self) -> Recording;

    /// The arena's bytes, to compare.
    ///
    /// # Errors
    /// What went wrong on the device.
    fn arena(&self) -> Result<Cow<'_, [u8]>, ExecError>;

    /// A value's bytes as they are in memory.
    ///
    /// # Errors
    /// Where the value has no place, or the device fails.
    fn bytes(&self, id: LValueId) -> Result<Cow<'_, [u8]>, ExecError>;

    /// Lets `fill` overwrite a value's bytes; what it does not write is unspecified. It is called once at most.
    ///
    /// # Errors
    /// As [`Self::bytes`].
    fn fill_bytes(&mut self, id: LValueId, fill: &mut dyn FnMut(&mut [u8])) -> Result<(), ExecError>;

    /// Overwrites a value's bytes, as it is done once and not at every step.
    ///
    /// # Errors
    /// As [`Self::bytes`].
    fn write_once(&mut self, id: LValueId, bytes: &[u8]) -> Result<(), ExecError> {
        self.fill_bytes(id, &mut |out| out.copy_from_slice(bytes))
    }

    /// Sets which values are read after every step, so that one copy fetches them. The copy is good for one revision of
    /// the store.
    ///
    /// # Errors
    /// Where memory is short.
    fn watch(&mut self, _: &[LValueId]) -> Result<(), ExecError> {
        Ok(())
    }

    /// Starts or stops keeping the ids of executed kernels.
    fn set_trace(&mut self, on: bool);

    /// The ids of the kernels executed since tracing began.
    fn trace(&self) -> Vec<String>;

    /// The median time of each operation by itself over `rounds`, in microseconds.
    ///
    /// # Errors
    /// As [`Self::replay`].
    fn time_calls(&mut self, rounds: usize, pool: &mut Pool) -> Result<Vec<f64>, ExecError>;

    /// What a replay costs besides its kernels, in microseconds a step: the ledger and the calls, then that with the
    /// meetings of threads.
    ///
    /// # Errors
    /// As [`Self::replay`].
    fn time_bookkeeping(&mut self, rounds: usize, pool: &mut Pool) -> Result<[f64; 2], ExecError>;

    /// What a library does in an operation, in its own terms; nothing where no library does it.
    fn library_of(&self, _op: usize) -> Option<String> {
        None
    }

    /// The least time of each operation by what the device can do at best, measured now; nothing for the host, whose
    /// ceilings are measured around what is timed.
    ///
    /// # Errors
    /// Where the device fails or has no memory to spare.
    fn floors(&self) -> Result<Option<Vec<Floor>>, ExecError> {
        Ok(None)
    }

    /// Compares one operation on random inputs with plain loops, where the device's kernels are not the host's. The
    /// step's values are gone afterwards.
    ///
    /// # Errors
    /// Where the device fails. A difference is no error: it is in the result.
    fn compare_with_reference(&mut self, _op: usize, _seed: u64) -> Result<Option<ReferenceCheck>, ExecError> {
        Ok(None)
    }
}

/// Steps that fetch their own batches from a data set on the device, several in one launch. A device that reads its
/// batches where the host has them does none of this.
pub trait BatchFeed {
    /// Keeps a data set on the device; false where it has no room, or does not do so.
    ///
    /// # Errors
    /// What went wrong on the device.
    fn hold(&mut self, _: &DataSet<'_>) -> Result<bool, ExecError> {
        Ok(false)
    }

    /// The steps that the next launch makes where `left` are wanted; 0 where steps do not fetch their batches
    /// themselves.
    fn launch_size(&self, _left: u64) -> usize {
        0
    }

    /// Whether another launch may be sent before the records of the first are taken.
    fn has_free_slot(&self) -> bool {
        false
    }

    /// Launches the steps whose batches are at `places`, as many as [`Self::launch_size`] said; `counter` is the step
    /// counter before them. Returns at once.
    ///
    /// # Errors
    /// Where something changed since the steps were recorded (nothing was run then), or a call fails.
    fn launch(&mut self, _counter: u64, _places: &[BatchPlace]) -> Result<(), ExecError> {
        Err(ExecError::NoValue("a data set on a device".into()))
    }

    /// The records of the oldest launch in flight, in order; waits for that launch alone.
    ///
    /// # Errors
    /// What went wrong on the device.
    fn completed(&mut self) -> Result<&[StepRecord], ExecError> {
        Ok(&[])
    }

    /// Waits for all launches and forgets their records.
    ///
    /// # Errors
    /// What went wrong on the device.
    fn abandon_launches(&mut self) -> Result<(), ExecError> {
        Ok(())
    }
}

/// What was captured, to be read back and to be changed by tests.
pub trait RecordedGraphs {
    /// The captured graphs that may be launched, in words.
    fn graphs(&self) -> Vec<String> {
        Vec::new()
    }

    /// Reads the nodes of a graph, by its place among [`Self::graphs`], and compares their arguments with the plan's.
    /// Nothing is launched.
    ///
    /// # Errors
    /// The first difference, with operation and layer, and what the driver says.
    fn read_graph(&self, _graph: usize) -> Result<GraphRead, ExecError> {
        Err(ExecError::NoValue("a captured graph".into()))
    }

    /// Checks what a launch of this graph checks. Nothing is launched.
    ///
    /// # Errors
    /// What changed since it was captured.
    fn check_graph(&self, _graph: usize) -> Result<(), ExecError> {
        Ok(())
    }

    /// Captures several steps in one graph; false where that cannot be done.
    ///
    /// # Errors
    /// What the driver says, and where the graph is not the planned one.
    fn capture_several(&mut self, _most: usize) -> Result<bool, ExecError> {
        Ok(false)
    }

    /// Writes the captured graph of one step in Graphviz's language; false where there are no graphs.
    ///
    /// # Errors
    /// Where the step could not be captured, or the file cannot be written.
    fn write_graph(&self, _path: &Path) -> Result<bool, ExecError> {
        Ok(false)
    }

    /// Changes a recording, so that a test can see the ledger find it. Nothing where the recording has no such place.
    ///
    /// # Errors
    /// What the driver says.
    fn inject(&mut self, fault: Fault) -> Result<Option<Undo>, ExecError>;

    /// Takes back what [`Self::inject`] changed.
    ///
    /// # Errors
    /// What the driver says.
    fn undo(&mut self, undo: Undo) -> Result<(), ExecError>;
}
