//! The streams of one process: each thread uses its own stream.

use super::error::failed;
use cudarc::driver::{result, sys};
use std::cell::RefCell;
use std::sync::{Mutex, PoisonError};

/// A stream's handle.
#[derive(Clone, Copy)]
struct Stream(sys::CUstream);

// SAFETY: streams may be used from any thread; a lease is used by one.
unsafe impl Send for Stream {}

/// A stream that a thread works on.
struct Lease {
    ordinal: u32,
    stream: Stream,
}

/// Streams whose threads have ended.
static SPARE: Mutex<Vec<Lease>> = Mutex::new(Vec::new());

/// The streams that this thread has leased; they become available to others when it ends.
#[derive(Default)]
struct Leases(Vec<Lease>);

impl Drop for Leases {
    fn drop(&mut self) {
        SPARE.lock().unwrap_or_else(PoisonError::into_inner).append(&mut self.0);
    }
}

thread_local! {
    static LEASES: RefCell<Leases> = RefCell::default();
}

/// The stream of this thread on a device, or `shared` if it cannot have its own. Threads that use one device, each with
/// its own steps, do not interfere with each other, which matters most while one of them captures.
pub(super) fn stream_of_thread(ordinal: u32, shared: sys::CUstream) -> sys::CUstream {
    let found = LEASES.try_with(|leases| {
        let mut leases = leases.borrow_mut();
        if let Some(lease) = leases.0.iter().find(|l| l.ordinal == ordinal) {
            return lease.stream.0;
        }
        let spare = {
            let mut spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner);
            spare.iter().position(|l| l.ordinal == ordinal).map(|at| spare.swap_remove(at).stream)
        };
        let made = || result::stream::create(result::stream::StreamKind::NonBlocking).map(Stream);
        let stream = spare.map_or_else(made, Ok).unwrap_or_else(|error| {
            log::warn!("{}; this thread uses a shared stream", failed("cuStreamCreate", error));
            Stream(shared)
        });
        leases.0.push(Lease { ordinal, stream });
        stream.0
    });
    found.unwrap_or(shared)
}
