//! The optimizers, one file for each: fields, defaults, ranges, their state for each parameter, and the update rule.
//!
//! A new optimizer is a file with a struct that implements [`OptimizerType`], its name in the list of
//! `each_optimizer!`, and its rule in [`UpdateRule`] if the rule is new. Names, definitions and defaults are PyTorch's,
//! if it has the optimizer.

mod adam;
mod lion;
mod optimizer_type;
mod sgd;

pub use adam::{Adam, AdamW};
pub use lion::Lion;
pub use optimizer_type::{OptimizerType, UpdateRule};
pub use sgd::Sgd;

use self::optimizer_type::{
    fields_of, findings, live_fields, name_of, number, pytorch_class_of, read_into, redrawn, title_of, write_into,
};
use super::draw::Draw;
use super::field_value::FieldValue;
use super::schema::{FieldView, fields_by_name, names};
use super::spec::Fields;
use serde_json::{Map, Value};

/// The list of optimizers, in the order in which they are offered, for code that must be generated for each of them.
///
/// `each_optimizer!(spec, optimizer => expression)` is the value of the expression with `optimizer` bound to the struct
/// that an [`OptimizerSpec`] holds.
macro_rules! each_optimizer {
    (@all [define] $($Name:ident)*) => {
        $crate::model::schema::family! {
            /// The update rule, with PyTorch's definitions. Names of fields are whole paths.
            OptimizerSpec: $($Name)*
        }

        impl OptimizerSpec {
            /// For every optimizer, the number of ways in which it is drawn.
            const WAYS: [usize; Self::NAMES.len()] = [$($Name::WAYS),*];
        }
    };
    (@all [$spec:expr, $optimizer:ident => $body:expr] $($Name:ident)*) => {
        match $spec {
            $($crate::model::OptimizerSpec::$Name($optimizer) => $body,)*
        }
    };
    ($($args:tt)*) => {
        $crate::model::optimizers::each_optimizer! { @all [$($args)*] Sgd Adam AdamW Lion }
    };
}
pub(crate) use each_optimizer;

each_optimizer!(define);

impl OptimizerSpec {
    /// Plain descent.
    #[must_use]
    pub const fn sgd(lr: f64) -> Self {
        Self::Sgd(Sgd { lr, momentum: 0.0, nesterov: false, weight_decay: 0.0 })
    }

    names!(each_optimizer, name_of, title_of);

    /// The Python text of the class with that name, if PyTorch has none.
    #[must_use]
    pub fn pytorch_class(&self) -> Option<&'static str> {
        each_optimizer!(self, o => pytorch_class_of(o))
    }

    /// The learning rate.
    #[must_use]
    pub fn lr(&self) -> f64 {
        each_optimizer!(self, o => number(o, "optimizer.lr"))
    }

    /// The weight decay.
    #[must_use]
    pub fn weight_decay(&self) -> f64 {
        each_optimizer!(self, o => number(o, "optimizer.weight_decay"))
    }

    /// The names and values of the fields that can change while a recorded step is replayed, in the order in which the
    /// step stores them (its value `hyper`) and kernels read them.
    #[must_use]
    pub fn live_fields(&self) -> Vec<(&'static str, f64)> {
        each_optimizer!(self, o => live_fields(o))
    }

    /// The same optimizer with other rates.
    #[must_use]
    pub fn at_rates(mut self, lr: f64, weight_decay: f64) -> Self {
        self.set("optimizer.lr", &FieldValue::Number(lr));
        self.set("optimizer.weight_decay", &FieldValue::Number(weight_decay));
        self
    }

    fields_by_name!(each_optimizer, fields_of);

    /// The names of the states of all optimizers.
    #[must_use]
    pub fn all_states() -> Vec<&'static str> {
        let all = Self::NAMES.iter().filter_map(|name| Self::example(name));
        let mut states: Vec<&str> = all.flat_map(|optimizer| optimizer.rule().states()).copied().collect();
        states.sort_unstable();
        states.dedup();
        states
    }

    /// The update rule.
    #[must_use]
    pub fn rule(&self) -> UpdateRule {
        each_optimizer!(self, o => o.rule())
    }

    /// The decay rates for which the step computes bias corrections.
    #[must_use]
    pub fn corrected(&self) -> Option<[f64; 2]> {
        each_optimizer!(self, o => o.corrected())
    }

    /// Whether weight decay is decoupled from the gradient.
    #[must_use]
    pub fn is_decoupled(&self) -> bool {
        each_optimizer!(self, o => o.is_decoupled())
    }

    /// The state that is proportional to the gradient after the first step, with the factor.
    #[must_use]
    pub fn first_gradient(&self) -> Option<(&'static str, f64)> {
        each_optimizer!(self, o => o.first_gradient())
    }

    /// The distance from the simplest optimizer.
    pub(super) fn cost(&self) -> usize {
        each_optimizer!(self, o => o.cost())
    }

    /// Every mistake of its fields: the field, what was found, and what is allowed.
    pub(super) fn findings(&self) -> Vec<(&'static str, String, String)> {
        each_optimizer!(self, o => findings(o))
    }

    /// Reads an optimizer. If the document names none that exists, returns a plain one with the document's rates. Other
    /// fields of its object are read elsewhere.
    pub(super) fn read(f: &mut Fields<'_>) -> Result<Self, Self> {
        let kind = f.choice("type", &Self::NAMES.map(|name| (name, name)), true);
        match kind.and_then(Self::example) {
            Some(mut optimizer) => {
                each_optimizer!(&mut optimizer, o => read_into(o, f));
                Ok(optimizer)
            }
            None => {
                let lr = f.number("lr", None);
                Err(Self::sgd(lr).at_rates(lr, f.number("weight_decay", Some(0.0))))
            }
        }
    }

    /// The optimizer as it is in a preset.
    pub(super) fn write(&self) -> Map<String, Value> {
        let mut map = Map::new();
        map.insert("type".into(), self.name().into());
        each_optimizer!(self, o => write_into(o, &mut map));
        map
    }

    /// One of all ways of all optimizers, with these rates.
    pub(super) fn drawn(draw: &mut Draw, lr: f64, weight_decay: f64) -> Self {
        // The order of the optimizers for random seeds has been fixed since there were three: the first, then the last
        // to the second.
        let order = std::iter::once(0).chain((1..Self::NAMES.len()).rev());
        let all: Vec<(usize, usize)> = order.flat_map(|o| (0..Self::WAYS[o]).map(move |way| (o, way))).collect();
        let (chosen, way) = all[draw.between(0, all.len() - 1)];
        let mut optimizer = Self::example(Self::NAMES[chosen]).unwrap_or(Self::sgd(lr));
        each_optimizer!(&mut optimizer, o => redrawn(o, draw, way));
        optimizer.at_rates(lr, weight_decay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_live_fields_of_every_optimizer_are_in_the_order_in_which_kernels_read_them() {
        for name in OptimizerSpec::NAMES {
            let optimizer = OptimizerSpec::example(name).unwrap().at_rates(0.25, 0.5);
            assert_eq!(optimizer.live_fields(), [("optimizer.lr", 0.25), ("optimizer.weight_decay", 0.5)], "{name}");
        }
    }
}
