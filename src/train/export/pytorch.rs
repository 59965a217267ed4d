//! A network with its training as a PyTorch script, with its weights and its data in files beside it.
//!
//! Modules are nested so that their parameters have the preset's names; a dense layer's weight is transposed when it is
//! loaded, because PyTorch stores `[units, in]`.

use super::Meaning;
use super::layers;
use super::python::{flag, literal};
use crate::data::Scaling;
use crate::model::schema::FieldView;
use crate::model::{
    Decay, FieldValue, Layer, LayerId, ListField, Model, NamedInput, OptimizerSpec, Precision, ScheduleKind, Targets,
    is_unnamed,
};
use std::fmt::Write as _;

/// The files beside the script.
#[derive(Clone, Debug)]
pub struct Companions {
    pub weights: String,
    /// `None` if the preset names no data.
    pub data: Option<String>,
    /// Whether the held-out samples may have been trained on before.
    pub maybe_trained: bool,
}

fn modules(out: &mut String, model: &Model, layers: &[LayerId], depth: usize) {
    let indent = "    ".repeat(depth);
    for id in layers {
        let layer = model.layer(*id);
        let module = layers::pytorch(layer, *id);
        if layer.spec.is_block() {
            let _ = writeln!(out, "{indent}{module}[");
            let (begin, end) = match layer.spec.list_field() {
                Some(ListField::Branches) => ("Block([", "]),"),
                Some(ListField::Paths) => ("[", "],"),
                _ => ("", ""),
            };
            for list in &layer.lists {
                if begin.is_empty() {
                    modules(out, model, list, depth + 1);
                } else {
                    let _ = writeln!(out, "{indent}    {begin}");
                    modules(out, model, list, depth + 2);
                    let _ = writeln!(out, "{indent}    {end}");
                }
            }
            let _ = writeln!(out, "{indent}]),");
        } else {
            let _ = writeln!(out, "{indent}{module},");
        }
    }
}

/// The class of dense layers that use the weight of an embedding.
const TIED: &str = include_str!("pytorch_tied.py");

/// The lines that assign embeddings to the dense layers that use their weights.
fn ties(model: &Model) -> String {
    let line = |layer: &Layer| {
        layer.spec.tied()?;
        let embedding = model.layer(model.param(*layer.params.first()?).layer);
        let [layer, embedding] = [layer, embedding].map(|of| literal(&of.path.dotted()));
        Some(format!("    net.get_submodule({layer}).tie(net.get_submodule({embedding}))\n"))
    };
    model.layers.iter().filter_map(line).collect()
}

/// The classes that only networks with branches need.
const PARALLEL: &str = include_str!("pytorch_parallel.py");

/// The classes that only networks with layers that choose need.
const CHOICES: &str = include_str!("pytorch_choices.py");

/// The class of this name, with the fields as its settings.
fn optimizer(spec: &OptimizerSpec, decay: Decay) -> String {
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
    let module = if spec.pytorch_class().is_some() { "" } else { "torch.optim." };
    let parameters = match decay {
        Decay::All => "net.parameters()",
        Decay::Matrices => {
            "[{\"params\": [p for p in net.parameters() if p.dim() != 1]}, \\\n        \
             {\"params\": [p for p in net.parameters() if p.dim() == 1], \"weight_decay\": 0.0}]"
        }
    };
    format!("{module}{}({parameters}{settings})", spec.title())
}

/// The function that computes the rate of a step, if it changes.
fn schedule(model: &Model) -> String {
    let (schedule, lr) = (model.update.schedule, model.optimizer.lr());
    if schedule.is_constant() {
        return String::new();
    }
    let curve = match schedule.kind {
        ScheduleKind::Constant => format!("{lr:?}"),
        ScheduleKind::Linear => format!("{lr:?} * (1 - (1 - {:?}) * p)", schedule.last),
        ScheduleKind::Cosine => {
            let last = schedule.last;
            format!("{lr:?} * ({last:?} + (1 - {last:?}) * (1 + math.cos(math.pi * p)) / 2)")
        }
        ScheduleKind::Step => format!("{lr:?} * {:?} ** ((s - 1) // {})", schedule.factor, schedule.every),
    };
    let warmup = schedule.warmup;
    let mut out = String::from("def rate_of(s, steps):\n");
    if schedule.kind.has_end() {
        out = format!("import math\n\n\n{out}");
    }
    if warmup > 0 {
        let _ = writeln!(out, "    if s <= {warmup}:\n        return {lr:?} * s / {warmup}");
    }
    if schedule.kind.has_end() {
        let _ = writeln!(out, "    p = (s - {warmup}) / (steps - {warmup})");
    }
    let _ = writeln!(out, "    return {curve}\n\n");
    out
}

/// The lines that set the rate and process the gradients before each step of the optimizer.
fn before_steps(model: &Model) -> [String; 2] {
    let mut lines = [String::new(), String::new()];
    if !model.update.schedule.is_constant() {
        lines[0] = "            for group in optimizer.param_groups:\n                \
                    group[\"lr\"] = rate_of(step + 1, steps)\n"
            .into();
    }
    if model.update.clips() {
        lines[1] = format!(
            "            scaler.unscale_(optimizer)\n            \
             torch.nn.utils.clip_grad_norm_(net.parameters(), {:?})\n",
            model.update.clip_norm
        );
    }
    lines
}

/// How several batches make one step: how they are counted, when gradients are reset, the weight of a batch in the
/// mean, and what is done only for the last of them.
fn accumulation(model: &Model) -> [(&'static str, String); 4] {
    let zero = "optimizer.zero_grad(set_to_none=True)\n";
    let count = model.accumulate;
    let texts = match count {
        1 => [String::new(), format!("            {zero}"), String::new(), String::new()],
        _ => [
            "    seen = 0\n".into(),
            format!("            if seen % {count} == 0:\n                {zero}"),
            format!(" / {count}"),
            format!("            seen += 1\n            if seen % {count}:\n                continue\n"),
        ],
    };
    let [seen, zero, share, whole] = texts;
    [("seen", seen), ("zero", zero), ("share", share), ("whole", whole)]
}

/// The text of the script that does not depend on the network: each `@name@` is replaced by a value.
const TEMPLATE: &str = include_str!("pytorch_template.py");
/// Samples of an unnamed input, as [`TEMPLATE`].
const INPUT: &str = include_str!("pytorch_input.py");
/// Samples of named inputs, as [`TEMPLATE`].
const INPUTS: &str = include_str!("pytorch_inputs.py");

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

/// The comments of the script about samples and about the files beside it.
fn data_values(model: &Model, companions: &Companions, meaning: &Meaning) -> Vec<(&'static str, String)> {
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
        ("class_names", names(&meaning.classes)),
        ("samples", samples(model, meaning)),
        ("evaluated", evaluated.to_owned()),
    ]
}

/// Texts as a list of Python; `None` without any.
fn names(list: &[String]) -> String {
    match list {
        [] => "None".to_owned(),
        list => format!("[{}]", list.iter().map(|n| literal(n)).collect::<Vec<_>>().join(", ")),
    }
}

/// The sizes of a shape, separated by commas.
fn sizes(input: &NamedInput) -> String {
    input.shape.0.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// The type of an input for PyTorch's layers.
fn sample_type(input: &NamedInput) -> &'static str {
    if input.content.is_tokens() { "torch.int64" } else { "torch.float32" }
}

/// How the script reads and prepares samples: those of an unnamed input, or of named inputs.
fn samples(model: &Model, meaning: &Meaning) -> String {
    let number = |of: &[f64]| format!("{of:?}");
    if is_unnamed(&model.inputs) {
        let input = &model.inputs[0];
        let numbers =
            |of: fn(&Scaling) -> &[f64]| meaning.scaling.as_ref().map_or("None".to_owned(), |s| number(of(s)));
        let is_tokens = input.content.is_tokens();
        let values = [
            ("shape", sizes(input)),
            ("feature_names", names(&meaning.features)),
            ("mean", numbers(|s| &s.mean)),
            ("scale", numbers(|s| &s.scale)),
            ("cast", if is_tokens { ".long()" } else { "" }.to_owned()),
            ("zeros_type", if is_tokens { "dtype=torch.int64, " } else { "" }.to_owned()),
            ("sample_type", sample_type(input).to_owned()),
        ];
        return filled(INPUT, &values);
    }
    let of_each = |text: &dyn Fn(&NamedInput) -> Option<String>| {
        let items = model.inputs.iter().filter_map(|i| Some(format!("{}: {}", literal(&i.name), text(i)?)));
        items.collect::<Vec<_>>().join(", ")
    };
    let scaling = |input: &NamedInput, of: fn(&Scaling) -> &[f64]| {
        meaning.of_input(&input.name).scaling.as_ref().map(|scaling| number(of(scaling)))
    };
    let values = [
        ("inputs", of_each(&|input| Some(format!("(({},), {})", sizes(input), sample_type(input))))),
        ("input_features", of_each(&|input| Some(names(&meaning.of_input(&input.name).features)))),
        ("input_means", of_each(&|input| scaling(input, |s| &s.mean))),
        ("input_scales", of_each(&|input| scaling(input, |s| &s.scale))),
    ];
    filled(INPUTS, &values)
}

/// The return value of `answer`, and the lines that compute it.
fn answers(model: &Model) -> [(&'static str, String); 2] {
    let (about, lines) = match model.loss.targets() {
        Targets::Classes if model.output.rank() > 1 => (
            "The name of each position's class; its number where classes have no names",
            "    found = output.argmax(dim=-1).tolist()\n    \
             return found if CLASSES is None else [[CLASSES[k] for k in row] for row in found]",
        ),
        Targets::Classes => (
            "The name of each sample's class; its number where classes have no names",
            "    found = output.argmax(dim=-1).tolist()\n    \
             return found if CLASSES is None else [CLASSES[k] for k in found]",
        ),
        Targets::Binary => {
            ("The probability that each output's answer is yes", "    return torch.sigmoid(output).tolist()")
        }
        Targets::Values => ("The outputs of each sample", "    return output.tolist()"),
    };
    [("answers", about.to_owned()), ("answer", lines.to_owned())]
}

/// The comments of the script about the network and its training.
fn network_values(model: &Model) -> Vec<(&'static str, String)> {
    let mut layers = String::new();
    modules(&mut layers, model, &model.roots, 2);
    let ties = ties(model);
    // PyTorch has classes on the second axis; here each position is a separate row.
    let is_by_position = model.output.rank() > 1 && model.loss.wants_classes();
    let loss = |is_plain| match is_by_position {
        true => model.loss.pytorch(is_plain).replace("(output, y", "(output.flatten(0, -2), y.flatten()"),
        false => model.loss.pytorch(is_plain),
    };
    let has_branches = model.layers.iter().any(|l| l.spec.list_field() == Some(ListField::Branches));
    let plain = if has_branches || !is_unnamed(&model.inputs) { "Network" } else { "Block" };
    let accuracy = match model.loss.targets() {
        Targets::Classes if is_by_position => "(output.argmax(dim=-1) == y).float().mean().item()",
        Targets::Classes => "(output.argmax(dim=1) == y).float().mean().item()",
        Targets::Binary => "((output > 0) == (y > 0.5)).float().mean().item()",
        Targets::Values => "None",
    };
    let precision = match model.precision {
        Precision::F32 | Precision::Tf32 => "None",
        Precision::Bf16 => "torch.bfloat16",
        Precision::F16 => "torch.float16",
    };
    let [rate, clip] = before_steps(model);
    let matmul = if model.precision == Precision::Tf32 { "high" } else { "highest" };
    let mut values = vec![
        ("batch", model.batch.to_string()),
        ("precision", precision.to_owned()),
        ("matmul", matmul.to_owned()),
        ("layers", layers),
        ("tied_class", if ties.is_empty() { String::new() } else { format!("{TIED}\n\n") }),
        ("ties", ties),
        ("loss", loss(false)),
        ("plain_loss", loss(true)),
        ("network", if model.chooses() { "Choosing" } else { plain }.to_owned()),
        (
            "choosing_classes",
            match model.chooses() {
                true => format!("{}\n\n", filled(CHOICES, &[("network", plain.to_owned())])),
                false => String::new(),
            },
        ),
        ("choice", if model.chooses() { "            Choice.step = step + 1\n" } else { "" }.to_owned()),
        (
            "parallel_classes",
            if has_branches || !is_unnamed(&model.inputs) { format!("{PARALLEL}\n\n") } else { String::new() },
        ),
        ("accuracy", accuracy.to_owned()),
        ("optimizer", optimizer(&model.optimizer, model.update.decay)),
        ("schedule", schedule(model)),
        ("rate", rate),
        ("clip", clip),
        ("optimizer_class", model.optimizer.pytorch_class().map_or(String::new(), |text| format!("{text}\n\n"))),
        ("targets", if model.loss.wants_classes() { ".long()" } else { "" }.to_owned()),
    ];
    values.extend(accumulation(model));
    values.extend(answers(model));
    values
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
    fn every_optimizer_is_of_a_class_of_pytorch_or_of_the_script() {
        let mut preset = read_preset(include_str!("../../../tests/data/everything.json")).unwrap();
        let beside = Companions { weights: "w.safetensors".into(), data: None, maybe_trained: false };
        for spec in OptimizerSpec::NAMES.iter().filter_map(|name| OptimizerSpec::example(name)) {
            preset.optimizer = spec;
            let script = script(&check(&preset).model.unwrap(), 50, 7, &beside, &Meaning::default());
            let (title, own) = (spec.title(), spec.pytorch_class());
            let line = script.lines().find(|line| line.starts_with("    optimizer = ")).unwrap();
            let module = if own.is_some() { "" } else { "torch.optim." };
            assert!(line.starts_with(&format!("    optimizer = {module}{title}(net.parameters(), lr=")), "{line}");
            let class = format!("\n\n\nclass {title}(torch.optim.Optimizer):\n");
            assert_eq!(script.contains(&class), own.is_some(), "{title}");
            assert!(script.contains("\n\n\ndef train(net") && !script.contains("\n\n\n\n"), "{title}");
        }
    }

    #[test]
    fn a_tied_layer_gets_its_embedding_once_the_network_is_built() {
        let text = r#"{"version": 1, "name": "t", "input": {"type": "tokens", "shape": [4], "vocab": 9, "batch": 2},
            "layers": [{"type": "embedding", "units": 5},
                {"type": "residual", "layers": [{"type": "dense", "units": 9, "tied": "layers[0]", "bias": false},
                    {"type": "dense", "units": 5}]}],
            "loss": {"type": "mse"}, "optimizer": {"type": "sgd", "lr": 0.1}}"#;
        let model = check(&read_preset(text).unwrap()).model.unwrap();
        let beside = Companions { weights: "w.safetensors".into(), data: None, maybe_trained: false };
        let script = script(&model, 50, 7, &beside, &Meaning::default());
        let tie = r#"    net.get_submodule("layers.1.layers.0").tie(net.get_submodule("layers.0"))"#;
        assert!(script.contains(&format!("\n    ])\n{tie}\n    return net\n")), "{script}");
        assert!(script.contains("\n\n\nclass Tied(nn.Module):\n") && !script.contains("\n\n\n\n"));
        let plain = include_str!("../../../tests/data/everything.json");
        let model = check(&read_preset(plain).unwrap()).model.unwrap();
        let script = super::script(&model, 50, 7, &beside, &Meaning::default());
        assert!(!script.contains("Tied") && script.contains("\n    ])\n    return net\n"));
    }

    #[test]
    fn every_layer_becomes_a_module_in_its_place() {
        let text = include_str!("../../../tests/data/everything.json");
        let model = check(&read_preset(text).unwrap()).model.unwrap();
        let beside = Companions { weights: "w.safetensors".into(), data: None, maybe_trained: false };
        let script = script(&model, 50, 7, &beside, &Meaning::default());
        let modules: Vec<&str> =
            script.split("net = Block([\n").nth(1).unwrap().split("\n    ])").next().unwrap().lines().collect();
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
}
