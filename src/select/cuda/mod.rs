//! How an operation can run on an NVIDIA GPU: with custom kernels, compiled for its shape, or with a library.
//!
//! Everything here is plain data: a plan for a GPU is made, shown and tested on a machine without one. Custom kernels
//! are named by the C++ type that the run-time compiler instantiates (see `kernels/prelude.cuh`), and algorithms of a
//! library by their rank in the library's own order.

mod attention;
mod conv;
mod custom;
pub mod dnn;
mod elementwise;
mod epilogue;
mod families;
mod gemm;
mod horizontal;
mod loss;
pub mod lt;
mod norm;
mod offers;
mod optimizer;
mod pool;
mod rates;
mod real;
mod recurrent;
mod route;
mod row_product;
mod sequence;
mod sizes;
mod spec;
mod speed;
mod times;

pub use custom::{CustomKernel, cpp_act, cpp_bits};
pub(crate) use dnn::attention_sums_bytes;
pub use dnn::is_compared;
pub use elementwise::widening_kernel;
pub use epilogue::{epilogue_ops, product_slot};
pub use families::{FAMILIES, KernelFamily};
pub use horizontal::fuse_horizontally;
pub use loss::loss_function;
pub use offers::custom_kernels;
pub(crate) use offers::{Offer, attention_offers, dnn_offers, offers};
pub use real::{Real, real_of};
pub use route::Route;
pub use sizes::CompiledFor;
pub use spec::{GeneralMember, KernelFile, KernelSpec, Member, Pdl};
pub use times::{GpuTimes, NOT_OFFERED_US, WRONG_US};
