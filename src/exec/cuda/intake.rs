//! Steps that fetch their own batches: the data set stays on the device, each step shuffles and gathers its rows and leaves a record of what it
//! found, and one launch makes several steps. The host tells ahead where batches stand and reads records behind; it never stops the stream.

use super::bind::{MAX_ARGS, Row};
use super::capture::{FeedLaunch, FeedLaunches, Role};
use super::gpu::Kernel;
use super::graph::Graph;
use super::memory::{DeviceMemory, Event, Pinned};
use super::overlap::{EARLY_A, FLAGS, OVERLAPPED};
use super::readback::FEED_ARGS;
use super::step::{MAX_NODES, MAX_STEPS, Step, gpu_error};
use crate::exec::step::located;
use crate::exec::{BatchPlace, BatchTargets, ExecError, StepRecord, room};
use crate::lower::LValueId;
use crate::tensor::DType;
use cudarc::driver::result;
use std::collections::VecDeque;
use std::sync::Arc;

/// Steps whose places and records the device keeps: those of the launches under way, and as many again.
const RING: usize = 4 * MAX_STEPS;
/// Launches under way at most.
const FLIGHTS: usize = 3;
/// Bytes that tell where a batch stands.
const PLACE: usize = size_of::<BatchPlace>();
/// Bytes of a record, and the words in front of its values.
const RECORD: usize = 64;
const HEAD: usize = 4;
/// Values that a record holds at most.
pub(in crate::exec) const MAX_WATCHED: usize = 8;
/// The share of the free memory that a data set may take: one over this.
const SHARE: u64 = 2;

/// A launch under way.
struct Flight {
    first: u64,
    steps: usize,
    /// Where the host prepared its places, and where its records arrive.
    berth: usize,
    done: Event,
}

/// Memory of the host that belongs to one launch at a time.
struct Berth {
    places: Pinned,
    records: Pinned,
}

/// A data set on the device, with what feeds a step from it.
pub(super) struct Intake {
    samples: DeviceMemory,
    targets: DeviceMemory,
    places: DeviceMemory,
    records: DeviceMemory,
    watched: Vec<LValueId>,
    feeds: FeedLaunches,
    /// Steps in a launch with the graph that makes them, most first.
    graphs: Vec<(usize, Graph)>,
    berths: Vec<Berth>,
    free: Vec<usize>,
    flights: VecDeque<Flight>,
    out: Vec<StepRecord>,
}

impl Intake {
    /// Graphs by the steps that they make, most first.
    pub(super) fn graphs(&self) -> &[(usize, Graph)] {
        &self.graphs
    }

    pub(super) fn graphs_mut(&mut self) -> impl Iterator<Item = &mut Graph> {
        self.graphs.iter_mut().map(|(_, graph)| graph)
    }

    /// The launches of the data feed in a graph of so many steps.
    pub(super) fn feeds(&self, steps: usize) -> Vec<&FeedLaunch> {
        self.feeds.of(steps)
    }

    /// Whether memory, batch and watched values are where the data feed has them.
    ///
    /// # Errors
    /// The first that is elsewhere.
    pub(super) fn check(&self, step: &Step) -> Result<(), ExecError> {
        let memory = [&self.samples, &self.targets, &self.places, &self.records].map(DeviceMemory::base);
        let row = step.feed_row(memory, &self.watched)?;
        let differs = (0..FLAGS).find(|&word| row[word] != self.feeds.row()[word]);
        differs.map_or(Ok(()), |word| {
            let name = FEED_ARGS.get(word).copied().unwrap_or("a watched value");
            let (recorded, found) = (self.feeds.row()[word], row[word]);
            let why = format!("{name} was recorded at {recorded:#x} and is at {found:#x} now");
            Err(ExecError::Graph { graph: "the data feed".into(), why })
        })
    }

    /// Whether the host writes places and reads records where the data feed does.
    ///
    /// # Errors
    /// Where it does not.
    fn check_rings(&self) -> Result<(), ExecError> {
        let row = self.feeds.row();
        if (row[PLACES], row[RECORDS]) == (self.places.base(), self.records.base()) {
            return Ok(());
        }
        let why = "the rings of places and records are not where they were recorded".into();
        Err(ExecError::Graph { graph: "the data feed".into(), why })
    }
}

/// Where the feed's arguments hold the rings.
const PLACES: usize = 2;
const RECORDS: usize = 4;

/// A number type as the kernels write it.
const fn cpp(dtype: DType) -> Option<&'static str> {
    match dtype {
        DType::F32 => Some("float"),
        DType::Bf16 => Some("bf16"),
        DType::F16 => Some("f16"),
        DType::I32 => Some("int"),
        _ => None,
    }
}

impl Step {
    /// Keeps a data set on the device, so that steps fetch their batches themselves. `samples` `[n, sample]` lie in the step's layout; `rows` are
    /// those that shuffles permute, where they do not come in order; `watched` are scalars to be read after every step. False where the step is not captured, or the device has no room.
    ///
    /// # Errors
    /// What went wrong on the device.
    pub fn hold(
        &mut self,
        samples: &[f32],
        targets: BatchTargets<'_>,
        rows: Option<&[u32]>,
        watched: &[LValueId],
    ) -> Result<bool, ExecError> {
        self.gpu.enter().map_err(gpu_error)?;
        self.intake = None;
        self.ledger.forget(|role| matches!(role, Role::Fed(_)));
        let bytes = |len: usize| (len * 4) as u64;
        let needed = bytes(samples.len()) + bytes(targets.len());
        let (free, _) = self.gpu.memory().map_err(gpu_error)?;
        if self.why_eager().is_some() || watched.len() > MAX_WATCHED || needed > free / SHARE {
            return Ok(false);
        }
        let intake = self.make_intake(samples, targets, rows, watched)?;
        for (steps, graph) in intake.iter().flat_map(|intake| &intake.graphs) {
            self.ledger.note(Role::Fed(*steps), graph);
        }
        let has = intake.is_some();
        self.intake = intake.map(Box::new);
        Ok(has)
    }

    /// The data feed's arguments, from where samples, targets, places and records are.
    fn feed_row(&self, memory: [u64; 4], watched: &[LValueId]) -> Result<Row, ExecError> {
        let program = &self.compiled.plan.program;
        let address = |id| located(&self.compiled, id).map(|(place, _)| self.env.address(&self.compiled.plan, place));
        let none = |name: &str| ExecError::NoValue(name.into());
        let counter = program.find("counter").ok_or_else(|| none("counter"))?;
        let y = program.targets().ok_or_else(|| none("y"))?;
        let [samples, targets, places, records] = memory;
        let fixed = [samples, targets, places, address(counter)?, records, address(program.samples())?, address(y)?];
        let mut row: Row = [0; MAX_ARGS];
        row[..fixed.len()].copy_from_slice(&fixed);
        for (slot, id) in row[fixed.len()..].iter_mut().zip(watched) {
            *slot = address(*id)?;
        }
        Ok(row)
    }

    fn make_intake(
        &self,
        samples: &[f32],
        targets: BatchTargets<'_>,
        rows: Option<&[u32]>,
        watched: &[LValueId],
    ) -> Result<Option<Intake>, ExecError> {
        let (program, stream) = (&self.compiled.plan.program, self.gpu.stream());
        let address = |id| located(&self.compiled, id).map(|(place, _)| self.env.address(&self.compiled.plan, place));
        let Some(y) = program.targets() else { return Ok(None) };
        let batch = self.compiled.model.batch;
        let (x_value, y_value) = (program.value(program.samples()), program.value(y));
        let width = |len: usize| len / batch.max(1);
        let (wx, wy) = (width(x_value.shape.len()), width(y_value.shape.len()));
        let (target_type, target_bytes): (_, &[u8]) = match targets {
            BatchTargets::Classes(labels) => ("int", bytemuck::cast_slice(labels)),
            BatchTargets::Values(values) => ("float", bytemuck::cast_slice(values)),
        };
        let (Some(x_type), Some(y_type)) = (cpp(x_value.dtype), cpp(y_value.dtype)) else { return Ok(None) };
        if x_type == "int" || (y_type == "int") != (target_type == "int") {
            return Ok(None);
        }
        // Rows lie in the order of the training part, so that a shuffle's number is a row's.
        let upload = |bytes: &[u8], width: usize| self.upload_rows(bytes, width * 4, rows);
        let (samples, targets) = (upload(bytemuck::cast_slice(samples), wx)?, upload(target_bytes, wy)?);
        let count = rows.map_or(0, <[u32]>::len);
        let places = DeviceMemory::zeroed(RING * PLACE, stream).map_err(gpu_error)?;
        let records = DeviceMemory::zeroed(RING * RECORD, stream).map_err(gpu_error)?;
        let memory = [&samples, &targets, &places, &records].map(DeviceMemory::base);
        let mut row = self.feed_row(memory, watched)?;
        let counter = row[3];
        // Metrics that come together beside a feed go into the record from there.
        let word_of = |name: &str| {
            let id = self.chain.metrics.and_then(|op| program.ops[op].arg(name))?;
            watched.iter().position(|w| address(*w).is_ok_and(|at| address(id).is_ok_and(|own| own == at)))
        };
        let late = ["update_max", "grad_norm"].map(word_of);
        let words = late.map(|word| word.map(|w| w + HEAD));
        let closing = self.chain.closing(&self.compiled, &self.calls, (records.base(), RING), counter, words);
        if self.chain.metrics.is_some() && closing.is_none() {
            return Ok(None);
        }
        let left = late.iter().flatten().fold(0u32, |mask, word| mask | 1 << word);
        let ty = |last: bool, left: u32| {
            let watched = watched.len();
            format!(
                "Feed<{x_type}, {wx}, {target_type}, {y_type}, {wy}, {batch}, {count}, {watched}, {left}, {RING}, {last}>"
            )
        };
        let feed = |last: bool, left: u32| ("feed.cu", ty(last, left));
        row[FLAGS] = OVERLAPPED | if self.chain.feed_early { EARLY_A } else { 0 };
        // The first feed of a launch, those behind a step, and the one behind the last.
        let mut units = vec![vec![feed(false, 0)]];
        let mut between = row.to_vec();
        let metrics = self.chain.metrics.filter(|_| closing.is_some());
        if let Some((unit, mut args)) = closing {
            args[FLAGS] = OVERLAPPED;
            units.extend([vec![feed(false, left), unit.clone()], vec![feed(true, left), unit]]);
            between.extend(args);
        } else {
            units.push(vec![feed(true, 0)]);
        }
        let kernels: Result<Vec<_>, String> = self.gpu.kernels(&units).into_iter().collect();
        let kernels = kernels.map_err(gpu_error)?;
        let [first, .., last] = &kernels[..] else { return Err(gpu_error("no kernel came back".into())) };
        let next = &kernels[kernels.len() - 2];
        let launch = |kernel: &Arc<Kernel>| FeedLaunch { kernel: Arc::clone(kernel), args: between.clone(), metrics };
        let first = FeedLaunch { kernel: Arc::clone(first), args: row.to_vec(), metrics: None };
        let feeds = FeedLaunches { first, next: launch(next), last: launch(last) };
        let most = (MAX_NODES / (self.launches().1 + 1)).clamp(1, MAX_STEPS);
        let mut sizes = vec![most, most / 8, 1];
        sizes.retain(|s| *s > 0);
        sizes.dedup();
        let mut graphs = Vec::with_capacity(sizes.len());
        for steps in sizes {
            let role = Role::Fed(steps);
            graphs.push((steps, self.capture_graph(role, &self.launches_of(role), &feeds.of(steps))?));
        }
        let berth = |_| -> Result<Berth, String> {
            Ok(Berth { places: Pinned::new(most * PLACE)?, records: Pinned::new(most * RECORD)? })
        };
        let berths = (0..FLIGHTS).map(berth).collect::<Result<Vec<_>, _>>().map_err(gpu_error)?;
        Ok(Some(Intake {
            samples,
            targets,
            places,
            records,
            watched: watched.to_vec(),
            feeds,
            graphs,
            free: (0..FLIGHTS).collect(),
            berths,
            flights: VecDeque::new(),
            out: Vec::with_capacity(most),
        }))
    }

    /// Brings rows of `width` bytes to the device, those of `rows` in their order where it names some.
    fn upload_rows(&self, bytes: &[u8], width: usize, rows: Option<&[u32]>) -> Result<DeviceMemory, ExecError> {
        /// What is gathered at once.
        const AT_ONCE: usize = 64 << 20;
        let whole = rows.map_or(bytes.len(), |rows| rows.len() * width);
        let memory = DeviceMemory::zeroed(whole, self.gpu.stream()).map_err(gpu_error)?;
        let copy = |at: usize, bytes: &[u8]| {
            // SAFETY: the stretch lies inside the allocation; the copy is over when the call returns.
            unsafe { result::memcpy_htod_sync(memory.base() + at as u64, bytes) }
                .map_err(|e| gpu_error(super::failed("cuMemcpyHtoD", e)))
        };
        let Some(rows) = rows else { return copy(0, bytes).map(|()| memory) };
        let mut gathered: Vec<u8> = room(whole.min(AT_ONCE));
        for (number, some) in rows.chunks((AT_ONCE / width.max(1)).max(1)).enumerate() {
            gathered.clear();
            some.iter().for_each(|row| gathered.extend_from_slice(&bytes[*row as usize * width..][..width]));
            copy(number * (AT_ONCE / width.max(1)).max(1) * width, &gathered)?;
        }
        Ok(memory)
    }

    /// The most steps that one launch makes; 0 where steps do not fetch their batches themselves.
    #[must_use]
    pub fn most_steps(&self) -> usize {
        self.intake.as_ref().and_then(|i| i.graphs.first()).map_or(0, |g| g.0)
    }

    /// The steps that the next launch makes where `left` are wanted, at most; 0 where steps do not fetch their batches themselves.
    #[must_use]
    pub fn launch_size(&self, left: u64) -> usize {
        let Some(intake) = &self.intake else { return 0 };
        intake.graphs.iter().map(|(steps, _)| *steps).find(|steps| *steps as u64 <= left).unwrap_or(0)
    }

    /// Whether another launch may be sent before the first one's records are taken.
    #[must_use]
    pub fn has_berth(&self) -> bool {
        self.intake.as_ref().is_some_and(|i| !i.free.is_empty())
    }

    /// Launches the steps whose batches stand at `places`; `first` is the number that the step counter has before them. Returns at once.
    ///
    /// # Errors
    /// Where the ledger finds that memory, graph or a live constant is another than at capture (nothing was run then),
    /// or a call fails.
    pub fn launch(&mut self, first: u64, places: &[BatchPlace]) -> Result<(), ExecError> {
        let launched = self.intake.iter().flat_map(|intake| &intake.graphs).find(|(steps, _)| *steps == places.len());
        match launched {
            Some((steps, graph)) => self.check(Role::Fed(*steps), graph)?,
            None => self.check_memory()?,
        }
        self.intake.as_ref().map_or(Ok(()), |intake| intake.check_rings())?;
        self.begin()?;
        let stream = self.gpu.stream();
        let Some(intake) = &mut self.intake else { return Err(gpu_error("no data set is on the device".into())) };
        let steps = places.len();
        let graph = intake.graphs.iter().find(|(s, _)| *s == steps);
        let (Some((_, graph)), Some(berth)) = (graph, intake.free.pop()) else {
            return Err(gpu_error(format!("no launch makes {steps} steps now")));
        };
        let host = &mut intake.berths[berth];
        let bytes: &[u8] = bytemuck::cast_slice(places);
        host.places.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
        let pieces = pieces(first, steps);
        for (from, ring, count) in pieces {
            let part = &host.places.bytes()[from * PLACE..(from + count) * PLACE];
            // SAFETY: the ring has room for RING places; the source stays untouched until the event behind the launch was waited for.
            unsafe { result::memcpy_htod_async(intake.places.base() + (ring * PLACE) as u64, part, stream) }
                .map_err(|e| gpu_error(super::failed("cuMemcpyHtoDAsync", e)))?;
        }
        graph.launch(&self.gpu).map_err(gpu_error)?;
        for (from, ring, count) in pieces {
            let part = &mut host.records.bytes_mut()[from * RECORD..(from + count) * RECORD];
            // SAFETY: the ring has RING records; the target is read only after the event behind the copy was waited for.
            unsafe { result::memcpy_dtoh_async(part, intake.records.base() + (ring * RECORD) as u64, stream) }
                .map_err(|e| gpu_error(super::failed("cuMemcpyDtoHAsync", e)))?;
        }
        let done = Event::new(false).map_err(gpu_error)?;
        done.record(stream).map_err(gpu_error)?;
        intake.flights.push_back(Flight { first, steps, berth, done });
        Ok(())
    }

    /// The records of the oldest launch under way, in order; waits for that launch alone. Empty where none is under way.
    ///
    /// # Errors
    /// What went wrong on the device.
    pub fn landed(&mut self) -> Result<&[StepRecord], ExecError> {
        self.gpu.enter().map_err(gpu_error)?;
        let Some(intake) = &mut self.intake else { return Ok(&[]) };
        intake.out.clear();
        if let Some(flight) = intake.flights.pop_front() {
            let waited = flight.done.wait();
            intake.free.push(flight.berth);
            waited.map_err(gpu_error)?;
            let records = intake.berths[flight.berth].records.bytes();
            for (index, record) in records.chunks_exact(RECORD).take(flight.steps).enumerate() {
                let word = |i: usize| bytemuck::pod_read_unaligned::<u32>(&record[4 * i..4 * i + 4]);
                let ns = |i: usize| u64::from(word(i)) | u64::from(word(i + 1)) << 32;
                let mut values = [0.0; MAX_WATCHED];
                for (slot, value) in values.iter_mut().take(intake.watched.len()).enumerate() {
                    *value = f32::from_bits(word(HEAD + slot));
                }
                let step_us = ns(2).saturating_sub(ns(0)) as f32 / 1e3;
                intake.out.push(StepRecord { counter: flight.first + index as u64, step_us, values });
            }
        }
        Ok(&intake.out)
    }
}

impl Step {
    /// Waits for all launches and forgets their records.
    ///
    /// # Errors
    /// What went wrong on the device.
    pub fn abandon_launches(&mut self) -> Result<(), ExecError> {
        self.synchronize()?;
        if let Some(intake) = &mut self.intake {
            intake.flights.clear();
            intake.free = (0..FLIGHTS).collect();
        }
        Ok(())
    }
}

/// The stretches of the ring that `steps` steps from `first` on take: where each begins among the steps, where in the ring, and how many it holds.
fn pieces(first: u64, steps: usize) -> [(usize, usize, usize); 2] {
    let start = (first % RING as u64) as usize;
    let before = steps.min(RING - start);
    [(0, start, before), (before, 0, steps - before)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_that_pass_the_rings_end_go_on_at_its_beginning() {
        assert_eq!(pieces(0, 5), [(0, 0, 5), (5, 0, 0)]);
        assert_eq!(pieces(RING as u64 * 7 + 3, 4), [(0, 3, 4), (4, 0, 0)]);
        assert_eq!(pieces(RING as u64 * 7 - 2, 6), [(0, RING - 2, 2), (2, 0, 4)]);
        for first in 0..3 * RING as u64 {
            let covered: usize = pieces(first, MAX_STEPS).iter().map(|p| p.2).sum();
            assert_eq!(covered, MAX_STEPS);
        }
    }
}
