//! What the shape rule of a layer sees, and what it reports.

use super::activation::Activation;
use super::input::Content;
use super::mistakes::FieldChecks;
use super::param::{Init, ParamKind};
use crate::tensor::Shape;

/// What a layer's shape rule sees and reports.
pub struct Infer<'a> {
    pub input: &'a Shape,
    /// Tokens where the layer takes them and its input is one of tokens.
    pub content: Content,
    pub batch: usize,
    pub fields: FieldChecks<'a>,
    pub(super) activation: Option<Activation>,
    pub(super) params: Vec<(ParamKind, Shape, Init)>,
}

impl Infer<'_> {
    /// Records a mistake in field `name`, or in the layer as a whole where it is empty.
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

    /// A weight, initialised by what follows it.
    pub fn weight(&mut self, kind: ParamKind, shape: impl Into<Shape>, fan_in: usize, fan_out: usize) {
        let init = if self.activation.is_some_and(Activation::is_relu_like) {
            Init::He { fan_in }
        } else {
            Init::Xavier { fan_in, fan_out }
        };
        self.params.push((kind, shape.into(), init));
    }

    /// A weight that no activation follows, whatever the next layer is.
    pub fn inner_weight(&mut self, kind: ParamKind, fan_in: usize, fan_out: usize) {
        self.params.push((kind, Shape::from([fan_in, fan_out]), Init::Xavier { fan_in, fan_out }));
    }

    /// A weight or bias of a recurrent layer with so many units.
    pub fn recurrent(&mut self, kind: ParamKind, shape: impl Into<Shape>, units: usize) {
        self.params.push((kind, shape.into(), Init::Recurrent { units }));
    }

    /// A vector of `len` equal values.
    pub fn constant(&mut self, kind: ParamKind, len: usize, value: f64) {
        self.params.push((kind, Shape::from([len]), Init::Constant { value }));
    }
}
