//! Processes that compile kernels for this one. Within a process the run-time compiler compiles one source at a time,
//! even if several threads call it: 15 to 300 ms each on a host with an H200, so that 70 kernels take three seconds or
//! more on 16 processors that wait for each other.

use super::compiler::{Arch, compile_source};
use crate::exec::cuda::probe::{EXPECTED_NVRTC, nvrtc_version};
use crate::exec::memory::available_bytes;
use std::ffi::OsString;
use std::io::{self, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// The only argument of a process that compiles for another one.
const ASKED: &str = "--compile-kernels-from-stdin";

/// The memory that a compiling process may need, estimated generously.
const BYTES_EACH: u64 = 256 << 20;

/// Fewer sources than this are compiled in this process, unless a process is waiting: starting one takes as long as
/// compiling a source. The compiler leaves this process some MiB larger for each thread that called it.
const WORTH_A_PROCESS: usize = 4;

/// A longer source, or a longer answer, indicates a transmission error.
const LONGEST: u64 = 1 << 30;

/// Whether this program, started with [`ASKED`], compiles, as far as is known.
static CAN_BE_STARTED: AtomicBool = AtomicBool::new(false);

/// The program that is started if it is not this one.
static OTHER_PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// If this program was started to compile for another one, does so until standard input ends; then the caller must
/// exit. Returns `None` if it was not. Must be called before anything else.
///
/// # Errors
/// If standard input contains something other than requests, or the answers cannot be written.
#[must_use]
pub fn compile_for_another() -> Option<io::Result<()>> {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).take(2).collect();
    (arguments == [ASKED]).then(|| serve(&mut io::stdin().lock(), &mut io::stdout().lock()))
}

/// Declares that this program calls [`compile_for_another`] first, so that it may be started for that purpose.
pub fn may_start_compilers() {
    CAN_BE_STARTED.store(true, Ordering::Relaxed);
}

/// Declares that another program calls [`compile_for_another`] first, and is started in place of this one. The first
/// call counts.
pub fn start_compilers_from(program: PathBuf) {
    let _ = OTHER_PROGRAM.set(program);
    may_start_compilers();
}

/// Answers requests: architecture (two numbers of 4 bytes), length (8 bytes), source. An answer is 1 and the machine
/// code, or 0 and the reason, each preceded by its length (8 bytes). Numbers are little endian.
fn serve(from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
    loop {
        let mut arch = [0; 8];
        match from.read_exact(&mut arch) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            other => other?,
        }
        let [major, minor] = [0, 4].map(|at| u32::from_le_bytes([arch[at], arch[at + 1], arch[at + 2], arch[at + 3]]));
        let source = String::from_utf8(read_counted(from)?).map_err(io::Error::other)?;
        let answer = compile_source(&source, Arch(major, minor));
        let (mark, bytes) = match answer {
            Ok(code) => (1, code),
            Err(why) => (0, why.to_string().into_bytes()),
        };
        to.write_all(&[mark])?;
        write_counted(to, &bytes)?;
    }
}

fn read_counted(from: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut length = [0; 8];
    from.read_exact(&mut length)?;
    let length = u64::from_le_bytes(length);
    if length > LONGEST {
        return Err(io::Error::other(format!("{length} bytes are too many")));
    }
    let mut bytes = Vec::new();
    if from.take(length).read_to_end(&mut bytes)? as u64 == length {
        Ok(bytes)
    } else {
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}

fn write_counted(to: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    to.write_all(&(bytes.len() as u64).to_le_bytes())?;
    to.write_all(bytes)?;
    to.flush()
}

/// The program to start: this one's file, even if another file has replaced it since the program started, or another.
fn program() -> io::Result<PathBuf> {
    if let Some(other) = OTHER_PROGRAM.get() {
        return Ok(other.clone());
    }
    if cfg!(target_os = "linux") { Ok(PathBuf::from("/proc/self/exe")) } else { std::env::current_exe() }
}

/// The number of threads for `count` kernels, of which `uncached` must be compiled, and whether each thread uses a
/// separate process; `idle` processes wait for work.
pub(super) fn crew_for(count: usize, uncached: usize, idle: usize) -> (usize, bool) {
    let processors = std::thread::available_parallelism().map_or(1, usize::from).min(16);
    let room = available_bytes().map_or(usize::MAX, |b| usize::try_from(b / 2 / BYTES_EACH).unwrap_or(usize::MAX));
    let several = CAN_BE_STARTED.load(Ordering::Relaxed) && is_worth_a_process(uncached, idle) && room > 1;
    let threads = if several { processors.min(room.max(idle)) } else { processors };
    (threads.min(count), several)
}

/// Whether other processes should compile `uncached` kernels, while `idle` ones wait for work.
const fn is_worth_a_process(uncached: usize, idle: usize) -> bool {
    uncached >= WORTH_A_PROCESS || (uncached > 0 && idle > 0)
}

/// A process that compiles one source after the other. It holds no state, and is ended when this value is dropped.
pub(super) struct Compiler {
    child: Child,
    ask: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Compiler {
    /// Starts a process.
    ///
    /// # Errors
    /// If the system reports an error.
    pub(super) fn start() -> io::Result<Self> {
        let mut command = Command::new(program()?);
        if let Ok(version) = nvrtc_version() {
            command.env(EXPECTED_NVRTC, version);
        }
        command.arg(ASKED).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        match (child.stdin.take(), child.stdout.take()) {
            (Some(ask), Some(answers)) => Ok(Self { child, ask, answers: BufReader::new(answers) }),
            _ => Err(io::Error::other("a process without pipes")),
        }
    }

    /// Whether this program may be started to compile.
    pub(super) fn may_start() -> bool {
        CAN_BE_STARTED.load(Ordering::Relaxed)
    }

    /// Records that this program cannot be started to compile, for example because a loader or an emulator runs it.
    pub(super) fn give_up(error: &io::Error) {
        if CAN_BE_STARTED.swap(false, Ordering::Relaxed) {
            log::debug!("kernels are compiled in this process from now on: {error}");
        }
    }

    /// The result of [`compile_source`] in that process.
    ///
    /// # Errors
    /// If the process has ended, or its answer is invalid.
    pub(super) fn compile(&mut self, source: &str, arch: Arch) -> io::Result<Result<Vec<u8>, String>> {
        let Arch(major, minor) = arch;
        self.ask.write_all(&[major.to_le_bytes(), minor.to_le_bytes()].concat())?;
        write_counted(&mut self.ask, source.as_bytes())?;
        let mut mark = [0];
        self.answers.read_exact(&mut mark)?;
        match mark {
            [1] => read_counted(&mut self.answers).map(Ok),
            [0] => read_counted(&mut self.answers).map(|why| Err(String::from_utf8_lossy(&why).into_owned())),
            [other] => Err(io::Error::other(format!("an answer of the kind {other}"))),
        }
    }
}

impl Drop for Compiler {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_answered_and_an_incomplete_one_ends_the_service() {
        let mut asked = [9u32.to_le_bytes(), 0u32.to_le_bytes()].concat();
        write_counted(&mut asked, b"this is no kernel").unwrap();
        let mut answer = Vec::new();
        serve(&mut asked.as_slice(), &mut answer).unwrap();
        let (mark, mut rest) = answer.split_first().unwrap();
        let why = String::from_utf8(read_counted(&mut rest).unwrap()).unwrap();
        assert!(*mark == 0 && rest.is_empty() && why.to_lowercase().contains("nvrtc"), "{mark} {why}");
        for cut in 1..asked.len() {
            let (mut torn, mut answer) = (&asked[..cut], Vec::new());
            assert!(cut < 8 || serve(&mut torn, &mut answer).is_err(), "cut at {cut}");
            assert!(answer.is_empty(), "cut at {cut}");
        }
        let mut endless = u64::MAX.to_le_bytes().to_vec();
        endless.extend_from_slice(b"x");
        assert!(read_counted(&mut endless.as_slice()).is_err());
    }

    #[test]
    fn few_sources_start_no_process() {
        assert_eq!(crew_for(1, 1, 0), (1, false));
        let worth = [(0, 1), (3, 0), (1, 1), (3, 1), (4, 0)].map(|(uncached, idle)| is_worth_a_process(uncached, idle));
        assert_eq!(worth, [false, false, true, true, true]);
        assert!(crew_for(100, 100, 0).0 >= 1);
    }
}
