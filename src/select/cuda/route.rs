//! What runs an operation on a GPU.

use serde::{Deserialize, Serialize};

/// What runs an operation: a custom kernel or a library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Route {
    /// A custom kernel, by its index in [`custom_kernels`](super::custom_kernels).
    Own(u8),
    /// cuBLASLt, by the index of the algorithm in its heuristic's list. Custom kernels after it compute what its
    /// epilogues do not support.
    Lt(u8),
    /// cuDNN, by the index of the plan among those it offers. As above.
    Dnn(u8),
    /// The first plan of cuDNN, if custom kernels after it compute the whole epilogue.
    DnnPlain,
}
