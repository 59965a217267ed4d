//! A stretch of memory on whatever device, taken once.

use crate::exec::error::ExecError;
use std::any::Any;
use std::ptr::NonNull;

/// One allocation, zeroed when it is taken and freed when its last user goes.
pub trait Block: Send + Sync {
    /// The address of its first byte.
    fn base(&self) -> u64;

    /// Its size.
    fn bytes(&self) -> u64;

    /// Its first byte, where the host can read and write it.
    fn host(&self) -> Option<NonNull<u8>> {
        None
    }

    /// Copies the bytes from `start` on; waits for what this thread had the device do before.
    ///
    /// # Errors
    /// What went wrong on the device.
    fn read(&self, start: u64, out: &mut [u8]) -> Result<(), ExecError>;

    /// Overwrites the bytes from `start` on.
    ///
    /// # Errors
    /// What went wrong on the device.
    fn write(&self, start: u64, bytes: &[u8]) -> Result<(), ExecError>;

    /// Itself, for the backend that made it.
    fn as_any(&self) -> &dyn Any;
}
