//! The text that is passed to the run-time compiler. It is compared byte for byte, because different text may compile
//! and have another speed or other rounding.

use crate::nets::ODD;
use stepgraph::compile::{Compiled, CpuOnly, Options, compile};
use stepgraph::exec::cuda::{Arch, KernelSource, compile_source, probe, sources};
use stepgraph::model::{BUNDLED, Model, Precision, check, read_preset};
use stepgraph::select::cuda::{KernelFile, KernelSpec, Real, Route, custom_kernels, real_of};
use stepgraph::select::{Kernels, Target, Variant};
use stepgraph::tensor::Fnv;

const PRECISIONS: [Precision; 4] = [Precision::F32, Precision::Tf32, Precision::Bf16, Precision::F16];

const MIDDLE: &str = r#"{"version": 1, "name": "middle", "input": {"shape": [784], "batch": 128}, "layers": [
    {"type": "dense", "units": 512, "activation": "relu"}, {"type": "dense", "units": 512, "activation": "relu"},
    {"type": "dense", "units": 10}],
    "loss": {"type": "softmax_cross_entropy"}, "optimizer": {"type": "adamw", "lr": 0.001}}"#;

const LARGE: &str = r#"{"version": 1, "name": "large", "input": {"shape": [32, 32, 64], "batch": 256}, "layers": [
    {"type": "conv2d", "filters": 64, "kernel": 3, "padding": "same", "activation": "relu"},
    {"type": "conv2d", "filters": 64, "kernel": 3, "padding": "same", "activation": "relu"},
    {"type": "flatten"}, {"type": "dense", "units": 1024, "activation": "gelu"}, {"type": "dense", "units": 2048}],
    "loss": {"type": "softmax_cross_entropy"}, "optimizer": {"type": "adam", "lr": 0.001}}"#;

/// Digests of what follows the kernels' files in every source of a network: all candidates of each operation, alone and
/// in a launch with the preceding operation, in all precisions, for training and evaluation. They were computed before
/// the fields of `KernelSpec` replaced text searches.
const DIGESTS: [(&str, u64); 26] = [
    ("digits-mlp", 0x7021_9317_9db0_f0c9),
    ("digits-cnn", 0xecb6_28ac_1504_09c5),
    ("digits-residual", 0x0559_b0e5_9de3_9d9e),
    ("stochastic-depth", 0xde12_c138_fc47_b6b2),
    ("early-exit", 0xb68e_3136_6faa_ee44),
    ("branches", 0xc372_0b5f_76d2_453c),
    ("gru-digits", 0xa3f2_5ebe_6000_5d1d),
    ("gpt-sums", 0x3cb3_c3c8_780d_08d8),
    ("gpt-source", 0xd46a_2afa_cb40_91b9),
    ("bucketed-text", 0x5dd1_1b8d_b6e0_4561),
    ("short-batches", 0x8d21_38a2_4003_668e),
    ("lstm-waves", 0x3fb9_f110_9118_01c8),
    ("two-inputs", 0xa191_4c1b_74bd_d88d),
    ("spirals", 0x055d_b2ce_3a49_314c),
    ("moons-deep", 0xbc75_fb52_a189_575b),
    ("circles", 0x3a40_209a_83d0_585d),
    ("xor", 0xd8fa_8260_59de_8c6f),
    ("iris", 0x0139_28da_c36f_4440),
    ("regression", 0x9224_44d0_38b4_6d89),
    ("shared-weights", 0x7af1_8c2d_c46e_319a),
    ("mlp-gelu-layernorm", 0x9151_530b_c409_0379),
    ("dense-dense", 0x3273_e3f1_4191_34bd),
    ("linear-relu-linear", 0xe9ef_869a_e874_ee1c),
    ("odd", 0x76e7_8b3b_5fc6_6ca4),
    ("middle", 0x4d51_ec3b_0ead_e704),
    ("large", 0x2ab9_c13b_1403_ab32),
];

/// The members of every source that is digested for one compiled network.
fn members_of(compiled: &Compiled, precision: Precision) -> Vec<Vec<KernelSpec>> {
    let facts = Target::h200().as_cuda().unwrap();
    let feed = |arguments: &str| KernelSpec::new(KernelFile::Feed, "Feed", arguments.into());
    let mut out = Vec::new();
    let mut before: Option<KernelSpec> = None;
    for op in &compiled.plan.program.ops {
        let real = real_of(&compiled.selection.program, op, Real::from(precision));
        for kernel in custom_kernels(&op.kind, real, &facts) {
            let spec = kernel.spec;
            out.push(vec![spec.clone()]);
            out.extend(before.take().map(|before| vec![before, spec.clone()]));
            if op.kind.name() == "step_metrics" {
                let arguments = format!("{}, 256, 5, 6", spec.ty());
                let closing = KernelSpec { template: "ClosingMetrics", arguments, ..spec.clone() };
                out.push(vec![feed("float, 784, int, int, 1, 128, 60000, 5, 6, 256, false"), closing]);
            }
            before = Some(spec);
        }
    }
    out.push(vec![KernelSpec::new(KernelFile::Clear, "Clear", String::new())]);
    out.push(vec![feed("bf16, 64, int, int, 1, 8, 1437, 5, 0, 256, true")]);
    out
}

/// What follows the kernels' files in a source, which contains the files that its members need, in their order.
fn tail(members: &[KernelSpec]) -> String {
    let text = members.iter().cloned().collect::<KernelSource>().text();
    let at = text.find("namespace member0 {").unwrap();
    let mut head = &text[..at];
    let is_needed = |name: &str| {
        let mut files = members.iter().flat_map(|m| [Some(m.file), m.file.base()]).flatten();
        files.any(|file| file.name() == name)
    };
    for (name, file) in sources().iter().rev().filter(|(n, _)| is_needed(n)) {
        head = head.strip_suffix(file).unwrap_or_else(|| panic!("{name} is not where it belongs"));
    }
    text[at..].to_owned()
}

#[test]
fn the_text_of_every_kernel_equals_its_stored_digest() {
    let texts = BUNDLED.iter().map(|b| b.text).chain([ODD, MIDDLE, LARGE]);
    let mut found = Vec::new();
    for text in texts {
        let model = check(&read_preset(text).unwrap()).model.unwrap();
        // The largest network takes half a minute and adds no kernel. Others have no kernels for a GPU.
        if model.name == "stress-200" || CpuOnly::of(&model).is_some() {
            continue;
        }
        let mut digest = Fnv::new();
        for precision in PRECISIONS {
            let model = Model { precision, ..model.clone() };
            for eval in [false, true] {
                let options = if eval { Options::eval(Target::h200()) } else { Options::train(Target::h200()) };
                let compiled = compile(&model, &options).unwrap();
                for members in members_of(&compiled, precision) {
                    for member in &members {
                        digest.add(member.file.name().as_bytes());
                        digest.add(b"\n");
                    }
                    digest.add(tail(&members).as_bytes());
                }
            }
        }
        found.push((model.name.clone(), digest.sum()));
    }
    let expected: Vec<(String, u64)> = DIGESTS.iter().map(|(name, digest)| ((*name).to_owned(), *digest)).collect();
    assert_eq!(found, expected, "names and digests");
}

#[test]
fn clusters_and_large_shared_memory_are_fields() {
    let model = check(&read_preset(MIDDLE).unwrap()).model.unwrap();
    let model = Model { precision: Precision::Bf16, ..model };
    let compiled = compile(&model, &Options::train(Target::h200())).unwrap();
    for members in members_of(&compiled, Precision::Bf16) {
        for spec in members {
            let declares = spec.declarations.contains("__cluster_dims__");
            assert_eq!(spec.cluster_blocks > 1, declares, "{}", spec.ty());
            assert_eq!(spec.prefers_shared_memory, spec.template == "GemmDirect", "{}", spec.ty());
            assert!(spec.pdl.reads_flags || !spec.pdl.leaves_room, "{}", spec.ty());
        }
    }
}

/// The groups of a plan whose operations may share launches, with their kernels.
fn groups_of(compiled: &Compiled) -> Vec<Vec<KernelSpec>> {
    let (selection, groups) = (&compiled.selection, &compiled.plan.groups);
    let facts = selection.target.as_cuda().unwrap();
    let mut found: Vec<Vec<KernelSpec>> = Vec::new();
    for (index, (op, choice)) in compiled.plan.program.ops.iter().zip(&selection.choices).enumerate() {
        let Variant::Cuda(Route::Own(number)) = choice.variant else { continue };
        let real = real_of(&selection.program, op, selection.real);
        let kernel = custom_kernels(&op.kind, real, &facts).swap_remove(number.into());
        if index == 0 || groups[index] != groups[index - 1] {
            found.push(Vec::new());
        }
        found.last_mut().unwrap().push(kernel.spec.of(selection.target.kernels));
    }
    found.retain(|group| group.len() > 1);
    found
}

#[test]
fn launches_that_general_kernels_share_compile_and_count_their_blocks_from_numbers() {
    let mut count = 0;
    // All kernels of the first two have one phase. Gradients of convolutions have two.
    for (name, only) in [("digits-mlp", None), ("moons-deep", None), ("digits-cnn", Some("ConvGemm"))] {
        let text = BUNDLED.iter().find(|bundled| bundled.name == name).unwrap().text;
        let model = check(&read_preset(text).unwrap()).model.unwrap();
        let target = Target::h200().with_kernels(Kernels::General);
        for mut members in groups_of(&compile(&model, &Options::train(target)).unwrap()) {
            members.retain(|member| only.is_none_or(|template| member.template == template));
            if members.len() < 2 {
                continue;
            }
            members.sort_by_key(KernelSpec::ty);
            let text = members.iter().cloned().collect::<KernelSource>().text();
            assert!(members.iter().any(KernelSpec::is_general), "{members:?}");
            assert!(
                text.contains("{PHASES, THREADS, 0, 0, ")
                    && text.contains("geometry(const __grid_constant__ Members m,")
            );
            for (index, member) in members.iter().enumerate().filter(|(_, member)| member.is_general()) {
                for phase in 0..=usize::from(only.is_some()) {
                    let blocks = format!("::Op::blocks_for(m.a[{index}], {phase})");
                    assert!(text.contains(&blocks), "{} in {text}", member.ty());
                }
            }
            count += 1;
            if probe().has("nvrtc") {
                let code = compile_source(&text, Arch(9, 0));
                assert!(
                    code.as_ref().is_ok_and(|c| c.len() > 500),
                    "{members:?}\n{:?}",
                    code.err().map(|e| e.to_string())
                );
            }
        }
    }
    assert!(count > 5, "{count} groups");
}
