//! The launch that the gradients of small layers over many rows share.

use crate::nets::GATHERED;
use stepgraph::compile::{Options, compile};
use stepgraph::exec::cuda::{Arch, KernelSource, compile_source, probe};
use stepgraph::model::{Model, Precision, check, read_preset};
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
