//! `sgd`: stochastic gradient descent, with or without momentum.

use super::optimizer_type::{OptimizerType, UpdateRule, lr, weight_decay};
use crate::model::draw::Draw;
use crate::model::field_value::FieldValue;
use crate::model::schema::{FieldSpec, Range, lens};

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sgd {
    pub lr: f64,
    pub momentum: f64,
    pub nesterov: bool,
    pub weight_decay: f64,
}

impl OptimizerType for Sgd {
    const NAME: &'static str = "sgd";
    const TITLE: &'static str = "SGD";
    const FIELDS: &'static [FieldSpec<Self>] = &[
        lr::<Self>(lens!(lr)),
        FieldSpec::<Self>::real("optimizer.momentum", lens!(momentum))
            .default(|_| FieldValue::Number(0.0))
            .within(Range::SHARE)
            .label("momentum")
            .help("The share of the last update that is added to the next one."),
        FieldSpec::<Self>::flag("optimizer.nesterov", lens!(nesterov))
            .default(|_| FieldValue::Flag(false))
            .label("nesterov")
            .help("Uses Nesterov momentum."),
        weight_decay::<Self>(lens!(weight_decay)),
    ];
    /// Without and with momentum.
    const WAYS: usize = 2;

    fn example() -> Self {
        Self { lr: 0.01, momentum: 0.9, nesterov: false, weight_decay: 0.0 }
    }

    fn drawn(draw: &mut Draw, way: usize) -> Self {
        if way == 0 {
            return Self { momentum: 0.0, ..Self::example() };
        }
        let momentum = draw.extreme_or(&[1e-3, 0.999, 0.999_999], |d| d.number(0.5, 0.95));
        Self { momentum, nesterov: draw.coin(0.5), ..Self::example() }
    }

    fn check(&self) -> Option<(&'static str, String, &'static str)> {
        let help = "nesterov needs a momentum above 0, such as 0.9; or set nesterov to false";
        let is_sound = !self.nesterov || self.momentum > 0.0;
        (!is_sound).then(|| ("optimizer.momentum", format!("found {}", self.momentum), help))
    }

    fn cost(&self) -> usize {
        usize::from(self.momentum != 0.0) + usize::from(self.nesterov)
    }

    fn rule(&self) -> UpdateRule {
        UpdateRule::Sgd { momentum: self.momentum, nesterov: self.nesterov }
    }
}
