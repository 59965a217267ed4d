//! `stepgraph bench --edits`: the time from a change of one size of a network to its first replayed step.
//!
//! `--in-turn` times several networks one after another instead.
//!
//! The preset trains first, so that everything that the changes share exists. Each change makes one size of the
//! preceding network slightly larger, so that this network is new: it is checked, compiled and recorded, and runs one
//! step on the preset's data, or on one random batch if the preset names no data. With general kernels, those for small
//! changes are compiled before each change, as the window does in the background. After the first network, if
//! others follow, the libraries are asked for something small, as the window does too.

use super::args::BenchArgs;
use super::error::wrong;
use super::output::{self, Distribution};
use super::presets::Loaded;
use crate::exec::cuda::gpu;
use crate::exec::{ReadyTimes, resident_bytes};
use crate::model::{Preset, Sizes};
use crate::select::Target;
use crate::train::{DataChoice, Session, SessionSpec, ask_libraries, compile_for_edits, compile_for_shared_launches};
use serde::Serialize;
use std::time::Instant;

/// So many changes in a row that the data do not allow end a measurement.
const MOST_REFUSED: u32 = 100;

/// The largest number of processes that compile between two changes.
const COMPILERS: usize = 8;

/// What `--json` prints for a preset.
#[derive(Serialize)]
pub struct Edits {
    preset: String,
    device: String,
    /// From the preset to its first replayed step, including everything that did not exist yet, in microseconds.
    first_us: f64,
    /// From a change to the first replayed step, in microseconds.
    edit_us: Distribution,
    worst_us: f64,
    edits: Vec<Edit>,
}

/// One change.
#[derive(Serialize)]
struct Edit {
    /// The place in the document, as a JSON pointer, and its numbers before and after.
    place: String,
    from: u64,
    to: u64,
    us: f64,
    /// Kernels that were compiled in advance for small changes.
    ahead: usize,
    /// The stages of the preparation of the step.
    ready: ReadyTimes,
    memory: Memory,
}

/// Memory in use after a step, in bytes, as far as the system and the driver report it.
#[derive(Clone, Copy, Serialize)]
struct Memory {
    process: Option<u64>,
    device: Option<u64>,
}

impl Memory {
    /// The memory of this process and of the device that is in use now.
    fn now(target: &Target) -> Self {
        let facts = target.as_cuda();
        let free = facts.and_then(|facts| gpu(facts.ordinal).ok()?.free_bytes().ok());
        let device = facts.zip(free).map(|(facts, free)| facts.memory_bytes.saturating_sub(free));
        Self { process: resident_bytes(), device }
    }

    /// A line with the memory after the second and after the last step: the first one loads what all steps share.
    fn line(all: &[Self]) -> String {
        let (Some(second), Some(last)) = (all.get(1), all.last()) else { return String::new() };
        let pair = |name: &str, of: fn(&Self) -> Option<u64>| {
            let [from, to] = [second, last].map(|memory| of(memory).map(|bytes| bytes >> 20));
            from.zip(to).map(|(from, to)| format!("{name} {from} MiB after the second step, {to} MiB after the last"))
        };
        let parts = [pair("process", |memory| memory.process), pair("device", |memory| memory.device)];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        if parts.is_empty() { String::new() } else { format!("  memory: {}\n", parts.join("; ")) }
    }
}

impl Edits {
    /// Makes `count` changes of a preset's sizes on a machine, one after another.
    ///
    /// # Errors
    /// If the preset has no size that can be changed, or a step cannot be made.
    pub fn measure(
        found: &Loaded,
        args: &BenchArgs,
        (target, device): (&Target, &str),
        count: u64,
    ) -> anyhow::Result<Self> {
        if Sizes::of(&found.preset).places.is_empty() {
            let name = &found.preset.name;
            return Err(wrong(format!("{name} has no units, filters or batch size that --edits can change")));
        }
        let (mut last, first_us) = first_step(found, args, target, found.preset.clone())?;
        ask_libraries(target, found.preset.precision);
        let mut before = found.preset.clone();
        let mut edits = Vec::new();
        // Changes that the data do not allow are left out, and the next size is changed instead.
        let (mut number, mut refused) = (0, 0);
        while (edits.len() as u64) < count && refused < MOST_REFUSED {
            let sizes = Sizes::of(&before);
            let Some(place) = sizes.places.get((number % sizes.places.len().max(1) as u64) as usize) else { break };
            // Sizes that are odd and even, and multiples of what vectors hold.
            let (from, to) = (place.value, place.value + 1 + 5 * number % 11);
            number += 1;
            let samples = last.dataset().map(|(_, split)| split.train.len() as u64);
            let is_too_large = place.pointer == "/input/batch" && samples.is_some_and(|samples| to > samples);
            let Some(changed) = sizes.changed(place, to).filter(|_| !is_too_large) else {
                refused += 1;
                continue;
            };
            refused = 0;
            let ahead =
                compile_for_edits(&before, target, || true) + compile_for_shared_launches(target, COMPILERS, || true);
            let started = Instant::now();
            // As in the window, the preceding network is dropped before the next one is made.
            drop(last);
            let dropped = started.elapsed().as_secs_f64() * 1e6;
            let (session, took) = first_step(found, args, target, changed.clone())?;
            let ready = session.ready_times().clone();
            let (place, memory) = (place.pointer.clone(), Memory::now(target));
            edits.push(Edit { place, from, to, us: dropped + took, ahead, ready, memory });
            (last, before) = (session, changed);
        }
        if edits.is_empty() {
            return Err(wrong(format!("no size of {} can be larger and still fit its data", found.preset.name)));
        }
        let mut times: Vec<f64> = edits.iter().map(|edit| edit.us).collect();
        Ok(Self {
            preset: found.preset.name.clone(),
            device: device.to_owned(),
            first_us,
            edit_us: Distribution::of(&mut times),
            worst_us: times.last().copied().unwrap_or_default(),
            edits,
        })
    }

    /// As text, for people: the slowest change with its longest stages.
    #[must_use]
    pub fn text(&self) -> String {
        let [first, median, p90, worst] =
            [self.first_us, self.edit_us.median, self.edit_us.p90, self.worst_us].map(output::micros);
        let count = output::counted(self.edits.len() as u64, "change");
        let mut out = format!(
            "{}: {first} until the first replayed step; after {count} of one size: median {median}, p90 {p90}, worst \
             {worst}\n",
            self.preset
        );
        if let Some(slowest) = self.edits.iter().max_by(|a, b| a.us.total_cmp(&b.us)) {
            let Edit { place, from, to, us, ready, .. } = slowest;
            out.push_str(&format!("  slowest: {place} from {from} to {to}: {}\n", longest_stages(ready, *us)));
        }
        out + &Memory::line(&self.edits.iter().map(|edit| edit.memory).collect::<Vec<_>>())
    }
}

/// What `--json` prints for networks that follow one another in one process.
#[derive(Serialize)]
pub struct InTurn {
    device: String,
    /// From the start of the command to the first replayed step of the first network, in microseconds.
    start_us: f64,
    /// From a network to its first replayed step, in microseconds, for all but the first one; `None` if there are no
    /// others.
    ready_us: Option<Distribution>,
    worst_us: Option<f64>,
    networks: Vec<Network>,
}

/// One of them.
#[derive(Serialize)]
struct Network {
    preset: String,
    us: f64,
    /// The stages of the preparation of the step.
    ready: ReadyTimes,
    memory: Memory,
}

impl InTurn {
    /// Runs one step of each network, in a command that started at `command`.
    ///
    /// # Errors
    /// If a step cannot be made.
    pub fn measure(
        loaded: &[Loaded],
        args: &BenchArgs,
        (target, device): &(Target, String),
        command: Instant,
    ) -> anyhow::Result<Self> {
        let mut last: Option<Session> = None;
        let mut start_us = 0.0;
        let mut networks = Vec::with_capacity(loaded.len());
        for found in loaded {
            let started = Instant::now();
            drop(last.take());
            let dropped = started.elapsed().as_secs_f64() * 1e6;
            let (session, took) = first_step(found, args, target, found.preset.clone())?;
            let ready = session.ready_times().clone();
            if networks.is_empty() {
                start_us = command.elapsed().as_secs_f64() * 1e6;
                if loaded.len() > 1 {
                    ask_libraries(target, found.preset.precision);
                }
            }
            let (preset, memory) = (found.preset.name.clone(), Memory::now(target));
            networks.push(Network { preset, us: dropped + took, ready, memory });
            last = Some(session);
        }
        let mut times: Vec<f64> = networks.iter().skip(1).map(|network| network.us).collect();
        let ready_us = (!times.is_empty()).then(|| Distribution::of(&mut times));
        let worst_us = times.last().copied();
        Ok(Self { device: device.clone(), start_us, ready_us, worst_us, networks })
    }

    /// As text, for people: the distribution, and the slowest networks with their longest stages.
    #[must_use]
    pub fn text(&self) -> String {
        let first = self.networks.first().map_or_else(String::new, |first| output::micros(first.us));
        let start = output::micros(self.start_us);
        let mut out = format!(
            "first replayed step of the first network: after {first}, {start} after the start of the command\n"
        );
        if let (Some(ready), Some(worst)) = (&self.ready_us, self.worst_us) {
            let [median, p90, worst] = [ready.median, ready.p90, worst].map(output::micros);
            let count = output::counted(self.networks.len() as u64 - 1, "network");
            out.push_str(&format!("{count} after it: median {median}, p90 {p90}, worst {worst}\n"));
        }
        let mut slowest: Vec<&Network> = self.networks.iter().skip(1).collect();
        slowest.sort_by(|a, b| b.us.total_cmp(&a.us));
        for Network { preset, us, ready, .. } in slowest.into_iter().take(3) {
            out.push_str(&format!("  {preset}: {}: {}\n", output::micros(*us), longest_stages(ready, *us)));
        }
        out + &Memory::line(&self.networks.iter().map(|network| network.memory).collect::<Vec<_>>())
    }
}

/// The longest stages of a preparation with their times, and the rest of the `us` microseconds: nearly all of it is the
/// first step.
fn longest_stages(ready: &ReadyTimes, us: f64) -> String {
    let stages = ready.longest();
    let stages = stages.iter().take(5).map(|(stage, us)| format!("{} {}", stage.name(), output::micros(*us)));
    let rest = (us - ready.total_us).max(0.0);
    stages.chain([format!("the first step and the rest {}", output::micros(rest))]).collect::<Vec<_>>().join(", ")
}

/// A session of a network after its first step, and the microseconds until then.
fn first_step(found: &Loaded, args: &BenchArgs, target: &Target, preset: Preset) -> anyhow::Result<(Session, f64)> {
    let started = Instant::now();
    let threads = super::device::threads(args.cpu.threads, &found.model).count;
    let data = DataChoice::of(&preset);
    let machine = Some(target.clone());
    let tuning = super::device::tuning(target);
    let spec = SessionSpec { threads, machine, data, tuning, ..SessionSpec::new(preset, found.base.clone()) };
    let mut session = Session::prepare(&spec)?;
    session.step()?;
    session.step_mut().0.synchronize()?;
    Ok((session, started.elapsed().as_secs_f64() * 1e6))
}
