//! A captured step: one graph, launched by one call.

use super::bind::MAX_ARGS;
use super::failed;
use super::gpu::{Gpu, Kernel};
use super::library_nodes::{LibraryWord, Marks};
use super::nodes::KernelNode;
use cudarc::driver::{result, sys};
use std::ffi::{CString, c_void};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// The captures of this process.
static CAPTURES: AtomicU64 = AtomicU64::new(0);

/// Which capture a graph is, and the handle that launches it: handles are given out again.
pub(super) type Identity = (u64, usize);

/// A graph that is ready to be launched, and what it is made of. The driver reads back the nodes of `graph` alone:
/// `exec` was instantiated from it, and nothing changes `exec` afterwards.
pub(super) struct Graph {
    /// The nodes of each library's call, in the order of the calls.
    pub(super) library: Vec<Vec<sys::CUgraphNode>>,
    /// The nodes of our kernels, in the order of the plan's launches.
    pub(super) own: Vec<sys::CUgraphNode>,
    /// What the libraries' nodes held at capture.
    pub(super) library_words: Vec<LibraryWord>,
    /// Arguments of our kernels that were read at capture.
    pub(super) arguments: usize,
    capture: u64,
    graph: sys::CUgraph,
    exec: sys::CUgraphExec,
    nodes: usize,
    kernels: usize,
}

// SAFETY: the handles are used by one thread at a time: whoever owns the step.
unsafe impl Send for Graph {}

impl Graph {
    /// Captures what `record` puts on the device's stream, where it marks what libraries put there. Nothing runs.
    ///
    /// # Errors
    /// Which call failed, and how; the stream is usable again then.
    pub(super) fn capture(
        gpu: &Gpu,
        marks: &Marks,
        record: impl FnOnce() -> Result<(), String>,
    ) -> Result<Self, String> {
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
        let made = unsafe {
            marks.of(graph).and_then(|mut library| {
                kernels_that_clear(gpu, graph, &mut library)?;
                sys_instantiate(graph).map(|exec| (exec, library))
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
        let mut captured = Self { library, own, library_words, arguments, capture, graph, exec, nodes: 0, kernels: 0 };
        captured.count()?;
        // SAFETY: both handles are alive.
        unsafe { result::graph::upload(exec, stream) }.map_err(|e| failed("cuGraphUpload", e))?;
        Ok(captured)
    }

    /// The nodes that the graph has now.
    pub(super) fn list(&self) -> Result<Vec<sys::CUgraphNode>, String> {
        // SAFETY: the graph is alive.
        unsafe { nodes_of(self.graph) }
    }

    /// Counts the nodes; one that takes or gives back memory is refused, because its addresses would be the graph's own.
    fn count(&mut self) -> Result<(), String> {
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
                        "the captured step would take memory of its own ({kind:?}); a library allocated while it was recorded"
                    ));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Kernel nodes with the first `words(function)` words of their parameter, in the order of the nodes; those of 0
    /// words are left out.
    pub(super) fn arguments(
        &self,
        words: impl Fn(sys::CUfunction) -> usize,
    ) -> Result<Vec<KernelNode<sys::CUgraphNode, sys::CUfunction>>, String> {
        let mut out = Vec::with_capacity(self.kernels);
        for node in self.list()? {
            // SAFETY: the node belongs to the graph.
            let Some(params) = unsafe { kernel_params(node) }? else { continue };
            let count = words(params.func);
            if count == 0 || params.kernelParams.is_null() {
                continue;
            }
            // SAFETY: `words` knows the function as one of ours, whose one parameter is a structure of `count` pointers.
            let held = unsafe { std::slice::from_raw_parts((*params.kernelParams).cast::<u64>(), count) };
            out.push(KernelNode { node, function: params.func, args: held.to_vec() });
        }
        Ok(out)
    }

    /// Which capture it is, and what launches it.
    pub(super) fn identity(&self) -> Identity {
        (self.capture, self.exec as usize)
    }

    /// Instantiates the graph once more and launches that from now on; gives what launched it until now. For tests of
    /// the ledger.
    ///
    /// # Errors
    /// What the driver says.
    pub(super) fn instantiate_again(&mut self) -> Result<Displaced, String> {
        // SAFETY: the graph is alive.
        let exec = unsafe { sys_instantiate(self.graph) }?;
        Ok(Displaced(std::mem::replace(&mut self.exec, exec)))
    }

    /// Takes back [`Self::instantiate_again`].
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

/// What launched a graph before it was instantiated again.
pub(super) struct Displaced(sys::CUgraphExec);

/// Has kernels of our own zero what libraries have the copy engine zero between their kernels (a counter of tiles, mostly). A graph of kernels
/// alone is launched in the same time whatever it holds (1.5 to 3 us on an H200); each node that is none adds 1.3 us of the host's time to every launch.
/// In `library`, the new nodes take the places of the old ones.
///
/// # Safety
/// The graph is alive and not instantiated.
unsafe fn kernels_that_clear(
    gpu: &Gpu,
    graph: sys::CUgraph,
    library: &mut [Vec<sys::CUgraphNode>],
) -> Result<(), String> {
    // SAFETY: the caller's promise.
    let nodes = unsafe { nodes_of(graph) }?;
    let mut clear = None;
    for node in nodes {
        // SAFETY: the node belongs to the graph.
        let kind = unsafe { kind_of(node) }?;
        if kind != sys::CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEMSET {
            if kind != sys::CUgraphNodeType::CU_GRAPH_NODE_TYPE_KERNEL {
                log::debug!("a graph holds a node of the kind {kind:?}");
            }
            continue;
        }
        let mut memset = std::mem::MaybeUninit::<sys::CUDA_MEMSET_NODE_PARAMS>::zeroed();
        // SAFETY: the node sets memory; the driver fills the structure.
        let memset = unsafe {
            sys::cuGraphMemsetNodeGetParams(node, memset.as_mut_ptr())
                .result()
                .map_err(|e| failed("cuGraphMemsetNodeGetParams", e))?;
            memset.assume_init()
        };
        let bytes = memset.width * memset.elementSize as usize;
        if memset.value != 0 || memset.height != 1 {
            log::debug!("a graph sets {bytes} bytes in each of {} rows to {}", memset.height, memset.value);
            continue;
        }
        let kernel = clear.get_or_insert_with(|| {
            let found = gpu.kernels(&[vec![(CLEAR.0, CLEAR.1.to_owned())]]).pop();
            found.unwrap_or_else(|| Err("no kernel came back".into()))
        });
        match kernel {
            Ok(kernel) => {
                // SAFETY: the node belongs to the graph, and the kernel writes what the node would have set.
                let put = unsafe { replace(graph, node, kernel, memset.dst, bytes) }?;
                library.iter_mut().flatten().filter(|n| **n == node).for_each(|n| *n = put);
            }
            Err(why) => log::debug!("the copy engine sets {bytes} bytes: {why}"),
        }
    }
    Ok(())
}

/// The kernel that zeroes memory: its file and its type.
pub(super) const CLEAR: (&str, &str) = ("clear.cu", "Clear");

/// Bytes that a block of it zeroes before there is another block, and blocks at most.
const CLEARED_EACH: usize = 4096;
const CLEARING_BLOCKS: usize = 256;

/// Puts [`CLEAR`] where `node` is, which zeroes so many bytes at `address`; gives the new node.
///
/// # Safety
/// The node belongs to the graph.
unsafe fn replace(
    graph: sys::CUgraph,
    node: sys::CUgraphNode,
    kernel: &Kernel,
    address: u64,
    bytes: usize,
) -> Result<sys::CUgraphNode, String> {
    let phase = kernel.phases[0];
    let mut args = [0u64; MAX_ARGS];
    (args[0], args[1]) = (address, bytes as u64);
    let mut params = [args.as_mut_ptr().cast::<c_void>()];
    let params = sys::CUDA_KERNEL_NODE_PARAMS {
        func: phase.function,
        gridDimX: bytes.div_ceil(CLEARED_EACH).clamp(1, CLEARING_BLOCKS) as u32,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: kernel.threads,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: phase.smem,
        kernelParams: params.as_mut_ptr(),
        extra: std::ptr::null_mut(),
        kern: std::ptr::null_mut(),
        ctx: std::ptr::null_mut(),
    };
    // SAFETY: the caller's promise; the lists have room for what the driver counted, and it copies the arguments.
    unsafe {
        let before = neighbours(node, sys::cuGraphNodeGetDependencies_v2)?;
        let behind = neighbours(node, sys::cuGraphNodeGetDependentNodes_v2)?;
        let mut put = std::ptr::null_mut();
        sys::cuGraphAddKernelNode_v2(&raw mut put, graph, before.as_ptr(), before.len(), &raw const params)
            .result()
            .map_err(|e| failed("cuGraphAddKernelNode", e))?;
        if !behind.is_empty() {
            let from = vec![put; behind.len()];
            sys::cuGraphAddDependencies_v2(graph, from.as_ptr(), behind.as_ptr(), std::ptr::null(), behind.len())
                .result()
                .map_err(|e| failed("cuGraphAddDependencies", e))?;
        }
        sys::cuGraphDestroyNode(node).result().map_err(|e| failed("cuGraphDestroyNode", e))?;
        Ok(put)
    }
}

/// A call of the driver's that lists the nodes before or behind one, with the kinds of edges.
type Lists = unsafe fn(sys::CUgraphNode, *mut sys::CUgraphNode, *mut sys::CUgraphEdgeData, *mut usize) -> sys::CUresult;

/// The nodes next to one.
///
/// # Safety
/// The node belongs to a graph that is alive.
unsafe fn neighbours(node: sys::CUgraphNode, list: Lists) -> Result<Vec<sys::CUgraphNode>, String> {
    let told = |result: sys::CUresult| result.result().map_err(|e| failed("cuGraphNodeGetDependencies", e));
    let mut count = 0;
    // SAFETY: with no lists to fill, only the number is written.
    told(unsafe { list(node, std::ptr::null_mut(), std::ptr::null_mut(), &raw mut count) })?;
    if count == 0 {
        return Ok(Vec::new());
    }
    let mut nodes = vec![std::ptr::null_mut(); count];
    let mut edges = vec![sys::CUgraphEdgeData { from_port: 0, to_port: 0, type_: 0, reserved: [0; 5] }; count];
    // SAFETY: the lists have room for `count` entries.
    told(unsafe { list(node, nodes.as_mut_ptr(), edges.as_mut_ptr(), &raw mut count) })?;
    nodes.truncate(count);
    Ok(nodes)
}

/// The nodes of a graph.
///
/// # Safety
/// The graph is alive.
pub(super) unsafe fn nodes_of(graph: sys::CUgraph) -> Result<Vec<sys::CUgraphNode>, String> {
    let told = |result: sys::CUresult| result.result().map_err(|e| failed("cuGraphGetNodes", e));
    let mut count = 0;
    // SAFETY: with no list to fill, only the number is written.
    told(unsafe { sys::cuGraphGetNodes(graph, std::ptr::null_mut(), &raw mut count) })?;
    // The driver refuses a list of no length, as of a capture that begins with a library's call.
    if count == 0 {
        return Ok(Vec::new());
    }
    let mut nodes = vec![std::ptr::null_mut(); count];
    // SAFETY: the list has room for `count` nodes.
    told(unsafe { sys::cuGraphGetNodes(graph, nodes.as_mut_ptr(), &raw mut count) })?;
    nodes.truncate(count);
    Ok(nodes)
}

/// What a node does.
///
/// # Safety
/// The node belongs to a graph that is alive.
unsafe fn kind_of(node: sys::CUgraphNode) -> Result<sys::CUgraphNodeType, String> {
    let mut kind = sys::CUgraphNodeType::CU_GRAPH_NODE_TYPE_EMPTY;
    // SAFETY: the caller's promise.
    let told = unsafe { sys::cuGraphNodeGetType(node, &raw mut kind) }.result();
    told.map(|()| kind).map_err(|e| failed("cuGraphNodeGetType", e))
}

/// What a kernel node launches, and with which parameters; nothing for another node.
///
/// # Safety
/// The node belongs to a graph that is alive.
pub(super) unsafe fn kernel_params(node: sys::CUgraphNode) -> Result<Option<sys::CUDA_KERNEL_NODE_PARAMS>, String> {
    let mut params = std::mem::MaybeUninit::<sys::CUDA_KERNEL_NODE_PARAMS>::zeroed();
    // SAFETY: the caller's promise; the driver fills the structure.
    unsafe {
        if kind_of(node)? != sys::CUgraphNodeType::CU_GRAPH_NODE_TYPE_KERNEL {
            return Ok(None);
        }
        sys::cuGraphKernelNodeGetParams_v2(node, params.as_mut_ptr())
            .result()
            .map_err(|e| failed("cuGraphKernelNodeGetParams", e))?;
        Ok(Some(params.assume_init()))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capture_may_begin_with_a_library_that_has_put_nothing_yet() {
        let gpu = match super::super::gpu(0) {
            Ok(gpu) => gpu,
            Err(why) => return println!("skipped: no CUDA device: {why}"),
        };
        gpu.enter().unwrap();
        let marks = Marks::default();
        let graph = Graph::capture(&gpu, &marks, || marks.library(&gpu, || Ok::<(), String>(()))).unwrap();
        assert_eq!((graph.nodes(), graph.kernels(), graph.library.len()), (0, 0, 1));
    }
}
