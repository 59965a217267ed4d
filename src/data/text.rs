//! Texts as samples: windows whose targets are the tokens that follow, and additions written as characters.

use super::dataset::Loaded;
use super::file::{read_file, shown};
use super::token_rows::{RowLayout, RowTarget, TokenRows};
use super::tokenized::tokenized;
use super::tokenizer::Tokenizer;
use super::{DataError, Dataset, InputSamples, Place, Preprocessing, Request, Samples, Target};
use crate::data::error::{Side, quoted};
use crate::model::{DataSource, NamedInput, Rng, Tokens, inputs_text};
use crate::tensor::plural;
use std::collections::HashSet;
use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

/// The bundled source code, in ASCII.
const SOURCE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/source.txt"));

/// Larger files of bytes are read from the disk during training, and not kept in memory.
pub(super) const MOST_HELD: u64 = 64 << 20;

/// The random stream of additions, separate from every other use of a run's seed.
const STREAM: u64 = 0x6461_7461_0003;
/// The largest number of digits of a summand.
const DIGITS: usize = 3;
/// The characters of additions, by code point.
const SUM_SYMBOLS: &str = " +0123456789=";
/// Characters of an addition: `" 37+ 85= 122"`.
pub(super) const SUM_LEN: usize = 3 * DIGITS + 3;

/// The samples of a source of tokens for a network; `known` is what weights were trained with.
///
/// # Errors
/// If the network takes inputs other than tokens, or the file cannot be read, is shorter than a window, is not UTF-8
/// although its characters are tokens, or contains a character that `known` does not have.
pub(super) fn load(
    source: &DataSource,
    request: &Request,
    base: &Path,
    known: Option<&Preprocessing>,
) -> Result<Loaded, DataError> {
    let [NamedInput { name, shape, content }] = &request.inputs[..] else { return Err(refused(source, request)) };
    let ([width], true) = (&shape.0[..], content.is_tokens()) else { return Err(refused(source, request)) };
    let (width, is_single) = ((*width).max(1), request.output.rank() < 2);
    let (at, classes) = if is_single { (width, 1) } else { (1, width) };
    let windows = RowLayout { stride: width + 1, width, target: RowTarget { at, classes, is_single } };
    let rows = match source {
        DataSource::Text { path, tokens: Tokens::Chars } => characters(&base.join(path), windows, known)?,
        DataSource::Text { path, tokens: Tokens::File(tokenizer) } => {
            let tokenizer = tokenizer_of(&base.join(tokenizer), known)?;
            let tokens = tokenized(&base.join(path), &tokenizer)?;
            TokenRows::of_tokenizer(tokens, tokenizer, windows, &shown(&base.join(path)))?
        }
        DataSource::Text { path, .. } => bytes(&base.join(path), windows)?,
        DataSource::Sums { samples } => sums(*samples, request.seed)?,
        _ => TokenRows::of_bytes(SOURCE.to_vec(), windows, "source"),
    };
    let file = match source {
        DataSource::Text { path, .. } => shown(&base.join(path)),
        _ => source.name().to_owned(),
    };
    if rows.is_empty() {
        let help = "use a longer text, or a smaller input.shape";
        let expected = format!("at least {}: a window of {width} and the one after it", width + 1);
        let found = format!("{} {}", rows.tokens(), plural(rows.tokens(), "token"));
        return Err(DataError::content(&file, Place::Whole, found, expected, help));
    }
    let title = Path::new(&file).file_stem().map_or_else(|| file.clone(), |stem| stem.to_string_lossy().into_owned());
    let sample = rows.sample_shape();
    let rows = Arc::new(rows);
    let inputs = vec![InputSamples { name: name.clone(), sample, values: Samples::Windows(Arc::clone(&rows)) }];
    let dataset = Dataset {
        name: title,
        inputs,
        target: Target::Windows(rows),
        feature_names: Vec::new(),
        notes: notes(source),
        preprocessing: Preprocessing::default(),
    };
    Ok(Loaded::new(file, dataset))
}

/// The error of a network that does not take one sequence of tokens.
fn refused(source: &DataSource, request: &Request) -> DataError {
    let expected = format!("a source that gives {}", inputs_text(&request.inputs));
    let help = "this one gives one sequence of tokens: set input.type to \"tokens\", input.vocab and input.shape [T]";
    DataError::field("type", source.name(), expected, help)
}

fn notes(source: &DataSource) -> Vec<String> {
    let note = match source {
        DataSource::Sums { .. } => {
            "the target of each position is the next character of the sum; those of the question are blanks, so that \
             only the answer is learnt"
        }
        DataSource::SourceCode => "the source code of this program's folder src/model",
        _ => return Vec::new(),
    };
    vec![note.to_owned()]
}

/// A file whose bytes are the tokens.
fn bytes(path: &Path, layout: RowLayout) -> Result<TokenRows, DataError> {
    let len = fs::metadata(path).map_or(0, |m| if m.is_file() { m.len() } else { 0 });
    if len <= MOST_HELD {
        return Ok(TokenRows::of_bytes(read_file(path)?, layout, &shown(path)));
    }
    let help = "check the path and its permissions; relative paths start at the preset's folder";
    let opened = File::open(path).map_err(|cause| DataError::Read { file: shown(path), cause, help })?;
    TokenRows::of_file(opened, len, layout, &shown(path))
}

/// A tokenizer, which must have the tokens that `known` weights were trained with.
///
/// # Errors
/// If it cannot be read, is not a tokenizer, or is a different one.
pub(super) fn tokenizer_of(path: &Path, known: Option<&Preprocessing>) -> Result<Arc<Tokenizer>, DataError> {
    let tokenizer = Tokenizer::read(path)?;
    let known = known.map(|known| &known.classes[..]).filter(|symbols| !symbols.is_empty());
    let Some(known) = known.filter(|known| *known != tokenizer.symbols()) else { return Ok(tokenizer) };
    let own = tokenizer.symbols();
    let at = known.iter().zip(own).position(|(known, own)| known != own).unwrap_or(known.len().min(own.len()));
    let named = |symbols: &[String]| symbols.get(at).map_or_else(|| "nothing".to_owned(), |symbol| quoted(symbol));
    let found = format!("{} as its token {at}", named(own));
    let expected = format!("{}, as the weights were trained with", named(known));
    let help = "give the tokenizer that the weights were trained with, or train the network again";
    Err(DataError::fit(Side::Input, tokenizer.file(), Place::Whole, found, expected, help))
}

/// A text without its byte order mark.
fn utf8<'a>(bytes: &'a [u8], file: &str) -> Result<&'a str, DataError> {
    let text = std::str::from_utf8(bytes).map_err(|e| {
        let at = e.valid_up_to();
        let help = "save the text as UTF-8, or set data.tokens to \"bytes\"";
        DataError::content(file, Place::Byte(at as u64), format!("the byte {:#04x}", bytes[at]), "UTF-8 text", help)
    })?;
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}

/// The characters of a text, by code point.
fn symbols_of(text: &str) -> Vec<String> {
    let mut is_present = vec![false; char::MAX as usize + 1];
    text.chars().for_each(|c| is_present[c as usize] = true);
    let present = is_present.iter().enumerate().filter(|(_, is_present)| **is_present);
    present.filter_map(|(code, _)| char::from_u32(code as u32)).map(String::from).collect()
}

/// The characters of a file that are its tokens, by code point.
///
/// # Errors
/// If it cannot be read, or is not UTF-8.
pub(super) fn characters_of(path: &Path) -> Result<Vec<String>, DataError> {
    Ok(symbols_of(utf8(&read_file(path)?, &shown(path))?))
}

/// A file whose characters are the tokens.
fn characters(path: &Path, layout: RowLayout, known: Option<&Preprocessing>) -> Result<TokenRows, DataError> {
    let (bytes, file) = (read_file(path)?, shown(path));
    let text = utf8(&bytes, &file)?;
    // A character that does not occur in the text has no number.
    let mut numbers = vec![u32::MAX; char::MAX as usize + 1];
    let known = known.map(|known| &known.classes[..]).filter(|symbols| !symbols.is_empty());
    let symbols: Vec<String> = if let Some(known) = known { known.to_vec() } else { symbols_of(text) };
    for (number, symbol) in symbols.iter().enumerate() {
        if let Some(c) = symbol.chars().next() {
            numbers[c as usize] = number as u32;
        }
    }
    let unknown = |(at, c): (usize, char)| {
        DataError::fit(
            Side::Input,
            &file,
            Place::Byte(at as u64),
            format!("the character {}", quoted(&c.to_string())),
            format!("one of the {} that the weights were trained with", symbols.len()),
            "remove it from the text, or train the network again",
        )
    };
    let number = |(at, c): (usize, char)| match numbers[c as usize] {
        u32::MAX => Err(unknown((at, c))),
        number => Ok(number),
    };
    let tokens = text.char_indices().map(number).collect::<Result<Vec<u32>, DataError>>()?;
    Ok(TokenRows::new(tokens, symbols, layout, &file))
}

/// The characters of additions.
pub(super) fn sum_symbols() -> Vec<String> {
    SUM_SYMBOLS.chars().map(String::from).collect()
}

/// An addition up to its answer: `" 37+ 85="`.
fn question(a: usize, b: usize) -> String {
    format!("{a:>DIGITS$}+{b:>DIGITS$}=")
}

/// An addition without its answer, such as `37+85=`, in the form that samples have; `None` for any other text.
pub(super) fn padded_sum(text: &str) -> Option<String> {
    let (a, b) = text.strip_suffix('=')?.split_once('+')?;
    let number = |text: &str| {
        let digits = text.trim();
        let is_number = digits.len() <= DIGITS && digits.bytes().all(|b| b.is_ascii_digit());
        digits.parse::<usize>().ok().filter(|_| is_number)
    };
    Some(question(number(a)?, number(b)?))
}

/// Distinct additions from a seed. A row contains the input of the network followed by its target: `" 37+ 85= 12"` and
/// `" 122"`, where all positions before the answer are blanks.
fn sums(samples: usize, seed: u64) -> Result<TokenRows, DataError> {
    /// The number of pairs that can be drawn; beyond half of them, drawing distinct pairs takes long.
    const MOST: usize = 500_000;
    if samples == 0 || samples > MOST {
        let help = "20000 are enough to learn addition from";
        return Err(DataError::field("samples", samples, format!("from 1 to {MOST} different additions"), help));
    }
    let symbols = sum_symbols();
    let number_of = |c: char| SUM_SYMBOLS.find(c).unwrap_or(0) as u32;
    let width = SUM_LEN - 1;
    let target = RowTarget { at: width, classes: width, is_single: false };
    let layout = RowLayout { stride: 2 * width, width, target };
    let (mut rng, mut drawn) = (Rng::new(seed, STREAM), HashSet::with_capacity(samples));
    let mut tokens = Vec::with_capacity(samples * layout.stride);
    while drawn.len() < samples {
        // Numbers of one, two and three digits are equally frequent, as long as undrawn pairs of them remain.
        let mut number = |tries: usize| {
            let digits = if tries < 8 { 1 + rng.below(DIGITS) } else { DIGITS };
            rng.below(10_usize.pow(digits as u32))
        };
        let pair = (0..).map(|tries| (number(tries), number(tries))).find(|pair| drawn.insert(*pair));
        let Some((a, b)) = pair else { break };
        let text = format!("{}{:>2$}", question(a, b), a + b, DIGITS + 1);
        tokens.extend(text.chars().take(width).map(number_of));
        let answered = 2 * DIGITS + 1;
        let target = |(at, c): (usize, char)| number_of(if at > answered { c } else { ' ' });
        tokens.extend(text.chars().enumerate().skip(1).map(target));
    }
    Ok(TokenRows::new(tokens, symbols, layout, "sums"))
}

#[cfg(test)]
mod tests;
