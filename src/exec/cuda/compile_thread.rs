//! The thread of this process that compiles kernels in advance, if no other process does.
//!
//! The allocator keeps freed memory for the thread that used it, and the run-time compiler uses tens of MiB. If every
//! thread that prepares an edit compiled kernels, each would keep that much. Kernels that somebody waits for are
//! compiled by the threads that need them, at the same time.

use super::compiler::{Arch, compile_source};
use super::error::CudaError;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};

/// A source to compile, and where the result is sent.
struct Request {
    source: String,
    arch: Arch,
    reply: Sender<Result<Vec<u8>, CudaError>>,
}

/// Starts the thread; returns what sends it requests, or nothing if the system refuses the thread.
fn start() -> Option<Sender<Request>> {
    let (sender, requests) = channel::<Request>();
    let work = move || {
        for Request { source, arch, reply } in requests {
            // A library without a function that is called ends in a panic, which must not end the thread: others wait.
            let code = catch_unwind(AssertUnwindSafe(|| compile_source(&source, arch)));
            // Whoever asked may have stopped waiting.
            let _ = reply.send(code.unwrap_or_else(|_| Err("the compiler's library ended in a panic".into())));
        }
    };
    let thread = std::thread::Builder::new().name("stepgraph-compiler".to_owned()).spawn(work);
    thread.inspect_err(|error| log::warn!("a thread that compiles kernels could not be started: {error}")).ok()?;
    Some(sender)
}

/// The machine code of a source, from [`compile_source`] on the thread that compiles; on the caller's, if there is no
/// such thread.
///
/// # Errors
/// As [`compile_source`].
pub(super) fn compile_on_thread(source: &str, arch: Arch) -> Result<Vec<u8>, CudaError> {
    static THREAD: OnceLock<Option<Sender<Request>>> = OnceLock::new();
    let (reply, answer) = channel();
    let request = Request { source: source.to_owned(), arch, reply };
    let is_sent = THREAD.get_or_init(start).as_ref().is_some_and(|thread| thread.send(request).is_ok());
    match answer.recv() {
        Ok(result) if is_sent => result,
        _ => compile_source(source, arch),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::cuda::probe::nvrtc_version;

    #[test]
    fn many_threads_get_their_own_results() {
        if let Err(why) = nvrtc_version() {
            println!("skipped: {why}");
            return;
        }
        std::thread::scope(|scope| {
            for number in 0..8 {
                scope.spawn(move || {
                    let source = format!("extern \"C\" __global__ void k{number}(float* x) {{ x[0] = {number}; }}");
                    let code = compile_on_thread(&source, Arch(9, 0)).unwrap();
                    let name = format!("k{number}");
                    assert!(code.windows(name.len()).any(|part| part == name.as_bytes()));
                    let wrong = compile_on_thread("no source", Arch(9, 0)).unwrap_err().to_string();
                    assert!(wrong.contains("nvrtcCompileProgram"), "{wrong}");
                });
            }
        });
    }
}
