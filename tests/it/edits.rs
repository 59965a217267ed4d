//! How many kernels must be compiled after changes of a network's sizes, by plans for a GPU.

use crate::nets::RULES;
use std::collections::{BTreeSet, HashSet};
use stepgraph::compile::{CpuOnly, Options, compile};
use stepgraph::exec::cuda::KernelSource;
use stepgraph::model::{BUNDLED, Precision, Preset, Sizes, check, read_preset};
use stepgraph::ops::{Epilogue, OpKind};
use stepgraph::select::cuda::{KernelSpec, Real, Route, custom_kernels, epilogue_ops, real_of};
use stepgraph::select::{CudaFacts, Kernels, Target, Variant};
use stepgraph::train::{CommonKernels, FIRST_RANDOM_GROUP, after_small_edits};

/// The kernels of a network's training step on an H200, including the passes after products of libraries.
fn kernels_of(preset: &Preset) -> Vec<KernelSpec> {
    let model = check(preset).model.unwrap();
    let target = Target::h200();
    let facts = target.as_cuda().unwrap();
    let compiled = compile(&model, &Options::train(target)).unwrap();
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

/// The sources of a network's kernels, one for each.
fn sources_of(preset: &Preset, kernels: Kernels) -> BTreeSet<String> {
    let text = |spec: KernelSpec| {
        let spec = spec.of(kernels).compiled();
        format!("{}\n{}", spec.declarations, spec.ty())
    };
    kernels_of(preset).into_iter().map(text).collect()
}

/// Every bundled network that can be trained on a GPU and is planned quickly.
fn networks() -> impl Iterator<Item = Preset> {
    let presets = BUNDLED.iter().map(|bundled| read_preset(bundled.text).unwrap());
    presets.filter(|preset| {
        let model = check(preset).model.unwrap();
        CpuOnly::of(&model).is_none() && model.trained_len() <= 2_000_000
    })
}

/// The network after changes of its first size with a name, one after the other, by amounts with all remainders, each
/// larger than the sizes that are compiled in advance. `None` if it has no such size, or a change is a mistake.
fn changes(preset: &Preset, name: &str, count: u64) -> Option<Vec<Preset>> {
    let sizes = Sizes::of(preset);
    let place = sizes.places.iter().find(|place| place.pointer.ends_with(name))?;
    (0..count).map(|number| sizes.changed(place, place.value + 9 + 7 * number)).collect()
}

/// The number of kernels that are compiled for the networks, one after the other, while the user waits: kernels of no
/// earlier network, nor, if `is_ahead`, of a small change of one.
fn waited_for(first: &Preset, networks: &[Preset], kernels: Kernels, is_ahead: bool) -> usize {
    let mut known = BTreeSet::new();
    let mut count = 0;
    for (number, preset) in [first].into_iter().chain(networks).enumerate() {
        let sources = sources_of(preset, kernels);
        if number > 0 {
            count += sources.difference(&known).count();
        }
        known.extend(sources);
        if is_ahead {
            known.extend(after_small_edits(preset).flat_map(|near| sources_of(&near, kernels)));
        }
    }
    count
}

/// Compares a table with the stored one, or writes it on request.
fn compare(file: &str, found: &str) {
    let path = format!("tests/data/{file}");
    if std::env::var_os("UPDATE_GOLDENS").is_some() {
        std::fs::write(&path, found).unwrap();
    }
    assert_eq!(found, std::fs::read_to_string(&path).unwrap(), "{file}: UPDATE_GOLDENS=1 rewrites it");
}

/// Kernels for eight changes of a size: specialised ones, and general ones.
#[test]
fn after_changes_of_a_size_few_general_kernels_must_be_compiled() {
    let mut out = String::new();
    let mut sums = [0, 0];
    for preset in networks() {
        for name in ["/units", "/filters", "/batch"] {
            let Some(networks) = changes(&preset, name, 8) else { continue };
            let counts =
                [Kernels::Specialised, Kernels::General].map(|kernels| waited_for(&preset, &networks, kernels, false));
            sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
            out.push_str(&format!(
                "{} {}: {} specialised, {} general\n",
                preset.name,
                &name[1..],
                counts[0],
                counts[1]
            ));
        }
    }
    out.push_str(&format!("all: {} specialised, {} general\n", sums[0], sums[1]));
    compare("edits.txt", &out);
}

/// The kernels that random networks need also serve networks of another origin: those that are bundled.
#[test]
fn most_networks_need_few_kernels_that_are_not_common() {
    let mut common = CommonKernels::new(Target::h200().with_kernels(Kernels::General), Precision::F32);
    // The groups before them hold the bundled networks and larger ones.
    let first_groups = FIRST_RANDOM_GROUP..FIRST_RANDOM_GROUP + 8;
    let known: HashSet<KernelSource> = first_groups.flat_map(|group| common.of_group(group, || true)).collect();
    let mut out = format!("{} common kernels of 2,000 random networks\n", known.len());
    let mut sums = [0, 0, 0];
    for preset in networks() {
        let wanted = common.kernels_of(&Preset { precision: Precision::F32, ..preset.clone() }, true);
        let others: Vec<_> = wanted.iter().filter(|(own, _)| !known.contains(*own)).map(|(_, wider)| wider).collect();
        let missing = others.iter().filter(|wider| wider.as_ref().is_none_or(|wider| !known.contains(wider))).count();
        let found = [missing, others.len(), wanted.len()];
        sums.iter_mut().zip(found).for_each(|(sum, count)| *sum += count);
        out.push_str(&line(&preset.name, found));
    }
    out.push_str(&line("all", sums));
    assert!(15 * sums[0] < sums[2] && sums[1] < sums[2] / 8, "{out}");
    compare("common_kernels.txt", &out);
}

/// What a table says of the kernels of a network.
fn line(name: &str, [missing, others, wanted]: [usize; 3]) -> String {
    format!("{name}: {others} of {wanted} are not among them, and nothing among them stands in for {missing}\n")
}

/// The constants of an optimizer are read from memory, as sizes are from arguments.
#[test]
fn a_change_of_an_optimizers_constants_needs_no_other_general_kernels() {
    for text in RULES {
        let before = read_preset(text).unwrap();
        let mut document: serde_json::Value = serde_json::from_str(text).unwrap();
        let optimizer = &mut document["optimizer"];
        if let Some(betas) = optimizer.get_mut("betas") {
            *betas = serde_json::json!([0.79, 0.93]);
        } else {
            optimizer["momentum"] = serde_json::json!(0.61);
        }
        let after = read_preset(&document.to_string()).unwrap();
        let different = |kernels| sources_of(&before, kernels) != sources_of(&after, kernels);
        assert!(different(Kernels::Specialised) && !different(Kernels::General), "{}", before.name);
    }
}

/// If general kernels for small changes were compiled in advance, larger changes need few others.
#[test]
fn kernels_compiled_for_small_changes_also_serve_larger_ones() {
    let mut out = String::new();
    for preset in
        networks().filter(|preset| ["digits-mlp", "mlp-gelu-layernorm", "digits-cnn"].contains(&&*preset.name))
    {
        for name in ["/units", "/filters", "/batch"] {
            let Some(networks) = changes(&preset, name, 4) else { continue };
            let counts = [false, true].map(|is_ahead| waited_for(&preset, &networks, Kernels::General, is_ahead));
            let [alone, ahead] = counts;
            out.push_str(&format!("{} {}: {alone} general, {ahead} with others ahead\n", preset.name, &name[1..]));
        }
    }
    compare("edits_ahead.txt", &out);
}
