//! A network for inference as an ONNX model: opset 17, names of parameters as in the preset, any batch size.
//!
//! Follows `onnx.proto` and the operators' definitions. Dropout has no effect at inference, normalisation over the
//! batch uses the running statistics, and the layers of a repeated block occur several times, with the same
//! initializers.

use super::layers;
use super::onnx_graph::{FLOAT, INT64, Writer, tensor};
use super::protobuf::Message;
use super::{ExportError, Meaning};
use crate::model::{Model, NamedInput, Targets};
use crate::tensor::{Bytes, DType, HostTensor};

const OPSET: i64 = 17;
/// The version of the file format that was released with opset 17.
const IR_VERSION: i64 = 8;
/// Protocol buffers are limited to two gigabytes.
pub(super) const MAX_BYTES: usize = 0x7fff_0000;

/// An input or output: `[batch, ...]` elements of a type.
fn value_info(name: &str, element: i64, dims: &[usize]) -> Message {
    let batch = Message::new().message(1, &Message::new().text(2, "batch"));
    let shape = dims.iter().fold(batch, |m, d| m.message(1, &Message::new().int(1, *d as i64)));
    let tensor = Message::new().int(1, element).message(2, &shape);
    Message::new().text(1, name).message(2, &Message::new().message(1, &tensor))
}

/// The inputs and outputs of the model, as text.
fn about(model: &Model, meaning: &Meaning) -> String {
    let takes = |input: &NamedInput| {
        let own = meaning.of_input(&input.name);
        let raw = "as they are in the data; the graph standardises them.";
        let samples = match (&own.scaling, own.features.as_slice()) {
            (Some(_), []) => format!("raw samples, {raw}"),
            (Some(_), names) => format!("raw samples of {}, {raw}", names.join(", ")),
            (None, _) => "samples as the network was trained on them.".to_owned(),
        };
        let name = if model.inputs.len() == 1 { String::new() } else { format!(" as {}", input.name) };
        format!("Takes{name} {samples}")
    };
    let mut out = model.inputs.iter().map(takes).collect::<Vec<_>>().join(" ");
    for note in meaning.notes.iter().filter(|_| meaning.scaling.is_none()) {
        out.push_str(&format!(" {note}."));
    }
    out.push_str(match model.loss.targets() {
        Targets::Classes => " Gives logits; the class is the largest.",
        Targets::Binary => " Gives logits; the sigmoid of each is the probability that its answer is yes.",
        Targets::Values => "",
    });
    out
}

/// The same for programs: lists as JSON.
fn properties(model: &Model, meaning: &Meaning) -> Vec<(&'static str, String)> {
    let json = |value: serde_json::Value| value.to_string();
    let output = if model.loss.targets() == Targets::Values { "values" } else { "logits" };
    let mut out = vec![("stepgraph.output", output.to_owned())];
    if model.inputs.len() > 1 {
        let of = |input: &NamedInput| {
            let own = meaning.of_input(&input.name);
            let scaling = own.scaling.as_ref();
            let (mean, scale) = (scaling.map(|s| &s.mean), scaling.map(|s| &s.scale));
            let samples = if scaling.is_some() { "raw" } else { "as trained" };
            let facts = serde_json::json!({ "input": samples, "features": own.features, "mean": mean, "scale": scale });
            (input.name.clone(), facts)
        };
        out.push(("stepgraph.inputs", json(model.inputs.iter().map(of).collect())));
        if !meaning.classes.is_empty() {
            out.push(("stepgraph.classes", json(meaning.classes.as_slice().into())));
        }
        return out;
    }
    out.push(("stepgraph.input", if meaning.scaling.is_some() { "raw" } else { "as trained" }.to_owned()));
    if !meaning.classes.is_empty() {
        out.push(("stepgraph.classes", json(meaning.classes.as_slice().into())));
    }
    if !meaning.features.is_empty() {
        out.push(("stepgraph.features", json(meaning.features.as_slice().into())));
    }
    if let Some(scaling) = &meaning.scaling {
        out.push(("stepgraph.mean", json(scaling.mean.as_slice().into())));
        out.push(("stepgraph.scale", json(scaling.scale.as_slice().into())));
    }
    out
}

/// Features as the network was trained on them, if its data were standardised.
fn standardized(w: &mut Writer, input: &NamedInput, x: String, meaning: &Meaning) -> String {
    let Some(scaling) = &meaning.of_input(&input.name).scaling else { return x };
    let dims = &input.shape.0;
    // A mean far from 0 loses digits in f32 that matter if the deviation is small: they are subtracted separately.
    let rest: Vec<f64> = scaling.mean.iter().map(|m| m - f64::from(*m as f32)).collect();
    let counts = rest.iter().zip(&scaling.scale).any(|(r, s)| (r * s).abs() > 1e-6);
    let mut constant = |what: &str, values: &[f64]| {
        let name = format!("{x}.{what}");
        let raw: Vec<u8> = values.iter().flat_map(|v| (*v as f32).to_le_bytes()).collect();
        w.put(5, &tensor(&name, dims, &raw));
        name
    };
    let mean = constant("mean", &scaling.mean);
    let rest = counts.then(|| constant("mean_rest", &rest));
    let scale = constant("scale", &scaling.scale);
    let centred = [Some(mean), rest].into_iter().flatten().fold(x, |x, m| w.node("Sub", &[&x, &m], &[]));
    w.node("Mul", &[&centred, &scale], &[])
}

/// The name of an input: `input` if the network has no other, otherwise its own name.
fn input_name<'m>(model: &Model, input: &'m NamedInput) -> &'m str {
    if model.inputs.len() == 1 { "input" } else { &input.name }
}

/// The name of the output: `output`, unless an input has that name.
fn output_name(model: &Model) -> &'static str {
    let is_taken = model.inputs.iter().any(|input| input_name(model, input) == "output");
    if is_taken { "network.output" } else { "output" }
}

/// The values of the inputs that layers use; returns that of the first layer.
fn inputs(w: &mut Writer, model: &Model, meaning: &Meaning) -> String {
    for input in &model.inputs {
        let value = standardized(w, input, input_name(model, input).to_owned(), meaning);
        w.inputs.push((input.name.clone(), value));
    }
    w.inputs.first().map(|(_, value)| value.clone()).unwrap_or_default()
}

/// The bytes of an ONNX file for a network with these parameters; its input is `input`, several inputs have their own
/// names, and its output is `output` (logits if the loss takes classes or yes-or-no targets). Tokens are int64.
///
/// # Errors
/// If a parameter is missing or has another shape, or the file would be larger than the format allows.
pub fn onnx(model: &Model, weights: &[(String, HostTensor)], meaning: &Meaning) -> Result<Vec<u8>, ExportError> {
    let mut writer = Writer::default();
    let mut bytes = 0;
    let is_run = model.runs();
    for (param, _) in model.params.iter().zip(is_run).filter(|(_, is_run)| *is_run) {
        let found = super::parameters::weight(weights, &param.name, &param.shape)?;
        let values: Vec<f32> = found.to_f64().unwrap_or_default().into_iter().map(|v| v as f32).collect();
        let raw: Vec<u8> = if found.dtype == DType::F32 {
            found.bytes().to_vec()
        } else {
            values.iter().flat_map(|v| v.to_le_bytes()).collect()
        };
        bytes += raw.len();
        if bytes > MAX_BYTES {
            let (needed, limit) = (Bytes(bytes as u64), Bytes(MAX_BYTES as u64));
            return Err(ExportError::TooLarge { what: "ONNX", needed, limit });
        }
        writer.put(5, &tensor(&param.name, &param.shape.0, &raw));
    }
    let first = inputs(&mut writer, model, meaning);
    let last = model.roots.iter().fold(first, |x, id| layers::onnx(&mut writer, model, *id, x));
    // The output has a fixed name, regardless of the last layer.
    let output = output_name(model);
    let message = Message::new().text(1, &last).text(2, output).text(3, "node_output").text(4, "Identity");
    writer.put(1, &message);
    let about = about(model, meaning);
    let graph = writer.graph.text(2, &model.name).text(10, &about);
    let element = |input: &NamedInput| if input.content.is_tokens() { INT64 } else { FLOAT };
    let takes = |input| value_info(input_name(model, input), element(input), &input.shape.0);
    let graph = model.inputs.iter().fold(graph, |graph, input| graph.message(11, &takes(input)));
    let graph = graph.message(12, &value_info(output, FLOAT, &model.output.0));
    let opset = Message::new().text(1, "").int(2, OPSET);
    let file = Message::new().int(1, IR_VERSION).text(2, "Stepgraph").text(3, env!("CARGO_PKG_VERSION"));
    let file = file.text(6, &about).message(7, &graph).message(8, &opset);
    let property = |key: &str, value: &str| Message::new().text(1, key).text(2, value);
    let properties = properties(model, meaning);
    Ok(properties.iter().fold(file, |file, (key, value)| file.message(14, &property(key, value))).into_bytes())
}

#[cfg(test)]
mod tests {
    use super::super::onnx_graph::ints;
    use super::super::protobuf::decode::{Wire, all};
    use super::*;
    use crate::model::{check, read_preset};

    /// A network with all kinds of layers.
    const EVERYTHING: &str = include_str!("../../../tests/data/everything.json");

    #[test]
    fn every_name_in_the_graph_is_defined() {
        let model = check(&read_preset(EVERYTHING).unwrap()).model.unwrap();
        let weights = super::super::initial_weights(&model, 1).unwrap();
        let file = onnx(&model, &weights, &Meaning::default()).unwrap();
        assert_eq!(all(&file, 1)[0].int(), IR_VERSION);
        let opset = all(&file, 8)[0].bytes();
        assert_eq!(all(opset, 2)[0].int(), OPSET);
        let graph = all(&file, 7)[0].bytes();
        let text = |message: &[u8], field| all(message, field)[0].text().to_owned();
        let mut known: Vec<String> = all(graph, 5).iter().map(|t| text(t.bytes(), 8)).collect();
        assert_eq!(known.iter().filter(|n| n.starts_with("layers.")).count(), model.params.len());
        known.push("input".into());
        let mut kinds = Vec::new();
        for node in all(graph, 1) {
            for input in all(node.bytes(), 1) {
                assert!(known.contains(&input.text().to_owned()), "{} comes from nowhere", input.text());
            }
            known.extend(all(node.bytes(), 2).iter().map(|o| o.text().to_owned()));
            kinds.push(text(node.bytes(), 4));
        }
        assert_eq!(known.last().map(String::as_str), Some("output"));
        for wanted in ["Conv", "BatchNormalization", "LayerNormalization", "MaxPool", "AveragePool", "Erf", "MatMul"] {
            assert!(kinds.iter().any(|k| k == wanted), "{wanted} in {kinds:?}");
        }
        // The layers of a repeated block occur several times.
        assert_eq!(kinds.iter().filter(|k| *k == "Tanh").count(), 3);
        // The raw bytes of a parameter are its values.
        let bias = all(graph, 5).into_iter().find(|t| text(t.bytes(), 8) == model.params[0].name).unwrap();
        let Wire::Bytes(raw) = all(bias.bytes(), 9)[0] else { panic!("raw data") };
        assert_eq!(raw, weights[0].1.bytes());
        let dims: Vec<i64> = all(bias.bytes(), 1).iter().map(Wire::int).collect();
        assert_eq!(dims, ints(&model.params[0].shape.0));
    }

    #[test]
    fn a_missing_parameter_is_named() {
        let model = check(&read_preset(EVERYTHING).unwrap()).model.unwrap();
        let mut weights = super::super::initial_weights(&model, 1).unwrap();
        weights.remove(0);
        assert!(onnx(&model, &weights, &Meaning::default()).unwrap_err().to_string().contains(&model.params[0].name));
    }

    #[test]
    fn a_model_of_standardised_data_takes_raw_samples_and_says_so() {
        let text = crate::model::BUNDLED.iter().find(|b| b.name == "iris").unwrap().text;
        let model = check(&read_preset(text).unwrap()).model.unwrap();
        let weights = super::super::initial_weights(&model, 1).unwrap();
        let scaling = crate::data::Scaling { mean: vec![5.0, 3.0, 4.0, 1.0], scale: vec![1.0, 2.0, 0.5, 0.0] };
        let names = |list: &[&str]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
        let meaning = Meaning {
            classes: names(&["setosa", "versi\"color", "virginica"]),
            features: names(&["a", "b", "c", "d"]),
            scaling: Some(scaling),
            ..Meaning::default()
        };
        let bytes = onnx(&model, &weights, &meaning).unwrap();
        let text =
            |message: &[u8], field: u32| all(message, field).first().map_or(String::new(), |w| w.text().to_owned());
        let properties: Vec<(String, String)> =
            all(&bytes, 14).iter().map(|p| (text(p.bytes(), 1), text(p.bytes(), 2))).collect();
        let property = |key: &str| properties.iter().find(|(k, _)| k == key).map_or("", |(_, v)| v.as_str());
        assert_eq!(property("stepgraph.classes"), r#"["setosa","versi\"color","virginica"]"#);
        assert_eq!((property("stepgraph.mean"), property("stepgraph.input")), ("[5.0,3.0,4.0,1.0]", "raw"));
        assert_eq!((property("stepgraph.output"), property("stepgraph.features")), ("logits", r#"["a","b","c","d"]"#));
        assert!(text(&bytes, 6).contains("raw samples of a, b, c, d") && text(&bytes, 6).contains("logits"));
        let graph = all(&bytes, 7)[0].bytes().to_vec();
        let nodes = all(&graph, 1);
        let kinds: Vec<String> = nodes.iter().take(2).map(|n| text(n.bytes(), 4)).collect();
        assert_eq!(kinds, ["Sub", "Mul"]);
        let inputs: Vec<String> = all(nodes[0].bytes(), 1).iter().map(|i| i.text().to_owned()).collect();
        assert_eq!(inputs, ["input", "input.mean"]);
        let mean = all(&graph, 5).into_iter().find(|t| text(t.bytes(), 8) == "input.mean").unwrap();
        let raw: Vec<u8> = [5.0f32, 3.0, 4.0, 1.0].iter().flat_map(|v| v.to_le_bytes()).collect();
        assert_eq!(all(mean.bytes(), 9)[0].bytes(), raw);
        // A mean whose rounding error in f32 is not negligible relative to the deviation is subtracted in two parts,
        // whose sum is the mean.
        let scaling = crate::data::Scaling { mean: vec![1e5 + 1e-3; 4], scale: vec![1.0; 4] };
        let far = onnx(&model, &weights, &Meaning { scaling: Some(scaling), ..Meaning::default() }).unwrap();
        let graph = all(&far, 7)[0].bytes().to_vec();
        let kinds: Vec<String> = all(&graph, 1).iter().take(3).map(|n| text(n.bytes(), 4)).collect();
        assert_eq!(kinds, ["Sub", "Sub", "Mul"]);
        let part = |name: &str| {
            let found = all(&graph, 5).into_iter().find(|t| text(t.bytes(), 8) == name).unwrap();
            f64::from(f32::from_le_bytes(all(found.bytes(), 9)[0].bytes()[..4].try_into().unwrap()))
        };
        assert!((part("input.mean") + part("input.mean_rest") - (1e5 + 1e-3)).abs() < 1e-9);
        // Data that were not standardised need neither.
        let plain = onnx(&model, &weights, &Meaning::default()).unwrap();
        let first = text(all(all(&plain, 7)[0].bytes(), 1)[0].bytes(), 4);
        assert_eq!((first.as_str(), text(&plain, 6).contains("as the network was trained")), ("MatMul", true));
    }
}
