//! The input and output of a layer's shape rule.

use super::activation::Activation;
use super::input::Content;
use super::mistakes::FieldChecks;
use super::param::{Init, ParamKind};
use crate::tensor::Shape;

/// The input and the reports of a layer's shape rule.
pub struct Infer<'a> {
    pub input: &'a Shape,
    /// Tokens, if the layer accepts them and its input consists of tokens.
    pub content: Content,
    pub batch: usize,
    pub fields: FieldChecks<'a>,
    pub(super) activation: Option<Activation>,
    pub(super) params: Vec<(ParamKind, Shape, Init)>,
}

/// The input and the reports of a block's shape rule.
pub struct Join<'a> {
    /// The block's input, for one sample.
    pub input: Option<&'a Shape>,
    /// The output of each list of layers for one sample.
    pub outputs: &'a [Shape],
    pub fields: FieldChecks<'a>,
}

impl Infer<'_> {
    /// Records a mistake in field `name`, or in the layer as a whole if it is empty.
    pub fn fail(&mut self, name: &str, message: impl Into<String>, help: impl Into<String>) {
        self.fields.fail(name, message, help);
    }

    /// The input as `[C, H, W]`, or a mistake.
    pub fn image(&mut self, what: &str) -> Option<[usize; 3]> {
        if let [c, h, w] = self.input.0[..] {
            return Some([c, h, w]);
        }
        let found = format!("found an input of shape {}", self.input);
        self.fail(
            "",
            found,
            format!("{what} takes an image [C, H, W]; give the input three dimensions or move it before flatten"),
        );
        None
    }

    /// The input as `[T, D]`, or a mistake.
    pub fn sequence(&mut self, what: &str) -> Option<[usize; 2]> {
        if let [positions, features] = self.input.0[..] {
            return Some([positions, features]);
        }
        let found = format!("found an input of shape {}", self.input);
        let help = format!("{what} takes a sequence [T, D]: give the input two dimensions, or tokens and an embedding");
        self.fail("", found, help);
        None
    }

    /// A table whose rows have a length of about 1: normal values of deviation `1 / sqrt(cols)`.
    pub fn table(&mut self, [rows, cols]: [usize; 2]) {
        let init = Init::Normal { deviation: 1.0 / (cols as f64).sqrt() };
        self.params.push((ParamKind::Weight, Shape::from([rows, cols]), init));
    }

    /// A weight, initialised for what follows it.
    pub fn weight(&mut self, kind: ParamKind, shape: impl Into<Shape>, fan_in: usize, fan_out: usize) {
        let init = if self.activation.is_some_and(Activation::is_relu_like) {
            Init::He { fan_in }
        } else {
            Init::Xavier { fan_in, fan_out }
        };
        self.params.push((kind, shape.into(), init));
    }

    /// A weight that no activation follows, regardless of the next layer.
    pub fn inner_weight(&mut self, kind: ParamKind, fan_in: usize, fan_out: usize) {
        self.params.push((kind, Shape::from([fan_in, fan_out]), Init::Xavier { fan_in, fan_out }));
    }

    /// A weight or bias of a recurrent layer with this number of units.
    pub fn recurrent(&mut self, kind: ParamKind, shape: impl Into<Shape>, units: usize) {
        self.params.push((kind, shape.into(), Init::Recurrent { units }));
    }

    /// A vector of `len` equal values.
    pub fn constant(&mut self, kind: ParamKind, len: usize, value: f64) {
        self.params.push((kind, Shape::from([len]), Init::Constant { value }));
    }
}
