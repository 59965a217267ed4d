//! Writes a text with a network of tokens: each token is sampled from the network's prediction for the text so far.
//!
//! An evaluation of the whole window gives the logits of one token, so that no other step of the network is needed. If
//! a network has an output for each position, the text starts at the first position, and the rest of the window is
//! filled; if it has a single output, it needs a whole window, which is filled at the front.

use super::sampling::Sampling;
use super::stop_text::StopText;
use super::{Session, TrainError};
use crate::data::{Decoder, Preprocessing, Samples, Vocabulary};
use crate::model::{DataSource, Model, Targets};
use crate::tensor::plural;
use serde::{Deserialize, Serialize};
use std::path::Path;
use thiserror::Error;

/// What to write.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Generation {
    /// The text to continue.
    pub prompt: String,
    /// The largest number of tokens to write; by default [`Generation::TOKENS`], or the rest of a line.
    pub tokens: Option<usize>,
    pub sampling: Sampling,
    /// A text that ends the output, and is not part of it.
    pub stop: Option<String>,
}

impl Generation {
    /// The default number of tokens to write.
    pub const TOKENS: usize = 200;
}

/// Why a text ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GenerationEnd {
    /// The requested number of tokens was written.
    Tokens,
    /// The stop text occurred.
    Stop,
    /// It is as long as the samples of its data.
    Line,
    /// The receiver was dropped.
    Cancelled,
}

/// The result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Generated {
    /// The text after the prompt.
    pub text: String,
    /// The number of tokens that were drawn, including those of the stop text.
    pub tokens: usize,
    pub end: GenerationEnd,
    /// The prompt as the network received it.
    pub prompt: String,
    /// A note about the prompt.
    pub notes: Vec<String>,
}

/// Why nothing can be written.
#[derive(Debug, Error)]
pub enum GenerateError {
    #[error(
        "the network {0} predicts no tokens; to write a text, its input is of tokens, its loss softmax_cross_entropy, \
         and its last layer has a unit for each token of input.vocab, as in the preset gpt-source"
    )]
    NoTokens(String),
    #[error(
        "it is not known which texts the network's tokens represent; give weights that were trained on a text, or a \
         preset whose data is one"
    )]
    NoVocabulary,
    #[error("the prompt has {}, which the network does not know; it knows {known}", listed(.unknown))]
    Unknown { unknown: Vec<char>, known: String },
    #[error("the prompt is empty; give a text of at least one character that the network is to continue")]
    Empty,
    #[error(
        "the prompt has {}, and a whole text of this network's data has {most}; give a shorter prompt{example}",
        characters(*found)
    )]
    Long { found: usize, most: usize, example: &'static str },
    #[error(
        "the network reads the positions after the token that it predicts, so it cannot write a text; make attention \
         and convolutions causal and recurrent layers unidirectional, and train it again"
    )]
    LooksAhead,
    #[error("the network's outputs are not finite; train it again with a lower learning rate")]
    NotFinite,
    #[error(transparent)]
    Train(#[from] TrainError),
}

impl GenerateError {
    /// True if the mistake is in what the user gave: exit status 2.
    #[must_use]
    pub fn is_user(&self) -> bool {
        match self {
            Self::Train(error) => error.is_user(),
            Self::NotFinite => false,
            _ => true,
        }
    }
}

/// A number of characters as text.
fn characters(count: usize) -> String {
    format!("{count} {}", plural(count as u64, "character"))
}

/// Characters as text.
fn listed(chars: &[char]) -> String {
    let shown: Vec<String> = chars.iter().take(8).map(|c| format!("{c:?}")).collect();
    let more =
        if chars.len() > shown.len() { format!(" and {} more", chars.len() - shown.len()) } else { String::new() };
    let noun = plural(chars.len() as u64, "character");
    format!("the {noun} {}{more}", shown.join(", "))
}

/// The vocabulary size, if a network predicts tokens of its input's vocabulary; `None` for every other network.
fn predicted_tokens(model: &Model) -> Option<usize> {
    let input = model.single_input()?;
    let vocab = input.content.vocab()?;
    let positions = model.labels();
    let is_of_tokens = positions.rank() == 0 || positions == input.shape;
    (model.loss.targets() == Targets::Classes && model.classes() == vocab && is_of_tokens).then_some(vocab)
}

/// The texts of the tokens of a network, with weights whose samples were prepared as in `known`, or in a preset whose
/// data are `source`.
///
/// # Errors
/// If the network predicts no tokens, their texts are unknown, or the file of a text cannot be read.
pub fn vocabulary_of(
    model: &Model,
    source: Option<&DataSource>,
    base: &Path,
    known: Option<&Preprocessing>,
) -> Result<Vocabulary, GenerateError> {
    predicted_tokens(model).ok_or_else(|| GenerateError::NoTokens(model.name.clone()))?;
    let found = Vocabulary::of(source, base, known).map_err(TrainError::from)?;
    found.ok_or(GenerateError::NoVocabulary)
}

/// The perplexity of a mean loss, for a network that predicts tokens: the number of equally likely tokens that would be
/// as hard to predict. `None` for every other network.
#[must_use]
pub fn perplexity(model: &Model, loss: f64) -> Option<f64> {
    predicted_tokens(model).map(|_| libm::exp(loss))
}

/// How the next token is predicted.
struct Window {
    /// The number of positions of a sample.
    len: usize,
    vocab: usize,
    /// Whether there is an output for each position.
    has_positions: bool,
    /// The token for positions beyond the text.
    fill: i32,
}

impl Window {
    fn of(model: &Model, vocabulary: &Vocabulary) -> Result<Self, GenerateError> {
        let vocab = predicted_tokens(model).ok_or_else(|| GenerateError::NoTokens(model.name.clone()))?;
        let len = model.single_input().map_or(1, |input| input.shape.len());
        let fill = vocabulary.tokens(" ", vocab).ok().and_then(|tokens| tokens.first().copied()).unwrap_or(0);
        Ok(Self { len, vocab, has_positions: model.labels().rank() > 0, fill })
    }

    /// The sample that ends with the end of a text, and the row of the output that predicts the next token.
    fn sample(&self, text: &[i32]) -> (Vec<i32>, usize) {
        let kept = &text[text.len().saturating_sub(self.len)..];
        let rest = vec![self.fill; self.len - kept.len()];
        if self.has_positions {
            ([kept, &rest].concat(), kept.len().saturating_sub(1))
        } else {
            ([&rest, kept].concat(), 0)
        }
    }

    /// Two samples that differ only in their last token.
    fn probes(&self) -> [Vec<i32>; 2] {
        let vocab = self.vocab as i32;
        let first: Vec<i32> = (0..self.len as i32).map(|at| at % vocab).collect();
        let mut second = first.clone();
        if let Some(last) = second.last_mut() {
            *last = (*last + 1) % vocab;
        }
        [first, second]
    }
}

/// A text that is being written. It does not depend on a session's steps, so that a run may train between two tokens.
pub struct Writing {
    vocabulary: Vocabulary,
    window: Window,
    sampling: Sampling,
    /// The prompt and the tokens drawn so far.
    tokens: Vec<i32>,
    drawn: usize,
    /// The largest number of tokens to draw.
    most: usize,
    /// Why the text ends when all of them are drawn.
    last: GenerationEnd,
    decoder: Decoder,
    stop: StopText,
    prompt: String,
    notes: Vec<String>,
}

impl Writing {
    /// Passes the prompt to a network; nothing is drawn yet.
    ///
    /// # Errors
    /// If the network predicts no tokens or uses later positions, the prompt has characters that it does not know, or
    /// the evaluation fails.
    pub fn begin(session: &mut Session, vocabulary: Vocabulary, asked: &Generation) -> Result<Self, GenerateError> {
        let window = Window::of(session.model(), &vocabulary)?;
        let prompt = vocabulary.arranged(&asked.prompt).into_owned();
        let tokens = prompt_tokens(&vocabulary, &window, &prompt)?;
        if looks_ahead(session, &window)? {
            return Err(GenerateError::LooksAhead);
        }
        let notes = notes(&window, &vocabulary, asked, &prompt, tokens.len());
        let room = vocabulary.line.map(|line| line - tokens.len());
        let wanted = asked.tokens.unwrap_or(room.unwrap_or(Generation::TOKENS));
        let most = wanted.min(room.unwrap_or(wanted));
        let last = if room == Some(most) { GenerationEnd::Line } else { GenerationEnd::Tokens };
        let (decoder, stop) = (Decoder::default(), StopText::new(asked.stop.as_deref()));
        let sampling = asked.sampling;
        Ok(Self { vocabulary, window, sampling, tokens, drawn: 0, most, last, decoder, stop, prompt, notes })
    }

    /// The prompt as the network received it.
    #[must_use]
    pub fn prompt(&self) -> &str {
        &self.prompt
    }

    /// A note about the prompt.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The number of tokens that were drawn.
    #[must_use]
    pub const fn drawn(&self) -> usize {
        self.drawn
    }

    /// The largest number of tokens to draw.
    #[must_use]
    pub const fn most(&self) -> usize {
        self.most
    }

    /// Draws a token from the network's current prediction. Returns the text that is certain to be part of the output,
    /// and why it ends, if it does.
    ///
    /// # Errors
    /// If the evaluation fails or its outputs are not finite.
    pub fn next(&mut self, session: &mut Session) -> Result<(String, Option<GenerationEnd>), GenerateError> {
        let mut text = String::new();
        if self.drawn < self.most {
            let token = self.draw(session)?;
            self.tokens.push(token as i32);
            self.drawn += 1;
            let (piece, is_over) = self.stop.push(&self.decoder.push(&self.vocabulary, token));
            text = piece;
            if is_over {
                return Ok((text, Some(GenerationEnd::Stop)));
            }
        }
        if self.drawn < self.most {
            return Ok((text, None));
        }
        let (piece, is_over) = self.stop.push(&std::mem::take(&mut self.decoder).finish());
        text.push_str(&piece);
        if !is_over {
            text.push_str(&std::mem::take(&mut self.stop).finish());
        }
        Ok((text, Some(self.last)))
    }

    /// The token after the text.
    fn draw(&self, session: &mut Session) -> Result<usize, GenerateError> {
        let (sample, row) = self.window.sample(&self.tokens);
        let vocab = self.window.vocab;
        // Tokens beyond the vocabulary have no text.
        let known = self.vocabulary.len().min(vocab);
        let mut drawn = None;
        session.answer_alone(vec![Samples::Tokens(sample)], |outputs| {
            let logits = outputs.get(row * vocab..).and_then(|rows| rows.get(..known)).unwrap_or_default();
            drawn = self.sampling.choose(logits, self.drawn as u64);
        })?;
        drawn.ok_or(GenerateError::NotFinite)
    }
}

/// Whether an output depends on a token after its position.
fn looks_ahead(session: &mut Session, window: &Window) -> Result<bool, TrainError> {
    if !window.has_positions || window.len < 2 || window.vocab < 2 {
        return Ok(false);
    }
    let before = (window.len - 1) * window.vocab;
    let [first, second] = window.probes();
    let mut kept = Vec::new();
    session.answer_alone(vec![Samples::Tokens(first)], |outputs| kept = outputs[..before].to_vec())?;
    let size = kept.iter().fold(0.0f32, |most, v| most.max(v.abs()));
    let mut differs = false;
    session.answer_alone(vec![Samples::Tokens(second)], |outputs| {
        differs = kept.iter().zip(outputs).any(|(a, b)| (a - b).abs() > 1e-5 * size);
    })?;
    Ok(differs)
}

/// The tokens of a prompt.
fn prompt_tokens(vocabulary: &Vocabulary, window: &Window, prompt: &str) -> Result<Vec<i32>, GenerateError> {
    let vocab = window.vocab;
    let unknown = |unknown| {
        let kinds = vocabulary.len().min(vocab);
        let symbols: Vec<&str> = (0..kinds.min(96)).map(|token| vocabulary.symbol(token)).collect();
        let known = if kinds <= symbols.len() {
            format!("{kinds}: {}", symbols.concat().escape_debug())
        } else {
            format!("{kinds} kinds of tokens")
        };
        GenerateError::Unknown { unknown, known }
    };
    let tokens = vocabulary.tokens(prompt, vocab).map_err(unknown)?;
    match vocabulary.line {
        Some(most) if tokens.len() >= most => {
            let example = ", such as 37+85=";
            return Err(GenerateError::Long { found: tokens.len(), most, example });
        }
        _ => {}
    }
    // A text starts as if a line had ended before it.
    let start = || vocabulary.tokens("\n", vocab).ok().filter(|_| vocabulary.line.is_none());
    if tokens.is_empty() { start().ok_or(GenerateError::Empty) } else { Ok(tokens) }
}

impl Session {
    /// The texts of the tokens of the run.
    ///
    /// # Errors
    /// If the network predicts no tokens, or the texts of its tokens are not known.
    pub(super) fn vocabulary(&self) -> Result<Vocabulary, GenerateError> {
        let of_data = self.dataset().and_then(|(set, _)| Vocabulary::of_tokenized(set));
        if let (Some(vocabulary), Some(_)) = (of_data, predicted_tokens(self.model())) {
            return Ok(vocabulary);
        }
        let known = self
            .dataset()
            .map(|(set, _)| Preprocessing { classes: set.target.names().to_vec(), ..Preprocessing::default() });
        let source = self.preset.data.as_ref().map(|data| &data.source);
        vocabulary_of(self.model(), source, Path::new(""), known.as_ref())
    }

    /// Continues a text. Text that is certain to be part of the output is passed to `each` as it is written; `each`
    /// returns whether to continue. The run is not changed.
    ///
    /// # Errors
    /// As [`Writing::begin`] and [`Writing::next`].
    pub fn generate(
        &mut self,
        vocabulary: &Vocabulary,
        asked: &Generation,
        mut each: impl FnMut(&str) -> bool,
    ) -> Result<Generated, GenerateError> {
        let mut writing = Writing::begin(self, vocabulary.clone(), asked)?;
        let mut text = String::new();
        let end = loop {
            let (piece, end) = writing.next(self)?;
            text.push_str(&piece);
            let wants_more = piece.is_empty() || each(&piece);
            match end {
                Some(end) => break end,
                None if !wants_more => break GenerationEnd::Cancelled,
                None => {}
            }
        };
        Ok(Generated { text, tokens: writing.drawn, end, prompt: writing.prompt, notes: writing.notes })
    }
}

/// A note about a prompt of this many tokens.
fn notes(window: &Window, vocabulary: &Vocabulary, asked: &Generation, prompt: &str, tokens: usize) -> Vec<String> {
    let mut notes = Vec::new();
    if prompt != asked.prompt {
        notes.push(format!("the prompt is {prompt:?}, as the numbers of the samples are padded with blanks"));
    }
    if tokens > window.len && vocabulary.line.is_none() {
        notes.push(format!("the network sees the last {} of the prompt's {tokens} tokens", window.len));
    }
    if tokens < window.len && !window.has_positions {
        notes.push(format!(
            "the network takes {} tokens and the prompt has {tokens}, so blanks are put in front of it",
            window.len
        ));
    }
    notes
}

#[cfg(test)]
mod tests;
