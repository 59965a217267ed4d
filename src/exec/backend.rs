//! The traits that a device implements to run compiled steps.
//!
//! Each kind of device implements these traits in its own folder; no other code depends on the kind of device. Calls go
//! through a `Box<dyn StepBackend>`, one for each step and none for each operation, so that the overhead does not
//! depend on the number of operations.

use super::block::Block;
use super::cpu::ceilings::Floor;
use super::cpu::pool::Pool;
use super::store::StepMemory;
use crate::compile::Compiled;
use crate::data::BatchPlace;
use crate::exec::error::ExecError;
use crate::exec::ready_times::ReadyTimes;
use crate::exec::stream::{DataSet, HeldData, StepRecord};
use crate::lower::LValueId;
use std::any::Any;
use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

/// A kind of device, or one device if there are several of a kind.
pub trait Backend {
    /// Allocates blocks of memory of these sizes, zeroed.
    ///
    /// # Errors
    /// If there is not enough memory for all of them, or the device cannot be used.
    fn allocate(&self, sizes: &[u64]) -> Result<Vec<Box<dyn Block>>, ExecError>;

    /// Seals the memory of a compiled step and records the step. `threads` is the number of threads of the pools that
    /// will run it, if the host computes.
    ///
    /// # Errors
    /// If the memory is not what the step needs, or the device cannot be used.
    fn make_step(
        &self,
        compiled: Arc<Compiled>,
        memory: StepMemory,
        threads: usize,
        ways: Ways,
    ) -> Result<Box<dyn StepBackend>, ExecError>;

    /// How its steps run.
    fn capabilities(&self) -> Capabilities;

    /// Bytes of the memory of steps that are free now, if known.
    ///
    /// # Errors
    /// If the device cannot be used.
    fn free_bytes(&self) -> Result<Option<u64>, ExecError>;
}

/// How a step will run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ways {
    All,
    /// Op by op only: the resources for a recording are not allocated, if the device supports that.
    OpByOp,
}

/// How a device runs steps, for code that chooses how to use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    pub memory: MemoryOf,
    pub record: RecordedAs,
    /// A call returns before its step is done, so that the host's overhead is hidden only if steps are queued.
    pub queues_steps: bool,
    /// Whether one thread can record steps while another one runs steps over the same store.
    pub records_beside: bool,
}

/// Where the values of a step are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryOf {
    /// In the program's memory: values are read and written in place, by the threads that also compute.
    Host,
    /// In a device's memory: values are copied when they are read or written.
    Device,
}

/// What a step was recorded as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordedAs {
    /// A list of calls, whose arguments are all compared at every replay. The first replay is slower.
    Calls,
    /// Graphs, whose nodes can be read; all launches were prepared when the step was recorded.
    Graphs,
}

/// How a step was recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Recording {
    /// Why a replay runs op by op, if it does.
    pub why_eager: Option<String>,
    /// Calls of kernels and libraries that a replay makes.
    pub calls: usize,
    /// Nodes of the captured graph; 0 on a CPU.
    pub nodes: usize,
    /// Arguments that were compared with those of the plan: on a CPU at every replay, on a GPU when the graph's nodes
    /// were read at capture.
    pub held_arguments: usize,
    /// Addresses of live constants that are checked before every launch of a graph; 0 on a CPU, where they are among
    /// the arguments.
    pub live_constants: usize,
    /// Steps that one launch makes if the data set is on the device; 0 if batches come from the host.
    pub steps_a_launch: usize,
}

/// The result of comparing one operation with plain loops.
#[derive(Clone, Debug, PartialEq)]
pub struct ReferenceCheck {
    pub op: usize,
    /// The name of the kernel that was planned.
    pub kernel: String,
    /// What ran, call by call: the C++ type of a custom kernel, or a library's call, as the library describes it.
    pub calls: Vec<String>,
    /// The largest ratio of an error to its bound.
    pub ratio: f64,
    /// The position of that error; empty if there is no error.
    pub at: String,
    /// A description of what is wrong; empty if nothing is.
    pub wrong: String,
}

/// What was read from the nodes of one captured graph, all of which equals the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphRead {
    /// What the graph does, as text.
    pub name: String,
    /// The number of nodes of any kind.
    pub nodes: usize,
    /// Nodes of this program's kernels; every word of their arguments was compared.
    pub kernels: usize,
    /// Addresses among those arguments.
    pub arguments: usize,
    /// Nodes that libraries put there.
    pub library_nodes: usize,
    /// Addresses of the operation that were found among the parameters of libraries' nodes, and that are the same as at
    /// capture.
    pub library_arguments: usize,
    /// Nodes in which nothing was compared: libraries' nodes without a recognisable address, copies, memory sets.
    pub unread: usize,
}

/// What a test changes in a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// An argument of an operation is moved by 64 bytes: in the recorded call on a CPU, in the last node of the graph
    /// that contains it on a GPU.
    Argument { graph: usize, op: usize, slot: usize },
    /// The first argument of the last launch of the data feed is moved by 64 bytes, in its node.
    Feed { graph: usize },
    /// The arena is replaced by another allocation.
    Arena,
    /// The executable graph is replaced by another instance of it.
    Instance { graph: usize },
    /// The recorded address of a live constant is moved by 64 bytes.
    LiveConstant(usize),
}

/// How a fault is undone; only the backend that injected it uses the content.
pub struct Undo(pub(super) Box<dyn Any + Send>);

/// A compiled step with its memory on a device.
pub trait StepBackend: BatchFeed + RecordedGraphs + Send {
    /// The results of the compiler that it was made from.
    fn compiled(&self) -> &Arc<Compiled>;

    /// How long each stage of its recording took.
    fn ready_times(&self) -> &ReadyTimes;

    /// How the device runs steps.
    fn capabilities(&self) -> Capabilities;

    /// The memory that it was recorded over.
    fn memory(&self) -> &StepMemory;

    /// Replays the recording once.
    ///
    /// # Errors
    /// If something changed since it was recorded (then nothing was run), or the device fails.
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
    /// If a kernel is missing, or the device fails.
    fn run_ops(&mut self, from: usize, to: usize, pool: &mut Pool) -> Result<(), ExecError>;

    /// Waits until all started work is done.
    ///
    /// # Errors
    /// If the device has reported an error since the last wait.
    fn synchronize(&self) -> Result<(), ExecError> {
        Ok(())
    }

    /// How the step was recorded.
    fn recording(&self) -> Recording;

    /// The arena's bytes, to compare.
    ///
    /// # Errors
    /// If the device fails.
    fn arena(&self) -> Result<Cow<'_, [u8]>, ExecError>;

    /// A value's bytes as they are in memory.
    ///
    /// # Errors
    /// If the value has no place, or the device fails.
    fn bytes(&self, id: LValueId) -> Result<Cow<'_, [u8]>, ExecError>;

    /// Lets `fill` overwrite a value's bytes; bytes that it does not write are unspecified. It is called at most once.
    ///
    /// # Errors
    /// As [`Self::bytes`].
    fn fill_bytes(&mut self, id: LValueId, fill: &mut dyn FnMut(&mut [u8])) -> Result<(), ExecError>;

    /// Overwrites a value's bytes; meant for occasional use and not for every step.
    ///
    /// # Errors
    /// As [`Self::bytes`].
    fn write_once(&mut self, id: LValueId, bytes: &[u8]) -> Result<(), ExecError> {
        self.fill_bytes(id, &mut |out| out.copy_from_slice(bytes))
    }

    /// Sets which values are read after every step, so that one copy fetches them all. The copy is valid for one
    /// revision of the store.
    ///
    /// # Errors
    /// If there is too little memory.
    fn watch(&mut self, _: &[LValueId]) -> Result<(), ExecError> {
        Ok(())
    }

    /// Starts or stops recording the ids of executed kernels.
    fn set_trace(&mut self, on: bool);

    /// The ids of the kernels executed since tracing began.
    fn trace(&self) -> Vec<String>;

    /// The median time of each operation, timed separately, over `rounds`, in microseconds.
    ///
    /// # Errors
    /// As [`Self::replay`].
    fn time_calls(&mut self, rounds: usize, pool: &mut Pool) -> Result<Vec<f64>, ExecError>;

    /// The overhead of a replay in addition to its kernels, in microseconds for each step: first the ledger and the
    /// calls, then the same with the synchronisation of threads.
    ///
    /// # Errors
    /// As [`Self::replay`].
    fn time_bookkeeping(&mut self, rounds: usize, pool: &mut Pool) -> Result<[f64; 2], ExecError>;

    /// What a library computes in an operation, as the library describes it; `None` if no library computes it.
    fn library_of(&self, _op: usize) -> Option<String> {
        None
    }

    /// The least time of each operation at the highest rates of the device, measured now; `None` for the host, whose
    /// rates are measured before and after the timed steps.
    ///
    /// # Errors
    /// If the device fails or has no free memory.
    fn floors(&self) -> Result<Option<Vec<Floor>>, ExecError> {
        Ok(None)
    }

    /// Compares one operation on random inputs with plain loops, if the device's kernels are not the host's. Afterwards
    /// the step's values are undefined.
    ///
    /// # Errors
    /// If the device fails. A difference is not an error: it is part of the result.
    fn compare_with_reference(&mut self, _op: usize, _seed: u64) -> Result<Option<ReferenceCheck>, ExecError> {
        Ok(None)
    }
}

/// Steps that fetch their own batches from a data set on the device, several in one launch. A device that reads its
/// batches from the host's memory supports none of this.
pub trait BatchFeed {
    /// Stores a data set on the device; returns false if there is no room for it, or the device does not support this.
    ///
    /// # Errors
    /// If the device fails.
    fn hold(&mut self, _: &DataSet<'_>) -> Result<bool, ExecError> {
        Ok(false)
    }

    /// The data set on the device.
    fn held(&self) -> Option<HeldData> {
        None
    }

    /// Lets steps fetch their batches from a data set that another step holds; returns false if they cannot.
    ///
    /// # Errors
    /// If the device fails.
    fn share(&mut self, _: &HeldData, _watched: &[LValueId]) -> Result<bool, ExecError> {
        Ok(false)
    }

    /// Prepares the launches of several steps, which otherwise happens during the first steps.
    ///
    /// # Errors
    /// If the device fails, or a launch is not the planned one.
    fn prepare_launches(&mut self) -> Result<(), ExecError> {
        Ok(())
    }

    /// The number of steps that the next launch makes if `left` are requested; 0 if steps do not fetch their batches
    /// themselves.
    fn launch_size(&self, _left: u64) -> usize {
        0
    }

    /// Whether another launch may be started before the records of the first one are taken.
    fn has_free_slot(&self) -> bool {
        false
    }

    /// Launches the steps whose batches are at `places`, as many as [`Self::launch_size`] returned; `counter` is the
    /// step counter before them. Returns immediately.
    ///
    /// # Errors
    /// If something changed since the steps were recorded (then nothing was run), or a call fails.
    fn launch(&mut self, _counter: u64, _places: &[BatchPlace]) -> Result<(), ExecError> {
        Err(ExecError::NoValue("a data set on a device".into()))
    }

    /// The records of the oldest launch in flight, in order; waits only for that launch.
    ///
    /// # Errors
    /// If the device fails.
    fn completed(&mut self) -> Result<&[StepRecord], ExecError> {
        Ok(&[])
    }

    /// Waits for all launches and discards their records.
    ///
    /// # Errors
    /// If the device fails.
    fn abandon_launches(&mut self) -> Result<(), ExecError> {
        Ok(())
    }
}

/// The captured graphs, for reading them back and for changing them in tests.
pub trait RecordedGraphs {
    /// The captured graphs that may be launched, as text.
    fn graphs(&self) -> Vec<String> {
        Vec::new()
    }

    /// Reads the nodes of a graph, given by its index in [`Self::graphs`], and compares their arguments with those of
    /// the plan. Nothing is launched.
    ///
    /// # Errors
    /// The first difference, with operation and layer, or an error of the driver.
    fn read_graph(&self, _graph: usize) -> Result<GraphRead, ExecError> {
        Err(ExecError::NoValue("a captured graph".into()))
    }

    /// Performs the checks that precede a launch of this graph. Nothing is launched.
    ///
    /// # Errors
    /// What changed since the graph was captured.
    fn check_graph(&self, _graph: usize) -> Result<(), ExecError> {
        Ok(())
    }

    /// Captures several steps in one graph, also such that fetch their batches; returns false if that is not possible.
    ///
    /// # Errors
    /// If the driver reports an error, or the graph is not the planned one.
    fn capture_several(&mut self, _most: usize) -> Result<bool, ExecError> {
        Ok(false)
    }

    /// Writes the captured graph of one step in Graphviz's language; returns false if there are no graphs.
    ///
    /// # Errors
    /// If the step could not be captured, or the file cannot be written.
    fn write_graph(&self, _path: &Path) -> Result<bool, ExecError> {
        Ok(false)
    }

    /// Changes a recording, so that a test can check that the ledger finds the change. Returns `None` if the recording
    /// has no such place.
    ///
    /// # Errors
    /// If the driver reports an error.
    fn inject(&mut self, fault: Fault) -> Result<Option<Undo>, ExecError>;

    /// Undoes [`Self::inject`].
    ///
    /// # Errors
    /// If the driver reports an error.
    fn undo(&mut self, undo: Undo) -> Result<(), ExecError>;
}
