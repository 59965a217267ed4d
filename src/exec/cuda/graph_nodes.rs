//! The nodes of a graph, as the driver lists them.

use super::error::{CudaError, failed};
use cudarc::driver::sys;

/// A function of the driver that lists the nodes before or after a node, with the kinds of edges.
pub(super) type Lists =
    unsafe fn(sys::CUgraphNode, *mut sys::CUgraphNode, *mut sys::CUgraphEdgeData, *mut usize) -> sys::CUresult;

/// The nodes next to one.
///
/// # Safety
/// The node belongs to a graph that is alive.
pub(super) unsafe fn neighbours(node: sys::CUgraphNode, list: Lists) -> Result<Vec<sys::CUgraphNode>, CudaError> {
    let checked = |result: sys::CUresult| result.result().map_err(|e| failed("cuGraphNodeGetDependencies", e));
    let mut count = 0;
    // SAFETY: with no lists to fill, only the number is written.
    checked(unsafe { list(node, std::ptr::null_mut(), std::ptr::null_mut(), &raw mut count) })?;
    if count == 0 {
        return Ok(Vec::new());
    }
    let mut nodes = vec![std::ptr::null_mut(); count];
    let mut edges = vec![sys::CUgraphEdgeData { from_port: 0, to_port: 0, type_: 0, reserved: [0; 5] }; count];
    // SAFETY: the lists have room for `count` entries.
    checked(unsafe { list(node, nodes.as_mut_ptr(), edges.as_mut_ptr(), &raw mut count) })?;
    nodes.truncate(count);
    Ok(nodes)
}

/// The nodes of a graph.
///
/// # Safety
/// The graph is alive.
pub(super) unsafe fn nodes_of(graph: sys::CUgraph) -> Result<Vec<sys::CUgraphNode>, CudaError> {
    let checked = |result: sys::CUresult| result.result().map_err(|e| failed("cuGraphGetNodes", e));
    let mut count = 0;
    // SAFETY: with no list to fill, only the number is written.
    checked(unsafe { sys::cuGraphGetNodes(graph, std::ptr::null_mut(), &raw mut count) })?;
    // The driver refuses a list of length zero, as for a capture that begins with a library's call.
    if count == 0 {
        return Ok(Vec::new());
    }
    let mut nodes = vec![std::ptr::null_mut(); count];
    // SAFETY: the list has room for `count` nodes.
    checked(unsafe { sys::cuGraphGetNodes(graph, nodes.as_mut_ptr(), &raw mut count) })?;
    nodes.truncate(count);
    Ok(nodes)
}

/// What a node does.
///
/// # Safety
/// The node belongs to a graph that is alive.
pub(super) unsafe fn kind_of(node: sys::CUgraphNode) -> Result<sys::CUgraphNodeType, CudaError> {
    let mut kind = sys::CUgraphNodeType::CU_GRAPH_NODE_TYPE_EMPTY;
    // SAFETY: the caller's promise.
    let checked = unsafe { sys::cuGraphNodeGetType(node, &raw mut kind) }.result();
    checked.map(|()| kind).map_err(|e| failed("cuGraphNodeGetType", e))
}

/// What a kernel node launches, and with which parameters; `None` for other nodes.
///
/// # Safety
/// The node belongs to a graph that is alive.
pub(super) unsafe fn kernel_params(node: sys::CUgraphNode) -> Result<Option<sys::CUDA_KERNEL_NODE_PARAMS>, CudaError> {
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
