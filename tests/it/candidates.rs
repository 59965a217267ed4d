//! Networks for tests of kernels, their plans for a GPU, and the candidates for their operations; no GPU is needed.

use crate::nets::{ATTENDING, FEW_CHANNELS, GATHERED, GOLDEN, JOINED, ODD, RMS, RULES, WIDE_HEADS};
use stepgraph::compile::{Compiled, CpuOnly, Options, compile};
use stepgraph::exec::cuda::probe;
use stepgraph::model::{BUNDLED, Model, Precision, check, read_preset};
use stepgraph::select::cuda::{KernelSpec, Real, custom_kernels, real_of};
use stepgraph::select::{CudaFacts, Target};

pub const PRECISIONS: [Precision; 4] = [Precision::F32, Precision::Tf32, Precision::Bf16, Precision::F16];

/// Every bundled preset whose operations all have kernels for a GPU, and others.
pub fn models() -> Vec<Model> {
    let golden: Vec<String> =
        GOLDEN.iter().map(|name| std::fs::read_to_string(format!("tests/data/golden/{name}.json")).unwrap()).collect();
    let bundled = BUNDLED
        .iter()
        .map(|b| b.text)
        .chain([ODD, RMS, JOINED, GATHERED, ATTENDING, WIDE_HEADS].into_iter().chain(RULES).chain(FEW_CHANNELS))
        .chain(golden.iter().map(String::as_str));
    let models = bundled.map(|text| check(&read_preset(text).unwrap()).model.unwrap());
    models.filter(|model| CpuOnly::of(model).is_none()).collect()
}

/// The precisions in which all operations of a network have kernels for a GPU: layers that choose lack `f16` if steps
/// have several batches.
pub fn precisions_of(model: &Model) -> Vec<Precision> {
    let has_kernels = |precision: &Precision| CpuOnly::of(&Model { precision: *precision, ..model.clone() }).is_none();
    let found: Vec<Precision> = PRECISIONS.into_iter().filter(has_kernels).collect();
    let lacks_f16 = model.chooses() && model.accumulate > 1;
    assert_eq!(found.len(), if lacks_f16 { 3 } else { 4 }, "{}: {found:?}", model.name);
    found
}

pub fn planned(model: &Model, precision: Precision, eval: bool, target: &Target) -> Compiled {
    let model = Model { precision, ..model.clone() };
    let options = if eval { Options::eval(target.clone()) } else { Options::train(target.clone()) };
    compile(&model, &options).unwrap_or_else(|e| panic!("{} in {precision:?}: {e}", model.name))
}

/// Calls `see` with every candidate for the operations of networks, in every precision, trained and evaluated on a GPU
/// with this capability.
pub fn each_candidate(
    models: impl IntoIterator<Item = Model>,
    capability: (u32, u32),
    mut see: impl FnMut(Real, KernelSpec),
) {
    let facts = CudaFacts { capability, ..Target::h200().as_cuda().unwrap() };
    let target = Target::cuda("some GPU", facts);
    for model in models {
        for precision in precisions_of(&model) {
            for eval in [false, true] {
                let program = planned(&model, precision, eval, &target).selection.program;
                for op in &program.ops {
                    let real = real_of(&program, op, Real::from(precision));
                    custom_kernels(&op.kind, real, &facts).into_iter().for_each(|kernel| see(real, kernel.spec));
                }
            }
        }
    }
}

/// Whether kernels can be compiled here; prints that the test is skipped if not.
pub fn has_compiler() -> bool {
    let found = probe().has("nvrtc");
    if !found {
        println!("skipped: NVRTC is not installed (pip install nvidia-cuda-nvrtc, its lib folder on LD_LIBRARY_PATH)");
    }
    found
}
