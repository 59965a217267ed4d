//! What a change of one size leaves to the compiler of kernels, as plans for a GPU say.

use serde_json::Value;
use std::collections::BTreeSet;
use stepgraph::compile::{CpuOnly, Options, compile};
use stepgraph::model::{BUNDLED, Model, check, read_preset, read_value, write_preset};
use stepgraph::ops::{Epilogue, OpKind};
use stepgraph::select::cuda::{KernelSpec, Real, Route, custom_kernels, epilogue_ops, real_of};
use stepgraph::select::{CudaFacts, Kernels, Target, Variant};

/// The kernels of a network's training step on an H200, with the passes behind products of libraries.
fn kernels_of(model: &Model) -> Vec<KernelSpec> {
    let target = Target::h200();
    let facts = target.as_cuda().unwrap();
    let compiled = compile(model, &Options::train(target)).unwrap();
    let program = &compiled.plan.program;
    let cheapest = |kind: &OpKind, real: Real, facts: &CudaFacts| {
        let all = custom_kernels(kind, real, facts).into_iter();
        all.min_by(|a, b| a.cost_us.total_cmp(&b.cost_us)).unwrap().spec
    };
    let mut found = Vec::new();
    for (op, choice) in program.ops.iter().zip(&compiled.selection.choices) {
        let real = real_of(program, op, Real::from(model.precision));
        match choice.variant {
            Variant::Cuda(Route::Own(n)) => {
                found.push(custom_kernels(&op.kind, real, &facts).swap_remove(n.into()).spec);
            }
            _ => {
                let passes = epilogue_ops(&op.kind, Epilogue::default());
                found.extend(passes.iter().map(|(kind, _)| cheapest(kind, real, &facts)));
            }
        }
    }
    found
}

/// What the compiler is given for kernels, each alone.
fn compiled(specs: &[KernelSpec], kernels: Kernels) -> BTreeSet<String> {
    let text = |spec: &KernelSpec| {
        let spec = spec.clone().of(kernels).compiled();
        format!("{}\n{}", spec.declarations, spec.ty())
    };
    specs.iter().map(text).collect()
}

/// The first number of this name in a document.
fn first<'a>(value: &'a mut Value, name: &str) -> Option<&'a mut Value> {
    match value {
        Value::Object(fields) => {
            if fields.get(name).is_some_and(Value::is_u64) {
                return fields.get_mut(name);
            }
            fields.iter_mut().find_map(|(_, field)| first(field, name))
        }
        Value::Array(items) => items.iter_mut().find_map(|item| first(item, name)),
        _ => None,
    }
}

/// The network with this much more in the first size of a name; nothing where it has none, or that is a mistake.
fn grown(document: &Value, name: &str, by: u64) -> Option<Model> {
    let mut document = document.clone();
    let part = if name == "batch" { "input" } else { "layers" };
    let size = first(&mut document[part], name)?;
    *size = (size.as_u64()? + by).into();
    check(&read_value(&document).ok()?).model
}

/// How many kernels the compiler is given for each network after the one before it, beyond those of all before.
fn counts(networks: &[Vec<KernelSpec>], kernels: Kernels) -> Vec<usize> {
    let mut known = compiled(&networks[0], kernels);
    let mut count = |after: &Vec<KernelSpec>| {
        let before = known.len();
        known.extend(compiled(after, kernels));
        known.len() - before
    };
    networks[1..].iter().map(&mut count).collect()
}

/// A sum over the halves of a sequence, as text.
fn halves(counts: &[usize]) -> String {
    let (first, last) = counts.split_at(counts.len() / 2);
    format!("{} + {}", first.iter().sum::<usize>(), last.iter().sum::<usize>())
}

/// Every bundled network with sizes that grow by one, [`EDITS`] times one after the other: kernels that the compiler is
/// given in the first and in the second half of these, where all are specialised, and where general ones are taken.
/// Kernels are counted one by one, of one training step.
#[test]
fn changes_of_one_size_leave_fewer_and_fewer_general_kernels_to_the_compiler() {
    /// Changes of each size.
    const EDITS: u64 = 24;
    let mut out = String::new();
    for bundled in BUNDLED {
        let preset = read_preset(bundled.text).unwrap();
        let model = check(&preset).model.unwrap();
        // The plans of large networks take long.
        if CpuOnly::of(&model).is_some() || model.trained_len() > 2_000_000 {
            continue;
        }
        let document: Value = serde_json::from_str(&write_preset(&preset)).unwrap();
        for name in ["units", "filters", "batch"] {
            let changed: Option<Vec<Model>> = (1..=EDITS).map(|by| grown(&document, name, by)).collect();
            let Some(changed) = changed else { continue };
            let networks: Vec<_> = [&model].into_iter().chain(&changed).map(kernels_of).collect();
            let [specialised, general] =
                [Kernels::Specialised, Kernels::General].map(|kernels| counts(&networks, kernels));
            let (all, some) = (specialised.iter().sum::<usize>(), general.iter().sum::<usize>());
            assert!(some <= all, "{}, {name}: {some} of {all}", model.name);
            let line = [halves(&specialised), halves(&general)].join("; ");
            out.push_str(&format!("{}, {name}: {line}\n", model.name));
        }
    }
    let path = "tests/data/edits.txt";
    if std::env::var_os("UPDATE_GOLDENS").is_some() {
        std::fs::write(path, &out).unwrap();
    }
    assert_eq!(out, std::fs::read_to_string(path).unwrap(), "UPDATE_GOLDENS=1 writes {path} anew");
}
