//! The data feed's memory on the device (the data set, the places of batches and the records of steps), and its
//! kernels.

use super::any_feed::{RING, any_feed, cpp, width_of};
use super::arguments::{ArgRow, EARLY_A, FLAGS, MAX_ARGS, STARTS_NEXT, put_numbers};
use super::bound_call::BoundCall;
use super::bound_ops::BoundOps;
use super::error::failed;
use super::feed_launch::{COUNTER, FeedLaunch, FeedLaunches};
use super::general_members::set_geometry;
use super::kernel_store::Kernel;
use super::memory::DeviceMemory;
use super::multi_step::RecordRing;
use super::recording::Recording;
use super::source::KernelSource;
use crate::data::{BatchPlace, BatchTargets};
use crate::exec::cuda::gpu::Gpu;
use crate::exec::error::ExecError;
use crate::exec::stream::DataSet;
use crate::lower::LValueId;
use crate::select::Kernels;
use crate::select::cuda::{KernelFile, KernelSpec};
use crate::tensor::room;
use cudarc::driver::result;
use std::sync::Arc;

/// Bytes that describe the place of a batch.
pub(super) const PLACE: usize = size_of::<BatchPlace>();
/// Bytes of a record, and the words before its values.
pub(super) const RECORD: usize = 64;
pub(super) const HEAD: usize = 4;

/// The number types and sizes of a data feed.
#[derive(Clone, Copy)]
struct FeedTypes {
    /// Types of samples in the step, targets in the data set and targets in the step, as the kernels write them.
    sample: &'static str,
    stored_target: &'static str,
    target: &'static str,
    /// Elements of a sample and of a target.
    sample_len: usize,
    target_len: usize,
}

impl FeedTypes {
    /// The types and sizes for a step and a data set; `None` if the step cannot be fed from it.
    fn new(ops: &BoundOps, targets: BatchTargets<'_>) -> Option<Self> {
        let program = &ops.compiled.plan.program;
        let (x, y) = (program.value(program.samples()), program.value(program.targets()?));
        let len = |all: usize| all / ops.compiled.model.batch.max(1);
        let stored_target = match targets {
            BatchTargets::Classes(_) => "int",
            BatchTargets::Values(_) => "float",
        };
        let (sample, target) = (cpp(x.dtype)?, cpp(y.dtype)?);
        let fits = sample != "int" && (target == "int") == (stored_target == "int");
        let (sample_len, target_len) = (len(x.shape.len()), len(y.shape.len()));
        fits.then_some(Self { sample, stored_target, target, sample_len, target_len })
    }
}

/// The memory of a data feed.
pub(super) struct FeedMemory {
    pub(super) rows: Arc<HeldRows>,
    pub(super) rings: FeedRings,
}

/// A data set on the device. Feeds of several steps may read it.
pub(super) struct HeldRows {
    samples: DeviceMemory,
    targets: DeviceMemory,
    types: FeedTypes,
    /// The number of rows that shuffles permute; 0 if samples come in order.
    shuffled: usize,
}

impl HeldRows {
    /// Copies a data set to the device; `None` if the step cannot be fed from it.
    ///
    /// # Errors
    /// If there is too little memory, or a copy fails.
    pub(super) fn new(ops: &BoundOps, data: &DataSet<'_>) -> Result<Option<Self>, ExecError> {
        let Some(types) = FeedTypes::new(ops, data.targets) else { return Ok(None) };
        let targets: &[u8] = match data.targets {
            BatchTargets::Classes(labels) => bytemuck::cast_slice(labels),
            BatchTargets::Values(values) => bytemuck::cast_slice(values),
        };
        // Rows are in the order of the training part, so that a number of the shuffle is the number of a row.
        let upload = |bytes: &[u8], len: usize| upload_rows(&ops.gpu, bytes, len * 4, data.rows);
        Ok(Some(Self {
            samples: upload(bytemuck::cast_slice(data.samples), types.sample_len)?,
            targets: upload(targets, types.target_len)?,
            types,
            shuffled: data.rows.map_or(0, <[u32]>::len),
        }))
    }
}

/// The data that host and device exchange, step by step.
pub(super) struct FeedRings {
    pub(super) places: DeviceMemory,
    pub(super) records: DeviceMemory,
}

impl FeedMemory {
    /// Allocates rings for places and records.
    ///
    /// # Errors
    /// If there is too little memory.
    pub(super) fn new(gpu: &Gpu, rows: Arc<HeldRows>) -> Result<Self, ExecError> {
        let rings = FeedRings {
            places: DeviceMemory::zeroed(RING * PLACE, gpu.stream())?,
            records: DeviceMemory::zeroed(RING * RECORD, gpu.stream())?,
        };
        Ok(Self { rows, rings })
    }

    /// The data feed's arguments.
    ///
    /// # Errors
    /// If the step lacks a value.
    pub(super) fn row(&self, ops: &BoundOps, watched: &[LValueId]) -> Result<ArgRow, ExecError> {
        let program = &ops.compiled.plan.program;
        let none = |name: &str| ExecError::NoValue(name.into());
        let counter = program.find("counter").ok_or_else(|| none("counter"))?;
        let y = program.targets().ok_or_else(|| none("y"))?;
        let [samples, targets, places, records] =
            [&self.rows.samples, &self.rows.targets, &self.rings.places, &self.rings.records].map(DeviceMemory::base);
        let (counter, x, y) = (ops.address(counter)?, ops.address(program.samples())?, ops.address(y)?);
        let fixed = [samples, targets, places, counter, records, x, y];
        let mut row: ArgRow = [0; MAX_ARGS];
        row[..fixed.len()].copy_from_slice(&fixed);
        for (slot, id) in row[fixed.len()..].iter_mut().zip(watched) {
            *slot = ops.address(*id)?;
        }
        Ok(row)
    }

    /// The compiled launches of the data feed; `None` if a step ends with metrics that the feed cannot compute.
    ///
    /// # Errors
    /// If a kernel is not available.
    pub(super) fn launches(
        &self,
        ops: &BoundOps,
        recording: &Recording,
        watched: &[LValueId],
    ) -> Result<Option<FeedLaunches>, ExecError> {
        let multi_step = &recording.multi_step;
        let mut row = self.row(ops, watched)?;
        // Metrics that a feed computes are written to the record directly.
        let word_of = |name: &str| {
            let id = multi_step.metrics.and_then(|op| ops.compiled.plan.program.ops[op].arg(name))?;
            watched.iter().position(|w| ops.address(*w).is_ok_and(|at| ops.address(id).is_ok_and(|own| own == at)))
        };
        let late = ["update_max", "grad_norm"].map(word_of);
        let words = late.map(|word| word.map(|w| w + HEAD));
        let ring = RecordRing { address: self.rings.records.base(), len: RING, counter: row[COUNTER], words };
        let closing = multi_step.closing(ops, &ring);
        if multi_step.metrics.is_some() && closing.is_none() {
            return Ok(None);
        }
        let left = late.iter().flatten().fold(0u32, |mask, word| mask | 1 << word);
        // Metrics beside a feed are compiled with it, for the current network.
        let kernels = if closing.is_some() { Kernels::Specialised } else { ops.compiled.selection.target.kernels };
        let feed = |is_last: bool, left: u32| feed_kernel(ops, &self.rows, watched.len(), (left, is_last)).of(kernels);
        let numbers = feed(false, 0).numbers().to_vec();
        put_numbers(&mut row, &numbers);
        row[FLAGS] = STARTS_NEXT | if multi_step.feed_early { EARLY_A } else { 0 };
        // The first feed of a launch, those after a step, and the one after the last step.
        let mut sources: Vec<KernelSource> = vec![feed(false, 0).into()];
        let mut between = row.to_vec();
        let metrics = multi_step.metrics.filter(|_| closing.is_some());
        if let Some((spec, mut args)) = closing {
            args[FLAGS] = STARTS_NEXT;
            let beside = |is_last| [feed(is_last, left), spec.clone()].into_iter().collect();
            sources.extend([beside(false), beside(true)]);
            between.extend(args);
        } else {
            sources.push(feed(true, 0).into());
        }
        let mut kernels = ops.gpu.kernels(&sources).into_iter().collect::<Result<Vec<_>, _>>()?;
        place_blocks(&ops.gpu, &mut kernels, &feed(false, 0), &row)?;
        let [first, .., last] = &kernels[..] else { return Err(ExecError::Gpu("no kernel came back".into())) };
        let next = &kernels[kernels.len() - 2];
        let of = |kernel: &Arc<Kernel>, args: &[u64], metrics| FeedLaunch {
            kernel: Arc::clone(kernel),
            args: args.to_vec(),
            numbers: numbers.clone(),
            metrics,
        };
        let launch = |kernel: &Arc<Kernel>| of(kernel, &between, metrics);
        let first = of(first, &row, None);
        Ok(Some(FeedLaunches { first, next: launch(next), last: launch(last) }))
    }
}

/// The kernel of a data feed, which leaves the words in the mask `left` to the metrics beside it, and which is or is
/// not the last one of a launch.
fn feed_kernel(ops: &BoundOps, rows: &HeldRows, watched: usize, (left, is_last): (u32, bool)) -> KernelSpec {
    let FeedTypes { sample, stored_target, target, sample_len, target_len } = rows.types;
    let (batch, count) = (ops.compiled.model.batch, rows.shuffled);
    let samples = format!("{sample}, {sample_len}, {stored_target}, {target}, {target_len}, {batch}, {count}");
    let any = any_feed([sample, stored_target, target], count > 0, is_last, width_of(sample_len));
    let halves = |low: usize, high: usize| low as u64 | (high as u64) << 32;
    let numbers = vec![halves(sample_len, target_len), halves(batch, count), halves(watched, left as usize)];
    KernelSpec::new(KernelFile::Feed, "Feed", format!("{samples}, {watched}, {left}, {RING}, {is_last}"))
        .with_general(any, numbers)
}

/// Sets the number of blocks for general members among a feed's kernels, each of which has one phase.
fn place_blocks(gpu: &Gpu, kernels: &mut [Arc<Kernel>], spec: &KernelSpec, row: &ArgRow) -> Result<(), ExecError> {
    let call = |kernel: &Arc<Kernel>| {
        let (kernel, spec) = (Arc::clone(kernel), Arc::new(spec.clone()));
        vec![BoundCall::Kernel { kernel, spec, args: Box::new(*row) }]
    };
    let mut calls: Vec<Vec<BoundCall>> = kernels.iter().map(call).collect();
    set_geometry(gpu, &mut calls)?;
    for (kernel, call) in kernels.iter_mut().zip(calls.into_iter().flatten()) {
        if let BoundCall::Kernel { kernel: placed, .. } = call {
            *kernel = placed;
        }
    }
    Ok(())
}

/// Copies rows of `width` bytes to the device; if `rows` contains numbers, those rows in that order.
fn upload_rows(gpu: &Gpu, bytes: &[u8], width: usize, rows: Option<&[u32]>) -> Result<DeviceMemory, ExecError> {
    /// The number of bytes that are gathered at a time.
    const AT_ONCE: usize = 64 << 20;
    let whole = rows.map_or(bytes.len(), |rows| rows.len() * width);
    let memory = DeviceMemory::zeroed(whole, gpu.stream())?;
    let copy = |at: usize, bytes: &[u8]| {
        // SAFETY: the stretch is inside the allocation; the copy is over when the call returns.
        unsafe { result::memcpy_htod_sync(memory.base() + at as u64, bytes) }.map_err(|e| failed("cuMemcpyHtoD", e))
    };
    let Some(rows) = rows else {
        copy(0, bytes)?;
        return Ok(memory);
    };
    let mut gathered: Vec<u8> = room(whole.min(AT_ONCE));
    for (number, some) in rows.chunks((AT_ONCE / width.max(1)).max(1)).enumerate() {
        gathered.clear();
        some.iter().for_each(|row| gathered.extend_from_slice(&bytes[*row as usize * width..][..width]));
        copy(number * (AT_ONCE / width.max(1)).max(1) * width, &gathered)?;
    }
    Ok(memory)
}
