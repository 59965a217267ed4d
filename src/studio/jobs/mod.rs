//! Background jobs, each kind on a separate thread with bounded channels.

pub mod background;
pub mod compiler;
pub mod devices;
pub mod list;
pub mod measurements;
pub mod planned_network;
pub mod prices;
pub mod proofs;
pub mod shown_recording;
