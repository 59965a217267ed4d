//! Dense layers that use the weight of an embedding: which embedding, and mistakes in this.

use super::layers::{LayerKind, LayerSpec};
use super::mistakes::{FieldChecks, Mistakes};
use super::param::ParamId;
use super::path::LayerPath;

/// A layer that is named as the owner of a weight.
pub(super) struct Named<'a> {
    pub spec: &'a LayerSpec,
    /// Its weight `[tokens, values]`; `None` if the layer itself has mistakes.
    pub table: Option<(ParamId, [usize; 2])>,
}

/// A dense layer that uses the weight of another layer.
pub(super) struct Tied<'a> {
    pub path: &'a LayerPath,
    /// The path of the other layer, as the user typed it.
    pub place: &'a str,
    /// The numbers of values of a position before and after the layer, if they are known.
    pub sizes: Option<[usize; 2]>,
}

impl Tied<'_> {
    /// The weight that the layer uses, if the path refers to an embedding of the right size; otherwise the mistake is
    /// recorded. `known` are the paths of all embeddings.
    pub(super) fn weight<'a>(
        &self,
        find: impl Fn(&LayerPath) -> Option<Named<'a>>,
        known: &[String],
        mistakes: &mut Mistakes,
    ) -> Option<ParamId> {
        const FIELD: &str = "tied";
        let mut fail = |message: String, help: String| FieldChecks::new(self.path, mistakes).fail(FIELD, message, help);
        let known = match known {
            [] => "the network has no embedding".to_owned(),
            known => format!("embeddings here: {}", known.join(", ")),
        };
        let Ok(place) = self.place.parse::<LayerPath>() else {
            fail(format!("found {:?}", self.place), format!("expected the path of an embedding; {known}"));
            return None;
        };
        let Some(found) = find(&place) else {
            fail(format!("there is no layer at {:?}", self.place), known);
            return None;
        };
        let kind = found.spec.kind();
        if kind != EMBEDDING {
            fail(format!("the layer at {:?} is {}, not an embedding", self.place, kind.type_name), known);
            return None;
        }
        let (weight, [tokens, values]) = found.table?;
        let [inputs, units] = self.sizes?;
        if [values, tokens] != [inputs, units] {
            let table = format!("the weight of {:?} is [{tokens}, {values}]", self.place);
            let message = format!("{table}, and this layer makes {units} values of {inputs}");
            fail(message, format!("give this layer {tokens} units and an input of {values} values"));
            return None;
        }
        Some(weight)
    }
}

/// The only layer whose weight others may use.
const EMBEDDING: LayerKind = <super::layers::Embedding as super::layers::LayerType>::KIND;

/// Whether other layers may use the weight of a layer.
pub(super) fn is_shared(spec: &LayerSpec) -> bool {
    spec.kind() == EMBEDDING
}

#[cfg(test)]
mod tests {
    use crate::model::{ParamKind, check, read_preset, write_preset};

    fn text(layers: &str) -> String {
        format!(
            r#"{{"name": "n", "input": {{"type": "tokens", "shape": [3], "vocab": 7, "batch": 2}}, "layers": [{layers}],
            "loss": {{"type": "softmax_cross_entropy"}}, "optimizer": {{"type": "sgd", "lr": 0.1}}}}"#
        )
    }

    /// The path, the message and the help of each mistake.
    fn mistakes(layers: &str) -> Vec<[String; 3]> {
        let found = match read_preset(&text(layers)) {
            Ok(preset) => check(&preset).diagnostics,
            Err(mistakes) => mistakes,
        };
        found.into_iter().map(|d| [d.path, d.message, d.help]).collect()
    }

    const EMBEDDING: &str = r#"{"type": "embedding", "units": 5}, {"type": "position"}"#;

    #[test]
    fn a_tied_layer_has_the_weight_of_the_embedding_and_its_own_bias() {
        for place in ["layers.0", "layers[0]"] {
            let layers = format!(r#"{EMBEDDING}, {{"type": "dense", "units": 7, "tied": "{place}"}}"#);
            let preset = read_preset(&text(&layers)).unwrap();
            assert_eq!(read_preset(&write_preset(&preset)).as_ref(), Ok(&preset));
            let model = check(&preset).model.unwrap();
            let names: Vec<&str> = model.params.iter().map(|p| p.name.as_str()).collect();
            assert_eq!(names, ["layers.0.weight", "layers.1.weight", "layers.2.bias"]);
            let kinds: Vec<(u32, ParamKind)> =
                model.layers[2].params.iter().map(|id| (id.0, model.param(*id).kind)).collect();
            assert_eq!(kinds, [(0, ParamKind::Weight), (2, ParamKind::Bias)]);
            assert_eq!(check(&preset).facts[2].params, 7);
        }
    }

    #[test]
    fn mistakes_are_reported_at_the_field_and_name_the_embeddings() {
        let of = |place: &str, units: usize| {
            let layers = format!(r#"{EMBEDDING}, {{"type": "dense", "units": {units}, "tied": "{place}"}}"#);
            let found = mistakes(&layers);
            let [[path, message, help]] = &found[..] else { panic!("{found:?}") };
            assert_eq!(path, "layers[2].tied");
            format!("{message}: {help}")
        };
        let known = "embeddings here: layers.0";
        assert_eq!(of("embedding", 7), format!("found \"embedding\": expected the path of an embedding; {known}"));
        assert_eq!(of("layers.9", 7), format!("there is no layer at \"layers.9\": {known}"));
        assert_eq!(of("layers.1", 7), format!("the layer at \"layers.1\" is position, not an embedding: {known}"));
        assert_eq!(of("layers.2", 7), format!("the layer at \"layers.2\" is dense, not an embedding: {known}"));
        assert_eq!(
            of("layers.0", 6),
            "the weight of \"layers.0\" is [7, 5], and this layer makes 6 values of 5: \
             give this layer 7 units and an input of 5 values"
        );
        let narrow = format!(
            r#"{EMBEDDING}, {{"type": "dense", "units": 4}}, {{"type": "dense", "units": 7, "tied": "layers.0"}}"#
        );
        assert!(mistakes(&narrow)[0][1].ends_with("and this layer makes 7 values of 4"));
        let number = format!(r#"{EMBEDDING}, {{"type": "dense", "units": 7, "tied": 0}}"#);
        assert_eq!(mistakes(&number)[0][..2], ["layers[2].tied".to_owned(), "found 0".to_owned()]);
        // The embedding's mistake is the only one.
        let wrong = r#"{"type": "embedding", "units": 0}, {"type": "dense", "units": 7, "tied": "layers.0"}"#;
        let places: Vec<String> = mistakes(wrong).into_iter().map(|[path, ..]| path).collect();
        assert_eq!(places, ["layers[0].units"]);
    }
}
