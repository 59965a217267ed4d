//! A block of memory on any device, allocated once.

use crate::exec::error::ExecError;
use std::any::Any;
use std::ptr::NonNull;

/// An allocation or a range of one, zeroed when it is made and freed when its last user is dropped.
pub trait Block: Send + Sync {
    /// The address of its first byte.
    fn base(&self) -> u64;

    /// Its size.
    fn bytes(&self) -> u64;

    /// A pointer to its first byte, if the host can access it.
    fn host(&self) -> Option<NonNull<u8>> {
        None
    }

    /// Copies the bytes from `start` on; waits for all earlier work of this thread on the device.
    ///
    /// # Errors
    /// If the device fails.
    fn read(&self, start: u64, out: &mut [u8]) -> Result<(), ExecError>;

    /// Overwrites the bytes from `start` on.
    ///
    /// # Errors
    /// If the device fails.
    fn write(&self, start: u64, bytes: &[u8]) -> Result<(), ExecError>;

    /// The block as its concrete type, for the backend that made it.
    fn as_any(&self) -> &dyn Any;
}
