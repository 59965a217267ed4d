//! How fast a GPU is, in the numbers that the estimates of all families of kernels share. They are those of an H200;
//! what only one family has is in its own file.

/// Bytes that all multiprocessors move to and from memory in a microsecond, where a kernel reads and writes.
pub const BYTES_PER_US: f64 = 3.5e6;

/// Bytes in a microsecond of kernels that read, and write little or what they have just read.
pub const STREAM_BYTES_PER_US: f64 = 3.9e6;

/// Bytes in a microsecond of a library's kernels.
pub const LIBRARY_BYTES_PER_US: f64 = 4e6;

/// Bytes in a microsecond of what the second-level cache holds.
pub const CACHED_BYTES_PER_US: f64 = 5e6;

/// What a launch costs in microseconds, and each further phase of a kernel, which is a launch too.
pub const LAUNCH_US: f64 = 1.5;
