//! The optimizers, one file each: fields, defaults, ranges, what they keep for each parameter, and the update rule.
//!
//! A new optimizer is a file with a struct that implements [`OptimizerType`], its name in the list of
//! `each_optimizer!`, and its rule in [`UpdateRule`] where the rule is new. Names, definitions and defaults are
//! PyTorch's, where it has the optimizer.

mod adam;
mod lion;
mod sgd;

pub use adam::{Adam, AdamW};
pub use lion::Lion;
pub use sgd::Sgd;

use super::draw::Draw;
use super::field_value::FieldValue;
use super::schema::{FieldSpec, FieldView, Lens, Range};
use super::spec::Fields;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt::Debug;
use std::ops::Bound;

/// The list of optimizers, in the order in which they are offered, for whatever is made for each of them.
///
/// `each_optimizer!(spec, optimizer => expression)` is the value of the expression with `optimizer` bound to the struct
/// that an [`OptimizerSpec`] holds.
macro_rules! each_optimizer {
    (@all [define] $($Name:ident)*) => {
        /// The update rule, with PyTorch's definitions.
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub enum OptimizerSpec {
            $($Name($Name),)*
        }

        impl OptimizerSpec {
            /// The name of every optimizer in presets.
            pub const NAMES: [&'static str; [$(stringify!($Name)),*].len()] = [$($Name::NAME),*];

            /// The optimizer of this name with sensible fields.
            #[must_use]
            pub fn example(name: &str) -> Option<Self> {
                $(if name == $Name::NAME { return Some(Self::$Name($Name::example())); })*
                None
            }

            /// Of every optimizer, in how many ways it is drawn.
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

/// The update of the parameters, with the hyper-parameters that are frozen into the step. Learning rate and weight
/// decay are live: they can change from step to step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "rule")]
pub enum UpdateRule {
    Sgd { momentum: f64, nesterov: bool },
    Adam { betas: [f64; 2], eps: f64, decoupled: bool },
    Lion { betas: [f64; 2] },
}

impl UpdateRule {
    /// The name in listings.
    #[must_use]
    pub const fn node_name(&self) -> &'static str {
        match self {
            Self::Adam { .. } => "AdamStep",
            Self::Lion { .. } => "LionStep",
            Self::Sgd { .. } => "SgdStep",
        }
    }

    /// What is kept for each element of a parameter, by name; all zero before the first step.
    #[must_use]
    pub const fn states(&self) -> &'static [&'static str] {
        match *self {
            Self::Adam { .. } => &["m", "v"],
            Self::Lion { .. } => &["m"],
            Self::Sgd { momentum, .. } => {
                if momentum > 0.0 {
                    &["momentum"]
                } else {
                    &[]
                }
            }
        }
    }
}

/// What is known of an optimizer before its step is built.
pub trait OptimizerType: Copy + Debug + PartialEq + 'static {
    /// The name in presets.
    const NAME: &'static str;
    /// The name for people, which is that of PyTorch's class.
    const TITLE: &'static str;
    /// The text of that class in Python, where PyTorch has none: a subclass of `torch.optim.Optimizer`, named
    /// [`Self::TITLE`], that takes the fields as arguments.
    const PYTORCH_CLASS: Option<&'static str> = None;
    /// The fields in the order in which they are written and shown.
    const FIELDS: &'static [FieldSpec<Self>];
    /// In how many ways random networks draw it.
    const WAYS: usize = 1;

    /// The optimizer with sensible fields, and with all that it can keep for each parameter.
    fn example() -> Self;

    /// Draws what is frozen into the step; learning rate and weight decay are those of [`Self::example`]. `way` counts
    /// from 0.
    fn drawn(draw: &mut Draw, way: usize) -> Self;

    /// What the ranges of the fields cannot say: the field with what was found and what is allowed.
    fn check(&self) -> Option<(&'static str, String, &'static str)> {
        None
    }

    /// How far it is from the simplest optimizer, for who makes networks smaller.
    fn cost(&self) -> usize;

    /// The update rule.
    fn rule(&self) -> UpdateRule;

    /// The decay rates for which the step computes bias corrections.
    fn corrected(&self) -> Option<[f64; 2]> {
        None
    }

    /// Whether weight decay is apart from the gradient.
    fn is_decoupled(&self) -> bool {
        false
    }

    /// The state that is a share of the gradient after the first step, with that share; weight decay is in it unless it
    /// is decoupled.
    fn first_gradient(&self) -> Option<(&'static str, f64)> {
        None
    }
}

/// The names of the fields that every optimizer has, and that are live.
const LIVE: [&str; 2] = ["optimizer.lr", "optimizer.weight_decay"];
/// The range of both.
const RATE: (Bound<f64>, Bound<f64>) = (Bound::Included(0.0), Bound::Included(1e6));
const LR: Range = Range::Real { from: RATE.0, to: RATE.1, help: "from 0 to 1e6, such as 0.001" };
const DECAY: Range = Range::Real { from: RATE.0, to: RATE.1, help: "from 0 to 1e6" };

/// The learning rate, which must be given unless a default is added.
const fn lr<T>(lens: Lens<T, f64>) -> FieldSpec<T> {
    let help = "Live: it can change while the recorded step is replayed.";
    FieldSpec::real("optimizer.lr", lens).within(LR).label("learning rate").help(help).live()
}

/// The weight decay. A preset says what it does, so that the default of every optimizer is none, also where PyTorch's
/// is another.
const fn weight_decay<T>(lens: Lens<T, f64>) -> FieldSpec<T> {
    let field = FieldSpec::real("optimizer.weight_decay", lens).default(|_| FieldValue::Number(0.0)).within(DECAY);
    field.label("weight decay").help("Pulls parameters towards zero.").live()
}

/// The shares that two running means keep.
const fn betas<T>(lens: Lens<T, [f64; 2]>, default: fn(&T) -> FieldValue) -> FieldSpec<T> {
    FieldSpec::reals("optimizer.betas", lens).default(default).within(SHARE).label("betas")
}

/// Below 1, so that what is kept fades.
const SHARE: Range =
    Range::Real { from: Bound::Included(0.0), to: Bound::Excluded(1.0), help: "from 0 up to, but not including, 1" };

/// The fields in the order in which they are read and checked: those of every optimizer first.
fn live_first<T: OptimizerType>() -> impl Iterator<Item = &'static FieldSpec<T>> {
    let is_live = |field: &&FieldSpec<T>| LIVE.contains(&field.name);
    T::FIELDS.iter().filter(is_live).chain(T::FIELDS.iter().filter(move |field| !is_live(field)))
}

fn read_into<T: OptimizerType>(optimizer: &mut T, f: &mut Fields<'_>) {
    live_first::<T>().for_each(|field| field.read(optimizer, f));
}

fn findings<T: OptimizerType>(optimizer: &T) -> Vec<(&'static str, String, String)> {
    let of = |field: &'static FieldSpec<T>| {
        field.findings(optimizer).into_iter().map(|(found, help)| (field.name, found, help))
    };
    let more = optimizer.check().map(|(name, found, help)| (name, found, help.to_owned()));
    live_first::<T>().flat_map(of).chain(more).collect()
}

fn write_into<T: OptimizerType>(optimizer: &T, map: &mut Map<String, Value>) {
    T::FIELDS.iter().for_each(|field| field.write_always(optimizer, map));
}

fn views<T: OptimizerType>(optimizer: &T) -> Vec<FieldView> {
    T::FIELDS.iter().map(|field| field.view(optimizer)).collect()
}

fn set_in<T: OptimizerType>(optimizer: &mut T, name: &str, value: &FieldValue) -> bool {
    T::FIELDS.iter().find(|field| field.name == name).is_some_and(|field| field.set(optimizer, value))
}

fn number<T: OptimizerType>(optimizer: &T, name: &str) -> f64 {
    match T::FIELDS.iter().find(|field| field.name == name).map(|field| field.get(optimizer)) {
        Some(FieldValue::Number(n)) => n,
        _ => unreachable!("every optimizer has a {name}"),
    }
}

fn name_of<T: OptimizerType>(_optimizer: &T) -> &'static str {
    T::NAME
}

fn title_of<T: OptimizerType>(_optimizer: &T) -> &'static str {
    T::TITLE
}

fn pytorch_class_of<T: OptimizerType>(_optimizer: &T) -> Option<&'static str> {
    T::PYTORCH_CLASS
}

fn redrawn<T: OptimizerType>(optimizer: &mut T, draw: &mut Draw, way: usize) {
    *optimizer = T::drawn(draw, way);
}

impl OptimizerSpec {
    /// Plain descent.
    #[must_use]
    pub const fn sgd(lr: f64) -> Self {
        Self::Sgd(Sgd { lr, momentum: 0.0, nesterov: false, weight_decay: 0.0 })
    }

    /// The name used in presets.
    #[must_use]
    pub fn name(&self) -> &'static str {
        each_optimizer!(self, o => name_of(o))
    }

    /// The name for people, which is that of PyTorch's class.
    #[must_use]
    pub fn title(&self) -> &'static str {
        each_optimizer!(self, o => title_of(o))
    }

    /// The text of the class of that name in Python, where PyTorch has none.
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

    /// The same optimizer at other rates.
    #[must_use]
    pub fn at_rates(mut self, lr: f64, weight_decay: f64) -> Self {
        self.set("optimizer.lr", &FieldValue::Number(lr));
        self.set("optimizer.weight_decay", &FieldValue::Number(weight_decay));
        self
    }

    /// The fields with their values, in the order in which they are shown; names are whole paths.
    #[must_use]
    pub fn fields(&self) -> Vec<FieldView> {
        each_optimizer!(self, o => views(o))
    }

    /// Sets a field; false where the optimizer has no such field or the value is of another kind.
    pub fn set(&mut self, name: &str, value: &FieldValue) -> bool {
        each_optimizer!(self, o => set_in(o, name, value))
    }

    /// The names of what all optimizers keep for each parameter.
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

    /// Whether weight decay is apart from the gradient.
    #[must_use]
    pub fn is_decoupled(&self) -> bool {
        each_optimizer!(self, o => o.is_decoupled())
    }

    /// The state that is a share of the gradient after the first step, with that share.
    #[must_use]
    pub fn first_gradient(&self) -> Option<(&'static str, f64)> {
        each_optimizer!(self, o => o.first_gradient())
    }

    /// How far it is from the simplest optimizer.
    pub(super) fn cost(&self) -> usize {
        each_optimizer!(self, o => o.cost())
    }

    /// Every mistake of its fields: the field, what was found, and what is allowed.
    pub(super) fn findings(&self) -> Vec<(&'static str, String, String)> {
        each_optimizer!(self, o => findings(o))
    }

    /// Reads an optimizer, or a plain one with the rates of the document where it names none that there is.
    /// Other fields of its object are left to others.
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

    /// One of all ways of all optimizers, at these rates.
    pub(super) fn drawn(draw: &mut Draw, lr: f64, weight_decay: f64) -> Self {
        // Seeds have had their networks in this order since there were three optimizers: the first, then the last to
        // the second.
        let order = std::iter::once(0).chain((1..Self::NAMES.len()).rev());
        let all: Vec<(usize, usize)> = order.flat_map(|o| (0..Self::WAYS[o]).map(move |way| (o, way))).collect();
        let (chosen, way) = all[draw.between(0, all.len() - 1)];
        let mut optimizer = Self::example(Self::NAMES[chosen]).unwrap_or(Self::sgd(lr));
        each_optimizer!(&mut optimizer, o => redrawn(o, draw, way));
        optimizer.at_rates(lr, weight_decay)
    }
}
