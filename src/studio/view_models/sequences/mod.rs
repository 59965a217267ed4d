//! Views of a network that reads sequences: the loss of each token, attention, the states of recurrent layers, and
//! texts that it writes.

pub mod heat_map;
pub mod inside;
pub mod tokens;
pub mod writing;

use crate::data::{Dataset, InputSamples, RowPart, Samples};
use crate::model::{DataSource, LayerPath, LayerSpec, Model};
use crate::studio::commands::AnswersPage;
use crate::studio::view_models::format::visible;
use crate::studio::view_models::predictions::answer_pages;
use crate::train::perplexity;

/// A layer whose inside can be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookedLayer {
    pub path: LayerPath,
    /// The name in listings.
    pub label: String,
    /// Heads of attention; 1 for recurrent layers.
    pub heads: usize,
}

/// The views of a network with its data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SequenceFacts {
    /// Whether it has a class for each position.
    pub has_positions: bool,
    /// Whether it predicts tokens, and can write texts.
    pub writes: bool,
    /// Whether its samples are additions.
    pub adds: bool,
    /// Whether it forecasts a series.
    pub forecasts: bool,
    pub layers: LookedLayers,
    /// The pages with its predictions.
    answers: Vec<AnswersPage>,
}

/// The layers of a network whose inside can be shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LookedLayers {
    pub attention: Vec<LookedLayer>,
    pub recurrent: Vec<LookedLayer>,
}

impl SequenceFacts {
    /// The layers of a network with data of this source.
    #[must_use]
    pub fn of(model: &Model, set: &Dataset, source: &DataSource) -> Self {
        let mut out = Self {
            has_positions: model.loss.wants_classes() && model.labels().rank() > 0,
            writes: perplexity(model, 0.0).is_some(),
            adds: matches!(source, DataSource::Sums { .. }),
            forecasts: matches!(source, DataSource::Series { .. } | DataSource::Waves { .. }),
            answers: answer_pages(model, set, source),
            ..Self::default()
        };
        for layer in &model.layers {
            let looked = |heads| LookedLayer { path: layer.path.clone(), label: layer.label(), heads };
            match &layer.spec {
                LayerSpec::Attention(attention) => out.layers.attention.push(looked(attention.heads)),
                LayerSpec::Rnn(_) | LayerSpec::Gru(_) | LayerSpec::Lstm(_) => out.layers.recurrent.push(looked(1)),
                _ => {}
            }
        }
        out
    }

    /// Whether a page has something to show.
    #[must_use]
    pub fn offers(&self, page: AnswersPage) -> bool {
        match page {
            AnswersPage::Tokens => self.has_positions,
            AnswersPage::Writing => self.writes,
            AnswersPage::Attention => !self.layers.attention.is_empty(),
            AnswersPage::States => !self.layers.recurrent.is_empty(),
            AnswersPage::Forecasts => self.forecasts,
            page => self.answers.contains(&page),
        }
    }

    /// The layers that a page can show.
    #[must_use]
    pub fn layers(&self, page: AnswersPage) -> &[LookedLayer] {
        match page {
            AnswersPage::Attention => &self.layers.attention,
            AnswersPage::States => &self.layers.recurrent,
            _ => &[],
        }
    }

    /// The layer that a page shows: the selected one, or one inside it; otherwise the first.
    #[must_use]
    pub fn layer(&self, page: AnswersPage, selected: Option<&LayerPath>) -> Option<&LookedLayer> {
        let all = self.layers(page);
        let is_inside = |layer: &&LookedLayer| selected.is_some_and(|path| layer.path.0.starts_with(&path.0));
        all.iter().find(is_inside).or_else(|| all.first())
    }
}

/// The name of a token: its text, or its number if the text is not known.
fn token_name(symbols: &[String], token: i64) -> String {
    let known = usize::try_from(token).ok().and_then(|token| symbols.get(token));
    known.map_or_else(|| token.to_string(), |symbol| visible(symbol))
}

/// The contents of each position of a sample: its tokens, or position numbers from 1 on if it has values.
#[must_use]
pub fn position_names(set: &Dataset, sample: u32, positions: usize) -> Vec<String> {
    let numbers = || (1..=positions).map(|n| n.to_string()).collect();
    let Some(InputSamples { sample: shape, values, .. }) =
        set.inputs.iter().find(|i| i.sample.0.first() == Some(&positions))
    else {
        return numbers();
    };
    match values {
        Samples::Windows(rows) => {
            let tokens = rows.rows(&[sample], RowPart::Sample).unwrap_or_default();
            tokens.iter().map(|token| token_name(rows.symbols(), i64::from(*token))).collect()
        }
        Samples::Tokens(tokens) if shape.rank() == 1 => {
            let own = tokens.get(sample as usize * positions..(sample as usize + 1) * positions).unwrap_or_default();
            own.iter().map(|token| token_name(&[], i64::from(*token))).collect()
        }
        Samples::Tokens(_) | Samples::Real(_) => numbers(),
    }
}

#[cfg(test)]
mod tests;
