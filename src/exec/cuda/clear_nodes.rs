//! Replaces the nodes of a captured graph in which libraries clear memory by a custom kernel.

use super::arguments::MAX_ARGS;
use super::error::{CudaError, failed};
use super::graph_nodes::{kind_of, neighbours, nodes_of};
use super::kernel_store::Kernel;
use crate::exec::cuda::gpu::Gpu;
use crate::select::cuda::{KernelFile, KernelSpec};
use cudarc::driver::sys;
use std::ffi::c_void;

/// Clears memory with custom kernels instead of the memory sets that libraries insert between their kernels (mostly for
/// a counter of tiles). A graph of kernels only is launched in the same time regardless of their number (1.5 to 3 us on
/// an H200); each node of another kind adds 1.3 us of the host's time to every launch. In `library`, the new nodes take
/// the places of the old ones.
///
/// # Safety
/// The graph is alive and not instantiated.
pub(super) unsafe fn kernels_that_clear(
    gpu: &Gpu,
    graph: sys::CUgraph,
    library: &mut [Vec<sys::CUgraphNode>],
) -> Result<(), CudaError> {
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
        let kernel = clear.get_or_insert_with(|| gpu.kernel(clear_memory()));
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

/// The kernel that clears memory.
pub(super) fn clear_memory() -> KernelSpec {
    KernelSpec::new(KernelFile::Clear, "Clear", String::new())
}

/// The number of bytes that a block clears before another block is added, and the largest number of blocks.
const CLEARED_EACH: usize = 4096;
const CLEARING_BLOCKS: usize = 256;

/// Puts [`clear_memory`] in the place of `node`, which clears this many bytes at `address`; returns the new node.
///
/// # Safety
/// The node belongs to the graph.
unsafe fn replace(
    graph: sys::CUgraph,
    node: sys::CUgraphNode,
    kernel: &Kernel,
    address: u64,
    bytes: usize,
) -> Result<sys::CUgraphNode, CudaError> {
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
