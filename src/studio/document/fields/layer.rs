//! The fields of each layer, read and set.

use crate::model::{Activation, LayerPath, LayerSpec};
use crate::studio::document::fields::value::{Field, FieldValue, List, Owner};

/// The fields of a layer, in the order in which they are shown.
#[must_use]
pub fn layer_fields(path: &LayerPath, layer: &LayerSpec) -> Vec<Field> {
    use FieldValue::{Count, Flag, Number, Pair};
    let mut l = List { owner: Owner::Layer(path.clone()), fields: Vec::new() };
    match layer {
        LayerSpec::Dense(d) => {
            l.put("units", "units", Count(d.units), "Outputs of the layer.");
            l.activation(d.activation);
            l.put("bias", "bias", Flag(d.bias), "Adds a learned offset to each output.");
        }
        LayerSpec::Conv2d(c) => {
            l.put("filters", "filters", Count(c.filters), "Output channels.");
            l.put("kernel", "kernel", Pair(c.kernel), "Height and width of a filter.");
            l.put("stride", "stride", Pair(c.stride), "Pixels between windows.");
            l.put(
                "padding",
                "padding",
                FieldValue::Padding(c.padding),
                "Zeros around the image: a number, h, w, same or valid.",
            );
            l.put("dilation", "dilation", Pair(c.dilation), "Pixels between a filter's taps.");
            l.put("groups", "groups", Count(c.groups), "Channels are divided into this many independent groups.");
            l.activation(c.activation);
            l.put("bias", "bias", Flag(c.bias), "Adds a learned offset to each channel.");
        }
        LayerSpec::BatchNorm(b) => {
            l.put("momentum", "momentum", Number(b.momentum), "Share of the batch's statistics in the running ones.");
            l.put("eps", "eps", Number(b.eps), "Added to the variance.");
        }
        LayerSpec::LayerNorm(n) => l.put("eps", "eps", Number(n.eps), "Added to the variance."),
        LayerSpec::Activation(a) => {
            let index = Activation::ALL.iter().position(|b| *b == a.function).unwrap_or(0);
            l.choose(
                "function",
                "function",
                Activation::ALL.map(Activation::name).into(),
                index,
                "The function of each element.",
            );
        }
        LayerSpec::MaxPool2d(p) | LayerSpec::AvgPool2d(p) => {
            l.put("size", "size", Pair(p.size), "Height and width of a window.");
            l.put("stride", "stride", Pair(p.stride), "Pixels between windows.");
            l.put("padding", "padding", Pair(p.padding), "Pixels added on each side.");
        }
        LayerSpec::Dropout(d) => {
            l.put("rate", "rate", Number(d.rate), "Share of elements silenced while training, below 1.")
        }
        LayerSpec::Repeat(r) => {
            l.put("times", "times", Count(r.times), "How often the block is applied, with the same weights.")
        }
        LayerSpec::GlobalAvgPool | LayerSpec::Flatten | LayerSpec::Residual(_) => {}
    }
    l.fields
}

/// Sets a field of a layer; false where it has no such field or the value is of another type.
pub fn set_layer_field(layer: &mut LayerSpec, name: &str, value: &FieldValue) -> bool {
    use FieldValue::{Choice, Count, Flag, Number, Pair};
    let activation = |index: usize| index.checked_sub(1).and_then(|i| Activation::ALL.get(i)).copied();
    match (layer, name, value) {
        (LayerSpec::Dense(d), "units", Count(n)) => d.units = *n,
        (LayerSpec::Dense(d), "activation", Choice(i)) => d.activation = activation(*i),
        (LayerSpec::Dense(d), "bias", Flag(b)) => d.bias = *b,
        (LayerSpec::Conv2d(c), "filters", Count(n)) => c.filters = *n,
        (LayerSpec::Conv2d(c), "kernel", Pair(p)) => c.kernel = *p,
        (LayerSpec::Conv2d(c), "stride", Pair(p)) => c.stride = *p,
        (LayerSpec::Conv2d(c), "padding", FieldValue::Padding(p)) => c.padding = *p,
        (LayerSpec::Conv2d(c), "dilation", Pair(p)) => c.dilation = *p,
        (LayerSpec::Conv2d(c), "groups", Count(n)) => c.groups = *n,
        (LayerSpec::Conv2d(c), "activation", Choice(i)) => c.activation = activation(*i),
        (LayerSpec::Conv2d(c), "bias", Flag(b)) => c.bias = *b,
        (LayerSpec::BatchNorm(b), "momentum", Number(n)) => b.momentum = *n,
        (LayerSpec::BatchNorm(b), "eps", Number(n)) => b.eps = *n,
        (LayerSpec::LayerNorm(l), "eps", Number(n)) => l.eps = *n,
        (LayerSpec::Activation(a), "function", Choice(i)) => {
            a.function = Activation::ALL.get(*i).copied().unwrap_or(a.function)
        }
        (LayerSpec::MaxPool2d(p) | LayerSpec::AvgPool2d(p), "size", Pair(v)) => {
            // Windows that stand side by side keep doing so when their size changes.
            if p.stride == p.size {
                p.stride = *v;
            }
            p.size = *v;
        }
        (LayerSpec::MaxPool2d(p) | LayerSpec::AvgPool2d(p), "stride", Pair(v)) => p.stride = *v,
        (LayerSpec::MaxPool2d(p) | LayerSpec::AvgPool2d(p), "padding", Pair(v)) => p.padding = *v,
        (LayerSpec::Dropout(d), "rate", Number(n)) => d.rate = *n,
        (LayerSpec::Repeat(r), "times", Count(n)) => r.times = *n,
        _ => return false,
    }
    true
}
