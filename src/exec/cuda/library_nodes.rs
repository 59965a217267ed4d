//! Nodes that libraries add to a captured graph. The layout of their parameters is private to the library, but
//! addresses can be found among them.

use super::arguments::Range;
use super::error::{CudaError, failed};
use super::graph_nodes::{kernel_params, nodes_of};
use crate::exec::cuda::gpu::Gpu;
use cudarc::driver::sys;
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::c_void;

/// The first driver that reports the sizes of a kernel's parameters.
const DRIVER: i32 = 12_040;

/// Whether the driver reports the sizes of kernel parameters.
pub(super) fn can_read() -> bool {
    let mut version = 0;
    // SAFETY: the pointer is valid for the call.
    let known = unsafe { sys::cuDriverGetVersion(&raw mut version) }.result().is_ok();
    known && version >= DRIVER
}

/// The layout of a kernel's parameters: the size of each.
type Sizes = HashMap<(sys::CUfunction, sys::CUkernel), Vec<usize>>;

/// The location of a word in a kernel node's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WordPlace {
    pub(super) node: sys::CUgraphNode,
    pub(super) param: usize,
    /// Counted in 8 bytes from the parameter's start.
    pub(super) word: usize,
}

/// An address in a library's node at capture.
#[derive(Clone, Copy, Debug)]
pub(super) struct LibraryWord {
    pub(super) place: WordPlace,
    pub(super) address: u64,
    /// The operation, and the slot whose bytes contain the address.
    pub(super) op: usize,
    pub(super) slot: usize,
}

/// Records during a capture which nodes come from libraries.
#[derive(Default)]
pub(super) struct Marks {
    /// The nodes that were in the graph before each call and after it.
    nodes: RefCell<Vec<(usize, usize)>>,
}

impl Marks {
    /// Enqueues calls of a library on the stream that is captured.
    ///
    /// # Errors
    /// The errors of `put`, and of the driver.
    pub(super) fn library(&self, gpu: &Gpu, put: impl FnOnce() -> Result<(), CudaError>) -> Result<(), CudaError> {
        let before = captured_so_far(gpu)?;
        put()?;
        self.nodes.borrow_mut().push((before, captured_so_far(gpu)?));
        Ok(())
    }

    /// The nodes of each library's call, in the order of the calls.
    ///
    /// # Errors
    /// If the driver reports an error.
    ///
    /// # Safety
    /// The graph is alive, is the one that was captured, and no node was removed from it.
    pub(super) unsafe fn of(&self, graph: sys::CUgraph) -> Result<Vec<Vec<sys::CUgraphNode>>, CudaError> {
        let calls = self.nodes.borrow();
        if calls.is_empty() {
            return Ok(Vec::new());
        }
        // SAFETY: the caller's promise.
        let nodes = unsafe { nodes_of(graph) }?;
        Ok(calls.iter().map(|(from, to)| nodes.get(*from..*to).unwrap_or_default().to_vec()).collect())
    }
}

/// Nodes of the graph that the device's stream is captured into.
fn captured_so_far(gpu: &Gpu) -> Result<usize, CudaError> {
    let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    let (mut id, mut graph) = (0, std::ptr::null_mut());
    let (mut before, mut edges, mut count) = (std::ptr::null(), std::ptr::null(), 0);
    // SAFETY: every pointer is valid for the call; the graph belongs to the capture and is alive as long as that.
    unsafe {
        sys::cuStreamGetCaptureInfo_v3(
            gpu.stream(),
            &raw mut status,
            &raw mut id,
            &raw mut graph,
            &raw mut before,
            &raw mut edges,
            &raw mut count,
        )
        .result()
        .map_err(|e| failed("cuStreamGetCaptureInfo", e))?;
        if graph.is_null() { Ok(0) } else { nodes_of(graph).map(|nodes| nodes.len()) }
    }
}

/// The words in the parameters of kernel nodes that are addresses in `memory`. Other nodes have none, and neither have
/// kernels whose parameters the driver does not report.
///
/// # Errors
/// If the driver reports an error.
///
/// # Safety
/// The nodes belong to a graph that is alive.
pub(super) unsafe fn addresses_in(
    nodes: &[sys::CUgraphNode],
    memory: &[Range],
) -> Result<Vec<(WordPlace, u64)>, CudaError> {
    let is_inside = |address: u64| memory.iter().any(|(from, to)| (*from..*to).contains(&address));
    let (mut sizes, mut out) = (Sizes::new(), Vec::new());
    for node in nodes {
        // SAFETY: the caller's promise.
        let Some((_, copies)) = unsafe { parameters(*node, &mut sizes) }? else { continue };
        for (param, copy) in copies.iter().enumerate() {
            let inside = copy.iter().enumerate().filter(|(_, value)| is_inside(**value));
            out.extend(inside.map(|(word, value)| (WordPlace { node: *node, param, word }, *value)));
        }
    }
    Ok(out)
}

/// Reads words of nodes; each node is read once if its words are consecutive.
#[derive(Default)]
pub(super) struct WordReader {
    sizes: Sizes,
    last: Option<(sys::CUgraphNode, Vec<Vec<u64>>)>,
}

impl WordReader {
    /// One word of a kernel node's parameters; `None` if the node no longer has such a word.
    ///
    /// # Errors
    /// If the driver reports an error.
    ///
    /// # Safety
    /// The node belongs to a graph that is alive.
    pub(super) unsafe fn read(&mut self, place: WordPlace) -> Result<Option<u64>, CudaError> {
        if self.last.as_ref().is_none_or(|(node, _)| *node != place.node) {
            // SAFETY: the caller's promise.
            let read = unsafe { parameters(place.node, &mut self.sizes) }?;
            self.last = Some((place.node, read.map(|(_, copies)| copies).unwrap_or_default()));
        }
        let copies = self.last.as_ref().map(|(_, copies)| copies);
        Ok(copies.and_then(|copies| copies.get(place.param)?.get(place.word).copied()))
    }
}

/// Changes one word of a kernel node's parameters. An executable graph that was instantiated before is not changed.
///
/// # Errors
/// If the node has no such word, or the driver reports an error.
///
/// # Safety
/// The node belongs to a graph that is alive, and that is not launched with the changed word.
pub(super) unsafe fn set_word(place: WordPlace, value: u64) -> Result<(), CudaError> {
    // SAFETY: the caller's promise; the driver copies the parameters, each of which has the size that it reported.
    unsafe {
        let read = parameters(place.node, &mut Sizes::new())?;
        let (params, mut copies) = read.ok_or("a node is not a kernel whose parameters can be read")?;
        let word = copies.get_mut(place.param).and_then(|copy| copy.get_mut(place.word));
        *word.ok_or("a node has no such parameter")? = value;
        let mut pointers: Vec<*mut c_void> = copies.iter_mut().map(|copy| copy.as_mut_ptr().cast()).collect();
        let params =
            sys::CUDA_KERNEL_NODE_PARAMS { kernelParams: pointers.as_mut_ptr(), extra: std::ptr::null_mut(), ..params };
        sys::cuGraphKernelNodeSetParams_v2(place.node, &raw const params)
            .result()
            .map_err(|e| failed("cuGraphKernelNodeSetParams", e))
    }
}

/// What a node launches, and a copy of each of its parameters, padded to whole words.
type Parameters = (sys::CUDA_KERNEL_NODE_PARAMS, Vec<Vec<u64>>);

/// The parameters of a kernel node; `None` for other nodes, and if the driver does not report them.
///
/// # Safety
/// The node belongs to a graph that is alive.
unsafe fn parameters(node: sys::CUgraphNode, sizes: &mut Sizes) -> Result<Option<Parameters>, CudaError> {
    // SAFETY: the caller's promise.
    let params = unsafe { kernel_params(node) }?.filter(|p| !p.kernelParams.is_null());
    let Some(params) = params else { return Ok(None) };
    let copy = |(index, size): (usize, &usize)| {
        let mut copy = vec![0u64; size.div_ceil(8)];
        // SAFETY: the driver keeps `size` bytes of this parameter as long as the node lives, and the copy has room for
        // them.
        unsafe {
            let from = (*params.kernelParams.add(index)).cast::<u8>();
            std::ptr::copy_nonoverlapping(from, copy.as_mut_ptr().cast::<u8>(), *size);
        }
        copy
    };
    let layout = sizes.entry((params.func, params.kern)).or_insert_with(|| layout_of(params.func, params.kern));
    Ok(Some((params, layout.iter().enumerate().map(copy).collect())))
}

/// The sizes of a kernel's parameters. Drivers before CUDA 13.2 do not tell their number, so that the last question
/// asks for one that does not exist. `compute-sanitizer` reports that question unless given `--report-api-errors no`.
fn layout_of(function: sys::CUfunction, kernel: sys::CUkernel) -> Vec<usize> {
    let mut out = Vec::new();
    loop {
        let (mut offset, mut size) = (0, 0);
        // SAFETY: one of the handles is the driver's own; an index that is too large is answered with an error.
        let answer = unsafe {
            if function.is_null() {
                sys::cuKernelGetParamInfo(kernel, out.len(), &raw mut offset, &raw mut size)
            } else {
                sys::cuFuncGetParamInfo(function, out.len(), &raw mut offset, &raw mut size)
            }
        };
        if answer.result().is_err() {
            return out;
        }
        out.push(size);
    }
}
