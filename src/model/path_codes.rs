//! The path of each step as a number, for looking up a path at every step.

use super::checked::Model;
use super::choose::Choice;

/// The layers of a network that choose. Computing the code of a step's path allocates nothing.
#[derive(Clone, Debug)]
pub struct Choices {
    /// The number of each layer, with its choice.
    choosers: Vec<(u32, Choice)>,
    /// Whether the codes are exact numbers; otherwise they are checksums of 64 bits.
    are_digits: bool,
}

impl Choices {
    /// The layers of a network that choose; empty in the model of a path.
    #[must_use]
    pub fn of(model: &Model) -> Self {
        let layers = (0..).zip(&model.layers).filter(|_| model.chooses());
        let choosers: Vec<(u32, Choice)> =
            layers.filter_map(|(number, layer)| Some((number, layer.spec.choice()?))).collect();
        let mut counts = choosers.iter().map(|(_, choice)| choice.most as u64 + 1);
        let are_digits = counts.try_fold(1u64, u64::checked_mul).is_some();
        Self { choosers, are_digits }
    }

    /// Whether steps may differ in their paths.
    #[must_use]
    pub fn vary(&self) -> bool {
        self.choosers.iter().any(|(_, choice)| choice.how.values().len() > 1)
    }

    /// The code of the path of a step, counted from 1. Equal codes mean equal paths; one path may have several codes,
    /// because layers that the path does not reach may choose different values.
    #[must_use]
    pub fn code_at(&self, step: u64, seed: u64) -> u64 {
        self.choosers.iter().fold(0, |code, (number, choice)| {
            let value = choice.how.value(step, seed, *number) as u64;
            match self.are_digits {
                true => code * (choice.most as u64 + 1) + value,
                false => mixed(code ^ mixed(value.wrapping_add(u64::from(*number) << 32))),
            }
        })
    }
}

/// SplitMix64's last step: every bit of the result depends on every bit of the number.
const fn mixed(number: u64) -> u64 {
    let z = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Path, check, read_preset};
    use std::collections::HashMap;

    /// A network of this many residual blocks with stochastic depth, the first of which is inside a branch.
    fn model(blocks: usize) -> Model {
        let block = r#"{"type": "residual", "keep": 0.5, "layers": [{"type": "dense", "units": 3}]}"#;
        let text = format!(
            r#"{{"name": "n", "input": {{"shape": [3], "batch": 4}}, "layers": [
            {{"type": "branch", "paths": [[], [{block}]], "choose": {{"by": "cycle", "values": [0, 1]}}}}, {}],
            "loss": {{"type": "mse"}}, "optimizer": {{"type": "sgd", "lr": 0.1}}}}"#,
            vec![block; blocks].join(", ")
        );
        check(&read_preset(&text).unwrap()).model.unwrap()
    }

    #[test]
    fn equal_codes_mean_equal_paths() {
        for blocks in [3, 80] {
            let model = model(blocks);
            let choices = Choices::of(&model);
            assert!(choices.vary() && choices.are_digits == (blocks == 3));
            let mut paths: HashMap<u64, Path> = HashMap::new();
            for step in 1..=500 {
                let path = model.path_at(step, 9);
                assert_eq!(*paths.entry(choices.code_at(step, 9)).or_insert_with(|| path.clone()), path);
            }
            assert!(!Choices::of(&model.along(&model.path_at(1, 9))).vary());
        }
    }
}
