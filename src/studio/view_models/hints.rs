//! Unusual properties of a network that can be trained nevertheless.

use crate::model::{DataSource, LayerPath, LayerSpec, Preset};
use crate::studio::view_models::format::plain_count;
use crate::tensor::Shape;

/// An unusual property of a layer, with what is usual.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hint {
    pub path: LayerPath,
    pub text: String,
}

/// The number of classes of data that does not depend on files.
#[must_use]
pub fn classes_of(source: &DataSource) -> Option<usize> {
    match source.of_target() {
        DataSource::Digits | DataSource::DigitSums | DataSource::Cifar10 { .. } => Some(10),
        DataSource::Iris => Some(3),
        DataSource::Spirals { classes, .. } => Some(*classes),
        DataSource::Moons { .. } | DataSource::Circles { .. } | DataSource::Xor { .. } => Some(2),
        _ => None,
    }
}

/// What is unusual about the number of scores of a network for this many classes.
#[must_use]
pub fn hints(preset: &Preset, output: &Shape, classes: usize) -> Vec<Hint> {
    let [scores] = output.0[..] else { return Vec::new() };
    if !preset.loss.wants_classes() || scores < classes {
        return Vec::new();
    }
    let end = preset.layers.len().saturating_sub(1);
    let curved = preset.layers.last().and_then(|last| Some((LayerPath::from([end]), last, last.activation()?)));
    let sized = preset.output_field().filter(|(_, field)| scores > classes && !field.is_empty());
    let mut out = Vec::new();
    if let Some((path, unit)) = sized {
        let both = curved.as_ref().is_some_and(|(at, ..)| *at == path);
        let rest = if both { " and no activation" } else { "" };
        out.push(Hint {
            path,
            text: format!("the data has {}: give this layer {classes} {unit}{rest}", plain_count(classes, "class")),
        });
    }
    if let Some((path, last, function)) = curved.filter(|(path, ..)| out.iter().all(|h| h.path != *path)) {
        let way = if matches!(last, LayerSpec::ActivationLayer(_)) {
            "remove this layer"
        } else {
            "give this layer no activation"
        };
        let text = format!("{} bends the scores that go into softmax cross entropy: {way}", function.name());
        out.push(Hint { path, text });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Activation;
    use crate::studio::document::presets;

    #[test]
    fn what_is_unusual_about_scores_is_reported_with_what_is_usual() {
        let of = |units: usize, activation: Option<Activation>| {
            let mut preset = presets::digits();
            if let Some(LayerSpec::Dense(last)) = preset.layers.last_mut() {
                (last.units, last.activation) = (units, activation);
            }
            let found = hints(&preset, &Shape::from([units]), 10);
            found.into_iter().map(|h| format!("{} {}", h.path, h.text)).collect::<Vec<_>>().join("; ")
        };
        let path = LayerPath::from([presets::digits().layers.len() - 1]);
        assert_eq!(of(10, None), "");
        assert_eq!(of(9, None), "");
        assert_eq!(of(64, None), format!("{path} the data has 10 classes: give this layer 10 units"));
        let both = of(64, Some(Activation::Relu));
        assert_eq!(both, format!("{path} the data has 10 classes: give this layer 10 units and no activation"));
        let bent = of(10, Some(Activation::Tanh));
        assert!(
            bent.ends_with("tanh bends the scores that go into softmax cross entropy: give this layer no activation")
        );
    }

    #[test]
    fn bundled_networks_have_no_hints() {
        for index in 0..presets::count() {
            let preset = presets::bundled(index).unwrap();
            let Some(classes) = preset.data.as_ref().and_then(|d| classes_of(&d.source)) else { continue };
            let model = crate::model::check(&preset).model.unwrap();
            assert_eq!(hints(&preset, &model.output, classes), [], "{}", preset.name);
        }
    }
}
