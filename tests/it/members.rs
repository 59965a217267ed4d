//! General kernels and the specialised members of their families give the same bits in random networks.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use stepgraph::exec::Executor;
use stepgraph::exec::cuda::gpu;
use stepgraph::model::Preset;
use stepgraph::model::random::{Size, random_preset};
use stepgraph::select::{Kernels, Target};
use stepgraph::train::{DataChoice, Overrides, Session, SessionSpec};

/// Networks that a usual run of the tests compares.
const NETWORKS: usize = 12;

/// Steps of each.
const STEPS: usize = 12;

/// What survives the steps, and their reports.
type Bits = (Vec<u8>, Vec<[u32; 4]>);

fn trained(preset: &Preset, machine: &Target, executor: Executor) -> Result<Bits, String> {
    let data = DataChoice::of(preset);
    let (machine, overrides) = (Some(machine.clone()), Overrides::steps(STEPS));
    let spec = SessionSpec { machine, executor, overrides, data, ..SessionSpec::new(preset.clone(), PathBuf::new()) };
    let mut run = Session::prepare(&spec).map_err(|e| e.to_string())?;
    let mut reports = Vec::new();
    for _ in 0..STEPS {
        let Some(report) = run.step().map_err(|e| e.to_string())? else { break };
        reports.push([report.loss, report.accuracy, report.grad_norm, report.update_max].map(f32::to_bits));
    }
    let state = run.step_mut().0.snapshot().map_err(|e| e.to_string())?;
    Ok((state, reports))
}

/// The differences between the results of one network's general kernels and those of specialised ones.
fn differences(preset: &Preset, machine: &Target) -> Vec<String> {
    let of = |kernels, executor| trained(preset, &machine.clone().with_kernels(kernels), executor);
    let fast = match of(Kernels::Interchangeable, Executor::Replay) {
        Ok(fast) => fast,
        Err(why) => return vec![format!("specialised: {why}")],
    };
    assert_eq!(fast.1.len(), STEPS, "{}", preset.name);
    let others = [
        ("general", Kernels::General, Executor::Replay),
        ("general, op by op", Kernels::General, Executor::Eager),
        ("widest", Kernels::Widest, Executor::Replay),
    ];
    let differs = |(name, kernels, executor)| match of(kernels, executor) {
        Ok(other) if other == fast => None,
        Ok(other) => {
            let step = other.1.iter().zip(&fast.1).position(|(a, b)| a != b);
            Some(format!("{name}: first other report at step {step:?}"))
        }
        Err(why) => Some(format!("{name}: {why}")),
    };
    others.into_iter().filter_map(differs).collect()
}

#[test]
fn random_networks_have_the_same_bits_with_general_and_specialised_kernels_on_a_gpu() {
    let machine = match gpu(0) {
        Ok(gpu) => gpu.target(),
        Err(why) => return println!("skipped: no CUDA device: {why}"),
    };
    let times = std::env::var("STEPGRAPH_NETWORKS").ok().and_then(|t| t.parse().ok()).unwrap_or(1usize);
    let networks = (0..).map(|seed| (seed, random_preset(seed, if seed % 4 == 0 { Size::LARGE } else { Size::SMALL })));
    let networks: Vec<_> = networks.take(NETWORKS * times).collect();
    let (next, different) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    // Each thread compiles kernels on several processors.
    let threads = std::thread::available_parallelism().map_or(1, usize::from).div_ceil(2);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((seed, preset)) = networks.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let name = format!("network {seed} ({:?}, {} layers)", preset.precision, preset.layers.len());
                    let found = differences(preset, &machine);
                    println!("{name}: {}", if found.is_empty() { "the same bits" } else { "differs" });
                    let mut all = different.lock().unwrap_or_else(PoisonError::into_inner);
                    all.extend(found.into_iter().map(|what| format!("{name}, {what}")));
                }
            });
        }
    });
    let different = different.into_inner().unwrap_or_else(PoisonError::into_inner);
    assert!(different.is_empty(), "other bits than the specialised kernels:\n{}", different.join("\n"));
}
