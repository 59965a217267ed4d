//! The thread of this process that compiles kernels.
//!
//! Within a process the run-time compiler compiles one source at a time, however many threads call it. Each of these
//! threads would keep tens of MiB, because the allocator keeps freed memory for the thread that used it. Therefore one
//! thread compiles all sources.

use super::compiler::{Arch, compile_source};
use super::error::CudaError;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};

/// Whether somebody waits for a kernel, or it is compiled in advance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    Now,
    Later,
}

/// A source to compile, and where the result is sent.
struct Request {
    source: String,
    arch: Arch,
    reply: Sender<Result<Vec<u8>, CudaError>>,
}

/// Requests in the order in which they came; those of [`Need::Now`] are first.
#[derive(Default)]
struct Queue {
    requests: Mutex<[VecDeque<Request>; 2]>,
    has_more: Condvar,
}

impl Queue {
    fn put(&self, need: Need, request: Request) {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        requests[need as usize].push_back(request);
        self.has_more.notify_one();
    }

    /// The next request, when there is one.
    fn take(&self) -> Request {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(request) = requests.iter_mut().find_map(VecDeque::pop_front) {
                return request;
            }
            requests = self.has_more.wait(requests).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Starts the thread; returns its queue, or nothing if the system refuses the thread.
fn start() -> Option<&'static Queue> {
    static QUEUE: OnceLock<Queue> = OnceLock::new();
    let queue = QUEUE.get_or_init(Queue::default);
    let work = || loop {
        let Request { source, arch, reply } = queue.take();
        // A library without a function that is called ends in a panic, which must not end the thread: others wait.
        let code = catch_unwind(AssertUnwindSafe(|| compile_source(&source, arch)));
        // Whoever asked may have stopped waiting.
        let _ = reply.send(code.unwrap_or_else(|_| Err("the compiler's library ended in a panic".into())));
    };
    let thread = std::thread::Builder::new().name("stepgraph-compiler".to_owned()).spawn(work);
    thread.inspect_err(|error| log::warn!("a thread that compiles kernels could not be started: {error}")).ok()?;
    Some(queue)
}

/// The machine code of a source, from [`compile_source`] on the thread that compiles; on the caller's, if there is no
/// such thread.
///
/// # Errors
/// As [`compile_source`].
pub(super) fn compile_on_thread(source: &str, arch: Arch, need: Need) -> Result<Vec<u8>, CudaError> {
    static THREAD: OnceLock<Option<&'static Queue>> = OnceLock::new();
    let Some(queue) = THREAD.get_or_init(start) else { return compile_source(source, arch) };
    let (reply, answer) = channel();
    queue.put(need, Request { source: source.to_owned(), arch, reply });
    answer.recv().unwrap_or_else(|_| compile_source(source, arch))
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
                    let code = compile_on_thread(&source, Arch(9, 0), Need::Now).unwrap();
                    let name = format!("k{number}");
                    assert!(code.windows(name.len()).any(|part| part == name.as_bytes()));
                    let wrong = compile_on_thread("no source", Arch(9, 0), Need::Later).unwrap_err().to_string();
                    assert!(wrong.contains("nvrtcCompileProgram"), "{wrong}");
                });
            }
        });
    }

    #[test]
    fn what_somebody_waits_for_is_first() {
        let queue = Queue::default();
        let (reply, _answers) = channel();
        let request = |source: &str| Request { source: source.to_owned(), arch: Arch(9, 0), reply: reply.clone() };
        for (need, source) in [(Need::Later, "a"), (Need::Now, "b"), (Need::Later, "c"), (Need::Now, "d")] {
            queue.put(need, request(source));
        }
        assert_eq!([(); 4].map(|()| queue.take().source), ["b", "d", "a", "c"]);
    }
}
