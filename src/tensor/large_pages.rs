//! Large allocations of host memory. A system provides memory page by page when it is first accessed, which takes
//! longer than filling it: half a second for 650 MB in pages of 4 KiB, a tenth of that in pages of 2 MiB.

use bytemuck::Pod;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The size of large pages. Memory that is aligned to it contains more of them.
pub(crate) const HUGE_PAGE: usize = 2 << 20;

/// Requests large pages for memory that has not been accessed yet. The system may ignore this; the memory is the same
/// otherwise.
///
/// # Safety
/// The memory belongs to the caller.
pub(crate) unsafe fn advise(start: *mut u8, bytes: usize) {
    let skipped = start.align_offset(HUGE_PAGE).min(bytes);
    let whole = (bytes - skipped) / HUGE_PAGE * HUGE_PAGE;
    if whole == 0 {
        return;
    }
    #[cfg(target_os = "linux")]
    {
        // SAFETY: the range is inside the caller's memory, by its promise, and the advice changes no byte of it.
        let advised =
            unsafe { rustix::mm::madvise(start.add(skipped).cast(), whole, rustix::mm::Advice::LinuxHugepage) };
        if let Err(error) = advised {
            log::debug!("no large pages for {whole} bytes: {error}");
        }
    }
}

/// An empty vector with capacity for `len` elements, in large pages if it is large enough.
pub(crate) fn room<T: Pod>(len: usize) -> Vec<T> {
    let mut out: Vec<T> = Vec::with_capacity(len);
    // SAFETY: the vector has room for as many.
    unsafe { advise(out.as_mut_ptr().cast(), len * size_of::<T>()) };
    out
}

/// This many zero bytes, in large pages if they are large enough.
pub(crate) fn zero_bytes(len: usize) -> Vec<u8> {
    let mut out = vec![0; len];
    // SAFETY: the vector has this length.
    unsafe { advise(out.as_mut_ptr(), len) };
    out
}

/// The same elements in separate memory.
pub(crate) fn copied<T: Pod>(from: &[T]) -> Vec<T> {
    let mut out = room(from.len());
    out.extend_from_slice(from);
    out
}

/// An empty vector with capacity for this many bytes, which may be more than the memory.
///
/// # Errors
/// If the system does not have that much memory.
pub(crate) fn try_room(len: usize) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    out.try_reserve_exact(len).map_err(|_| io::ErrorKind::OutOfMemory)?;
    // SAFETY: the vector has room for as many.
    unsafe { advise(out.as_mut_ptr(), len) };
    Ok(out)
}

/// The bytes of a file.
///
/// # Errors
/// If the system reports an error.
pub(crate) fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let len = usize::try_from(file.metadata()?.len()).map_err(|_| io::ErrorKind::OutOfMemory)?;
    let mut out = try_room(len)?;
    file.read_to_end(&mut out)?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_allocations_have_the_right_contents() {
        for len in [0, 1, HUGE_PAGE - 1, HUGE_PAGE, 3 * HUGE_PAGE + 17] {
            let bytes: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
            assert_eq!(copied(&bytes), bytes);
            assert!(zero_bytes(len).iter().all(|b| *b == 0) && zero_bytes(len).len() == len);
            assert!(room::<f32>(len).capacity() >= len && room::<f32>(len).is_empty());
        }
    }
}
