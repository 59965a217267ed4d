//! Windows over images, and the mean of whole images.

use super::Operation;
use super::geometry::PoolGeometry;
use super::slots::{slots, table};
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

impl Operation for MaxPool {
    table!(max_pool);

    fn name(&self) -> &'static str {
        "max_pool"
    }

    fn dims(&self) -> String {
        pool_dims(&self.geometry)
    }

    fn flops(&self) -> u64 {
        self.geometry.reads() as u64
    }

    fn bytes_moved(&self, elem: usize) -> u64 {
        let g = &self.geometry;
        (g.inputs() * elem + g.outputs() * (elem + g.index_bytes())) as u64
    }

    fn least_bytes(&self, slot: usize, len: usize, elem: usize) -> u64 {
        let all = (len * elem) as u64;
        if slot == max_pool::X { touched_bytes(all, Windows::of_pool(&self.geometry)) } else { all }
    }

    fn work_ps(&self) -> usize {
        pool_ps(&self.geometry, 3_000)
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

impl Operation for MaxPoolBwd {
    table!(max_pool_bwd);

    fn name(&self) -> &'static str {
        "max_pool_bwd"
    }

    fn dims(&self) -> String {
        pool_dims(&self.geometry)
    }

    fn flops(&self) -> u64 {
        self.geometry.outputs() as u64
    }

    fn bytes_moved(&self, elem: usize) -> u64 {
        let g = &self.geometry;
        (g.inputs() * elem + g.outputs() * (elem + g.index_bytes())) as u64
    }

    fn work_ps(&self) -> usize {
        pool_ps(&self.geometry, 4_000)
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

impl Operation for AvgPool {
    table!(avg_pool);

    fn name(&self) -> &'static str {
        "avg_pool"
    }

    fn dims(&self) -> String {
        pool_dims(&self.geometry)
    }

    fn flops(&self) -> u64 {
        self.geometry.reads() as u64
    }

    fn bytes_moved(&self, elem: usize) -> u64 {
        let g = &self.geometry;
        ((g.inputs() + g.outputs()) * elem) as u64
    }

    fn least_bytes(&self, slot: usize, len: usize, elem: usize) -> u64 {
        let all = (len * elem) as u64;
        if slot == avg_pool::X { touched_bytes(all, Windows::of_pool(&self.geometry)) } else { all }
    }

    fn work_ps(&self) -> usize {
        pool_ps(&self.geometry, 3_000)
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

impl Operation for AvgPoolBwd {
    table!(avg_pool_bwd);

    fn name(&self) -> &'static str {
        "avg_pool_bwd"
    }

    fn dims(&self) -> String {
        pool_dims(&self.geometry)
    }

    fn flops(&self) -> u64 {
        self.geometry.reads() as u64
    }

    fn bytes_moved(&self, elem: usize) -> u64 {
        let g = &self.geometry;
        ((g.inputs() + g.outputs()) * elem) as u64
    }

    fn work_ps(&self) -> usize {
        pool_ps(&self.geometry, 4_000)
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

impl Operation for GlobalAvgPool {
    table!(global_avg_pool);

    fn name(&self) -> &'static str {
        "global_avg_pool"
    }

    fn dims(&self) -> String {
        format!("n={} hw={} c={}", self.n, self.hw, self.c)
    }

    fn flops(&self) -> u64 {
        (self.n * self.hw * self.c) as u64
    }

    fn bytes_moved(&self, elem: usize) -> u64 {
        (self.n * self.c * (self.hw + 1) * elem) as u64
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

impl Operation for GlobalAvgPoolBwd {
    table!(global_avg_pool_bwd);

    fn name(&self) -> &'static str {
        "global_avg_pool_bwd"
    }

    fn dims(&self) -> String {
        format!("n={} hw={} c={}", self.n, self.hw, self.c)
    }

    fn flops(&self) -> u64 {
        (self.n * self.c) as u64
    }

    fn bytes_moved(&self, elem: usize) -> u64 {
        (self.n * self.c * (self.hw + 1) * elem) as u64
    }
}

fn pool_dims(g: &PoolGeometry) -> String {
    format!("{}x{}x{}x{} {}x{} -> {}x{}", g.n, g.h, g.w, g.c, g.size[0], g.size[1], g.ho, g.wo)
}

/// Picoseconds of a pooling: those given and 1,000 for each position of the window, for each output and 16 channels.
fn pool_ps(g: &PoolGeometry, output_ps: usize) -> usize {
    g.n * g.ho * g.wo * g.c.div_ceil(16) * (output_ps + g.size[0] * g.size[1] * 1_000)
}
