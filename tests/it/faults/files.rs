//! The files of the kernels' text, by name.

use stepgraph::select::cuda::KernelFile;

pub const PRELUDE: &str = "prelude.cuh";
pub const GEMM: &str = KernelFile::Gemm.name();
pub const CONV: &str = KernelFile::Conv.name();
pub const NORM: &str = KernelFile::Norm.name();
pub const POOL: &str = KernelFile::Pool.name();
pub const LOSS: &str = KernelFile::Loss.name();
pub const ELEMENTWISE: &str = KernelFile::Elementwise.name();
pub const ATTENTION: &str = KernelFile::Attention.name();
pub const ATTENTION_MMA: &str = KernelFile::AttentionMma.name();
pub const SEQUENCE: &str = KernelFile::Sequence.name();
pub const JOINED: &str = KernelFile::Joined.name();
pub const RECURRENT_LAYERS: &str = KernelFile::Recurrent.name();
pub const RATES: &str = KernelFile::Rates.name();
pub const FEED: &str = KernelFile::Feed.name();
pub const OPTIMIZER: &str = KernelFile::Optimizer.name();
