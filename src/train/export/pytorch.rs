//! A network with its training as a PyTorch script, beside which lie its weights and its data.
//!
//! Modules are nested so that their parameters have the preset's names; a dense layer's weight is transposed when it is
//! loaded, because PyTorch keeps
//! `[units, in]`.

use super::Meaning;
use super::layers;
use super::python::{flag, literal};
use crate::data::Scaling;
use crate::model::schema::FieldView;
use crate::model::{FieldValue, LayerId, LossSpec, Model, OptimizerSpec, Precision};
use std::fmt::Write as _;

/// What the script finds beside itself.
#[derive(Clone, Debug)]
pub struct Companions {
    pub weights: String,
    /// `None` where the preset names no data.
    pub data: Option<String>,
    /// Whether the samples that are held out may have been trained on before.
    pub maybe_trained: bool,
}

fn modules(out: &mut String, model: &Model, layers: &[LayerId], depth: usize) {
    let indent = "    ".repeat(depth);
    for id in layers {
        let layer = model.layer(*id);
        let module = layers::pytorch(layer);
        if layer.spec.is_block() {
            let _ = writeln!(out, "{indent}{module}[");
            modules(out, model, &layer.children, depth + 1);
            let _ = writeln!(out, "{indent}]),");
        } else {
            let _ = writeln!(out, "{indent}{module},");
        }
    }
}

/// The class of this name, with the fields as its settings.
fn optimizer(spec: &OptimizerSpec) -> String {
    let setting = |field: FieldView| {
        let value = match field.value {
            FieldValue::Flag(value) => flag(value).to_owned(),
            FieldValue::Number(n) => format!("{n:?}"),
            FieldValue::Numbers([a, b]) => format!("({a:?}, {b:?})"),
            other => other.text(),
        };
        format!(", {}={value}", field.name.rsplit('.').next().unwrap_or(field.name))
    };
    let settings: String = spec.fields().into_iter().map(setting).collect();
    format!("torch.optim.{}(net.parameters(){settings})", spec.title())
}

/// The script with `<<name>>` for what differs from network to network.
const TEMPLATE: &str = include_str!("script.py.txt");

/// The script's text.
#[must_use]
pub fn script(model: &Model, steps: u64, seed: u64, companions: &Companions, meaning: &Meaning) -> String {
    let mut layers = String::new();
    modules(&mut layers, model, &model.roots, 2);
    let shape = model.input.0.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let mut values = vec![
        ("name", literal(&model.name)),
        ("title", model.name.replace(['"', '\\', '\n'], " ")),
        ("weights", literal(&companions.weights)),
        ("data", companions.data.as_deref().map_or("None".to_owned(), literal)),
        ("shape", shape),
        ("batch", model.batch.to_string()),
        ("steps", steps.to_string()),
        ("seed", seed.to_string()),
        ("layers", layers),
        ("optimizer", optimizer(&model.optimizer)),
    ];
    values.extend(of_meaning(meaning));
    values.extend(of_loss(model.loss));
    values.extend(of_precision(model.precision).map(|(name, text)| (name, text.to_owned())));
    let evaluated = match companions.maybe_trained {
        true => "('held-out' if args.fresh else 'maybe trained on')",
        false => "'held-out'",
    };
    values.push(("evaluated", evaluated.to_owned()));
    filled(TEMPLATE, &values)
}

/// Names, scaling and notes of the data.
fn of_meaning(meaning: &Meaning) -> [(&'static str, String); 5] {
    let names = |list: &[String]| match list {
        [] => "None".to_owned(),
        list => format!("[{}]", list.iter().map(|n| literal(n)).collect::<Vec<_>>().join(", ")),
    };
    let numbers =
        |of: fn(&Scaling) -> &[f64]| meaning.scaling.as_ref().map_or("None".to_owned(), |s| format!("{:?}", of(s)));
    let notes: String = meaning.notes.iter().map(|n| format!("# {}\n", n.replace(char::is_control, " "))).collect();
    [
        ("class_names", names(&meaning.classes)),
        ("feature_names", names(&meaning.features)),
        ("mean", numbers(|s| &s.mean)),
        ("scale", numbers(|s| &s.scale)),
        ("notes", notes),
    ]
}

/// The loss in training and evaluation, the accuracy, and the targets' type.
fn of_loss(loss: LossSpec) -> [(&'static str, String); 4] {
    let (training, plain, accuracy, targets) = match loss {
        LossSpec::SoftmaxCrossEntropy { label_smoothing } => (
            format!("F.cross_entropy(output, y, label_smoothing={label_smoothing:?})"),
            "F.cross_entropy(output, y)",
            "(output.argmax(dim=1) == y).float().mean().item()",
            ".long()",
        ),
        LossSpec::Mse => ("F.mse_loss(output, y)".to_owned(), "F.mse_loss(output, y)", "None", ""),
    };
    [
        ("loss", training),
        ("plain_loss", plain.to_owned()),
        ("accuracy", accuracy.to_owned()),
        ("targets", targets.to_owned()),
    ]
}

/// The type of products and activations, and how exact products of f32 are.
const fn of_precision(precision: Precision) -> [(&'static str, &'static str); 2] {
    let (precision, matmul) = match precision {
        Precision::F32 => ("None", "highest"),
        Precision::Tf32 => ("None", "high"),
        Precision::Bf16 => ("torch.bfloat16", "highest"),
        Precision::F16 => ("torch.float16", "highest"),
    };
    [("precision", precision), ("matmul", matmul)]
}

/// The template with the values in place of their names; what a value holds is never looked at.
fn filled(template: &str, values: &[(&str, String)]) -> String {
    let mut parts = template.split("<<");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let Some((name, rest)) = part.split_once(">>") else { unreachable!("the template ends every name") };
        let Some((_, value)) = values.iter().find(|(known, _)| *known == name) else {
            unreachable!("the template has a value for {name}")
        };
        out.push_str(value);
        out.push_str(rest);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{check, read_preset};

    #[test]
    fn every_layer_becomes_a_module_in_its_place() {
        let text = include_str!("../../../tests/data/everything.json");
        let model = check(&read_preset(text).unwrap()).model.unwrap();
        let beside = Companions { weights: "w.safetensors".into(), data: None, maybe_trained: false };
        let script = script(&model, 50, 7, &beside, &Meaning::default());
        let modules: Vec<&str> =
            script.split("return Block([\n").nth(1).unwrap().split("\n    ])").next().unwrap().lines().collect();
        assert_eq!(
            modules[0].trim(),
            "Conv2d(4, 8, (3, 3), stride=(1, 1), padding=(1, 1), dilation=(1, 1), groups=2, bias=True, activation=F.silu),"
        );
        assert_eq!(modules[1].trim(), "nn.BatchNorm2d(8, eps=0.001, momentum=0.2),");
        assert_eq!(modules[3].trim(), "Residual([");
        assert!(modules.contains(&"        nn.BatchNorm1d(16, eps=1e-5, momentum=0.1),"));
        assert!(
            modules.contains(&"        Repeat(3, [")
                && modules.contains(&"            Dense(16, 16, bias=True, activation=torch.tanh),")
        );
        assert!(
            script.contains("label_smoothing=0.1") && script.contains("nesterov=True") && script.contains("SEED = 7")
        );
        assert!(script.contains("DATA = None") && script.contains("{'held-out' if len(held_out) else 'training'}"));
        let doubtful = Companions { maybe_trained: true, ..beside };
        let script = super::script(&model, 50, 7, &doubtful, &Meaning::default());
        assert!(
            script.contains("{('held-out' if args.fresh else 'maybe trained on') if len(held_out) else 'training'}")
        );
    }
}
