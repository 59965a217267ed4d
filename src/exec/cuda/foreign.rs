//! What a library's kernels in a captured graph hold: their parameters are the library's own layout, but addresses
//! can be found among them.

use super::failed;
use super::gpu::Gpu;
use super::graph::{kernel_params, nodes_of};
use super::overlap::Range;
use cudarc::driver::sys;
use std::cell::RefCell;
use std::collections::HashMap;

/// The driver from which on a kernel's parameters can be told apart.
const DRIVER: i32 = 12_040;

/// The layout of a kernel's parameters: the size of each.
type Sizes = HashMap<(sys::CUfunction, sys::CUkernel), Vec<usize>>;

/// Notes during a capture which nodes come from libraries.
pub(super) struct Marks {
    /// The memory that a step may touch.
    memory: Vec<Range>,
    nodes: RefCell<Vec<(usize, usize)>>,
}

impl Marks {
    pub(super) const fn new(memory: Vec<Range>) -> Self {
        Self { memory, nodes: RefCell::new(Vec::new()) }
    }

    /// Puts calls of a library on the stream that is captured.
    ///
    /// # Errors
    /// Those of `put`, and of the driver.
    pub(super) fn library(&self, gpu: &Gpu, put: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
        let before = captured_so_far(gpu)?;
        put()?;
        self.nodes.borrow_mut().push((before, captured_so_far(gpu)?));
        Ok(())
    }

    /// The addresses in the step's memory that the kernels of each library's call hold, in the order of the calls. Nothing where the driver cannot tell.
    ///
    /// # Errors
    /// What the driver says.
    ///
    /// # Safety
    /// The graph is alive, and is the one that was captured.
    pub(super) unsafe fn addresses(&self, graph: sys::CUgraph) -> Result<Option<Vec<Vec<u64>>>, String> {
        let calls = self.nodes.borrow();
        if calls.is_empty() {
            return Ok(Some(Vec::new()));
        }
        let mut version = 0;
        // SAFETY: the pointer is valid for the call.
        let known = unsafe { sys::cuDriverGetVersion(&raw mut version) }.result().is_ok();
        if !known || version < DRIVER {
            return Ok(None);
        }
        // SAFETY: the caller's promise.
        let nodes = unsafe { nodes_of(graph) }?;
        let mut sizes = Sizes::new();
        let mut out = Vec::with_capacity(calls.len());
        for (from, to) in calls.iter() {
            let mut found = Vec::new();
            for node in nodes.get(*from..*to).unwrap_or_default() {
                // SAFETY: the node belongs to the graph.
                unsafe { read(*node, &mut sizes, &mut |word| self.is_inside(word).then(|| found.push(word))) }?;
            }
            out.push(found);
        }
        Ok(Some(out))
    }

    fn is_inside(&self, address: u64) -> bool {
        self.memory.iter().any(|(from, to)| (*from..*to).contains(&address))
    }
}

/// Nodes of the graph that the device's stream is captured into.
fn captured_so_far(gpu: &Gpu) -> Result<usize, String> {
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

/// Hands the aligned words of a kernel node's parameters to `tell`; other nodes have none.
///
/// # Safety
/// The node belongs to a graph that is alive.
unsafe fn read(
    node: sys::CUgraphNode,
    sizes: &mut Sizes,
    tell: &mut impl FnMut(u64) -> Option<()>,
) -> Result<(), String> {
    // SAFETY: the caller's promise.
    let Some(params) = unsafe { kernel_params(node) }? else { return Ok(()) };
    if params.kernelParams.is_null() {
        return Ok(());
    }
    let layout = sizes.entry((params.func, params.kern)).or_insert_with(|| layout_of(params.func, params.kern));
    for (index, size) in layout.iter().enumerate() {
        // SAFETY: the driver says how many parameters there are and how large each is; it keeps a copy of each as long as the node lives.
        unsafe {
            let at = *params.kernelParams.add(index);
            for word in 0..size / 8 {
                tell(at.cast::<u64>().add(word).read_unaligned());
            }
        }
    }
    Ok(())
}

/// The sizes of a kernel's parameters.
fn layout_of(function: sys::CUfunction, kernel: sys::CUkernel) -> Vec<usize> {
    let mut out = Vec::new();
    loop {
        let (mut offset, mut size) = (0, 0);
        // SAFETY: one of the handles is the driver's own; an index that is too large is answered with an error.
        let told = unsafe {
            if function.is_null() {
                sys::cuKernelGetParamInfo(kernel, out.len(), &raw mut offset, &raw mut size)
            } else {
                sys::cuFuncGetParamInfo(function, out.len(), &raw mut offset, &raw mut size)
            }
        };
        if told.result().is_err() {
            return out;
        }
        out.push(size);
    }
}
