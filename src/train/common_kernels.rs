//! Compiles the general kernels that many networks need in advance, so that a network that was never seen before finds
//! nearly all of its kernels on the disk.
//!
//! A general kernel works for all sizes of its class, so that there are a few thousand of them. Which ones networks
//! need, and how often, is found by planning random networks: a network of another origin then rarely needs a further
//! kernel (`tests/it/edits.rs` counts them).

use crate::compile::{Options, compile};
use crate::exec::cuda::{KernelCache, KernelSource, gpu, kernels_for_any_size};
use crate::model::random::{Size, random_preset};
use crate::model::{Precision, Preset, check};
use crate::select::Target;
use std::collections::{HashMap, HashSet};

/// Networks of a group, which are planned before the first of their kernels is compiled.
const OF_GROUP: u64 = 250;
/// One of this many networks is also evaluated.
const EVALUATED: u64 = 4;
/// Groups of networks: the last ones need few kernels that no earlier one needs.
pub const KERNEL_GROUPS: u64 = 90;

/// The general kernels that random networks need on a machine.
pub struct CommonKernels {
    machine: Target,
    precision: Precision,
    seen: HashSet<KernelSource>,
}

impl CommonKernels {
    /// The kernels for a machine, of networks in this precision.
    #[must_use]
    pub fn new(machine: Target, precision: Precision) -> Self {
        Self { machine, precision, seen: HashSet::new() }
    }

    /// The kernels of a group of networks that were not returned before, those that most of them need first.
    pub fn of_group(&mut self, number: u64) -> Vec<KernelSource> {
        let mut counts: HashMap<KernelSource, usize> = HashMap::new();
        for seed in number * OF_GROUP..(number + 1) * OF_GROUP {
            let size = if seed % 2 == 0 { Size::SMALL } else { Size::LARGE };
            let preset = Preset { precision: self.precision, ..random_preset(seed, size.usual()) };
            for source in self.kernels_of(&preset, seed % EVALUATED == 0) {
                *counts.entry(source).or_default() += 1;
            }
        }
        let mut found: Vec<(KernelSource, usize)> =
            counts.into_iter().filter(|(s, _)| !self.seen.contains(s)).collect();
        found.sort_by_cached_key(|(source, count)| (usize::MAX - count, source.types()));
        let found: Vec<KernelSource> = found.into_iter().map(|(source, _)| source).collect();
        self.seen.extend(found.iter().cloned());
        found
    }

    /// The general kernels of a network, each once.
    pub fn kernels_of(&self, preset: &Preset, is_evaluated: bool) -> HashSet<KernelSource> {
        let Some(model) = check(preset).model else { return HashSet::new() };
        let [train, eval] = [Options::train, Options::eval].map(|options| options(self.machine.clone()));
        let steps = [Some(train), is_evaluated.then_some(eval)];
        let plans = steps.into_iter().flatten().filter_map(|options| compile(&model, &options).ok());
        plans.flat_map(|compiled| kernels_for_any_size(&compiled)).collect()
    }
}

/// Compiles the common kernels of a precision that are not in the cache yet, `threads` at a time, while `goes_on`
/// returns true, if the machine's kernels are general; ends when the cache is half full. `report` receives the number
/// of groups that are done, of [`KERNEL_GROUPS`], and the number of kernels that were compiled, which is returned in
/// the end.
pub fn compile_common(
    machine: &Target,
    precision: Precision,
    threads: usize,
    goes_on: impl Fn() -> bool + Sync,
    report: impl Fn(u64, usize),
) -> usize {
    let facts = machine.as_cuda().filter(|_| machine.kernels.are_general());
    let device = facts.and_then(|facts| gpu(facts.ordinal).ok().zip(Some(facts)));
    let (Some((device, facts)), Some(cache)) = (device, KernelCache::of_user()) else { return 0 };
    let libraries = (facts.has_cublaslt, facts.has_cudnn);
    let mut common = CommonKernels::new(machine.clone(), precision);
    let mut count = 0;
    for group in 0..KERNEL_GROUPS {
        if !goes_on() {
            break;
        }
        let note = format!(
            "group {group} of the common kernels, {precision:?}, {} multiprocessors, libraries {libraries:?}",
            facts.multiprocessors
        );
        if !device.has_note(&note) {
            if cache.usage().bytes > cache.limit_bytes() / 2 {
                log::debug!("the cache of kernels is half full: no more are compiled in advance");
                break;
            }
            count += device.compile_ahead(&common.of_group(group), threads, &goes_on);
            if goes_on() {
                device.leave_note(&note);
            }
        }
        report(group + 1, count);
    }
    count
}
