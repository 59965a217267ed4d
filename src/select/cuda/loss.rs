//! Which types of `loss.cu` compute an operation, and with how many threads and blocks.

use super::elementwise::{dropout_scale, scale_bits, vec_width};
use super::speed::{BYTES_PER_US, CACHED_BYTES_PER_US, LAUNCH_US};
use crate::model::losses::PointFn;
use crate::ops::{self, OpKind, Scalar};
use crate::select::cuda::custom::{CustomKernel, act_number, any_act, any_bits, cpp_act, cpp_bits};
use crate::select::cuda::real::Real;
use crate::select::cuda::spec::{GeneralMember, KernelFile, KernelSpec, Pdl};
use crate::select::target::CudaFacts;

/// Bytes that one multiprocessor alone moves in a microsecond.
const BYTES_PER_US_ALONE: f64 = 1e5;

/// The additional cost, in microseconds, if the last block adds the results of the others.
const TICKET_US: f64 = 1.0;

/// Threads of a block if there are several blocks.
const THREADS: usize = 256;

/// Every type of this family for an operation.
#[must_use]
pub fn kernels(kind: &OpKind, real: Real, gpu: &CudaFacts) -> Vec<CustomKernel> {
    // More blocks than the multiprocessors can hold at a time only make the sum over blocks longer.
    let most = (8 * gpu.multiprocessors as usize).max(1);
    match *kind {
        OpKind::SoftmaxCe(ops::SoftmaxCe { rows, classes, smoothing }) if rows * classes > 0 => {
            softmax(real, rows, classes, smoothing)
        }
        OpKind::SoftmaxCeGrad(ops::SoftmaxCeGrad { rows, classes, smoothing }) if rows * classes > 0 => {
            softmax_grad(real, rows, classes, smoothing)
        }
        OpKind::SoftmaxCeFused(op) if op.rows * op.classes > 0 => softmax_fused(real, &op, most),
        OpKind::DenseCe(ops::DenseCe { rows, features, classes, .. }) if rows * features * classes > 0 => {
            dense(real, kind, gpu.multiprocessors.max(1) as usize)
        }
        OpKind::Mse(ops::Mse { len }) if len > 0 => means("Mse", None, (real, len), most),
        OpKind::MseGrad(ops::MseGrad { len }) if len > 0 => means("MseGrad", None, (real, len), most),
        OpKind::MseFused(ops::MseFused { len }) if len > 0 => means("MseFused", None, (real, len), most),
        OpKind::PointLoss(ops::PointLoss { func, delta, len }) if len > 0 => {
            means("PointLoss", Some((func, delta)), (real, len), most)
        }
        OpKind::PointLossGrad(ops::PointLossGrad { func, delta, len }) if len > 0 => {
            means("PointLossGrad", Some((func, delta)), (real, len), most)
        }
        OpKind::PointLossFused(ops::PointLossFused { func, delta, len }) if len > 0 => {
            means("PointLossFused", Some((func, delta)), (real, len), most)
        }
        OpKind::BinaryAccuracy(ops::BinaryAccuracy { len }) if len > 0 => {
            let threads = len.next_multiple_of(32).clamp(32, 1024);
            let spec = spec("BinaryAccuracy", format!("{}, {len}, {threads}", real.cpp()))
                .with_general(format!("{}, ANY, {}", real.cpp(), threads.next_power_of_two()), vec![len as u64]);
            let bytes = (2 * len * real.size()) as f64;
            vec![code(real, "block", spec, 0, LAUNCH_US + bytes / BYTES_PER_US_ALONE)]
        }
        _ => Vec::new(),
    }
}

/// Threads that share a row: one for four elements, at most a whole warp, and a whole block above 1024 classes.
fn lanes(classes: usize) -> usize {
    match classes {
        8193.. => 512,
        1025.. => 256,
        _ => classes.div_ceil(4).next_power_of_two().min(32),
    }
}

fn code(real: Real, tail: &str, spec: KernelSpec, work_bytes: usize, cost_us: f64) -> CustomKernel {
    CustomKernel { tail: format!("{}_{tail}_v0", real.name()), spec, work_bytes: work_bytes as u64, cost_us }
}

/// A kernel of this family that reads its flags and fills the machine.
fn spec(template: &'static str, arguments: String) -> KernelSpec {
    let pdl = Pdl { reads_flags: true, ..Pdl::default() };
    KernelSpec::new(KernelFile::Loss, template, arguments).with_pdl(pdl)
}

/// Like [`spec`], for a kernel that leaves space for the blocks of the next launch.
fn small(template: &'static str, arguments: String, fetches_early: bool) -> KernelSpec {
    spec(template, arguments).with_pdl(Pdl { reads_flags: true, fetches_early, leaves_room: true })
}

/// The kernel that evaluates the exponential or the logarithm of the losses, to measure how exact they are.
#[must_use]
pub fn loss_function(is_logarithm: bool, len: usize) -> KernelSpec {
    spec("LossFunction", format!("{is_logarithm}, {len}"))
}

/// How the registers of lanes hold a row, as template arguments of general members: the width of vectors, and their
/// number, rounded up. Equals `loss_width` and `loss_turns` except for the rounding; vectors past a row add nothing.
fn held_row(real: Real, classes: usize, lanes: usize) -> String {
    if lanes > 32 {
        return format!("{}, 1", vec_width(real, classes));
    }
    let width = vec_width(real, classes).min(if classes <= 128 { 4 } else { 8 });
    format!("{width}, {}", classes.div_ceil(lanes * width).next_power_of_two())
}

fn softmax(real: Real, rows: usize, classes: usize, smoothing: Scalar) -> Vec<CustomKernel> {
    let lanes = lanes(classes);
    // Small blocks distribute a small batch over more multiprocessors.
    let threads = lanes.max(128);
    let (t, own, any) = (real.cpp(), cpp_bits(smoothing.get()), any_bits(smoothing.get()));
    let spec = spec("SoftmaxCe", format!("{t}, {rows}, {classes}, {own}, {lanes}, {threads}")).with_general(
        format!("{t}, ANY, ANY, {any}, {lanes}, {threads}, {}", held_row(real, classes, lanes)),
        vec![rows as u64, classes as u64, smoothing.get().to_bits()],
    );
    let cost = LAUNCH_US + (2 * rows * classes * real.size()) as f64 / BYTES_PER_US;
    vec![code(real, &format!("lanes{lanes}"), spec, 0, cost)]
}

/// A last layer with its loss: rows for each block, chosen so that few blocks wait for others, and the threads that
/// hold the weight.
fn dense(real: Real, kind: &OpKind, multiprocessors: usize) -> Vec<CustomKernel> {
    let OpKind::DenseCe(ops::DenseCe { rows, features, classes, smoothing, act_grad, saved_is_input, dropout, .. }) =
        *kind
    else {
        return Vec::new();
    };
    let (act, own, any, t) = (cpp_act(act_grad), cpp_bits(smoothing.get()), any_bits(smoothing.get()), real.cpp());
    let (wide, kept) = (classes.next_power_of_two(), dropout_scale(dropout.get()));
    let mut out = Vec::new();
    for (threads, each) in [(256, 1), (256, 2), (256, 4), (512, 1), (512, 2), (128, 1), (128, 2), (64, 1), (64, 4)] {
        let held = features.div_ceil(threads) * classes;
        let (blocks, waves) = (rows.div_ceil(each), rows.div_ceil(each).div_ceil(2 * multiprocessors));
        // The number of elements of the weight in registers, and the number of threads with work.
        if held > 80 || each * wide > 64 || threads > 64 && threads >= 2 * features || (each > 1 && rows < each) {
            continue;
        }
        // Fitted to times measured on an H200: rows after the first, threads to wait for, and products of a thread.
        let block_us = 0.15 + 0.38 * (each - 1) as f64 + 7e-4 * threads as f64 + 5e-3 * (each * held) as f64;
        let read = (blocks * features * classes * real.size()) as f64;
        let cost = LAUNCH_US + waves as f64 * block_us + read / CACHED_BYTES_PER_US;
        let arguments =
            format!("{t}, {rows}, {features}, {classes}, {own}, {act}, {saved_is_input}, {kept}, {each}, {threads}");
        let general = |classes: usize, features: usize| {
            let rest = format!("{saved_is_input}, (u32)ANY, {each}, {threads}, {features}, ANY, 1");
            format!("{t}, ANY, ANY, {classes}, {any}, {}, {rest}", any_act(act_grad))
        };
        let of_thread = features.div_ceil(threads);
        let numbers = vec![
            rows as u64,
            features as u64,
            u64::from(scale_bits(dropout.get())),
            smoothing.get().to_bits(),
            classes as u64,
            act_number(act_grad),
        ];
        let member = GeneralMember::new(general(rounded_classes(classes), of_thread), numbers)
            .with_wider(general(wide, of_thread.next_power_of_two()));
        let spec = small("DenseCe", arguments, true).with_general_member(member);
        out.push(code(real, &format!("rows{each}x{threads}"), spec, 0, cost));
    }
    out.sort_by(|a, b| b.cost_us.total_cmp(&a.cost_us));
    out
}

/// The number of classes for which general members of `DenseCe` have registers: few different ones, with the same power
/// of two above.
const fn rounded_classes(classes: usize) -> usize {
    if classes <= 8 { classes.next_power_of_two() } else { classes.next_multiple_of(4) }
}

fn softmax_grad(real: Real, rows: usize, classes: usize, smoothing: Scalar) -> Vec<CustomKernel> {
    let (t, width) = (real.cpp(), vec_width(real, classes));
    let any = if rows * (classes / width) > 100_000 { "LARGE" } else { "ANY" };
    let spec = spec("SoftmaxCeGrad", format!("{t}, {rows}, {classes}, {}", cpp_bits(smoothing.get()))).with_general(
        format!("{t}, {any}, ANY, {}, {width}", any_bits(smoothing.get())),
        vec![rows as u64, classes as u64, smoothing.get().to_bits()],
    );
    vec![code(real, "flat", spec, 0, LAUNCH_US + (2 * rows * classes * real.size()) as f64 / BYTES_PER_US)]
}

fn softmax_fused(real: Real, op: &ops::SoftmaxCeFused, most: usize) -> Vec<CustomKernel> {
    let ops::SoftmaxCeFused { rows, classes, smoothing, parts } = *op;
    let (smoothing, lanes) = (smoothing.get(), lanes(classes));
    let bytes = (2 * rows * classes * real.size()) as f64;
    let type_of = |lanes: usize, threads: usize, blocks: usize| {
        let (t, held) = (real.cpp(), held_row(real, classes, lanes));
        let of = if parts == 1 { String::new() } else { format!(", {parts}") };
        let own = if parts == 1 { String::new() } else { format!(", {held}{of}") };
        let bits = cpp_bits(smoothing);
        let arguments = format!("{t}, {rows}, {classes}, {bits}, {lanes}, {threads}, {blocks}{own}");
        // A thread without a row adds nothing.
        let (threads, any) = if blocks == 1 { (threads.next_power_of_two(), "1") } else { (threads, "ANY") };
        let general = format!("{t}, ANY, ANY, {}, {lanes}, {threads}, {any}, {held}{of}", any_bits(smoothing));
        let numbers = vec![rows as u64, classes as u64, blocks as u64, smoothing.to_bits()];
        small("SoftmaxCeFused", arguments, false).with_general(general, numbers)
    };
    let threads = lanes.max(THREADS);
    let blocks = rows.div_ceil(threads / lanes).min(most);
    let mut out = Vec::new();
    if blocks > 1 {
        let cost = LAUNCH_US + TICKET_US + bytes / BYTES_PER_US;
        out.push(code(real, &format!("lanes{lanes}_blocks"), type_of(lanes, threads, blocks), 8 * blocks, cost));
    }
    // One block needs no sum over blocks. Its threads take up to four short rows or one long row each.
    let fits = rows * lanes <= if classes <= 128 { 4096 } else { 1024 };
    if blocks == 1 || fits {
        let cost = LAUNCH_US + bytes / BYTES_PER_US_ALONE;
        // Fewer threads for a short row need less time in total, more threads finish it sooner.
        let shares: &[usize] = if classes <= 16 { &[4, 1, 2] } else { &[lanes] };
        for &lanes in shares {
            let threads = (rows * lanes).next_multiple_of(32).min(1024);
            out.push(code(real, &format!("lanes{lanes}_block"), type_of(lanes, threads, 1), 0, cost));
        }
    }
    out
}

/// The first arguments of the types for a function of an output and its target, and of their general members.
fn point(func: PointFn, delta: Scalar) -> [String; 2] {
    let name = match func {
        PointFn::BinaryCrossEntropy => "BINARY_CE",
        PointFn::L1 => "L1",
        PointFn::Huber => "HUBER",
    };
    [cpp_bits(delta.get()), any_bits(delta.get())].map(|bits| format!("{name}, {bits}, "))
}

/// The types over flat arrays, which share their shape: a thread processes groups of 16 bytes, up to four in flight.
/// `func` is the function of an output and its target, unless it is the square of their difference.
fn means(
    name: &'static str,
    func: Option<(PointFn, Scalar)>,
    (real, len): (Real, usize),
    most: usize,
) -> Vec<CustomKernel> {
    let [own, any] = func.map(|(func, delta)| point(func, delta)).unwrap_or_default();
    let delta = func.map(|(_, delta)| delta.get().to_bits());
    let groups = len * real.size() / 16;
    let blocks = groups.div_ceil(THREADS).clamp(1, most);
    let (is_gradient, is_fused) = (name.ends_with("Grad"), name.ends_with("Fused"));
    let arrays = if is_gradient || is_fused { 3 } else { 2 };
    // A fused loss on points also counts correct answers.
    let sums = if is_fused && func.is_some() { 2 } else { 1 };
    let bytes = (arrays * len * real.size()) as f64;
    let type_of = |threads: usize, blocks: usize| {
        let t = real.cpp();
        let spec = spec(name, format!("{own}{t}, {len}, {threads}, {blocks}"));
        let flight = groups.div_ceil(threads * blocks).clamp(1, 4);
        // A thread without elements adds nothing.
        let (threads, count) = if blocks == 1 { (threads.next_power_of_two(), "1") } else { (threads, "ANY") };
        let numbers = [len as u64, blocks as u64].into_iter().chain(delta).collect();
        spec.with_general(format!("{any}{t}, ANY, {threads}, {count}, {flight}"), numbers)
    };
    let mut out = Vec::new();
    if blocks > 1 || is_gradient {
        let (work, more) = match (is_gradient, is_fused) {
            (true, _) => (0, 0.0),
            (_, true) => (4 * sums * blocks, TICKET_US),
            _ => (4 * blocks, LAUNCH_US),
        };
        out.push(code(real, "blocks", type_of(THREADS, blocks), work, LAUNCH_US + more + bytes / BYTES_PER_US));
    }
    if !is_gradient && (blocks == 1 || groups <= 4096) {
        let threads = groups.next_multiple_of(32).clamp(32, 1024);
        out.push(code(real, "block", type_of(threads, 1), 0, LAUNCH_US + bytes / BYTES_PER_US_ALONE));
    }
    out
}
