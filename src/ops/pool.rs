//! Windows over images, and the mean of whole images.

use super::Operation;
use super::geometry::PoolGeometry;
use super::operation::{dims, operation};
use super::windows::{Windows, touched_bytes};

operation! {
    /// Maximum over windows (padding counts as minus infinity); `index` contains the position inside the window, row by
    /// row: the first of equal values; NaN is larger than any number. `u8` for windows up to 256, `u16` above.
    pub struct MaxPool { pub geometry: PoolGeometry }
    slots max_pool(op) {
        X: in activation [op.geometry.inputs()],
        Y: out activation [op.geometry.outputs()],
        INDEX: out [op.geometry.outputs()] if OPTIONAL,
    }
    "max_pool" => {
        dims: pool_dims(&op.geometry),
        flops: op.geometry.reads() as u64,
        bytes_moved(elem): indexed_bytes(&op.geometry, elem),
        least_bytes(slot, len, elem): pooled_bytes(&op.geometry, slot == max_pool::X, len * elem),
        work_ps: pool_ps(&op.geometry, 3_000),
    }
}

operation! {
    /// Gradient of the maximum pooling's input: each window's gradient is added to its maximum.
    pub struct MaxPoolBwd { pub geometry: PoolGeometry }
    slots max_pool_bwd(op) {
        DY: in activation [op.geometry.outputs()],
        INDEX: in [op.geometry.outputs()],
        DX: out activation [op.geometry.inputs()],
    }
    "max_pool_bwd" => {
        dims: pool_dims(&op.geometry),
        flops: op.geometry.outputs() as u64,
        bytes_moved(elem): indexed_bytes(&op.geometry, elem),
        work_ps: pool_ps(&op.geometry, 4_000),
    }
}

operation! {
    /// Mean over windows; padding counts as zeros and in the divisor.
    pub struct AvgPool { pub geometry: PoolGeometry }
    slots avg_pool(op) {
        X: in activation [op.geometry.inputs()],
        Y: out activation [op.geometry.outputs()],
        WORK: scratch,
    }
    "avg_pool" => {
        dims: pool_dims(&op.geometry),
        flops: op.geometry.reads() as u64,
        least_bytes(slot, len, elem): pooled_bytes(&op.geometry, slot == avg_pool::X, len * elem),
        work_ps: pool_ps(&op.geometry, 3_000),
    }
}

operation! {
    /// Gradient of the mean pooling's input.
    pub struct AvgPoolBwd { pub geometry: PoolGeometry }
    slots avg_pool_bwd(op) { DY: in activation [op.geometry.outputs()], DX: out activation [op.geometry.inputs()] }
    "avg_pool_bwd" => {
        dims: pool_dims(&op.geometry),
        flops: op.geometry.reads() as u64,
        work_ps: pool_ps(&op.geometry, 4_000),
    }
}

operation! {
    /// `y [n, c] = mean over hw of x [n, hw, c]`.
    pub struct GlobalAvgPool { pub n: usize, pub hw: usize, pub c: usize }
    slots global_avg_pool(op) { X: in activation [op.n * op.hw * op.c], Y: out activation [op.n * op.c], WORK: scratch }
    "global_avg_pool" => {
        dims: dims!(op: n hw c),
        flops: (op.n * op.hw * op.c) as u64,
    }
}

operation! {
    /// Gradient of the global mean's input.
    pub struct GlobalAvgPoolBwd { pub n: usize, pub hw: usize, pub c: usize }
    slots global_avg_pool_bwd(op) { DY: in activation [op.n * op.c], DX: out activation [op.n * op.hw * op.c] }
    "global_avg_pool_bwd" => {
        dims: dims!(op: n hw c),
        flops: (op.n * op.c) as u64,
    }
}

fn pool_dims(g: &PoolGeometry) -> String {
    format!("{}x{}x{}x{} {}x{} -> {}x{}", g.n, g.h, g.w, g.c, g.size[0], g.size[1], g.ho, g.wo)
}

/// Bytes of the input, the output and the index of a maximum pooling.
fn indexed_bytes(g: &PoolGeometry, elem: usize) -> u64 {
    (g.inputs() * elem + g.outputs() * (elem + g.index_bytes())) as u64
}

/// The bytes of an argument that a pooling must access: for its input, those that a window reaches.
fn pooled_bytes(g: &PoolGeometry, is_input: bool, bytes: usize) -> u64 {
    if is_input { touched_bytes(bytes as u64, Windows::of_pool(g)) } else { bytes as u64 }
}

/// Picoseconds of a pooling: the given ones plus 1,000 for each position of the window, for each output and 16
/// channels.
fn pool_ps(g: &PoolGeometry, output_ps: usize) -> usize {
    g.n * g.ho * g.wo * g.c.div_ceil(16) * (output_ps + g.size[0] * g.size[1] * 1_000)
}
