//! Keys of the metadata of safetensors files. Each ends with the version of its contents.

/// The key of a checkpoint's header.
pub(super) const CHECKPOINT: &str = "stepgraph.checkpoint.1";

/// The key of the checksum over header and tensors, because a file of the right length may still have a wrong bit.
pub(super) const CHECKSUM: &str = "stepgraph.checksum";

/// The key of the properties of weights other than their values.
pub(super) const ORIGIN: &str = "stepgraph.weights.1";
