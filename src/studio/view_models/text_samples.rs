//! Samples of tokens as text, with their targets and the numbers of their tokens.

use crate::data::{Dataset, InputSamples, RowPart, Samples, Target};
use crate::model::DataSource;
use crate::studio::view_models::data::{sample_text, target_text};

/// A sample of tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextSample {
    /// The network's input; for an addition the question.
    pub read: TokenText,
    /// The target: the text shifted by one token, a single token, or a class, which has no numbers; for an addition the
    /// answer.
    pub target: TokenText,
    /// Whether it is an addition.
    pub is_sum: bool,
}

/// A text, and the numbers of its tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenText {
    pub text: String,
    pub ids: Vec<i32>,
}

/// The first input of tokens, if there is one.
#[must_use]
pub fn text_input(set: &Dataset) -> Option<usize> {
    set.inputs.iter().position(|input| !matches!(input.values, Samples::Real(_)))
}

/// A question without its padding: `37+85=`.
fn question(text: &str) -> Option<String> {
    let (question, _) = text.split_once('=')?;
    let digits: String = question.chars().filter(|c| *c != ' ').collect();
    Some(format!("{digits}="))
}

impl TextSample {
    /// A sample of a data set from this source; `None` if no input has tokens.
    #[must_use]
    pub fn of(set: &Dataset, source: Option<&DataSource>, index: u32) -> Option<Self> {
        let input = text_input(set)?;
        let (text, target) = (sample_text(set, input, index)?, target_text(set, index));
        let InputSamples { sample, values, .. } = &set.inputs[input];
        // A read error is reported when a batch needs these tokens.
        let ids = match values.view().rows(sample.len(), &[index]) {
            Ok(Samples::Tokens(ids)) => ids,
            _ => Vec::new(),
        };
        let target_ids = match &set.target {
            Target::Windows(rows) => rows.rows(&[index], RowPart::Target).unwrap_or_default(),
            _ => Vec::new(),
        };
        let sum = source.filter(|source| matches!(source, DataSource::Sums { .. })).and_then(|_| question(&text));
        let (text, target, is_sum) = match sum {
            Some(question) => (question, target.trim().to_owned(), true),
            None => (text, target, false),
        };
        Some(Self { read: TokenText { text, ids }, target: TokenText { text: target, ids: target_ids }, is_sum })
    }

    /// The numbers of its tokens in a line, and the targets after an arrow.
    #[must_use]
    pub fn numbers(&self) -> String {
        let list = |ids: &[i32]| ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        match &self.target.ids[..] {
            [] => list(&self.read.ids),
            ids => format!("{} → {}", list(&self.read.ids), list(ids)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Request, load};
    use crate::model::{Content, DataSpec, LossSpec, NamedInput, Tokens};
    use std::path::Path;

    fn set(source: &DataSource, width: usize, vocab: usize, folder: &Path) -> Dataset {
        let content = Content::Tokens { vocab };
        let input = NamedInput { content, ..NamedInput::only([width].into()) };
        let output = [width, vocab].into();
        let request = Request { inputs: vec![input], output, loss: LossSpec::SOFTMAX_CROSS_ENTROPY, seed: 1 };
        load(&DataSpec::of(source.clone()), &request, folder).unwrap()
    }

    #[test]
    fn additions_are_questions_and_answers() {
        let source = DataSource::Sums { samples: 20 };
        let set = set(&source, 11, 13, Path::new(""));
        for index in 0..20 {
            let found = TextSample::of(&set, Some(&source), index).unwrap();
            let (a, b) = found.read.text.strip_suffix('=').unwrap().split_once('+').unwrap();
            let number = |text: &str| text.parse::<usize>().unwrap();
            assert_eq!(number(a) + number(b), number(&found.target.text), "{found:?}");
            assert!(found.is_sum && found.read.ids.len() == 11 && found.target.ids.len() == 11);
            assert_eq!(found.numbers().split_whitespace().count(), 23);
        }
    }

    #[test]
    fn windows_show_their_targets_and_every_byte() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("t"), b"a\xffb\n\xc3\xa4cdefgh").unwrap();
        let source = DataSource::Text { path: "t".into(), tokens: Tokens::Bytes };
        let set = set(&source, 5, 256, folder.path());
        let found = TextSample::of(&set, Some(&source), 0).unwrap();
        assert_eq!(
            (&*found.read.text, &*found.target.text, found.is_sum),
            ("a\\xffb\\n\\xc3", "\\xffb\\n\u{e4}", false)
        );
        assert_eq!(found.numbers(), "97 255 98 10 195 → 255 98 10 195 164");
        assert!(TextSample::of(&numbers(), None, 0).is_none());
    }

    fn numbers() -> Dataset {
        let spec = DataSpec::of(DataSource::Xor { samples: 8, noise: 0.1 });
        let request = Request {
            inputs: vec![NamedInput::only([2].into())],
            output: [2].into(),
            loss: LossSpec::SOFTMAX_CROSS_ENTROPY,
            seed: 1,
        };
        load(&spec, &request, Path::new("")).unwrap()
    }
}
