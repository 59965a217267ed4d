//! Work in the background, each kind on a thread of its own behind bounded channels.

pub mod background;
pub mod compiler;
pub mod devices;
pub mod list;
pub mod measurements;
pub mod planned_network;
pub mod prices;
pub mod proofs;
pub mod shown_recording;
