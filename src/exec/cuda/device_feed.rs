//! Steps that fetch their own batches: the data set stays on the device, each step shuffles and gathers its rows and
//! writes a record of its results, and one launch makes several steps. The host writes the positions of batches in
//! advance and reads records later; it never stops the stream.

use super::any_feed::RING;
use super::arguments::{FLAGS, put_numbers};
use super::bound_ops::BoundOps;
use super::captured_graph::CapturedGraph;
use super::error::{CudaError, failed};
use super::feed_launch::{FEED_ARGS, FeedLaunch, FeedLaunches, PLACES, RECORDS};
use super::feed_memory::{FeedMemory, HEAD, HeldRows, PLACE, RECORD};
use super::graphs::Graphs;
use super::memory::{Event, Pinned};
use super::recording::Recording;
use crate::data::BatchPlace;
use crate::exec::cuda::gpu::Gpu;
use crate::exec::error::ExecError;
use crate::exec::stream::{MAX_WATCHED, StepRecord};
use crate::lower::LValueId;
use cudarc::driver::{result, sys};
use std::collections::VecDeque;
use std::sync::Arc;

/// The largest number of launches in flight.
const IN_FLIGHT: usize = 3;

/// A launch in flight.
struct InFlight {
    first: u64,
    steps: usize,
    /// The staging memory for its positions and its records.
    slot: usize,
    done: Event,
}

/// Host memory that belongs to one launch at a time.
struct StagingSlot {
    places: Pinned,
    records: Pinned,
}

/// A data set on the device, with the feed that copies batches from it to a step.
pub(super) struct DeviceFeed {
    memory: FeedMemory,
    watched: Vec<LValueId>,
    launches: FeedLaunches,
    slots: Vec<StagingSlot>,
    free: Vec<usize>,
    in_flight: VecDeque<InFlight>,
    completed: Vec<StepRecord>,
    /// The number of launches made so far.
    pub(super) launched: u64,
}

/// A data feed with the graph of one step that it feeds.
type FeedWithGraph = (DeviceFeed, CapturedGraph);

impl DeviceFeed {
    /// Captures one step that fetches from a data set on the device; `None` if the step cannot be fed in this way.
    /// Launches of several steps are captured later, so that the first step starts sooner.
    ///
    /// # Errors
    /// If the device fails.
    pub(super) fn new(
        ops: &BoundOps,
        recording: &Recording,
        graphs: &Graphs,
        rows: Arc<HeldRows>,
        watched: &[LValueId],
    ) -> Result<Option<FeedWithGraph>, ExecError> {
        let memory = FeedMemory::new(&ops.gpu, rows)?;
        let Some(launches) = memory.launches(ops, recording, watched)? else { return Ok(None) };
        let graph = graphs.capture_one_fed(ops, recording, &launches)?;
        let most = graphs.most_fed();
        let slot = |_| -> Result<StagingSlot, CudaError> {
            Ok(StagingSlot { places: Pinned::new(most * PLACE)?, records: Pinned::new(most * RECORD)? })
        };
        let slots = (0..IN_FLIGHT).map(slot).collect::<Result<Vec<_>, _>>()?;
        let feed = Self {
            memory,
            watched: watched.to_vec(),
            launches,
            slots,
            free: (0..IN_FLIGHT).collect(),
            in_flight: VecDeque::new(),
            completed: Vec::with_capacity(most),
            launched: 0,
        };
        Ok(Some((feed, graph)))
    }

    /// The data set on the device.
    pub(super) const fn rows(&self) -> &Arc<HeldRows> {
        &self.memory.rows
    }

    /// The launches of the data feed in a graph of this many steps.
    pub(super) fn launches(&self, steps: usize) -> Vec<&FeedLaunch> {
        self.launches.of(steps)
    }

    /// The launches of the data feed.
    pub(super) const fn all_launches(&self) -> &FeedLaunches {
        &self.launches
    }

    /// Checks that memory, batch and watched values are where the data feed has them.
    ///
    /// # Errors
    /// If one of them is elsewhere.
    pub(super) fn check(&self, ops: &BoundOps) -> Result<(), ExecError> {
        let mut row = self.memory.row(ops, &self.watched)?;
        put_numbers(&mut row, &self.launches.first.numbers);
        let recorded = self.launches.row();
        let differs = (0..FLAGS).find(|&word| row[word] != recorded[word]);
        differs.map_or(Ok(()), |word| {
            let name = FEED_ARGS.get(word).copied().unwrap_or("a watched value");
            let (recorded, found) = (recorded[word], row[word]);
            let why = format!("{name} was recorded at {recorded:#x} and is at {found:#x} now");
            Err(ExecError::Graph { graph: "the data feed".into(), why })
        })
    }

    /// Checks that the host writes positions and reads records where the data feed does.
    ///
    /// # Errors
    /// If it does not.
    pub(super) fn check_rings(&self) -> Result<(), ExecError> {
        let row = self.launches.row();
        if (row[PLACES], row[RECORDS]) == (self.memory.rings.places.base(), self.memory.rings.records.base()) {
            return Ok(());
        }
        let why = "the ring buffers of positions and records are not at their recorded addresses".into();
        Err(ExecError::Graph { graph: "the data feed".into(), why })
    }

    /// Whether another launch may be started before the records of the first one are taken.
    pub(super) fn has_free_slot(&self) -> bool {
        !self.free.is_empty()
    }

    /// Launches the steps whose batches are at `places`; `first` is the value of the step counter before them. Returns
    /// immediately.
    ///
    /// # Errors
    /// If no graph has this number of steps, no staging slot is free, or a call fails.
    pub(super) fn launch(
        &mut self,
        gpu: &Gpu,
        graph: Option<&CapturedGraph>,
        first: u64,
        places: &[BatchPlace],
    ) -> Result<(), CudaError> {
        let (stream, steps) = (gpu.stream(), places.len());
        let (Some(graph), Some(slot)) = (graph, self.free.pop()) else {
            return Err(format!("no recorded launch makes {steps} steps").into());
        };
        self.send_places(stream, slot, first, places)?;
        graph.launch(gpu)?;
        self.fetch_records(stream, slot, first, steps)?;
        let done = Event::new(false)?;
        done.record(stream)?;
        self.in_flight.push_back(InFlight { first, steps, slot, done });
        self.launched += 1;
        Ok(())
    }

    /// Copies the positions of batches to the device.
    fn send_places(
        &mut self,
        stream: sys::CUstream,
        slot: usize,
        first: u64,
        places: &[BatchPlace],
    ) -> Result<(), CudaError> {
        let host = &mut self.slots[slot];
        let bytes: &[u8] = bytemuck::cast_slice(places);
        host.places.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
        for (from, ring, count) in pieces(first, places.len()) {
            let part = &host.places.bytes()[from * PLACE..(from + count) * PLACE];
            let address = self.memory.rings.places.base() + (ring * PLACE) as u64;
            // SAFETY: the ring has room for RING places; the source stays untouched until the event behind the launch
            // was waited for.
            unsafe { result::memcpy_htod_async(address, part, stream) }.map_err(|e| failed("cuMemcpyHtoDAsync", e))?;
        }
        Ok(())
    }

    /// Copies the records of a launch to the host, after the launch.
    fn fetch_records(&mut self, stream: sys::CUstream, slot: usize, first: u64, steps: usize) -> Result<(), CudaError> {
        let host = &mut self.slots[slot];
        for (from, ring, count) in pieces(first, steps) {
            let part = &mut host.records.bytes_mut()[from * RECORD..(from + count) * RECORD];
            let address = self.memory.rings.records.base() + (ring * RECORD) as u64;
            // SAFETY: the ring has RING records; the target is read only after the event behind the copy was waited
            // for.
            unsafe { result::memcpy_dtoh_async(part, address, stream) }.map_err(|e| failed("cuMemcpyDtoHAsync", e))?;
        }
        Ok(())
    }

    /// The records of the oldest launch in flight, in order; waits only for that launch. Empty if none is in flight.
    ///
    /// # Errors
    /// If the device fails.
    pub(super) fn completed(&mut self) -> Result<&[StepRecord], CudaError> {
        self.completed.clear();
        if let Some(launch) = self.in_flight.pop_front() {
            let waited = launch.done.wait();
            self.free.push(launch.slot);
            waited?;
            let records = self.slots[launch.slot].records.bytes();
            for (index, record) in records.chunks_exact(RECORD).take(launch.steps).enumerate() {
                self.completed.push(read_record(record, launch.first + index as u64, self.watched.len()));
            }
        }
        Ok(&self.completed)
    }

    /// Discards all launches, which must have completed.
    pub(super) fn forget_launches(&mut self) {
        self.in_flight.clear();
        self.free = (0..IN_FLIGHT).collect();
    }
}

/// The record of the step after `counter`, with this number of values.
fn read_record(record: &[u8], counter: u64, watched: usize) -> StepRecord {
    let word = |i: usize| bytemuck::pod_read_unaligned::<u32>(&record[4 * i..4 * i + 4]);
    let ns = |i: usize| u64::from(word(i)) | u64::from(word(i + 1)) << 32;
    let mut values = [0.0; MAX_WATCHED];
    for (slot, value) in values.iter_mut().take(watched).enumerate() {
        *value = f32::from_bits(word(HEAD + slot));
    }
    let step_us = ns(2).saturating_sub(ns(0)) as f32 / 1e3;
    StepRecord { counter, step_us, values }
}

/// The ranges of the ring that `steps` steps from `first` on use: for each, its first step, its start in the ring, and
/// its length.
fn pieces(first: u64, steps: usize) -> [(usize, usize, usize); 2] {
    let start = (first % RING as u64) as usize;
    let before = steps.min(RING - start);
    [(0, start, before), (before, 0, steps - before)]
}

#[cfg(test)]
mod tests {
    use super::super::any_feed::MAX_STEPS;
    use super::*;

    #[test]
    fn places_past_the_end_of_the_ring_continue_at_its_start() {
        assert_eq!(pieces(0, 5), [(0, 0, 5), (5, 0, 0)]);
        assert_eq!(pieces(RING as u64 * 7 + 3, 4), [(0, 3, 4), (4, 0, 0)]);
        assert_eq!(pieces(RING as u64 * 7 - 2, 6), [(0, RING - 2, 2), (2, 0, 4)]);
        for first in 0..3 * RING as u64 {
            let covered: usize = pieces(first, MAX_STEPS).iter().map(|p| p.2).sum();
            assert_eq!(covered, MAX_STEPS);
        }
    }
}
