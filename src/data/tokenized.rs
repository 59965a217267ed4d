//! A text as the tokens of a tokenizer. They are computed once, by several threads, and kept: in memory, or, for a
//! large text, in a file in the user's cache folder.

use super::file::shown;
use super::text_pieces::{Encoded, Piece, TextPieces};
use super::token_file::{TokenFile, TokenFolders};
use super::token_store::{FileVersion, TextKey, TokenStore, Tokenized, Width};
use super::tokenizer::Tokenizer;
use super::{DataError, Place};
use crate::model::{DataSource, Tokens};
use std::fs::{File, Metadata};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// The size of texts, in bytes, up to which tokens are kept in memory.
pub(super) const MOST_IN_MEMORY: u64 = 16 << 20;

/// The number of texts whose tokens are kept in memory.
const REMEMBERED: usize = 2;

/// A file that was changed this recently may be changed again without a new modification time.
const SETTLED_AFTER: Duration = Duration::from_secs(2);

/// The most threads that share a text.
const MOST_THREADS: usize = 16;

/// The most recently made tokens, the newest last. A thread that needs tokens that are being made waits for them.
static MADE: Mutex<Vec<(TextKey, Tokenized)>> = Mutex::new(Vec::new());

/// The size of the text that is being read, in bytes, and how many bytes are tokenised.
static READING: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

/// The share of a text whose tokens are made, from 0 to 1, while a text is being tokenised.
#[must_use]
pub fn tokenized_share() -> Option<f32> {
    let [all, done] = READING.each_ref().map(|number| number.load(Ordering::Relaxed));
    (all > 0).then(|| done as f32 / all as f32)
}

/// Marks a text as being read until this is dropped.
struct Reading;

impl Reading {
    fn new(bytes: u64) -> Self {
        READING[1].store(0, Ordering::Relaxed);
        READING[0].store(bytes, Ordering::Relaxed);
        Self
    }

    fn is_at(byte: u64) {
        READING[1].store(byte, Ordering::Relaxed);
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        READING[0].store(0, Ordering::Relaxed);
    }
}

/// Whether a source is a text whose tokenisation takes so long that it is done only for a run.
pub(super) fn takes_long(source: &DataSource, base: &Path) -> bool {
    let DataSource::Text { path, tokens: Tokens::File(_) } = source else { return false };
    std::fs::metadata(base.join(path)).is_ok_and(|found| found.len() > MOST_IN_MEMORY)
}

/// The tokens of a text.
///
/// # Errors
/// If the text cannot be read, is not UTF-8 or has a character without a token, or if the tokens of a large text cannot
/// be stored.
pub(super) fn tokenized(path: &Path, tokenizer: &Arc<Tokenizer>) -> Result<Tokenized, DataError> {
    let file = shown(path);
    let help = "check the path and its permissions; relative paths start at the preset's folder";
    let refused = |cause| DataError::Read { file: file.clone(), cause, help };
    let found = std::fs::metadata(path).map_err(refused)?;
    if !found.is_file() {
        return Err(DataError::content(&file, Place::Whole, "no file", "a text", "name the text itself"));
    }
    let key = key_of(path, &found, tokenizer);
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, tokens)) = key.as_ref().and_then(|key| made.iter().find(|(other, _)| other == key)) {
        return Ok(tokens.clone());
    }
    let folders = (found.len() > MOST_IN_MEMORY).then(TokenFolders::default);
    let width = Width::of_kinds(tokenizer.symbols().len());
    let kept = folders.as_ref().zip(key.as_ref()).and_then(|(folders, key)| folders.find(key, width));
    let tokens = match kept {
        Some(tokens) => tokens,
        None => {
            let _reading = Reading::new(found.len());
            let opened = File::open(path).map_err(refused)?;
            let pieces = TextPieces::new(opened, Arc::clone(tokenizer), &file);
            make(pieces, &file, (folders.as_ref(), key.as_ref()))?
        }
    };
    remember(&mut made, key, &tokens);
    Ok(tokens)
}

/// Tokenises a text, into a file if there are folders for it.
fn make(
    pieces: TextPieces,
    file: &str,
    (folders, key): (Option<&TokenFolders>, Option<&TextKey>),
) -> Result<Tokenized, DataError> {
    let width = Width::of_kinds(pieces.tokenizer().symbols().len());
    let mut out = folders.map_or(Ok(Out::Memory(Vec::new())), |folders| folders.create(width).map(Out::File))?;
    encode(pieces, file, &mut out)?;
    match out {
        Out::Memory(tokens) => Ok(Tokenized { len: tokens.len() as u64, store: TokenStore::Words(tokens.into()) }),
        Out::File(file) => file.finish(key),
    }
}

fn remember(made: &mut Vec<(TextKey, Tokenized)>, key: Option<TextKey>, tokens: &Tokenized) {
    let Some(key) = key else { return };
    made.push((key, tokens.clone()));
    let surplus = made.len().saturating_sub(REMEMBERED);
    made.drain(..surplus);
}

/// The key of a text's tokens; `None` if the text may still change.
fn key_of(path: &Path, found: &Metadata, tokenizer: &Tokenizer) -> Option<TextKey> {
    let changed = found.modified().ok()?;
    let is_settled = changed.elapsed().is_ok_and(|age| age > SETTLED_AFTER);
    let text = FileVersion { path: std::path::absolute(path).ok()?, bytes: found.len(), changed };
    is_settled.then(|| TextKey { text, tokenizer: tokenizer.digest() })
}

/// The destination of tokens.
enum Out {
    Memory(Vec<u32>),
    File(TokenFile),
}

impl Out {
    fn add(&mut self, tokens: &[u32]) -> Result<(), DataError> {
        match self {
            Self::Memory(all) => {
                all.extend_from_slice(tokens);
                Ok(())
            }
            Self::File(file) => file.add(tokens),
        }
    }
}

/// A thread that encodes pieces: the channels for its pieces and its answers.
type Lane = (SyncSender<Piece>, Receiver<Result<Encoded, DataError>>);

/// Encodes all pieces of a text in parallel, and passes their tokens on in order.
fn encode(mut pieces: TextPieces, file: &str, out: &mut Out) -> Result<(), DataError> {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS);
    let tokenizer = Arc::clone(pieces.tokenizer());
    let refused = |cause| DataError::Read { file: file.to_owned(), cause, help: "close other programs" };
    let gone = || refused(io::Error::other("a thread that makes its tokens ended"));
    thread::scope(|scope| {
        let lanes = (0..threads).map(|_| lane(scope, &tokenizer, file)).collect::<io::Result<Vec<Lane>>>();
        let lanes = lanes.map_err(refused)?;
        let (mut sent, mut received, mut is_over) = (0, 0, false);
        loop {
            while !is_over && sent - received < 2 * threads {
                match pieces.next()? {
                    Some(piece) => lanes[sent % threads].0.send(piece).map_err(|_| gone())?,
                    None => is_over = true,
                }
                sent += usize::from(!is_over);
            }
            if received == sent {
                return Ok(());
            }
            let encoded = lanes[received % threads].1.recv().map_err(|_| gone())??;
            out.add(encoded.tokens())?;
            Reading::is_at(encoded.end);
            received += 1;
        }
    })
}

/// Starts a thread that encodes pieces until it gets no more.
fn lane<'scope>(scope: &'scope thread::Scope<'scope, '_>, tokenizer: &Arc<Tokenizer>, file: &str) -> io::Result<Lane> {
    let (give, pieces) = sync_channel::<Piece>(1);
    let (answer, answers) = sync_channel(1);
    let (tokenizer, file) = (Arc::clone(tokenizer), file.to_owned());
    let work = move || {
        for piece in pieces {
            if answer.send(piece.encode(&tokenizer, &file)).is_err() {
                return;
            }
        }
    };
    thread::Builder::new().name("stepgraph-tokens".into()).spawn_scoped(scope, work)?;
    Ok((give, answers))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    fn of_source() -> Arc<Tokenizer> {
        Tokenizer::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tokenizer.json")).unwrap()
    }

    #[test]
    fn tokens_are_the_same_in_memory_and_in_a_file() {
        let (tokenizer, folder) = (of_source(), tempfile::tempdir().unwrap());
        let folders = TokenFolders(vec![folder.path().to_owned()]);
        let text = include_str!("tokenized.rs").repeat(60);
        let pieces = || TextPieces::new(Cursor::new(text.clone()), Arc::clone(&tokenizer), "t");
        let tokens = |made: Tokenized| {
            let mut out = vec![0; made.len as usize];
            made.store.read(0, &mut out).unwrap();
            out
        };
        let whole: Vec<i32> = tokenizer.encode(&text).unwrap().into_iter().map(|token| token as i32).collect();
        assert!(tokens(make(pieces(), "t", (None, None)).unwrap()) == whole);
        assert!(tokens(make(pieces(), "t", (Some(&folders), None)).unwrap()) == whole);
    }

    #[test]
    fn an_error_leaves_no_file_behind() {
        let folder = tempfile::tempdir().unwrap();
        let folders = TokenFolders(vec![folder.path().to_owned()]);
        let mut text = include_str!("tokenized.rs").repeat(60).into_bytes();
        text[400_000] = 0xff;
        let pieces = TextPieces::new(Cursor::new(text), of_source(), "t");
        let error = make(pieces, "t", (Some(&folders), None)).err().unwrap().to_string();
        assert!(error.contains("t, byte 400000: found the byte 0xff"), "{error}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
