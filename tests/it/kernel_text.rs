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
/// the fields of `KernelSpec` replaced text searches; those of networks with recurrent layers again when grids got an
/// argument for their ranges.
const DIGESTS: [(&str, u64); 26] = [
    ("digits-mlp", 0x4cba_fa77_5ef3_a0a1),
    ("digits-cnn", 0x0bb0_bda8_d27d_85bf),
    ("digits-residual", 0x63b5_0087_f1e7_00e4),
    ("stochastic-depth", 0xfdce_8366_34a6_5700),
    ("early-exit", 0x5a15_c560_549a_11c8),
    ("branches", 0x01c7_06df_6f27_6510),
    ("gru-digits", 0x050a_18be_bd55_b5ef),
    ("gpt-sums", 0xb559_0b7a_53eb_bcac),
    ("gpt-source", 0x00bb_745a_2de3_62b5),
    ("bucketed-text", 0x5b54_e8f1_3036_b7d1),
    ("short-batches", 0x3d4a_0c5f_75ce_46f2),
    ("lstm-waves", 0xd891_6b82_3ddc_0898),
    ("two-inputs", 0xe18a_345b_8189_187d),
    ("spirals", 0xe847_77aa_f187_3cec),
    ("moons-deep", 0x2e02_cbca_3039_dd3f),
    ("circles", 0x8d27_ab75_ef67_73e5),
    ("xor", 0xa07c_ee03_4d21_5c53),
    ("iris", 0x5765_8326_39a0_5e10),
    ("regression", 0x2e80_041d_c85d_4d31),
    ("shared-weights", 0x1d21_3da1_ffbc_e42a),
    ("mlp-gelu-layernorm", 0x3e0d_ce60_27b1_ffb9),
    ("dense-dense", 0x93ce_546c_7233_dd59),
    ("linear-relu-linear", 0xbcd7_002f_224b_8494),
    ("odd", 0xdc67_cb46_073d_0ff8),
    ("middle", 0x0051_39aa_6d75_7d78),
    ("large", 0xa077_61a7_b143_176e),
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
    let mut counts = [0; 2];
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
            counts[usize::from(only.is_some())] += 1;
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
    assert!(counts[0] > 5 && counts[1] == 1, "{counts:?} groups");
}
