//! Data types, shapes and host tensors: the vocabulary that every later stage shares.

mod bytes;
mod dtype;
mod host;
mod shape;

pub use bytes::{Bytes, align_up};
pub use dtype::DType;
pub use host::{Element, HostTensor, TensorError};
pub use shape::Shape;
