//! General kernels and the specialised members of their families give the same bits in random networks.
//!
//! `STEPGRAPH_NETWORKS=9` compares nine times as many, and `STEPGRAPH_PRESETS` names a folder of further presets.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use stepgraph::exec::Executor;
use stepgraph::exec::cuda::gpu;
use stepgraph::model::random::{Size, random_preset};
use stepgraph::model::{Preset, read_preset};
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

/// Where two states differ in words of four bytes, which are `f32`s except in slots of 16 bits.
fn other_words(a: &[u8], b: &[u8]) -> String {
    let words =
        |bytes: &[u8]| -> Vec<u32> { bytes.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect() };
    let (a, b) = (words(a), words(b));
    let other: Vec<_> = (0..a.len().min(b.len())).filter(|&i| a[i] != b[i]).collect();
    let shown = |&i: &usize| {
        let [x, y] = [a[i], b[i]].map(|bits| format!("{} ({bits:#010x})", f32::from_bits(bits)));
        format!("{i}: {x}, {y}")
    };
    let first: Vec<_> = other.iter().take(4).map(shown).collect();
    format!("{} of {} words of the state differ: {}", other.len(), a.len().max(b.len()), first.join("; "))
}

/// The presets in the folder that STEPGRAPH_PRESETS names, if it is set.
fn given() -> Vec<Preset> {
    let Some(folder) = std::env::var_os("STEPGRAPH_PRESETS") else { return Vec::new() };
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let of_file = |file| read_preset(&std::fs::read_to_string(file).unwrap()).unwrap();
    files.filter(|file| file.extension().is_some_and(|end| end == "json")).map(of_file).collect()
}

/// The differences between the results of one network's general kernels and those of specialised ones.
fn differences(preset: &Preset, machine: &Target) -> Vec<String> {
    let of = |kernels, executor| trained(preset, &machine.clone().with_kernels(kernels), executor);
    let fast = of(Kernels::Interchangeable, Executor::Replay);
    match &fast {
        Ok((_, reports)) => assert_eq!(reports.len(), STEPS, "{}", preset.name),
        // The others must then stop at the same step, for the same value.
        Err(why) if why.contains("the loss is") => println!("{}: {why}", preset.name),
        Err(why) => return vec![format!("specialised: {why}")],
    }
    let others = [
        ("general", Kernels::General, Executor::Replay),
        ("general, op by op", Kernels::General, Executor::Eager),
        ("widest", Kernels::Widest, Executor::Replay),
    ];
    let differs = |(name, kernels, executor)| match (of(kernels, executor), &fast) {
        (other, fast) if other == *fast => None,
        (Ok(other), Ok(fast)) => {
            let step = other.1.iter().zip(&fast.1).position(|(a, b)| a != b);
            Some(format!("{name}: first other report at step {step:?}; {}", other_words(&other.0, &fast.0)))
        }
        (Ok(_), Err(why)) => Some(format!("{name}: trains, but specialised kernels do not: {why}")),
        (Err(why), _) => Some(format!("{name}: {why}")),
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
    let networks = (0..).map(|seed| random_preset(seed, if seed % 4 == 0 { Size::LARGE } else { Size::SMALL }));
    let networks: Vec<_> = networks.take(NETWORKS * times).chain(given()).collect();
    let (next, different) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    // Each thread compiles kernels on several processors.
    let threads = std::thread::available_parallelism().map_or(1, usize::from).div_ceil(2);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(preset) = networks.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let name = format!("{} ({:?}, {} layers)", preset.name, preset.precision, preset.layers.len());
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
