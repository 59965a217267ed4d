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

/// Kernels that are new in `after`.
fn new(before: &[KernelSpec], after: &[KernelSpec], kernels: Kernels) -> Vec<String> {
    compiled(after, kernels).difference(&compiled(before, kernels)).cloned().collect()
}

#[test]
fn a_change_of_one_size_leaves_few_kernels_to_the_compiler() {
    let mut sums = [[0usize; 3]; 3];
    let mut left = BTreeSet::new();
    for bundled in BUNDLED {
        let preset = read_preset(bundled.text).unwrap();
        let model = check(&preset).model.unwrap();
        if CpuOnly::of(&model).is_some() || model.name.starts_with("gpt2") {
            continue;
        }
        let document: Value = serde_json::from_str(&write_preset(&preset)).unwrap();
        let before = kernels_of(&model);
        for (sum, name) in sums.iter_mut().zip(["units", "filters", "batch"]) {
            let Some(changed) = grown(&document, name, 1) else { continue };
            let Some(again) = grown(&document, name, 3) else { continue };
            let [changed, again] = [changed, again].map(|model| kernels_of(&model));
            let specialised = new(&before, &changed, Kernels::Specialised);
            let general = new(&before, &changed, Kernels::General);
            let next = new(&[before.clone(), changed.clone()].concat(), &again, Kernels::General);
            println!(
                "{}, {name}: {} of {} kernels, {} general, {} after another change",
                model.name,
                specialised.len(),
                compiled(&changed, Kernels::Specialised).len(),
                general.len(),
                next.len()
            );
            for (count, kernels) in sum.iter_mut().zip([&specialised, &general, &next]) {
                *count += kernels.len();
            }
            left.extend(next.into_iter().map(|text| format!("{name}: {}", text.trim_start())));
        }
    }
    println!("{sums:?}\n{}", left.iter().map(|l| l.lines().last().unwrap_or_default()).collect::<Vec<_>>().join("\n"));
}
