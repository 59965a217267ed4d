//! A classifier of many classes with its loss and its gradients, in chunks of rows.
//!
//! The scores of a chunk are in scratch memory, where they are replaced by their gradient; the products are those of
//! [`gemm`], each in separate phases. Gradients of the weight and of the bias are summed chunk by chunk, so that the
//! results depend on the size of a chunk, but not on the number of threads.

use super::columns::{Grid, TILE, column_sums};
use super::elementwise::{Values, store_sums};
use super::gemm;
use super::lanes::{LANES, Lanes, for_isa};
use super::loss::{Softmax, mean};
use crate::exec::cpu::call::{Call, KernelFn, KernelImpl, MAX_ARGS, Part};
use crate::ops::slot::{classifier_ce as slot, product};
use crate::ops::{ClassifierCe, Gemm, OpKind};
use crate::select::cpu_classifier::{Scratch, Stage, phases, stage};
use crate::select::{Isa, cpu_rest};

/// The fast kernel of an operation of this family.
#[must_use]
pub fn resolve(op: &OpKind, isa: Isa, threads: usize) -> Option<KernelImpl> {
    let OpKind::ClassifierCe(classifier) = op else { return None };
    let run: KernelFn = match isa {
        Isa::Portable => portable,
        Isa::Avx2 => avx2,
        Isa::Avx512 => avx512,
    };
    let parallel = cpu_rest::is_parallel(op, threads);
    Some(KernelImpl { phases: phases(classifier, isa), ..KernelImpl::simple(run, parallel) })
}

unsafe fn portable(call: &Call, part: Part) {
    // SAFETY: the caller's contract is the phase's.
    unsafe { run(call, part, Isa::Portable) }
}

unsafe fn avx2(call: &Call, part: Part) {
    // SAFETY: as above; selection asks for this instruction set only where the processor has it.
    unsafe { run(call, part, Isa::Avx2) }
}

unsafe fn avx512(call: &Call, part: Part) {
    // SAFETY: as above.
    unsafe { run(call, part, Isa::Avx512) }
}

/// Runs one part of a phase, by the kernels of an instruction set.
///
/// # Safety
/// As for [`KernelFn`], and the instruction set is available.
unsafe fn run(call: &Call, part: Part, isa: Isa) {
    let OpKind::ClassifierCe(op) = &call.op else { return };
    // SAFETY: the caller's contract; chunks are inside of the operands.
    unsafe {
        let Some((chunk, stage)) = stage(op, isa, part.phase) else {
            return for_isa!(isa, totals)(call, part);
        };
        let products = op.products(chunk);
        let at = Pointers::new(call, op, chunk);
        match stage {
            Stage::Scores(phase) => {
                let bias = call.arg(slot::BIAS);
                multiply(&products.scores, [at.a, at.b, at.scores], bias, at.work, isa, Part { phase, ..part });
            }
            Stage::Softmax => for_isa!(isa, softmax)(call, part_of_chunk(part, chunk)),
            Stage::Weight(phase) => {
                if phase == 0 && op.bias {
                    for_isa!(isa, bias_gradient)(call, part_of_chunk(part, chunk));
                }
                let (first, second) = if op.tied { (at.scores, at.a) } else { (at.a, at.scores) };
                let factors = [first, second, call.arg(slot::DWEIGHT)];
                multiply(&products.weight, factors, std::ptr::null_mut(), at.work, isa, Part { phase, ..part });
            }
            Stage::Input(phase) => {
                let Some(input) = &products.input else { return };
                let none = std::ptr::null_mut();
                multiply(input, [at.scores, at.b, at.dx], none, at.work, isa, Part { phase, ..part });
            }
        }
    }
}

/// A part whose phase is the number of a chunk.
const fn part_of_chunk(part: Part, chunk: usize) -> Part {
    Part { phase: chunk, ..part }
}

/// The locations of a chunk's values.
struct Pointers {
    /// `[rows, features]`
    a: *mut f32,
    /// The whole weight.
    b: *mut f32,
    /// `[rows, classes]`
    scores: *mut f32,
    /// `[rows, features]`; not used if no input gradient is computed.
    dx: *mut f32,
    /// The arguments of products.
    work: *mut f32,
}

impl Pointers {
    fn new(call: &Call, op: &ClassifierCe, chunk: usize) -> Self {
        let start = op.rows_of(chunk).0 * op.features;
        let work = call.arg::<f32>(slot::WORK);
        Self {
            a: call.arg::<f32>(slot::A).wrapping_add(start),
            b: call.arg(slot::B),
            scores: work,
            dx: call.arg::<f32>(slot::DX).wrapping_add(start),
            work: work.wrapping_add(Scratch::new(op).products),
        }
    }
}

/// Runs one part of a phase of the product `c = a b`.
///
/// # Safety
/// The factors, the bias if there is one, and the scratch memory are as the product requires.
unsafe fn multiply(g: &Gemm, [a, b, c]: [*mut f32; 3], bias: *mut f32, work: *mut f32, isa: Isa, part: Part) {
    let op = OpKind::Gemm(*g);
    let Some(kernel) = gemm::resolve(&op, isa, part.count) else { return };
    let mut ptr = [std::ptr::null_mut(); MAX_ARGS];
    for (slot, pointer) in
        [(product::A, a), (product::B, b), (product::C, c), (product::BIAS, bias), (product::WORK, work)]
    {
        ptr[slot] = pointer.cast();
    }
    let (run, phases) = (kernel.run, kernel.phases);
    let call = Call { run, op, ptr, table: Box::default(), phases, parallel: true, around: None };
    // SAFETY: promised by the caller.
    unsafe { (call.run)(&call, part) }
}

/// Softmax, loss and gradient of the scores of the chunk whose number is the part's phase.
#[inline(always)]
unsafe fn softmax<V: Lanes>(call: &Call, part: Part) {
    let OpKind::ClassifierCe(op) = &call.op else { return };
    let (start, rows) = op.rows_of(part.phase);
    let (scores, scratch) = (call.arg::<f32>(slot::WORK), Scratch::new(op));
    let accuracy = call.arg::<f32>(slot::ACCURACY);
    let of_rows = |at: usize| scores.wrapping_add(at + start);
    let mut job = Softmax::new(op.rows, op.classes, op.smoothing.get());
    (job.logits, job.out) = (scores, scores);
    job.labels = call.arg::<i32>(slot::LABELS).wrapping_add(start);
    job.row_loss = of_rows(scratch.losses);
    job.right = if accuracy.is_null() { accuracy } else { of_rows(scratch.right) };
    // Long rows are independent of each other.
    let (from, to) = part.range(rows, if op.classes > LANES { 1 } else { LANES });
    // SAFETY: the call's buffers hold all rows.
    unsafe { job.rows::<V, true>(from, to) };
}

/// Adds the gradient of the scores of the chunk whose number is the part's phase to the gradient of the bias; the first
/// chunk overwrites it unless it accumulates.
#[inline(always)]
unsafe fn bias_gradient<V: Lanes>(call: &Call, part: Part) {
    let OpKind::ClassifierCe(op) = &call.op else { return };
    let (_, rows) = op.rows_of(part.phase);
    let (scores, db) = (call.arg::<f32>(slot::WORK), call.arg::<f32>(slot::DB));
    let (grid, accumulate) = (Grid::new(op.classes), op.accumulate_bias || part.phase > 0);
    let (mut tile, end) = part.range(op.classes, TILE);
    while tile < end {
        let width = (end - tile).min(TILE);
        // SAFETY: rows and columns stay within the chunk's scores.
        unsafe {
            let [sums] = column_sums::<V, 1, _>(&Values(scores), grid, tile, width, 0, rows);
            store_sums(&sums.0[..width], db.add(tile), accumulate);
        }
        tile += TILE;
    }
}

/// The mean loss and the accuracy, from the results of the chunks for each row.
#[inline(always)]
unsafe fn totals<V: Lanes>(call: &Call, part: Part) {
    let OpKind::ClassifierCe(op) = &call.op else { return };
    if part.index != 0 {
        return;
    }
    let (work, scratch) = (call.arg::<f32>(slot::WORK), Scratch::new(op));
    for (out, start) in [(slot::LOSS, scratch.losses), (slot::ACCURACY, scratch.right)] {
        let out = call.arg::<f32>(out);
        if !out.is_null() {
            // SAFETY: the chunks wrote the rows' losses and answers.
            unsafe { *out = mean::<V>(work, start, op.rows) };
        }
    }
}
