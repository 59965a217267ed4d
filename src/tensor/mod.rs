//! Data types, shapes and host tensors, which every later stage uses.

mod bytes;
mod dtype;
mod figure;
mod files;
mod hash;
mod host;
mod id;
mod large_pages;
pub mod number_text;
pub mod path_text;
mod philox;
mod shape;
#[cfg(test)]
pub(crate) mod temporary;

pub use bytes::{Bytes, align_up};
pub use dtype::DType;
pub use figure::{counted, figure, grouped, plural, scientific};
pub use files::{
    is_wrong_place, remove_leftovers, sync_folder, temporary_in, write_advice, write_atomic, write_atomic_with,
};
pub use hash::Fnv;
pub use host::{Element, HostTensor, TensorError};
pub(crate) use id::position_id;
pub(crate) use large_pages::{HUGE_PAGE, advise, copied, read_file, room, try_room, zero_bytes};
pub use philox::random_words;
pub use shape::Shape;
