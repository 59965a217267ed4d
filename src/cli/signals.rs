//! Signals that ask the program to end: Ctrl+C, `kill`, a closed terminal.
//!
//! If a signal ends a command, its exit status is 128 plus the signal's number, as shells report it. Most commands end
//! at once. A training run ends after the current step and saves the requested results; a second signal ends the
//! program at once.

use super::output;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};

/// A signal that asks the program to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signal {
    number: u8,
    pub name: &'static str,
}

/// Their numbers are the same on every system that has them.
const ASKING: [Signal; 3] = [
    Signal { number: 1, name: "SIGHUP" },
    Signal { number: 2, name: "SIGINT" },
    Signal { number: 15, name: "SIGTERM" },
];

/// The number of the first signal that arrived; 0 for none.
static CAME: AtomicI32 = AtomicI32::new(0);
/// What the command still does after a signal, if it ends by itself.
static FINISHES: OnceLock<&'static str> = OnceLock::new();
/// Set by the first signal.
static ENDS: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

impl Signal {
    fn of(number: i32) -> Option<Self> {
        ASKING.into_iter().find(|s| i32::from(s.number) == number)
    }

    /// How the user can end the program at once after it, as text.
    const fn again(self) -> &'static str {
        match self.number {
            1 => "the terminal was closed (SIGHUP); another signal ends the run at once",
            2 => "press Ctrl+C again to end at once",
            _ => "SIGTERM asked for it; another SIGTERM ends the run at once",
        }
    }

    const fn status(self) -> u8 {
        128 + self.number
    }

    /// The exit status of a command that it ended.
    #[must_use]
    pub fn exit_code(self) -> ExitCode {
        ExitCode::from(self.status())
    }
}

/// Handles signals from now on: until [`finish_first`] is called, the first signal ends the program at once and reports
/// what is `lost`.
pub fn listen(lost: &'static str) {
    if let Err(why) = system::listen(ASKING.iter().map(|s| i32::from(s.number)), move |number| heard(number, lost)) {
        output::note(&format!("note: a signal will end the program without a message ({why})"));
    }
}

/// From now on the first signal is only recorded for [`asked`], so that the command can finish `what` it does and save
/// its results.
pub fn finish_first(what: &'static str) {
    FINISHES.get_or_init(|| what);
}

/// The signal that asked the command to end.
#[must_use]
pub fn asked() -> Option<Signal> {
    Signal::of(CAME.load(Ordering::Relaxed))
}

/// What the first signal sets: for work on which it is to end between two of its parts.
#[must_use]
pub fn flag() -> Arc<AtomicBool> {
    Arc::clone(&ENDS)
}

/// Reports on standard error which signal ended a command that finished what it was at.
pub fn note_ended(signal: Signal, what: &str) {
    output::note(&format!("ended by {}: {what}", signal.name));
}

fn heard(number: i32, lost: &str) {
    let Some(signal) = Signal::of(number) else { return };
    ENDS.store(true, Ordering::Relaxed);
    let is_first = CAME.compare_exchange(0, number, Ordering::Relaxed, Ordering::Relaxed).is_ok();
    let finishes = FINISHES.get();
    if let Some(what) = finishes.filter(|_| is_first) {
        return output::note(&format!("\nstopping after {what}; {}", signal.again()));
    }
    let lost = if finishes.is_some() { "what was not written by then is lost" } else { lost };
    output::note(&format!("\nended by {}: {lost}", signal.name));
    system::end(signal.status());
}

#[cfg(unix)]
mod system {
    use signal_hook::consts::SIGHUP;
    use signal_hook::iterator::Signals;
    use std::io;
    use std::thread::Builder;

    /// Installs the handler for each of these signals.
    pub(super) fn listen(numbers: impl Iterator<Item = i32>, heard: impl Fn(i32) + Send + 'static) -> io::Result<()> {
        // `nohup` makes the program ignore a closed terminal, and this must not change.
        let mut signals = Signals::new(numbers.filter(|n| *n != SIGHUP || !is_ignored(*n)))?;
        Builder::new().name("stepgraph-signals".into()).spawn(move || signals.forever().for_each(heard)).map(drop)
    }

    /// Whether the program was started with this signal ignored, if the system reports that.
    fn is_ignored(number: i32) -> bool {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mask = status.lines().find_map(|l| l.strip_prefix("SigIgn:"));
        let mask = mask.and_then(|m| u64::from_str_radix(m.trim(), 16).ok());
        mask.is_some_and(|m| m & (1 << (number - 1)) != 0)
    }

    /// Ends the program without waiting for its threads, some of which may be inside a driver.
    pub(super) fn end(status: u8) {
        signal_hook::low_level::exit(i32::from(status));
    }
}

#[cfg(not(unix))]
mod system {
    use std::io;

    /// Only Ctrl+C exists here.
    pub(super) fn listen(_: impl Iterator<Item = i32>, heard: impl Fn(i32) + Send + 'static) -> io::Result<()> {
        ctrlc::set_handler(move || heard(2)).map_err(io::Error::other)
    }

    pub(super) fn end(status: u8) {
        std::process::exit(i32::from(status));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_has_its_shell_status() {
        let statuses: Vec<(i32, u8)> = [1, 2, 15].map(|n| (n, Signal::of(n).unwrap().status())).to_vec();
        assert_eq!(statuses, [(1, 129), (2, 130), (15, 143)]);
        assert_eq!(Signal::of(9), None);
        // The sender of a signal may have no keyboard.
        let again = [1, 2, 15].map(|n| Signal::of(n).unwrap().again());
        assert_eq!(again.map(|text| text.contains("Ctrl+C")), [false, true, false]);
        assert!(again[0].contains("SIGHUP") && again[2].contains("another SIGTERM"));
    }
}
