//! A captured step: one graph, launched by one call.

use super::failed;
use super::gpu::Gpu;
use cudarc::driver::{result, sys};
use std::ffi::CString;
use std::path::Path;

/// A graph that is ready to be launched, and what it is made of.
pub(super) struct Graph {
    graph: sys::CUgraph,
    exec: sys::CUgraphExec,
    nodes: usize,
    kernels: usize,
}

// SAFETY: the handles are used by one thread at a time: whoever owns the step.
unsafe impl Send for Graph {}

impl Graph {
    /// Captures what `record` puts on the device's stream. Nothing runs.
    ///
    /// # Errors
    /// Which call failed, and how; the stream is usable again then.
    pub(super) fn capture(gpu: &Gpu, record: impl FnOnce() -> Result<(), String>) -> Result<Self, String> {
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
        let exec = unsafe { sys_instantiate(graph) };
        let exec = match exec {
            Ok(exec) => exec,
            Err(why) => {
                // SAFETY: the graph is ours.
                let _ = unsafe { result::graph::destroy(graph) };
                return Err(why);
            }
        };
        let mut captured = Self { graph, exec, nodes: 0, kernels: 0 };
        captured.count()?;
        // SAFETY: both handles are alive.
        unsafe { result::graph::upload(exec, stream) }.map_err(|e| failed("cuGraphUpload", e))?;
        Ok(captured)
    }

    fn list(&self) -> Result<Vec<sys::CUgraphNode>, String> {
        let mut count = 0;
        // SAFETY: with no list to fill, only the number is written.
        unsafe { sys::cuGraphGetNodes(self.graph, std::ptr::null_mut(), &raw mut count) }
            .result()
            .map_err(|e| failed("cuGraphGetNodes", e))?;
        let mut nodes = vec![std::ptr::null_mut(); count];
        // SAFETY: the list has room for `count` nodes.
        unsafe { sys::cuGraphGetNodes(self.graph, nodes.as_mut_ptr(), &raw mut count) }
            .result()
            .map_err(|e| failed("cuGraphGetNodes", e))?;
        nodes.truncate(count);
        Ok(nodes)
    }

    /// Counts the nodes; one that takes or gives back memory is refused, because its addresses would be the graph's own.
    fn count(&mut self) -> Result<(), String> {
        let nodes = self.list()?;
        self.nodes = nodes.len();
        for node in nodes {
            let mut kind = sys::CUgraphNodeType::CU_GRAPH_NODE_TYPE_EMPTY;
            // SAFETY: the node belongs to the graph.
            unsafe { sys::cuGraphNodeGetType(node, &raw mut kind) }
                .result()
                .map_err(|e| failed("cuGraphNodeGetType", e))?;
            match kind {
                sys::CUgraphNodeType::CU_GRAPH_NODE_TYPE_KERNEL => self.kernels += 1,
                sys::CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEM_ALLOC
                | sys::CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEM_FREE => {
                    return Err(format!(
                        "the captured step would take memory of its own ({kind:?}); a library allocated while it was recorded"
                    ));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The pointers that the graph's kernel nodes hold, by function, in the order of the nodes: the first `len(function)` words of each kernel's parameter.
    pub(super) fn arguments(
        &self,
        words: impl Fn(sys::CUfunction) -> usize,
    ) -> Result<Vec<(sys::CUfunction, Vec<u64>)>, String> {
        let mut out = Vec::with_capacity(self.kernels);
        for node in self.list()? {
            let mut kind = sys::CUgraphNodeType::CU_GRAPH_NODE_TYPE_EMPTY;
            // SAFETY: the node belongs to the graph.
            unsafe { sys::cuGraphNodeGetType(node, &raw mut kind) }
                .result()
                .map_err(|e| failed("cuGraphNodeGetType", e))?;
            if kind != sys::CUgraphNodeType::CU_GRAPH_NODE_TYPE_KERNEL {
                continue;
            }
            let mut params = std::mem::MaybeUninit::<sys::CUDA_KERNEL_NODE_PARAMS>::zeroed();
            // SAFETY: the node is a kernel node; the driver fills the structure.
            let params = unsafe {
                sys::cuGraphKernelNodeGetParams_v2(node, params.as_mut_ptr())
                    .result()
                    .map_err(|e| failed("cuGraphKernelNodeGetParams", e))?;
                params.assume_init()
            };
            let count = words(params.func);
            if count == 0 || params.kernelParams.is_null() {
                continue;
            }
            // SAFETY: `words` knows the function as one of ours, whose one parameter is a structure of `count` pointers.
            let held = unsafe { std::slice::from_raw_parts((*params.kernelParams).cast::<u64>(), count) };
            out.push((params.func, held.to_vec()));
        }
        Ok(out)
    }

    pub(super) const fn nodes(&self) -> usize {
        self.nodes
    }

    pub(super) const fn kernels(&self) -> usize {
        self.kernels
    }

    /// Launches the graph once; returns at once.
    pub(super) fn launch(&self, gpu: &Gpu) -> Result<(), String> {
        // SAFETY: both handles are alive.
        unsafe { result::graph::launch(self.exec, gpu.stream()) }.map_err(|e| failed("cuGraphLaunch", e))
    }

    /// Writes the graph in Graphviz's language, as the driver sees it.
    pub(super) fn write_dot(&self, path: &Path) -> Result<(), String> {
        let name = CString::new(path.to_string_lossy().as_bytes()).map_err(|e| e.to_string())?;
        let verbose = sys::CUgraphDebugDot_flags_enum::CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE as u32;
        // SAFETY: the graph is alive, the name ends in a zero.
        unsafe { sys::cuGraphDebugDotPrint(self.graph, name.as_ptr(), verbose) }
            .result()
            .map_err(|e| failed("cuGraphDebugDotPrint", e))
    }
}

/// # Safety
/// The graph is alive.
unsafe fn sys_instantiate(graph: sys::CUgraph) -> Result<sys::CUgraphExec, String> {
    let mut exec = std::ptr::null_mut();
    // SAFETY: the caller's promise; the pointer is valid for the call.
    unsafe { sys::cuGraphInstantiateWithFlags(&raw mut exec, graph, 0) }
        .result()
        .map_err(|e| failed("cuGraphInstantiate", e))?;
    Ok(exec)
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: both handles are ours and are destroyed once.
        unsafe {
            let _ = result::graph::exec_destroy(self.exec);
            let _ = result::graph::destroy(self.graph);
        }
    }
}
