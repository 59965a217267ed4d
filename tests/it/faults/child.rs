//! Tests that run in separate processes, because a fault in a kernel may hang or break the device's context, and exists
//! as long as its process.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A test of this program that is run in another process.
pub struct Child<'a> {
    /// The test's whole name.
    pub test: &'static str,
    /// The environment variable that tells the test what to do.
    pub variables: &'a [(&'static str, String)],
    /// The folder for everything that the process compiles or times.
    pub cache: &'a Path,
    /// A process that takes longer is considered hung, and is killed.
    pub patience: Duration,
}

/// The result of a process.
pub struct Ended {
    /// All that it printed.
    pub text: String,
    /// Empty if the test passed, otherwise how the process ended.
    pub how: String,
    pub seconds: f64,
}

impl Child<'_> {
    /// Runs the test to its end.
    pub fn run(&self) -> Ended {
        let started = Instant::now();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", self.test, "--nocapture", "--test-threads=1"]);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        // Results that are compiled or timed with a fault must not get into the user's cache.
        command.env("STEPGRAPH_CACHE", self.cache).env("XDG_CACHE_HOME", self.cache).env("HOME", self.cache);
        command.env("STEPGRAPH_HIDE", "cudnn,cublaslt").env("STEPGRAPH_NO_TUNING", "1");
        let out = tempfile::NamedTempFile::new().unwrap();
        let both = out.reopen().unwrap();
        command.stdin(Stdio::null()).stdout(both.try_clone().unwrap()).stderr(both);
        let mut child = command.spawn().unwrap();
        let how = loop {
            match child.try_wait().unwrap() {
                Some(status) if status.success() => break String::new(),
                Some(status) => break status.to_string(),
                None if started.elapsed() > self.patience => {
                    let _ = child.kill();
                    let _ = child.wait();
                    break "hangs".to_owned();
                }
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        let text = String::from_utf8_lossy(&std::fs::read(out.path()).unwrap()).into_owned();
        Ended { text, how, seconds: started.elapsed().as_secs_f64() }
    }
}

impl Ended {
    /// The text after a tag and a tab, in each line that has them.
    pub fn after<'a>(&'a self, tag: &'a str) -> impl Iterator<Item = &'a str> {
        self.text.lines().filter_map(move |line| line.split_once(tag)?.1.strip_prefix('\t'))
    }
}

/// Calls a function for each number below `count`, `workers` at a time, while `goes_on` returns true; returns the
/// results in the order of the numbers.
pub fn side_by_side<T: Send>(
    count: usize,
    workers: usize,
    goes_on: impl Fn() -> bool + Sync,
    work: impl Fn(usize) -> T + Sync,
) -> Vec<T> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while goes_on() {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count {
                        break;
                    }
                    let found = work(index);
                    done.lock().unwrap().push((index, found));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap();
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, found)| found).collect()
}

/// The number of processors of this machine.
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}
