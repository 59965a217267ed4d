//! A captured step: one graph, launched by one call.

use super::clear_nodes::kernels_that_clear;
use super::error::{CudaError, failed};
use super::graph_nodes::{kernel_params, kind_of, nodes_of};
use super::library_nodes::{LibraryWord, Marks};
use super::planned_launch::KernelNode;
use crate::exec::cuda::gpu::Gpu;
use cudarc::driver::{result, sys};
use std::ffi::CString;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The number of captures in this process.
static CAPTURES: AtomicU64 = AtomicU64::new(0);

/// Identifies a graph by the number of its capture and the handle that launches it, because handles are reused.
pub(super) type Identity = (u64, usize);

/// A graph that is ready to be launched, and its content. The driver can read back only the nodes of `graph`: `exec`
/// was instantiated from it, and nothing changes `exec` later.
pub(super) struct CapturedGraph {
    /// The nodes of each library's call, in the order of the calls.
    pub(super) library: Vec<Vec<sys::CUgraphNode>>,
    /// The nodes of custom kernels, in the order of the plan's launches.
    pub(super) own: Vec<sys::CUgraphNode>,
    /// The parameters of the libraries' nodes at capture.
    pub(super) library_words: Vec<LibraryWord>,
    /// The number of arguments of custom kernels that were read at capture.
    pub(super) arguments: usize,
    capture: u64,
    graph: sys::CUgraph,
    exec: sys::CUgraphExec,
    nodes: usize,
    kernels: usize,
    /// The time to instantiate it and to upload it to the device.
    pub(super) upload_took: Duration,
}

// SAFETY: the handles are used by one thread at a time: whoever owns the step.
unsafe impl Send for CapturedGraph {}

impl CapturedGraph {
    /// Captures what `record` enqueues on the device's stream; `record` marks the calls of libraries. Nothing runs.
    ///
    /// # Errors
    /// If a call failed; the stream can still be used.
    pub(super) fn capture(
        gpu: &Gpu,
        marks: &Marks,
        record: impl FnOnce() -> Result<(), CudaError>,
    ) -> Result<Self, CudaError> {
        let stream = gpu.stream();
        // SAFETY: the stream is ours, and nobody else captures on it.
        unsafe { result::stream::begin_capture(stream, sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) }
            .map_err(|e| failed("cuStreamBeginCapture", e))?;
        let recorded = record();
        // SAFETY: the capture was begun above; it is ended whatever happened.
        let graph = unsafe { result::stream::end_capture(stream) }.map_err(|e| failed("cuStreamEndCapture", e));
        let graph = match (recorded, graph) {
            (Ok(()), Ok(graph)) => graph,
            (Err(why), Ok(graph)) => {
                // SAFETY: the graph is ours.
                let _ = unsafe { result::graph::destroy(graph) };
                return Err(why);
            }
            (Err(why), Err(_)) | (Ok(()), Err(why)) => return Err(why),
        };
        // SAFETY: the graph was just captured.
        let mut upload_took = Duration::ZERO;
        let made = unsafe {
            marks.of(graph).and_then(|mut library| {
                kernels_that_clear(gpu, graph, &mut library)?;
                let started = Instant::now();
                let exec = instantiate(graph)?;
                upload_took = started.elapsed();
                Ok((exec, library))
            })
        };
        let (exec, library) = match made {
            Ok(made) => made,
            Err(why) => {
                // SAFETY: the graph is ours.
                let _ = unsafe { result::graph::destroy(graph) };
                return Err(why);
            }
        };
        let capture = CAPTURES.fetch_add(1, Ordering::Relaxed);
        let (own, library_words, arguments) = (Vec::new(), Vec::new(), 0);
        let (nodes, kernels) = (0, 0);
        let mut captured =
            Self { library, own, library_words, arguments, capture, graph, exec, nodes, kernels, upload_took };
        captured.count()?;
        let started = Instant::now();
        // SAFETY: both handles are alive.
        unsafe { result::graph::upload(exec, stream) }.map_err(|e| failed("cuGraphUpload", e))?;
        captured.upload_took += started.elapsed();
        Ok(captured)
    }

    /// The number of nodes that the graph has now.
    pub(super) fn list(&self) -> Result<Vec<sys::CUgraphNode>, CudaError> {
        // SAFETY: the graph is alive.
        unsafe { nodes_of(self.graph) }
    }

    /// Counts the nodes. A node that allocates or frees memory is refused, because its addresses would belong to the
    /// graph.
    fn count(&mut self) -> Result<(), CudaError> {
        let nodes = self.list()?;
        self.nodes = nodes.len();
        for node in nodes {
            // SAFETY: the node belongs to the graph.
            let kind = unsafe { kind_of(node) }?;
            match kind {
                sys::CUgraphNodeType::CU_GRAPH_NODE_TYPE_KERNEL => self.kernels += 1,
                sys::CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEM_ALLOC
                | sys::CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEM_FREE => {
                    return Err(format!(
                        "the captured step would allocate memory ({kind:?}); a library allocated while it was \
                         recorded"
                    )
                    .into());
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Kernel nodes with the first `words(function)` words of their parameter, in the order of the nodes; nodes of 0
    /// words are left out.
    pub(super) fn arguments(
        &self,
        words: impl Fn(sys::CUfunction) -> usize,
    ) -> Result<Vec<KernelNode<sys::CUgraphNode, sys::CUfunction>>, CudaError> {
        let mut out = Vec::with_capacity(self.kernels);
        for node in self.list()? {
            // SAFETY: the node belongs to the graph.
            let Some(params) = unsafe { kernel_params(node) }? else { continue };
            let count = words(params.func);
            if count == 0 || params.kernelParams.is_null() {
                continue;
            }
            // SAFETY: `words` knows the function as one of ours, whose one parameter is a structure of `count`
            // pointers.
            let held = unsafe { std::slice::from_raw_parts((*params.kernelParams).cast::<u64>(), count) };
            out.push(KernelNode { node, function: params.func, args: held.to_vec() });
        }
        Ok(out)
    }

    /// The number of its capture, and the handle that launches it.
    pub(super) fn identity(&self) -> Identity {
        (self.capture, self.exec as usize)
    }

    /// Instantiates the graph once more and launches the new instance from now on; returns the previous instance. For
    /// tests of the ledger.
    ///
    /// # Errors
    /// If the driver reports an error.
    pub(super) fn instantiate_again(&mut self) -> Result<Displaced, CudaError> {
        // SAFETY: the graph is alive.
        let exec = unsafe { instantiate(self.graph) }?;
        Ok(Displaced(std::mem::replace(&mut self.exec, exec)))
    }

    /// Undoes [`Self::instantiate_again`].
    pub(super) fn put_back(&mut self, displaced: Displaced) {
        let exec = std::mem::replace(&mut self.exec, displaced.0);
        // SAFETY: the handle is ours and is destroyed once.
        let _ = unsafe { result::graph::exec_destroy(exec) };
    }

    pub(super) const fn nodes(&self) -> usize {
        self.nodes
    }

    pub(super) const fn kernels(&self) -> usize {
        self.kernels
    }

    /// Launches the graph once; returns immediately.
    pub(super) fn launch(&self, gpu: &Gpu) -> Result<(), CudaError> {
        // SAFETY: both handles are alive.
        unsafe { result::graph::launch(self.exec, gpu.stream()) }.map_err(|e| failed("cuGraphLaunch", e))
    }

    /// Writes the graph in Graphviz's language, as the driver sees it.
    pub(super) fn write_dot(&self, path: &Path) -> Result<(), CudaError> {
        let name = CString::new(path.to_string_lossy().as_bytes()).map_err(|e| e.to_string())?;
        let verbose = sys::CUgraphDebugDot_flags_enum::CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE as u32;
        // SAFETY: the graph is alive, the name ends in a zero.
        unsafe { sys::cuGraphDebugDotPrint(self.graph, name.as_ptr(), verbose) }
            .result()
            .map_err(|e| failed("cuGraphDebugDotPrint", e))
    }
}

/// The previous instance of a graph that was instantiated again.
pub(super) struct Displaced(sys::CUgraphExec);

/// # Safety
/// The graph is alive.
unsafe fn instantiate(graph: sys::CUgraph) -> Result<sys::CUgraphExec, CudaError> {
    let mut exec = std::ptr::null_mut();
    // SAFETY: the caller's promise; the pointer is valid for the call.
    unsafe { sys::cuGraphInstantiateWithFlags(&raw mut exec, graph, 0) }
        .result()
        .map_err(|e| failed("cuGraphInstantiate", e))?;
    Ok(exec)
}

impl Drop for CapturedGraph {
    fn drop(&mut self) {
        // SAFETY: both handles are ours and are destroyed once.
        unsafe {
            let _ = result::graph::exec_destroy(self.exec);
            let _ = result::graph::destroy(self.graph);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capture_may_consist_of_a_library_call_without_nodes() {
        let gpu = match super::super::gpu(0) {
            Ok(gpu) => gpu,
            Err(why) => return println!("skipped: no CUDA device: {why}"),
        };
        gpu.enter().unwrap();
        let marks = Marks::default();
        let graph = CapturedGraph::capture(&gpu, &marks, || marks.library(&gpu, || Ok(()))).unwrap();
        assert_eq!((graph.nodes(), graph.kernels(), graph.library.len()), (0, 0, 1));
    }
}
