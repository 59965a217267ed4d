//! The launch that the gradients of small layers over many rows share.

use crate::nets::GATHERED;
use stepgraph::compile::{Options, compile};
use stepgraph::exec::cuda::{Arch, KernelSource, compile_source, probe};
use stepgraph::model::{BUNDLED, Model, Precision, check, read_preset};
use stepgraph::ops::{self, ConvGeometry, OpKind};
use stepgraph::plan::referee::{self, DataflowError};
use stepgraph::select::cuda::{KernelSpec, Real, custom_kernels, real_of};
use stepgraph::select::{CudaFacts, Target};

#[test]
fn gathered_gradients_share_a_launch_that_compiles_for_every_architecture() {
    let model = check(&read_preset(GATHERED).unwrap()).model.unwrap();
    for (precision, capability) in [(Precision::F32, (8, 0)), (Precision::Bf16, (9, 0)), (Precision::Tf32, (10, 0))] {
        let facts = CudaFacts { capability, ..Target::h200().as_cuda().unwrap() };
        let model = Model { precision, ..model.clone() };
        let compiled = compile(&model, &Options::train(Target::cuda("some GPU", facts))).unwrap();
        let (program, choices) = (&compiled.selection.program, &compiled.selection.choices);
        let ops = program.ops.iter().zip(choices).enumerate().filter_map(|(number, (op, choice))| {
            let found = custom_kernels(&op.kind, real_of(program, op, Real::from(precision)), &facts);
            let kernel = found.into_iter().find(|kernel| choice.kernel.ends_with(&kernel.tail))?;
            Some((number, op.kind.name(), kernel.spec))
        });
        let ops: Vec<(usize, &str, KernelSpec)> = ops.collect();
        let group = |name: &str| {
            let (number, ..) = ops.iter().find(|(_, found, _)| *found == name).unwrap();
            compiled.selection.groups[*number]
        };
        // Products of both widths, and the sums for the parameters of three normalisations, of which two are alike.
        let (shared, like) = (group("gemm_tn"), [group("layer_norm_bwd_w"), group("rms_norm_bwd_w")]);
        assert_eq!(like, [shared; 2], "{precision:?}");
        let members = ops.iter().filter(|(number, name, _)| {
            compiled.selection.groups[*number] == shared && (name.ends_with("_bwd_w") || *name == "gemm_tn")
        });
        let mut members: Vec<KernelSpec> = members.map(|(.., spec)| spec.clone()).collect();
        assert_eq!(members.len(), 8, "{precision:?}: {members:?}");
        members.sort_by(|a, b| a.arguments.cmp(&b.arguments));
        let source = members.into_iter().collect::<KernelSource>().text();
        assert!(source.contains(" + which]"), "{precision:?}");
        if !probe().has("nvrtc") {
            println!("compiling is skipped: NVRTC is not installed");
            continue;
        }
        let alone = ops.into_iter().map(|(.., spec)| KernelSource::from(spec).text());
        for text in alone.chain([source]) {
            let code = compile_source(&text, Arch(capability.0, capability.1));
            let tail = text.find("namespace member0").map(|at| &text[at..]);
            assert!(
                code.as_ref().is_ok_and(|c| c.len() > 500),
                "{tail:?}\n{:?}",
                code.err().map(|why| why.to_string())
            );
        }
    }
}

/// Gradients of the weights of two convolutions, over images of 8 by 8 and of 4 by 4 with more channels.
fn weight_gradients(capability: (u32, u32), real: Real, template: &str) -> Vec<KernelSpec> {
    let facts = CudaFacts { capability, ..Target::h200().as_cuda().unwrap() };
    let of = |(side, channels): (usize, usize)| {
        let geometry = ConvGeometry {
            n: 64,
            h: side,
            w: side,
            c: channels,
            f: channels,
            kernel: [3, 3],
            stride: [1, 1],
            padding: [1, 1],
            dilation: [1, 1],
            groups: 1,
            ho: side,
            wo: side,
        };
        let kind = OpKind::Conv2dBwdW(ops::Conv2dBwdW { geometry, accumulate: false });
        let found = custom_kernels(&kind, real, &facts).into_iter().map(|kernel| kernel.spec);
        found.filter(|spec| spec.template == template).collect::<Vec<_>>()
    };
    [(8, 16), (4, 32)].into_iter().flat_map(of).collect()
}

#[test]
fn gradients_with_large_blocks_have_enough_registers_in_a_launch_that_they_share() {
    let cases = [((9, 0), Real::Bf16, "ConvWgmmaBwdW"), ((9, 0), Real::Tf32, "ConvTapsBwdW")];
    for (capability, real, template) in cases {
        let members = weight_gradients(capability, real, template);
        assert_eq!(members.len(), 2, "{template}");
        let text = members.into_iter().collect::<KernelSource>().text();
        if !probe().has("nvrtc") {
            println!("compiling is skipped: NVRTC is not installed");
            continue;
        }
        let code = compile_source(&text, Arch(capability.0, capability.1));
        assert!(code.as_ref().is_ok_and(|c| c.len() > 500), "{template}: {:?}", code.err().map(|why| why.to_string()));
    }
}

#[test]
fn scratch_memory_that_two_members_of_a_launch_share_is_refused() {
    let text = BUNDLED.iter().find(|bundled| bundled.name == "digits-cnn").unwrap().text;
    let model = check(&read_preset(text).unwrap()).model.unwrap();
    let mut plan = compile(&model, &Options::train(Target::h200())).unwrap().plan;
    let with_scratch: Vec<usize> = (0..plan.groups.len())
        .filter(|&op| plan.program.ops[op].kind.name() == "conv2d_bwd_w" && plan.workspaces[op].is_some())
        .collect();
    let [first, second] = with_scratch[..] else { panic!("{with_scratch:?}") };
    assert_eq!(plan.groups[first], plan.groups[second]);
    let [a, b] = [first, second].map(|op| plan.workspaces[op].unwrap().0 as usize);
    assert_eq!(referee::check(&plan), Ok(()));
    plan.buffers[b].offset = plan.buffers[a].offset;
    let refused = referee::check(&plan);
    let beside = |output: &str, value: &str| output == "scratch memory" && value == "scratch memory";
    assert!(
        matches!(&refused, Err(DataflowError::Beside { output, value, .. }) if beside(output, value)),
        "{refused:?}"
    );
}
