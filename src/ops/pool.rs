//! Windows over images, and the mean of whole images.

use super::Operation;
use super::geometry::PoolGeometry;
use super::operation::operation;
use super::slots::slots;
use super::windows::{Windows, touched_bytes};
use serde::{Deserialize, Serialize};

/// Maximum over windows (padding counts as minus infinity); `index` holds the position inside the window, row by row:
/// the first of equals, NaN wins. `u8` for windows up to 256, `u16` above.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MaxPool {
    pub geometry: PoolGeometry,
}

slots! {
    pub mod max_pool(op: MaxPool) {
        X: in activation [op.geometry.inputs()],
        Y: out activation [op.geometry.outputs()],
        INDEX: out [op.geometry.outputs()] if OPTIONAL,
    }
}

operation! {
    MaxPool: max_pool, "max_pool", |op| {
        dims: pool_dims(&op.geometry),
        flops: op.geometry.reads() as u64,
        bytes_moved(elem): {
            let g = &op.geometry;
            (g.inputs() * elem + g.outputs() * (elem + g.index_bytes())) as u64
        },
        least_bytes(slot, len, elem): {
            let all = (len * elem) as u64;
            if slot == max_pool::X { touched_bytes(all, Windows::of_pool(&op.geometry)) } else { all }
        },
        work_ps: pool_ps(&op.geometry, 3_000),
    }
}

/// Gradient of the maximum pooling's input: each window's gradient goes to its maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MaxPoolBwd {
    pub geometry: PoolGeometry,
}

slots! {
    pub mod max_pool_bwd(op: MaxPoolBwd) {
        DY: in activation [op.geometry.outputs()],
        INDEX: in [op.geometry.outputs()],
        DX: out activation [op.geometry.inputs()],
    }
}

operation! {
    MaxPoolBwd: max_pool_bwd, "max_pool_bwd", |op| {
        dims: pool_dims(&op.geometry),
        flops: op.geometry.outputs() as u64,
        bytes_moved(elem): {
            let g = &op.geometry;
            (g.inputs() * elem + g.outputs() * (elem + g.index_bytes())) as u64
        },
        work_ps: pool_ps(&op.geometry, 4_000),
    }
}

/// Mean over windows; padding counts as zeros and in the divisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AvgPool {
    pub geometry: PoolGeometry,
}

slots! {
    pub mod avg_pool(op: AvgPool) {
        X: in activation [op.geometry.inputs()],
        Y: out activation [op.geometry.outputs()],
        WORK: scratch,
    }
}

operation! {
    AvgPool: avg_pool, "avg_pool", |op| {
        dims: pool_dims(&op.geometry),
        flops: op.geometry.reads() as u64,
        bytes_moved(elem): {
            let g = &op.geometry;
            ((g.inputs() + g.outputs()) * elem) as u64
        },
        least_bytes(slot, len, elem): {
            let all = (len * elem) as u64;
            if slot == avg_pool::X { touched_bytes(all, Windows::of_pool(&op.geometry)) } else { all }
        },
        work_ps: pool_ps(&op.geometry, 3_000),
    }
}

/// Gradient of the mean pooling's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AvgPoolBwd {
    pub geometry: PoolGeometry,
}

slots! {
    pub mod avg_pool_bwd(op: AvgPoolBwd) {
        DY: in activation [op.geometry.outputs()],
        DX: out activation [op.geometry.inputs()],
    }
}

operation! {
    AvgPoolBwd: avg_pool_bwd, "avg_pool_bwd", |op| {
        dims: pool_dims(&op.geometry),
        flops: op.geometry.reads() as u64,
        bytes_moved(elem): {
            let g = &op.geometry;
            ((g.inputs() + g.outputs()) * elem) as u64
        },
        work_ps: pool_ps(&op.geometry, 4_000),
    }
}

/// `y [n, c] = mean over hw of x [n, hw, c]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GlobalAvgPool {
    pub n: usize,
    pub hw: usize,
    pub c: usize,
}

slots! {
    pub mod global_avg_pool(op: GlobalAvgPool) {
        X: in activation [op.n * op.hw * op.c],
        Y: out activation [op.n * op.c],
        WORK: scratch,
    }
}

operation! {
    GlobalAvgPool: global_avg_pool, "global_avg_pool", |op| {
        dims: format!("n={} hw={} c={}", op.n, op.hw, op.c),
        flops: (op.n * op.hw * op.c) as u64,
        bytes_moved(elem): (op.n * op.c * (op.hw + 1) * elem) as u64,
    }
}

/// Gradient of the global mean's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GlobalAvgPoolBwd {
    pub n: usize,
    pub hw: usize,
    pub c: usize,
}

slots! {
    pub mod global_avg_pool_bwd(op: GlobalAvgPoolBwd) {
        DY: in activation [op.n * op.c],
        DX: out activation [op.n * op.hw * op.c],
    }
}

operation! {
    GlobalAvgPoolBwd: global_avg_pool_bwd, "global_avg_pool_bwd", |op| {
        dims: format!("n={} hw={} c={}", op.n, op.hw, op.c),
        flops: (op.n * op.c) as u64,
        bytes_moved(elem): (op.n * op.c * (op.hw + 1) * elem) as u64,
    }
}

fn pool_dims(g: &PoolGeometry) -> String {
    format!("{}x{}x{}x{} {}x{} -> {}x{}", g.n, g.h, g.w, g.c, g.size[0], g.size[1], g.ho, g.wo)
}

/// Picoseconds of a pooling: those given and 1,000 for each position of the window, for each output and 16 channels.
fn pool_ps(g: &PoolGeometry, output_ps: usize) -> usize {
    g.n * g.ho * g.wo * g.c.div_ceil(16) * (output_ps + g.size[0] * g.size[1] * 1_000)
}
