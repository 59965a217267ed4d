//! How the next token is chosen from a network's logits: the probabilities of all tokens, and the drawn token.

use crate::exec::cpu::kernels::dropout::random;
use serde::{Deserialize, Serialize};

/// How the next token is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sampling {
    /// The divisor of logits, at least 0: 1 keeps the network's own probabilities, smaller values prefer the likely
    /// tokens, and 0 selects the most likely one.
    pub temperature: f64,
    /// Only this many of the most likely tokens can be drawn.
    pub top_k: Option<usize>,
    /// Only the smallest set of most likely tokens whose probabilities add up to at least this can be drawn; above 0
    /// and at most 1.
    pub top_p: f64,
    /// Token i of a text depends only on this and i.
    pub seed: u64,
}

impl Default for Sampling {
    /// The network's own probabilities.
    fn default() -> Self {
        Self { temperature: 1.0, top_k: None, top_p: 1.0, seed: 0 }
    }
}

/// The generator's stream for tokens, separate from those of dropout.
const STREAM: u32 = 0x746f_6b6e;

/// An element of the generator's group of 64 that has another word than the first.
const SECOND: usize = 16;

impl Sampling {
    /// The probability of each token, which sum to 1; `None` if no logit is finite. Temperature is applied first, then
    /// `top_k`, then `top_p` to the rest; among equally likely tokens the first are kept.
    #[must_use]
    pub fn probabilities(&self, logits: &[f32]) -> Option<Vec<f64>> {
        let logits: Vec<f64> =
            logits.iter().map(|v| if v.is_finite() { f64::from(*v) } else { f64::NEG_INFINITY }).collect();
        let mut order: Vec<usize> = (0..logits.len()).collect();
        // The sort is stable: equal values keep their order.
        order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]));
        let most = logits[*order.first()?];
        if most == f64::NEG_INFINITY {
            return None;
        }
        let mut kept = vec![0.0; logits.len()];
        if self.temperature <= 0.0 {
            kept[order[0]] = 1.0;
            return Some(kept);
        }
        let weight = |token: &usize| libm::exp((logits[*token] - most) / self.temperature);
        order.truncate(self.top_k.unwrap_or(usize::MAX).max(1));
        let total: f64 = order.iter().map(weight).sum();
        let mut reached = 0.0;
        let enough = order.iter().position(|token| {
            reached += weight(token) / total;
            reached >= self.top_p
        });
        // Because of rounding, the sum of all probabilities may be below 1.
        order.truncate(enough.map_or(usize::MAX, |last| last + 1));
        let total: f64 = order.iter().map(weight).sum();
        order.iter().for_each(|token| kept[*token] = weight(token) / total);
        Some(kept)
    }

    /// The token at position `at` of a text, counted from the first drawn one; `None` if no logit is finite.
    #[must_use]
    pub fn choose(&self, logits: &[f32], at: u64) -> Option<usize> {
        let probabilities = self.probabilities(logits)?;
        let mut left = self.uniform(at);
        let mut chosen = None;
        for (token, probability) in probabilities.iter().enumerate().filter(|(_, p)| **p > 0.0) {
            chosen = Some(token);
            left -= probability;
            if left < 0.0 {
                break;
            }
        }
        chosen
    }

    /// A number from 0 to below 1, of 53 bits, that depends only on the seed and `at`, from the generator of dropout.
    fn uniform(&self, at: u64) -> f64 {
        let word = |index| u64::from(random(self.seed as i64, STREAM, at as i64, index));
        (((word(0) << 32) | word(SECOND)) >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Logits of these probabilities.
    fn logits(of: &[f64]) -> Vec<f32> {
        of.iter().map(|p| p.ln() as f32).collect()
    }

    fn is_near(found: Option<Vec<f64>>, expected: &[f64]) {
        let found = found.unwrap();
        assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6), "{found:?} {expected:?}");
        assert!((found.iter().sum::<f64>() - 1.0).abs() < 1e-12 && found.len() == expected.len());
    }

    #[test]
    fn probabilities_are_exact() {
        let of = [0.1, 0.4, 0.05, 0.3, 0.15];
        let x = logits(&of);
        let base = Sampling::default();
        is_near(base.probabilities(&x), &of);
        is_near(Sampling { temperature: 0.0, ..base }.probabilities(&x), &[0.0, 1.0, 0.0, 0.0, 0.0]);
        // Half the temperature squares the probabilities before they are normalised.
        let squares = of.map(|p| p * p);
        let total: f64 = squares.iter().sum();
        is_near(Sampling { temperature: 0.5, ..base }.probabilities(&x), &squares.map(|p| p / total));
        is_near(Sampling { top_k: Some(2), ..base }.probabilities(&x), &[0.0, 4.0 / 7.0, 0.0, 3.0 / 7.0, 0.0]);
        is_near(Sampling { top_k: Some(99), ..base }.probabilities(&x), &of);
        // 0.4 and 0.3 do not reach 0.71; with 0.15 they do.
        let three = [0.0, 0.4 / 0.85, 0.0, 0.3 / 0.85, 0.15 / 0.85];
        is_near(Sampling { top_p: 0.71, ..base }.probabilities(&x), &three);
        is_near(Sampling { top_p: 1e-9, ..base }.probabilities(&x), &[0.0, 1.0, 0.0, 0.0, 0.0]);
        // Of the two that top_k keeps, 4/7 alone reaches one half.
        let both = Sampling { top_k: Some(2), top_p: 0.5, ..base };
        is_near(both.probabilities(&x), &[0.0, 1.0, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn ties_are_resolved_in_order_and_impossible_tokens_are_left_out() {
        let base = Sampling::default();
        let one = Sampling { top_k: Some(1), ..base };
        is_near(one.probabilities(&[2.0, 2.0, 2.0]), &[1.0, 0.0, 0.0]);
        is_near(base.probabilities(&[f32::NEG_INFINITY, 0.0, f32::NAN]), &[0.0, 1.0, 0.0]);
        assert_eq!((base.probabilities(&[f32::NAN; 3]), base.choose(&[], 0)), (None, None));
        // Logits far apart do not overflow.
        is_near(Sampling { temperature: 1e-3, ..base }.probabilities(&[3e38, -3e38]), &[1.0, 0.0]);
    }

    #[test]
    fn draws_depend_only_on_the_probabilities_and_the_seed() {
        let of = [0.5, 0.25, 0.125, 0.125];
        let x = logits(&of);
        let base = Sampling { seed: 7, ..Sampling::default() };
        let n = 40_000;
        let mut seen = [0usize; 4];
        (0..n).for_each(|at| seen[base.choose(&x, at).unwrap()] += 1);
        for (count, p) in seen.iter().zip(of) {
            let (mean, deviation) = (n as f64 * p, (n as f64 * p * (1.0 - p)).sqrt());
            assert!((*count as f64 - mean).abs() < 4.0 * deviation, "{seen:?}");
        }
        let few = Sampling { top_k: Some(2), ..base };
        assert!((0..1000).all(|at| few.choose(&x, at).unwrap() < 2));
        let drawn = |sampling: Sampling| (0..64).map(|at| sampling.choose(&x, at).unwrap()).collect::<Vec<_>>();
        assert_eq!(drawn(base), drawn(base));
        assert_ne!(drawn(base), drawn(Sampling { seed: 8, ..base }));
        // The upper half of a seed matters, and so does that of a position.
        assert_ne!(drawn(base), drawn(Sampling { seed: 7 | (1 << 40), ..base }));
        assert_ne!(base.uniform(3), base.uniform(3 | (1 << 40)));
    }
}
