//! A network with its training as a PyTorch script, with its weights and its data beside it.
//!
//! Modules are nested so that their parameters have the preset's names; a dense layer's weight is transposed when it is
//! loaded, because PyTorch keeps `[units, in]`.

use super::Meaning;
use crate::data::Scaling;
use crate::model::{Activation, LayerId, LayerSpec, LossSpec, Model, OptimizerSpec, Precision};
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

fn flag(value: bool) -> &'static str {
    if value { "True" } else { "False" }
}

/// A text as a literal of Python.
fn literal(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            c if c.is_control() => {}
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

fn activation(function: Option<Activation>) -> &'static str {
    match function {
        None => "None",
        Some(Activation::Relu) => "F.relu",
        Some(Activation::LeakyRelu) => "leaky_relu",
        Some(Activation::Gelu) => "F.gelu",
        Some(Activation::Silu) => "F.silu",
        Some(Activation::Sigmoid) => "torch.sigmoid",
        Some(Activation::Tanh) => "torch.tanh",
    }
}

fn pair(p: [usize; 2]) -> String {
    format!("({}, {})", p[0], p[1])
}

fn modules(out: &mut String, model: &Model, layers: &[LayerId], depth: usize) {
    let indent = "    ".repeat(depth);
    for id in layers {
        let layer = model.layer(*id);
        let image = layer.input.rank() == 3;
        let line = match &layer.spec {
            LayerSpec::Dense(d) => {
                let inputs = layer.input.0.last().copied().unwrap_or(1);
                format!("Dense({inputs}, {}, bias={}, activation={})", d.units, flag(d.bias), activation(d.activation))
            }
            LayerSpec::Conv2d(c) => format!(
                "Conv2d({}, {}, {}, stride={}, padding={}, dilation={}, groups={}, bias={}, activation={})",
                layer.input.0[0],
                c.filters,
                pair(c.kernel),
                pair(c.stride),
                pair(c.pad()),
                pair(c.dilation),
                c.groups,
                flag(c.bias),
                activation(c.activation)
            ),
            LayerSpec::BatchNorm(n) => format!(
                "nn.BatchNorm{}({}, eps={:?}, momentum={:?})",
                if image { "2d" } else { "1d" },
                layer.input.0[0],
                n.eps,
                n.momentum
            ),
            LayerSpec::LayerNorm(n) => {
                format!("nn.LayerNorm({}, eps={:?})", layer.input.0.last().copied().unwrap_or(1), n.eps)
            }
            LayerSpec::Activation(a) => format!("Apply({})", activation(Some(a.function))),
            LayerSpec::MaxPool2d(p) => {
                format!("nn.MaxPool2d({}, stride={}, padding={})", pair(p.size), pair(p.stride), pair(p.padding))
            }
            LayerSpec::AvgPool2d(p) => {
                format!("nn.AvgPool2d({}, stride={}, padding={})", pair(p.size), pair(p.stride), pair(p.padding))
            }
            LayerSpec::GlobalAvgPool => "Apply(lambda x: x.mean(dim=(-2, -1)))".to_owned(),
            LayerSpec::Flatten => "nn.Flatten()".to_owned(),
            LayerSpec::Dropout(d) => format!("nn.Dropout({:?})", d.rate),
            LayerSpec::Residual(_) | LayerSpec::Repeat(_) => {
                let (open, close) = match &layer.spec {
                    LayerSpec::Repeat(r) => (format!("Repeat({}, [", r.times), "]),"),
                    _ => ("Residual([".to_owned(), "]),"),
                };
                let _ = writeln!(out, "{indent}{open}");
                modules(out, model, &layer.children, depth + 1);
                let _ = writeln!(out, "{indent}{close}");
                continue;
            }
        };
        let _ = writeln!(out, "{indent}{line},");
    }
}

fn optimizer(spec: &OptimizerSpec) -> String {
    match *spec {
        OptimizerSpec::Sgd { lr, momentum, nesterov, weight_decay } => format!(
            "torch.optim.SGD(net.parameters(), lr={lr:?}, momentum={momentum:?}, nesterov={}, \
             weight_decay={weight_decay:?})",
            flag(nesterov)
        ),
        OptimizerSpec::Adam { lr, betas: [b1, b2], eps, weight_decay, decoupled } => format!(
            "torch.optim.{}(net.parameters(), lr={lr:?}, betas=({b1:?}, {b2:?}), eps={eps:?}, \
             weight_decay={weight_decay:?})",
            if decoupled { "AdamW" } else { "Adam" }
        ),
    }
}

/// The script without what depends on the network: each `@name@` stands for a value.
const TEMPLATE: &str = include_str!("pytorch_template.py");

/// The script's text.
#[must_use]
pub fn script(model: &Model, steps: u64, seed: u64, companions: &Companions, meaning: &Meaning) -> String {
    let mut values = data_values(model, companions, meaning);
    values.extend(network_values(model));
    values.extend([("steps", steps.to_string()), ("seed", seed.to_string())]);
    filled(TEMPLATE, &values)
}

/// A template with a value in place of every `@name@`.
fn filled(template: &str, values: &[(&str, String)]) -> String {
    let value = |name: &str| values.iter().find(|(n, _)| *n == name).map_or("", |(_, value)| value);
    let parts = template.split('@').enumerate();
    parts.map(|(index, part)| if index % 2 == 0 { part } else { value(part) }).collect()
}

/// What the script says of samples and of the files beside it.
fn data_values(model: &Model, companions: &Companions, meaning: &Meaning) -> Vec<(&'static str, String)> {
    let names = |list: &[String]| match list {
        [] => "None".to_owned(),
        list => format!("[{}]", list.iter().map(|n| literal(n)).collect::<Vec<_>>().join(", ")),
    };
    let numbers =
        |of: fn(&Scaling) -> &[f64]| meaning.scaling.as_ref().map_or("None".to_owned(), |s| format!("{:?}", of(s)));
    let evaluated = match companions.maybe_trained {
        true => "('held-out' if args.fresh else 'maybe trained on')",
        false => "'held-out'",
    };
    vec![
        ("title", model.name.replace(['"', '\\', '\n'], " ")),
        ("name", literal(&model.name)),
        ("weights", literal(&companions.weights)),
        ("data", companions.data.as_deref().map_or("None".to_owned(), literal)),
        ("notes", meaning.notes.iter().map(|n| format!("# {}\n", n.replace(char::is_control, " "))).collect()),
        ("feature_names", names(&meaning.features)),
        ("class_names", names(&meaning.classes)),
        ("mean", numbers(|s| &s.mean)),
        ("scale", numbers(|s| &s.scale)),
        ("evaluated", evaluated.to_owned()),
    ]
}

/// What the script says of the network and its training.
fn network_values(model: &Model) -> Vec<(&'static str, String)> {
    let mut layers = String::new();
    modules(&mut layers, model, &model.roots, 2);
    let has_classes = matches!(model.loss, LossSpec::SoftmaxCrossEntropy { .. });
    let loss = match model.loss {
        LossSpec::SoftmaxCrossEntropy { label_smoothing } => {
            format!("F.cross_entropy(output, y, label_smoothing={label_smoothing:?})")
        }
        LossSpec::Mse => "F.mse_loss(output, y)".to_owned(),
    };
    let plain_loss = if has_classes { "F.cross_entropy(output, y)" } else { "F.mse_loss(output, y)" };
    let accuracy = if has_classes { "(output.argmax(dim=1) == y).float().mean().item()" } else { "None" };
    let precision = match model.precision {
        Precision::F32 | Precision::Tf32 => "None",
        Precision::Bf16 => "torch.bfloat16",
        Precision::F16 => "torch.float16",
    };
    let matmul = if model.precision == Precision::Tf32 { "high" } else { "highest" };
    vec![
        ("shape", model.input.0.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
        ("batch", model.batch.to_string()),
        ("precision", precision.to_owned()),
        ("matmul", matmul.to_owned()),
        ("layers", layers),
        ("loss", loss),
        ("plain_loss", plain_loss.to_owned()),
        ("accuracy", accuracy.to_owned()),
        ("optimizer", optimizer(&model.optimizer)),
        ("targets", if has_classes { ".long()" } else { "" }.to_owned()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{check, read_preset};

    #[test]
    fn every_name_of_the_template_has_a_value() {
        let text = include_str!("../../../tests/data/everything.json");
        let model = check(&read_preset(text).unwrap()).model.unwrap();
        let beside = Companions { weights: "w.safetensors".into(), data: None, maybe_trained: false };
        let mut names: Vec<&str> = data_values(&model, &beside, &Meaning::default()).iter().map(|(n, _)| *n).collect();
        names.extend(network_values(&model).iter().map(|(n, _)| *n));
        names.extend(["steps", "seed"]);
        let used: Vec<&str> = TEMPLATE.split('@').skip(1).step_by(2).collect();
        assert!(used.iter().all(|name| names.contains(name)) && names.iter().all(|name| used.contains(name)));
        assert_eq!(filled("a @b@ c @d@@b@", &[("b", "@d@".into()), ("d", String::new())]), "a @d@ c @d@");
    }

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
            "Conv2d(4, 8, (3, 3), stride=(1, 1), padding=(1, 1), dilation=(1, 1), groups=2, bias=True, \
             activation=F.silu),"
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

    #[test]
    fn names_cannot_break_out_of_their_quotes() {
        assert_eq!(literal("a\"b\\c\nd"), "\"a\\\"b\\\\c\\nd\"");
    }
}
