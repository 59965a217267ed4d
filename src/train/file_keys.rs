//! Keys under which safetensors files hold what belongs to their tensors. Each ends with the version of its contents.

/// The key of a checkpoint's header.
pub(super) const CHECKPOINT: &str = "stepgraph.checkpoint.1";

/// The key of the sum over header and tensors: a file of the right length may still have lost a bit.
pub(super) const CHECKSUM: &str = "stepgraph.checksum";

/// The key of what belongs to weights besides their values.
pub(super) const ORIGIN: &str = "stepgraph.weights.1";
