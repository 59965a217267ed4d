//! The lines of an older log: which of them a resumed run keeps, and whether they belong to its own run.

use super::error::wrong;
use anyhow::Context;
use serde::Deserialize;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

/// The point from which a resumed run continues.
#[derive(Clone, Copy, Debug)]
pub struct Continuation {
    /// The number of steps before it.
    pub step: u64,
    /// The loss of the last of them; `None` if the checkpoint does not contain it.
    pub loss: Option<f32>,
}

/// The part of an older log that is kept.
#[derive(Debug)]
pub struct Kept<'a> {
    pub path: &'a Path,
    /// Bytes up to the end of the line of the step that the run continues from.
    pub end: u64,
    /// Complete lines after it, whose steps the run repeats.
    pub later: u64,
}

/// Why a log cannot be continued.
enum Unfit {
    Unread(anyhow::Error),
    /// It has no line of the step.
    Lacks(String),
    /// Its line of the step is that of another run.
    Other(String),
}

impl Unfit {
    fn into_error(self) -> anyhow::Error {
        match self {
            Self::Unread(error) => error,
            Self::Lacks(what) | Self::Other(what) => {
                wrong(format!("{what}; give another name for the log, or move the old log"))
            }
        }
    }
}

/// The log that a resumed run continues, and the part of it that is kept; `None` if there is no log yet. The file
/// `part` of a killed run is newer than the file with the final name, but may be shorter, if a run was killed again
/// while it copied the first lines.
///
/// # Errors
/// If no log has the line of the step that the run continues from, that line is of another run, or lines of a killed
/// run would be lost because they are not the start of the log.
pub fn kept_lines<'a>(
    path: &'a Path,
    part: &'a Path,
    is_left: bool,
    from: Continuation,
) -> anyhow::Result<Option<Kept<'a>>> {
    let of_path = || path.is_file().then(|| kept(path, from));
    if !is_left {
        return of_path().transpose().map_err(Unfit::into_error);
    }
    match (kept(part, from), of_path()) {
        (Ok(kept), _) => Ok(Some(kept)),
        (Err(Unfit::Lacks(_)), Some(Ok(kept))) if begins(path, part)? => Ok(Some(kept)),
        (Err(unfit), _) => Err(unfit.into_error()),
    }
}

/// The part of one log that is kept.
fn kept(path: &Path, from: Continuation) -> Result<Kept<'_>, Unfit> {
    #[derive(Deserialize)]
    struct Line {
        step: u64,
        #[serde(default)]
        loss: Option<f32>,
    }
    let Continuation { step, loss } = from;
    let shown = path.display();
    let unread = |e: io::Error| {
        let advice = "check its permissions, or give another name for the log";
        let message = format!("the log {shown} cannot be read: {e}; {advice}");
        Unfit::Unread(anyhow::Error::from(e).context(message))
    };
    let mut lines = BufReader::with_capacity(1 << 18, File::open(path).map_err(unread)?);
    let (mut end, mut last, mut line) = (0u64, Line { step: 0, loss: None }, Vec::new());
    while last.step < step {
        let Some(length) = next_line(&mut lines, &mut line).map_err(unread)? else { break };
        let Ok(found) = serde_json::from_slice::<Line>(&line) else { break };
        (end, last) = (end + length, found);
    }
    if last.step == 0 {
        return Err(Unfit::Lacks(format!("{shown} is not the log of a run, and this run continues from step {step}")));
    }
    if last.step != step {
        let found = if last.step > step {
            format!("has no line of step {step}")
        } else {
            format!("ends with step {}", last.step)
        };
        return Err(Unfit::Lacks(format!("the log {shown} {found}, and this run continues from step {step}")));
    }
    // Both numbers were printed and read in the same way.
    if let Some(loss) = loss.filter(|loss| last.loss.map(f32::to_bits) != Some(loss.to_bits())) {
        let found = last.loss.map_or_else(|| "no loss".to_owned(), |found| format!("loss {found}"));
        return Err(Unfit::Other(format!(
            "the log {shown} belongs to another run: its line of step {step} has {found}, and the checkpoint's run had \
             loss {loss}"
        )));
    }
    let mut later = 0;
    while next_line(&mut lines, &mut line).map_err(unread)?.is_some() {
        later += 1;
    }
    Ok(Kept { path, end, later })
}

/// Reads a whole line and returns its length; `None` at the end of the file or if the last line is incomplete.
fn next_line(lines: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<Option<u64>> {
    line.clear();
    let length = lines.read_until(b'\n', line)?;
    Ok((line.last() == Some(&b'\n')).then_some(length as u64))
}

/// Whether the file `path` starts with the whole contents of `part`, which can then be removed without loss.
fn begins(path: &Path, part: &Path) -> anyhow::Result<bool> {
    let opened = |path: &Path| File::open(path).map(BufReader::new);
    let open = |path: &Path| opened(path).with_context(|| format!("the log {} cannot be opened", path.display()));
    let (mut whole, mut part) = (open(path)?, open(part)?);
    let (mut a, mut b) = (vec![0; 1 << 16], Vec::with_capacity(1 << 16));
    loop {
        b.clear();
        let count = part.by_ref().take(a.len() as u64).read_to_end(&mut b)?;
        if count == 0 {
            return Ok(true);
        }
        if whole.read_exact(&mut a[..count]).is_err() || a[..count] != b[..] {
            return Ok(false);
        }
    }
}
