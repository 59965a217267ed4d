//! The speed of a GPU, in the numbers that the estimates of all families of kernels share. They are those of an H200;
//! numbers of a single family are in its own file.

/// Bytes that all multiprocessors move to and from memory in a microsecond, for kernels that read and write.
pub const BYTES_PER_US: f64 = 3.5e6;

/// Bytes in a microsecond, for kernels that read, and that write little or what they have just read.
pub const STREAM_BYTES_PER_US: f64 = 3.9e6;

/// Bytes in a microsecond, for a library's kernels.
pub const LIBRARY_BYTES_PER_US: f64 = 4e6;

/// Bytes in a microsecond, for data in the second-level cache.
pub const CACHED_BYTES_PER_US: f64 = 5e6;

/// The cost of a launch in microseconds, and of each further phase of a kernel, which is a launch too.
pub const LAUNCH_US: f64 = 1.5;
