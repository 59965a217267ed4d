//! The tokens of a sample with the loss of each.

use crate::data::Dataset;
use crate::model::Model;
use crate::studio::view_models::data::class_name;
use crate::studio::view_models::format;
use crate::studio::view_models::format::visible;
use crate::studio::view_models::sequences::position_names;
use crate::train::{PositionAnswer, perplexity};

/// A token that the network must predict.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenLoss {
    /// The network's input at the position.
    pub read: String,
    /// The correct token.
    pub text: String,
    pub loss: f64,
    /// The most likely tokens with their probabilities, the likeliest first.
    pub likely: Vec<(String, f32)>,
}

/// The tokens of a sample with the loss of each.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenLosses {
    pub tokens: Vec<TokenLoss>,
    /// The mean over the tokens.
    pub loss: f64,
    /// The perplexity: the network is as uncertain as among this many equally likely tokens; `None` if classes are not
    /// tokens.
    pub perplexity: Option<f64>,
    /// The index of the token with the largest loss.
    pub hardest: usize,
    /// Whether each token is the next input of the sample, as in a text.
    pub goes_on: bool,
}

/// A loss that has the full colour, and the full bar: the network assigns the correct token a probability of 1 in 55.
const FULL: f64 = 4.0;

impl TokenLoss {
    /// The loss of the token relative to that, from 0 to 1.
    #[must_use]
    pub fn hardness(&self) -> f32 {
        if self.loss.is_finite() { (self.loss / FULL).clamp(0.0, 1.0) as f32 } else { 1.0 }
    }

    /// The probability that the network assigned to it.
    #[must_use]
    pub fn share(&self) -> f64 {
        (-self.loss).exp()
    }

    /// All information about it, as text.
    #[must_use]
    pub fn about(&self, position: usize) -> String {
        let likely: Vec<String> = self
            .likely
            .iter()
            .take(3)
            .map(|(text, share)| format!("{text} ({})", format::percent(f64::from(*share))))
            .collect();
        format!(
            "position {}: {} after {}, loss {}, probability {}; expected {}",
            position + 1,
            self.text,
            self.read,
            format::number(self.loss),
            format::percent(self.share()),
            likely.join(", ")
        )
    }
}

impl TokenLosses {
    /// The tokens of a sample of a data set; `None` if the network has no class for each position.
    #[must_use]
    pub fn of(model: &Model, set: &Dataset, sample: u32, answers: &[PositionAnswer]) -> Option<Self> {
        let names = position_names(set, sample, answers.len());
        let name = |class: u32| visible(&class_name(set, class as usize));
        let tokens: Vec<TokenLoss> = answers
            .iter()
            .zip(names)
            .map(|(answer, read)| TokenLoss {
                read,
                text: name(answer.truth),
                loss: answer.loss,
                likely: answer.likely.iter().map(|(class, share)| (name(*class), *share)).collect(),
            })
            .collect();
        let loss = tokens.iter().map(|token| token.loss).sum::<f64>() / tokens.len().max(1) as f64;
        let hardest = (0..tokens.len()).max_by(|a, b| tokens[*a].loss.total_cmp(&tokens[*b].loss))?;
        let goes_on = tokens.windows(2).all(|pair| pair[0].text == pair[1].read);
        Some(Self { loss, perplexity: perplexity(model, loss), hardest, goes_on, tokens })
    }

    /// The metrics of the whole sample.
    #[must_use]
    pub fn figures(&self) -> String {
        let loss = format!("loss {}", format::number(self.loss));
        self.perplexity.map_or(loss.clone(), |p| format!("perplexity {} · {loss}", format::number(p)))
    }
}
