//! Compiles the general kernels that many networks need in advance, so that a network that was never seen before finds
//! nearly all of its kernels on the disk.
//!
//! A general kernel works for all sizes of its class, so that there are a few thousand of them. Which ones networks
//! need, and how often, is found by planning the bundled presets and random networks, both also after changes of their
//! sizes: a network of another origin then rarely needs a further kernel (`tests/it/edits.rs` counts them). If it does,
//! a kernel for a wider class, of which there are fewer, usually stands in for it.

mod layers;
mod norms;

use super::edits_ahead::after_small_edits;
use crate::compile::{Options, compile};
use crate::exec::cuda::{KernelCache, KernelForAnySize, KernelSource, gpu, kernels_for_any_size};
use crate::exec::return_free_memory;
use crate::model::random::{Size, random_preset};
use crate::model::{BUNDLED, Precision, Preset, Sizes, check, read_preset};
use crate::select::Target;
use crate::tensor::{Fnv, random_words};
use layers::{attention, network_of_layer};
use norms::{FEW_VECTORS, MOST_ROWS, batch_norms};
use std::collections::{HashMap, HashSet};
use std::sync::mpsc::sync_channel;
use std::thread::Builder;

/// Random networks of a group, which are planned before the first of their kernels is compiled.
const OF_GROUP: u64 = 250;
/// One of this many random networks is also evaluated.
const EVALUATED: u64 = 4;
/// Groups of random networks; the last ones need few kernels that no earlier one needs.
const RANDOM_GROUPS: u64 = 60;
/// Groups of networks that grow from the bundled presets, which are larger than random networks.
const GROWN_GROUPS: u64 = 16;
/// Changes of each bundled preset in such a group, one after another.
const CHANGES: u64 = 12;
/// Groups of networks around one layer.
const LAYER_GROUPS: u64 = 80;
/// The first group holds the bundled presets and small changes of them. These hold an attention and a batch
/// normalisation of each class; grown networks, random ones and those around one layer follow.
const ATTENTION_GROUP: u64 = 1;
const NORM_GROUP: u64 = 2;
const FIRST_GROWN_GROUP: u64 = NORM_GROUP + 1;
/// The first group of random networks.
pub const FIRST_RANDOM_GROUP: u64 = FIRST_GROWN_GROUP + GROWN_GROUPS;
const FIRST_LAYER_GROUP: u64 = FIRST_RANDOM_GROUP + RANDOM_GROUPS;
/// Groups of networks.
pub const KERNEL_GROUPS: u64 = FIRST_LAYER_GROUP + LAYER_GROUPS;

/// Finds the general kernels that common networks need on a machine, group by group.
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

    /// The kernels that a group of networks needs, with the wider ones that can replace them, except those that were
    /// returned before. Kernels that more networks need come first. Empty if `goes_on` returns false before all of
    /// the group's networks are planned.
    pub fn of_group(&mut self, number: u64, goes_on: impl Fn() -> bool) -> Vec<KernelSource> {
        let mut counts: HashMap<KernelSource, usize> = HashMap::new();
        for (preset, is_evaluated) in self.networks(number) {
            if !goes_on() {
                return Vec::new();
            }
            let kernels = self.kernels_of(&Preset { precision: self.precision, ..preset }, is_evaluated);
            for source in kernels.into_iter().flat_map(|(own, wider)| [Some(own), wider]).flatten() {
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

    /// A checksum of the kernels that are chosen for the bundled presets: another version of the program may choose
    /// others, and then needs kernels that this one did not compile.
    fn choices(&self) -> u64 {
        let bundled = BUNDLED.iter().filter_map(|bundled| read_preset(bundled.text).ok());
        let kernels = bundled.map(|preset| {
            let kernels = self.kernels_of(&Preset { precision: self.precision, ..preset }, false);
            let both = kernels.into_iter().flat_map(|(own, wider)| [Some(own), wider]).flatten();
            let mut types: Vec<String> = both.map(|source| source.types()).collect();
            types.sort_unstable();
            types.concat()
        });
        Fnv::of(kernels.collect::<String>().as_bytes())
    }

    /// The networks of a group, and whether each is also evaluated. Notes of groups that are done name the constants
    /// above: a change of other rules here must change one of them, so that the groups are planned again.
    fn networks(&self, group: u64) -> Vec<(Preset, bool)> {
        let bundled = BUNDLED.iter().filter_map(|bundled| read_preset(bundled.text).ok());
        match group {
            0 => {
                let with_changes = |preset: Preset| {
                    let changed: Vec<_> = after_small_edits(&preset).map(|changed| (changed, false)).collect();
                    std::iter::once((preset, true)).chain(changed)
                };
                bundled.flat_map(with_changes).collect()
            }
            ATTENTION_GROUP => only_trained(attention()),
            NORM_GROUP => only_trained(batch_norms(&self.machine, self.precision)),
            FIRST_GROWN_GROUP..FIRST_RANDOM_GROUP => {
                let seed = group - FIRST_GROWN_GROUP + 1;
                only_trained(bundled.flat_map(|preset| grown(preset, seed, CHANGES)))
            }
            FIRST_LAYER_GROUP.. => {
                let first = (group - FIRST_LAYER_GROUP) * OF_GROUP;
                only_trained((first..first + OF_GROUP).filter_map(network_of_layer))
            }
            _ => {
                let number = group - FIRST_RANDOM_GROUP;
                let first = number * OF_GROUP;
                let of_seed = |seed: u64| {
                    let size = if seed.is_multiple_of(2) { Size::SMALL } else { Size::LARGE };
                    let preset = random_preset(seed, size.usual());
                    // Users change the sizes of a network, again and again.
                    let changes = if number.is_multiple_of(2) { seed / 8 % CHANGES } else { 0 };
                    let preset = grown(preset.clone(), seed, changes).last().unwrap_or(preset);
                    (preset, (seed / 2).is_multiple_of(EVALUATED))
                };
                (first..first + OF_GROUP).map(of_seed).collect()
            }
        }
    }

    /// The general kernels of a network, with those for wider classes that can stand in for them.
    pub fn kernels_of(&self, preset: &Preset, is_evaluated: bool) -> HashMap<KernelSource, Option<KernelSource>> {
        let Some(model) = check(preset).model else { return HashMap::new() };
        let [train, eval] = [Options::train, Options::eval].map(|options| options(self.machine.clone()));
        let steps = [Some(train), is_evaluated.then_some(eval)];
        let plans = steps.into_iter().flatten().filter_map(|options| compile(&model, &options).ok());
        let kernels = plans.flat_map(|compiled| kernels_for_any_size(&compiled));
        kernels.map(|KernelForAnySize { own, wider }| (own, wider)).collect()
    }
}

/// Networks that are not evaluated.
fn only_trained(presets: impl IntoIterator<Item = Preset>) -> Vec<(Preset, bool)> {
    presets.into_iter().map(|preset| (preset, false)).collect()
}

/// The networks that follow from a preset by changes of one size at a time, drawn from `seed`.
fn grown(mut preset: Preset, seed: u64, changes: u64) -> impl Iterator<Item = Preset> {
    /// The largest size that a change gives.
    const MOST: u64 = 1_024;
    (0..changes).filter_map(move |number| {
        let sizes = Sizes::of(&preset);
        let [which, how, by, _] = random_words(0, seed as u32, number as i64, 0).map(u64::from);
        let place = &sizes.places[(which as usize).checked_rem(sizes.places.len())?];
        let value = match how % 4 {
            0 => place.value + 1 + by % 16,
            1 => place.value * (5 + by % 8) / 4,
            2 => (place.value * 2).next_power_of_two(),
            _ => (place.value / 2).max(1) + by % 4,
        };
        preset = sizes.changed(place, value.min(MOST))?;
        Some(preset.clone())
    })
}

/// What [`compile_common`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompiledCommon {
    /// The number of kernels that were compiled.
    pub count: usize,
    /// Whether it ended because half of the cache was full.
    pub is_half_full: bool,
}

/// Compiles the common kernels of a precision that are not in the cache yet, `threads` at a time. Does nothing if the
/// machine's kernels are not general. Ends when `goes_on` returns false, or when the cache is half full: the other half
/// is for kernels that are compiled when they are needed. `report` receives the number of groups that are done, of
/// [`KERNEL_GROUPS`], and the number of kernels that were compiled so far.
pub fn compile_common(
    machine: &Target,
    precision: Precision,
    threads: usize,
    goes_on: impl Fn() -> bool + Sync,
    report: impl Fn(u64, usize),
) -> CompiledCommon {
    let facts = machine.as_cuda().filter(|_| machine.kernels.are_general());
    let device = facts.and_then(|facts| gpu(facts.ordinal).ok().zip(Some(facts)));
    let (Some((device, facts)), Some(cache)) = (device, KernelCache::of_user()) else {
        return CompiledCommon::default();
    };
    let libraries = (facts.has_cublaslt, facts.has_cudnn);
    let mut common = CommonKernels::new(machine.clone(), precision);
    let choices = common.choices();
    let note = |group: u64| {
        let multiprocessors = facts.multiprocessors;
        format!(
            "group {group} of {KERNEL_GROUPS} of the common kernels, {CHANGES} changes, {OF_GROUP} networks, \
             normalisations {MOST_ROWS} by {FEW_VECTORS}, {precision:?}, {multiprocessors} multiprocessors, \
             libraries {libraries:?}, choices {choices:016x}"
        )
    };
    // A group is planned while the kernels of the preceding one are compiled.
    let (send, planned) = sync_channel(1);
    let plan = || {
        for group in 0..KERNEL_GROUPS {
            let sources = (!device.has_note(&note(group))).then(|| common.of_group(group, &goes_on));
            if !goes_on() || send.send((group, sources)).is_err() {
                break;
            }
        }
        drop(send);
    };
    let compile = || {
        let mut done = CompiledCommon::default();
        for (group, sources) in planned {
            if let Some(sources) = sources {
                if cache.usage().bytes > cache.limit_bytes() / 2 {
                    log::debug!("the cache of kernels is half full: no more are compiled in advance");
                    done.is_half_full = true;
                    break;
                }
                done.count += device.compile_ahead(&sources, threads, &goes_on);
                if goes_on() {
                    device.leave_note(&note(group));
                }
                return_free_memory();
            }
            report(group + 1, done.count);
        }
        done
    };
    std::thread::scope(|scope| match Builder::new().name("stepgraph-plan-ahead".into()).spawn_scoped(scope, plan) {
        Ok(_) => compile(),
        Err(error) => {
            log::warn!("a thread that plans networks could not be started: {error}");
            CompiledCommon::default()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::layers::one_attention;
    use super::*;
    use crate::select::Kernels;

    #[test]
    fn attention_of_any_number_of_features_has_a_common_kernel() {
        let common = CommonKernels::new(Target::h200().with_kernels(Kernels::General), Precision::F32);
        let presets = attention();
        assert_eq!(presets.len(), 5 * 4 * 2 * 2 * 2);
        let known = presets.iter().flat_map(|preset| common.kernels_of(preset, false));
        let known: HashSet<KernelSource> = known.flat_map(|(own, wider)| [Some(own), wider]).flatten().collect();
        for (features, positions) in [(6, 9), (22, 20), (30, 40), (48, 64), (100, 200), (250, 65)] {
            for kind in [[false, false], [false, true], [true, false], [true, true]] {
                let document = one_attention([3, features], [3, positions], kind, 0.0);
                let preset = read_preset(&document.to_string());
                let kernels = common.kernels_of(&preset.unwrap(), false);
                let attention: Vec<_> = kernels.iter().filter(|(own, _)| own.types().contains("Attend")).collect();
                assert_eq!(attention.len(), 2, "{features} features");
                for (own, wider) in attention {
                    let is_known = wider.as_ref().is_some_and(|wider| known.contains(wider));
                    assert!(is_known || known.contains(own), "{}", own.types());
                }
            }
        }
    }
}
