//! Standard output, numbers as text, and the paths that results are written to.

use super::error::{unwritable, wrong};
use super::notes::harmless;
pub use super::notes::note;
pub use crate::tensor::counted;
use crate::tensor::{figure, grouped, is_wrong_place, remove_leftovers, temporary_in, write_advice, write_atomic};
use serde::Serialize;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

/// Prints to standard output.
///
/// # Errors
/// If writing fails. If the reader has closed the pipe, this error ends the program without a message.
pub fn print(text: &str) -> anyhow::Result<()> {
    write_out(&harmless(text))
}

/// Writes to standard output. The error names standard output and has the system's error as its source.
fn write_out(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|cause| anyhow::Error::new(cause).context("standard output cannot be written"))
}

/// Prints a table to standard output; if standard output is not a terminal, bytes are written unchanged.
///
/// # Errors
/// As [`print`].
pub fn print_table(text: &str) -> anyhow::Result<()> {
    if io::stdout().is_terminal() { print(text) } else { write_out(text) }
}

/// Prints a value as indented JSON.
///
/// # Errors
/// As [`print`].
pub fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    let mut text = serde_json::to_string_pretty(value)?;
    text.push('\n');
    print(&text)
}

/// Whether progress may be drawn.
#[must_use]
pub fn is_terminal() -> bool {
    io::stderr().is_terminal()
}

/// `1st`, `2nd`, `31st`.
#[must_use]
pub fn ordinal(n: u64) -> String {
    let ending = match (n % 10, n % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{n}{ending}")
}

/// A whole number with thin groups of three: `12,345`.
#[must_use]
pub fn count(value: u64) -> String {
    grouped(value, ',')
}

/// A time in microseconds with three significant figures and a unit: `18.2 us`, `1.20 ms`; a time too short for that:
/// `< 0.01 us`.
#[must_use]
pub fn micros(us: f64) -> String {
    if (0.0..0.005).contains(&us) {
        return "< 0.01 us".to_owned();
    }
    let (value, unit) = match us {
        us if us >= 1e6 => (us / 1e6, "s"),
        us if us >= 1e3 => (us / 1e3, "ms"),
        us => (us, "us"),
    };
    let decimals = if value >= 100.0 {
        0
    } else if value >= 10.0 {
        1
    } else {
        2
    };
    format!("{} {unit}", figure(value, decimals))
}

/// Text in lines of at most `width` characters behind `indent`, each with its line break.
#[must_use]
pub fn wrapped(text: &str, width: usize, indent: &str) -> String {
    let (mut out, mut line) = (String::new(), String::new());
    for word in text.split_whitespace() {
        if !line.is_empty() && indent.len() + line.len() + 1 + word.len() > width {
            out.push_str(&format!("{indent}{line}\n"));
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    out.push_str(&format!("{indent}{line}\n"));
    out
}

/// The quantile `q` of sorted values; 0 if there are none.
#[must_use]
pub fn quantile(sorted: &[f64], q: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    sorted.get((last as f64 * q).round() as usize).copied().unwrap_or(0.0)
}

/// Median, first and last decile, and 99th percentile of a step's time, in microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Distribution {
    pub median: f64,
    pub p10: f64,
    pub p90: f64,
    pub p99: f64,
}

impl Distribution {
    /// The distribution of times, which are sorted in place.
    #[must_use]
    pub fn of(times: &mut [f64]) -> Self {
        times.sort_by(f64::total_cmp);
        let [median, p10, p90, p99] = [0.5, 0.1, 0.9, 0.99].map(|q| quantile(times, q));
        Self { median, p10, p90, p99 }
    }
}

/// The path to write to for the `path` that the user gave: links are followed, so that a link remains a link.
///
/// # Errors
/// If no file can be created there. The check creates a file beside it and removes it again.
pub fn writable(path: &Path, what: &str) -> anyhow::Result<PathBuf> {
    let refused = |why: String| wrong(format!("{}: {what} cannot be written there: {why}", path.display()));
    if path.as_os_str().is_empty() {
        return Err(wrong(format!("the path for {what} is empty")));
    }
    if path.is_dir() {
        return Err(refused("this is a folder; name a file in it".into()));
    }
    let target = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if target.exists() && !target.is_file() {
        return Err(refused("this is a device or pipe, not a file".into()));
    }
    let folder = folder_of(&target);
    remove_leftovers(folder);
    if let Err(cause) = temporary_in(folder) {
        let help = if is_wrong_place(&cause) {
            "choose a folder that exists and that you may write to"
        } else {
            write_advice(&cause)
        };
        let message = format!("{}: {what} cannot be written there: {cause}; {help}", path.display());
        return Err(unwritable(cause, message));
    }
    // Temporary names are short: only the given name may be one that the system does not accept.
    match target.symlink_metadata() {
        Err(e) if e.kind() == io::ErrorKind::InvalidFilename => {
            let length = target.file_name().map_or(0, |n| n.len());
            Err(refused(format!(
                "its name of {length} bytes is longer than this file system allows; give a shorter one"
            )))
        }
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(refused(e.to_string())),
        _ => Ok(target),
    }
}

/// Writes a picture and reports its path.
///
/// # Errors
/// If it cannot be written; then an old file of that name is unchanged.
pub fn write_picture(path: &Path, svg: &str) -> anyhow::Result<()> {
    write_atomic(path, svg.as_bytes()).map_err(|cause| {
        let message = format!("the picture {} cannot be written: {cause}; {}", path.display(), write_advice(&cause));
        unwritable(cause, message)
    })?;
    note(&format!("wrote {}", path.display()));
    Ok(())
}

/// The folder that contains a file.
#[must_use]
pub fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_formatted_readably() {
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(
            [0.0, 0.5, 18.23, 456.0, 1200.0, 2.5e6].map(micros),
            ["< 0.01 us", "0.50 us", "18.2 us", "456 us", "1.20 ms", "2.50 s"]
        );
        assert_eq!(wrapped("one two three", 9, "  "), "  one two\n  three\n");
    }

    #[test]
    fn control_characters_do_not_reach_a_terminal() {
        assert_eq!(harmless("a\tname\n"), "a\tname\n");
        assert_eq!(harmless("\u{1b}[2Ja\r\u{9b}"), "\\u001b[2Ja\\u000d\\u009b");
    }

    #[test]
    fn quantiles_of_few_values_are_values() {
        assert_eq!((quantile(&[], 0.5), quantile(&[3.0], 0.99)), (0.0, 3.0));
        let d = Distribution::of(&mut [4.0, 1.0, 3.0, 2.0, 5.0]);
        assert_eq!((d.median, d.p10, d.p99), (3.0, 1.0, 5.0));
    }

    #[test]
    fn the_check_of_a_path_leaves_no_file() {
        let folder = tempfile::tempdir().unwrap();
        assert!(writable(&folder.path().join("a.json"), "the log").is_ok());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        assert!(writable(folder.path(), "the log").is_err());
        assert!(writable(&folder.path().join("no/a.json"), "the log").is_err());
        let long = folder.path().join("n".repeat(300));
        let message = writable(&long, "the log").unwrap_err().to_string();
        assert!(message.contains("name of 300 bytes is longer"), "{message}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
