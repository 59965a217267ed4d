//! The layers, one file for each: fields, defaults, ranges, shape rule, diagnostics, parameters, and random fields.
//!
//! A new layer is a file with a struct that implements [`LayerType`], and its name in the list of `each_layer!`.

mod activation;
mod attention;
mod batch_norm;
mod branch;
mod choosing;
mod conv1d;
mod conv2d;
mod dense;
mod dropout;
mod early_exit;
mod embedding;
mod flatten;
mod gated;
mod global_avg_pool;
mod kind;
mod layer_norm;
mod nested;
mod parallel;
mod pool;
mod pool1d;
mod position;
mod recurrent;
mod repeat;
mod residual;
mod rms_norm;
mod rnn;
mod take;

pub use activation::ActivationLayer;
pub use attention::Attention;
pub use batch_norm::BatchNorm;
pub use branch::BranchLayer;
pub use conv1d::{Conv1d, Padding1d};
pub use conv2d::Conv2d;
pub use dense::Dense;
pub use dropout::Dropout;
pub use early_exit::EarlyExit;
pub use embedding::Embedding;
pub use flatten::Flatten;
pub use gated::{Gru, Lstm};
pub use global_avg_pool::GlobalAvgPool;
pub use kind::LayerKind;
pub use layer_norm::LayerNorm;
pub use parallel::{Branch, JoinKind, Parallel};
pub use pool::{AvgPool2d, MaxPool2d, Pool, window_output};
pub use pool1d::{AvgPool1d, MaxPool1d, Pool1d};
pub use position::{Position, PositionKind};
pub use recurrent::Recurrent;
pub use repeat::Repeat;
pub use residual::Residual;
pub use rms_norm::RmsNorm;
pub use rnn::Rnn;
pub use take::{Take, TakeAt};

use super::activation::Activation;
use super::choose::Choice;
use super::draw::Draw;
use super::infer::{Infer, Join};
use super::mistakes::FieldChecks;
use super::path::ListField;
use super::schema::{FieldSpec, FieldView, Range, fields_by_name};
use super::spec::Fields;
use crate::model::field_value::FieldValue;
use crate::tensor::Shape;
use nested::{ReadList, read_lists, write_lists};
use serde_json::{Map, Value};
use std::fmt::Debug;
use std::ops::Bound;

/// The list of layers, in the order of the palette, for code that must be generated for each of them.
///
/// `each_layer!(spec, layer => expression)` is the value of the expression with `layer` bound to the struct that a
/// [`LayerSpec`] holds, so that a method of any trait that all of them implement can be called.
macro_rules! each_layer {
    (@all [define] $($Name:ident)*) => {
        /// A layer as the user edits it.
        #[derive(Clone, Debug, PartialEq)]
        pub enum LayerSpec {
            $($Name($Name),)*
        }

        $(impl From<$Name> for LayerSpec {
            fn from(layer: $Name) -> Self {
                Self::$Name(layer)
            }
        })*

        impl LayerKind {
            /// All kinds of layers.
            pub const ALL: [Self; [$(stringify!($Name)),*].len()] = [$($Name::KIND),*];

            /// A layer of this kind with sensible fields, for the palette; blocks are empty.
            #[must_use]
            pub fn example(self) -> LayerSpec {
                $(if self == $Name::KIND { return LayerSpec::$Name($Name::example()); })*
                unreachable!("every kind is in the list")
            }

            /// A layer of this kind with random fields, which in most cases accepts `input`; blocks are empty.
            #[must_use]
            pub fn drawn(self, draw: &mut Draw, input: &Shape) -> LayerSpec {
                $(if self == $Name::KIND { return LayerSpec::$Name($Name::drawn(draw, input)); })*
                unreachable!("every kind is in the list")
            }
        }
    };
    (@all [$spec:expr, $layer:ident => $body:expr] $($Name:ident)*) => {
        match $spec {
            $($crate::model::LayerSpec::$Name($layer) => $body,)*
        }
    };
    ($($args:tt)*) => {
        $crate::model::layers::each_layer! { @all [$($args)*]
            Dense Conv2d BatchNorm LayerNorm RmsNorm ActivationLayer MaxPool2d AvgPool2d GlobalAvgPool Flatten Dropout
            Attention Residual Repeat Parallel Rnn Gru Lstm
            Embedding Position Take Conv1d MaxPool1d AvgPool1d
            BranchLayer EarlyExit
        }
    };
}
pub(crate) use each_layer;

each_layer!(define);

/// How a layer affects the search for the activation of a preceding layer's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextActivation {
    /// There is none: the layer mixes its inputs.
    Stops,
    /// It may be that of a later layer.
    Beyond,
    /// The layer is the activation.
    Is(Activation),
}

/// Everything that documents, checks and editors need to know about a layer.
pub trait LayerType: Clone + Debug + PartialEq + Sized + 'static {
    const KIND: LayerKind;
    /// The fields in the order in which they are read, written and shown.
    const FIELDS: &'static [FieldSpec<Self>] = &[];
    /// The field that determines how many values the layer returns, if there is one.
    const OUTPUT_FIELD: Option<&'static str> = None;
    /// The field that contains the layers inside a block; `None` if the layer is not a block.
    const LISTS: Option<ListField> = None;
    /// Whether an empty list of layers is allowed: it returns its input.
    const MAY_BE_EMPTY: bool = false;

    /// The layer as the palette offers it.
    fn example() -> Self;

    /// A layer for random networks, which in most cases accepts `input`.
    fn drawn(draw: &mut Draw, input: &Shape) -> Self {
        let _ = (draw, input);
        Self::example()
    }

    /// Writes the fields that differ from their defaults.
    fn write(&self, map: &mut Map<String, Value>) {
        written(self, map);
    }

    /// Checks what the ranges of the fields cannot express and what does not depend on the input.
    fn check(&self, _fields: &mut FieldChecks<'_>) {}

    /// The output shape of a sample, with the parameters and mistakes reported to `cx`; `None` if it cannot be
    /// determined. The checker traverses blocks itself.
    fn infer(&self, cx: &mut Infer<'_>) -> Option<Shape>;

    /// Whether the layer accepts tokens. Blocks pass them to their first layer.
    fn takes_tokens(&self) -> bool {
        false
    }

    /// The inputs of the network that the layer takes by name.
    fn named_inputs(&self) -> Vec<&str> {
        Vec::new()
    }

    /// Sets the fields that determine the output's shape so that it equals the input's, if the layer can do that.
    fn keep_shape(&mut self, _input: &Shape) {}

    /// The activation that the layer applies, as a field or as the layer itself.
    fn activation(&self) -> Option<Activation> {
        None
    }

    fn next_activation(&self) -> NextActivation {
        NextActivation::Stops
    }

    /// The path of the embedding whose weight the layer uses, as the user typed it.
    fn tied(&self) -> Option<&str> {
        None
    }

    /// Whether the layer draws random numbers in training.
    fn is_random(&self) -> bool {
        false
    }

    /// The layers inside a block, list by list.
    fn lists(&self) -> Vec<&Vec<LayerSpec>> {
        Vec::new()
    }

    /// The layers inside a block, mutable.
    fn lists_mut(&mut self) -> Vec<&mut Vec<LayerSpec>> {
        Vec::new()
    }

    /// Inserts an empty list before this one, in a block that may have several.
    fn insert_list(&mut self, _number: usize) {}

    /// Removes a list with its layers, in a block that may have several.
    fn remove_list(&mut self, _number: usize) {}

    /// Reads the other fields of a list that is in a separate object.
    fn read_entry(&mut self, _number: usize, _f: &mut Fields<'_>) {}

    /// Writes the other fields of a list that is in a separate object.
    fn write_entry(&self, _number: usize, _map: &mut Map<String, Value>) {}

    /// The other fields of a list, with their values.
    fn entry_fields(&self, _number: usize) -> Vec<FieldView> {
        Vec::new()
    }

    /// Sets another field of a list; returns false if there is no such field or the value is of another kind.
    fn set_in_entry(&mut self, _number: usize, _name: &str, _value: &FieldValue) -> bool {
        false
    }

    /// The name of the network's input that a list takes, if it is not the block's input.
    fn input_of(&self, _number: usize) -> Option<&str> {
        None
    }

    /// Whether the random layers inside a block with this input must keep its shape.
    fn keeps_shape_inside(&self, _input: &Shape) -> bool {
        true
    }

    /// The output shape of a block whose lists return these shapes; `None` if they do not fit each other, which is
    /// reported to `cx`.
    fn join(&self, cx: &mut Join<'_>) -> Option<Shape> {
        cx.outputs.first().cloned()
    }

    /// How often the layers inside are applied, if they are repeated.
    fn times(&self) -> Option<usize> {
        None
    }

    /// Whether the layers inside must return the shape that they receive.
    fn must_keep_shape(&self) -> bool {
        false
    }

    /// The choice of the layer at every step; `None` if every step does the same.
    fn choice(&self) -> Option<Choice> {
        None
    }

    /// The list of layers that is run if this value is chosen; `None` if none is run.
    fn list_at(&self, _value: usize) -> Option<usize> {
        None
    }

    /// Whether the network ends with this layer if this value is chosen.
    fn ends_at(&self, _value: usize) -> bool {
        false
    }

    /// Makes the layer choose, for random networks, if it can.
    fn draw_choice(&mut self, _draw: &mut Draw) {}

    /// The layer for steps that choose this value, as a layer that does not choose.
    fn settled(&self, _value: usize) -> Self {
        self.clone()
    }
}

/// The help for the activation of a layer with weights.
const ACTIVATION_HELP: &str = "Applied to each output; fused into the product's kernel.";
/// The range and the help of the number that is added to a variance.
const NORM_EPS: Range =
    Range::Real { from: Bound::Excluded(0.0), to: Bound::Included(1.0), help: "above 0 and at most 1, such as 1e-5" };
const EPS_HELP: &str = "Added to the variance.";

/// Writes the fields that differ from their defaults, and the layers inside.
fn written<T: LayerType>(layer: &T, map: &mut Map<String, Value>) {
    T::FIELDS.iter().for_each(|field| field.write(layer, map));
    write_lists(layer, map);
}

/// Reads the fields, and the layers inside by `nested`.
fn read_into<T: LayerType>(layer: &mut T, f: &mut Fields<'_>, nested: ReadList) {
    T::FIELDS.iter().for_each(|field| field.read(layer, f));
    read_lists(layer, f, nested);
}

fn check_into<T: LayerType>(layer: &T, fields: &mut FieldChecks<'_>) {
    for field in T::FIELDS {
        for (found, help) in field.findings(layer) {
            fields.fail(field.name, found, help);
        }
    }
    layer.check(fields);
}

fn kind_of<T: LayerType>(_layer: &T) -> LayerKind {
    T::KIND
}

fn output_field_of<T: LayerType>(_layer: &T) -> Option<&'static str> {
    T::OUTPUT_FIELD
}

const fn fields_of<T: LayerType>(_layer: &T) -> &'static [FieldSpec<T>] {
    T::FIELDS
}

impl LayerKind {
    /// The kind with this name in presets.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|k| k.type_name == name)
    }
}

impl LayerSpec {
    /// The kind of the layer.
    #[must_use]
    pub fn kind(&self) -> LayerKind {
        each_layer!(self, l => kind_of(l))
    }

    fields_by_name!(each_layer, fields_of);

    /// How often the layers inside are applied, if they are repeated.
    #[must_use]
    pub fn times(&self) -> Option<usize> {
        each_layer!(self, l => l.times())
    }

    /// Whether the layer accepts tokens.
    #[must_use]
    pub fn takes_tokens(&self) -> bool {
        each_layer!(self, l => LayerType::takes_tokens(l))
    }

    /// The inputs of the network that the layer takes by name, including those of the layers inside it.
    #[must_use]
    pub fn named_inputs(&self) -> Vec<&str> {
        let mut names = each_layer!(self, l => LayerType::named_inputs(l));
        names.extend(self.inside().flat_map(Self::named_inputs));
        names
    }

    /// Whether the layers inside must return the shape that they receive.
    pub(super) fn must_keep_shape(&self) -> bool {
        each_layer!(self, l => l.must_keep_shape())
    }

    /// Sets the fields that determine the output's shape so that it equals the input's, if the layer can do that.
    pub fn keep_shape(&mut self, input: &Shape) {
        each_layer!(self, l => l.keep_shape(input));
    }

    /// The activation that the layer applies, as a field or as the layer itself.
    #[must_use]
    pub fn activation(&self) -> Option<Activation> {
        each_layer!(self, l => LayerType::activation(l))
    }

    pub(super) fn next_activation(&self) -> NextActivation {
        each_layer!(self, l => l.next_activation())
    }

    /// The path of the embedding whose weight the layer uses, as the user typed it.
    #[must_use]
    pub fn tied(&self) -> Option<&str> {
        each_layer!(self, l => LayerType::tied(l))
    }

    /// Whether the layer draws random numbers in training.
    #[must_use]
    pub fn is_random(&self) -> bool {
        each_layer!(self, l => l.is_random())
    }

    /// The field that determines how many values the layer returns, if there is one.
    #[must_use]
    pub fn output_field(&self) -> Option<&'static str> {
        each_layer!(self, l => output_field_of(l))
    }

    /// Reads the fields of a layer of `kind`; nested layers are read by `nested`.
    pub(super) fn read(kind: LayerKind, f: &mut Fields<'_>, nested: ReadList) -> Self {
        let mut layer = kind.example();
        each_layer!(&mut layer, l => read_into(l, f, nested));
        layer
    }

    /// The fields that differ from their defaults, and the type, as in a preset file.
    pub fn write(&self) -> Map<String, Value> {
        let mut map = Map::new();
        map.insert("type".into(), self.kind().type_name.into());
        each_layer!(self, l => l.write(&mut map));
        map
    }

    /// Checks what each field may be, independently of the input.
    pub(super) fn check_fields(&self, fields: &mut FieldChecks<'_>) {
        each_layer!(self, l => check_into(l, fields));
    }

    /// The output shape of a sample, with the parameters and mistakes reported to `cx`; `None` if it cannot be
    /// determined.
    pub(super) fn infer(&self, cx: &mut Infer<'_>) -> Option<Shape> {
        each_layer!(self, l => l.infer(cx))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::OptimizerSpec;

    const PAGE: &str = include_str!("../../../docs/preset.md");

    #[test]
    fn the_documents_name_every_layer_with_its_fields() {
        for kind in LayerKind::ALL {
            let is_own =
                |line: &&str| line.split('|').nth(1).is_some_and(|c| c.contains(&format!("`{}`", kind.type_name)));
            let row = PAGE.lines().find(is_own).unwrap_or_default();
            for field in kind.example().fields() {
                assert!(row.contains(&format!("`{}`", field.name)), "{} of {}: {row}", field.name, kind.type_name);
            }
        }
    }

    #[test]
    fn the_documents_name_every_optimizer_with_its_fields() {
        for name in OptimizerSpec::NAMES {
            assert!(PAGE.lines().any(|line| line.starts_with(&format!("| `{name}` |"))), "{name}");
            for field in OptimizerSpec::example(name).unwrap().fields() {
                let key = field.name.strip_prefix("optimizer.").unwrap();
                assert!(PAGE.contains(&format!("`{key}`")), "{key} of {name}");
            }
        }
    }

    #[test]
    fn a_layer_is_written_and_read_by_its_table() {
        for kind in LayerKind::ALL {
            let layer = kind.example();
            let (map, mut mistakes) = (layer.write(), Vec::new());
            let mut fields = Fields::new(&map, "layers[0]", None, &mut mistakes);
            let _ = fields.raw("type");
            let nested = |f: &mut Fields<'_>, _| {
                let _ = f.raw("layers");
                Vec::new()
            };
            assert_eq!(LayerSpec::read(kind, &mut fields, nested), layer);
            fields.finish();
            assert_eq!(mistakes, []);
        }
    }
}
