//! The graph of an ONNX file while it is written.

use super::protobuf::Message;
use crate::model::Activation;

pub(super) const FLOAT: i64 = 1;
pub(super) const INT64: i64 = 7;

/// An attribute of a node.
pub(super) enum Attribute<'a> {
    Int(&'a str, i64),
    Float(&'a str, f32),
    Ints(&'a str, Vec<i64>),
    Text(&'a str, &'a str),
    Texts(&'a str, Vec<&'a str>),
}

impl Attribute<'_> {
    fn message(&self) -> Message {
        match self {
            Self::Int(name, value) => Message::new().text(1, name).int(3, *value).int(20, 2),
            Self::Float(name, value) => Message::new().text(1, name).float(2, *value).int(20, 1),
            Self::Ints(name, values) => {
                values.iter().fold(Message::new().text(1, name), |m, v| m.int(8, *v)).int(20, 7)
            }
            Self::Text(name, text) => Message::new().text(1, name).text(4, text).int(20, 3),
            Self::Texts(name, texts) => texts.iter().fold(Message::new().text(1, name), |m, t| m.text(9, t)).int(20, 8),
        }
    }
}

/// Sizes as the format's integers.
pub(super) fn ints(values: &[usize]) -> Vec<i64> {
    values.iter().map(|v| *v as i64).collect()
}

/// A constant.
pub(super) fn tensor(name: &str, dims: &[usize], bytes: &[u8]) -> Message {
    let message = dims.iter().fold(Message::new(), |m, d| m.int(1, *d as i64));
    message.int(2, FLOAT).text(8, name).bytes(9, bytes)
}

/// The graph while it is written.
#[derive(Default)]
pub(super) struct Writer {
    pub graph: Message,
    nodes: usize,
    integers: usize,
    /// Existing constants.
    constants: Vec<String>,
    /// The inputs of the network, each with the value that layers use.
    pub inputs: Vec<(String, String)>,
}

impl Writer {
    /// Adds a node and returns the name of its output.
    pub fn node(&mut self, op: &str, inputs: &[&str], attributes: &[Attribute<'_>]) -> String {
        self.output_at(0, op, inputs, attributes)
    }

    /// Adds a node and returns the name of the output at index `place`; the outputs before it are omitted.
    pub fn output_at(&mut self, place: usize, op: &str, inputs: &[&str], attributes: &[Attribute<'_>]) -> String {
        // No name of an input has a dot in it.
        let output = format!("{}.{}", op.to_lowercase(), self.nodes);
        let message = inputs.iter().fold(Message::new(), |m, i| m.text(1, i));
        let message = (0..place).fold(message, |m, _| m.text(2, ""));
        let message = message.text(2, &output).text(3, &format!("node_{}", self.nodes)).text(4, op);
        let message = attributes.iter().fold(message, |m, a| m.message(5, &a.message()));
        self.nodes += 1;
        self.put(1, &message);
        output
    }

    /// `[N, T, C]` as `[N, C, T]`, or back: this format has channels before positions.
    pub fn swapped(&mut self, x: &str) -> String {
        self.node("Transpose", &[x], &[Attribute::Ints("perm", vec![0, 2, 1])])
    }

    /// The value of an input of the network that a branch takes by name.
    pub fn input(&self, name: &str) -> Option<&str> {
        self.inputs.iter().find(|(input, _)| input == name).map(|(_, value)| value.as_str())
    }

    pub fn put(&mut self, field: u32, message: &Message) {
        self.graph = std::mem::take(&mut self.graph).message(field, message);
    }

    /// A constant list of whole numbers; returns its name.
    pub fn integers(&mut self, values: &[i64]) -> String {
        let name = format!("integers.{}", self.integers);
        self.integers += 1;
        let raw: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.put(5, &Message::new().int(1, values.len() as i64).int(2, INT64).text(8, &name).bytes(9, &raw));
        name
    }

    /// A named scalar constant.
    pub fn constant(&mut self, name: &'static str, value: f32) -> &'static str {
        self.values(name, &[], &[value]);
        name
    }

    /// A named constant of any shape.
    pub fn values(&mut self, name: &str, dims: &[usize], values: &[f32]) {
        if !self.constants.iter().any(|known| known == name) {
            self.constants.push(name.to_owned());
            let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
            self.put(5, &tensor(name, dims, &bytes));
        }
    }

    /// Whole numbers as a node's input: a shape, or indices along axes.
    pub fn numbers(&mut self, values: &[i64]) -> String {
        self.node("Constant", &[], &[Attribute::Ints("value_ints", values.to_vec())])
    }

    /// A function of each element, if there is one.
    pub fn activation(&mut self, x: String, function: Option<Activation>) -> String {
        let Some(function) = function else { return x };
        match function {
            Activation::Relu => self.node("Relu", &[&x], &[]),
            Activation::LeakyRelu => self.node("LeakyRelu", &[&x], &[Attribute::Float("alpha", 0.01)]),
            Activation::Sigmoid => self.node("Sigmoid", &[&x], &[]),
            Activation::Tanh => self.node("Tanh", &[&x], &[]),
            Activation::Silu => {
                let gate = self.node("Sigmoid", &[&x], &[]);
                self.node("Mul", &[&x, &gate], &[])
            }
            Activation::Gelu => {
                // x / 2 (1 + erf(x / sqrt 2)): opset 17 has no node for the whole function.
                let root = self.constant("constant.sqrt_half", std::f32::consts::FRAC_1_SQRT_2);
                let (one, half) = (self.constant("constant.one", 1.0), self.constant("constant.half", 0.5));
                let scaled = self.node("Mul", &[&x, root], &[]);
                let erf = self.node("Erf", &[&scaled], &[]);
                let sum = self.node("Add", &[&erf, one], &[]);
                let product = self.node("Mul", &[&x, &sum], &[]);
                self.node("Mul", &[&product, half], &[])
            }
        }
    }
}
