//! Which types of `elementwise.cu` compute an operation, and into how many ranges sums over rows are divided.

use super::optimizer::RuleType;
use super::speed::{BYTES_PER_US, LAUNCH_US};
use crate::ops::{self, OpKind, dropout_threshold};
use crate::select::cuda::custom::{CustomKernel, cpp_act, cpp_bits};
use crate::select::cuda::real::{Real, copy_width};
use crate::select::cuda::spec::{GeneralMember, KernelFile, KernelSpec, Pdl};
use crate::select::target::CudaFacts;

/// Bytes that one multiprocessor alone moves in a microsecond.
const BYTES_PER_US_ALONE: f64 = 3e4;

/// Columns of a bias for each lane: as many as possible, so that the launch has few blocks and leaves room for the
/// blocks of a product.
const fn bias_columns(cols: usize) -> usize {
    if cols.is_multiple_of(4) {
        4
    } else if cols.is_multiple_of(2) {
        2
    } else {
        1
    }
}

/// Every type of this family for an operation.
#[must_use]
pub fn kernels(kind: &OpKind, real: Real, gpu: &CudaFacts) -> Vec<CustomKernel> {
    let (t, size) = (real.cpp(), real.size());
    match *kind {
        OpKind::Fill(ops::Fill { len }) if len > 0 => vec![flat(real, array("Fill", real, &[t], len), len * size)],
        OpKind::Transpose(ops::Transpose { n, rows, cols }) if n * rows * cols > 0 => {
            vec![transpose(real, n, rows, cols)]
        }
        OpKind::BiasAdd(ops::BiasAdd { rows, cols }) if rows * cols > 0 => {
            let spec = spec("BiasAdd", format!("{t}, {rows}, {cols}"));
            let any = any_length(real, rows * cols);
            let spec = spec.with_general(format!("{t}, {any}, {any}"), vec![(rows * cols) as u64, cols as u64]);
            vec![flat(real, spec, 2 * rows * cols * size + 4 * cols)]
        }
        OpKind::Act(ops::Act { func, len }) if len > 0 => {
            vec![flat(real, array("Act", real, &[t, cpp_act(Some(func))], len), 2 * len * size)]
        }
        OpKind::ActBwd(ops::ActBwd { func, len }) if len > 0 => {
            let spec = array("ActBwd", real, &[t, cpp_act(Some(func))], len);
            vec![flat(real, spec.with_pdl(leaving_room(len <= FEW_ELEMENTS)), 3 * len * size)]
        }
        OpKind::BiasGrad(op) if fits(op.rows, op.cols) => bias_grad(real, op, gpu),
        OpKind::BiasStep(ops::BiasStep { rows, cols, .. }) if fits(rows, cols) => {
            RuleType::of(kind).map_or_else(Vec::new, |RuleType { own, any, words }| {
                let each = bias_columns(cols);
                let general =
                    GeneralMember::new(format!("{any}, {t}, ANY, ANY, {each}"), vec![rows as u64, cols as u64]);
                let spec = spec("BiasStep", format!("{own}, {t}, {rows}, {cols}, {each}"))
                    .with_general_member(general.with_last_table(words));
                vec![CustomKernel {
                    tail: format!("{}_columns_v0", real.name()),
                    spec: spec.with_pdl(leaving_room(true)),
                    work_bytes: 0,
                    cost_us: LAUNCH_US + 0.6 * rows.div_ceil(128) as f64,
                }]
            })
        }
        OpKind::AddAct(ops::AddAct { len, act, act_grad }) if len > 0 => {
            let spec = array("AddAct", real, &[t, cpp_act(act), cpp_act(act_grad)], len);
            vec![flat(real, spec, (3 + usize::from(act_grad.is_some())) * len * size)]
        }
        OpKind::Add(ops::Add { len }) if len > 0 => {
            vec![flat(real, array("Add", real, &[t], len), 3 * len * size)]
        }
        OpKind::Multiply(ops::Multiply { len }) if len > 0 => {
            vec![flat(real, array("Multiply", real, &[t], len), 3 * len * size)]
        }
        OpKind::Scale(op) if op.len > 0 => vec![scale(real, op)],
        OpKind::Dropout { .. } | OpKind::DropoutBwd { .. } => dropout(kind, real).into_iter().collect(),
        OpKind::SignBits(ops::SignBits { len }) if len > 0 && len.is_multiple_of(8) => {
            let general = spec("SignBits", format!("{t}, {len}"))
                .with_general(format!("{t}, {}", any_groups(len / 8)), vec![len as u64]);
            vec![flat(real, general, len * size + len / 8)]
        }
        OpKind::Cast(ops::Cast { len }) if len > 0 => {
            vec![flat(real, array("Cast", real, &[t], len), len * (4 + size))]
        }
        _ => scalars(kind, real).into_iter().collect(),
    }
}

/// A product with a number.
fn scale(real: Real, ops::Scale { len, factor }: ops::Scale) -> CustomKernel {
    let (t, bits) = (real.cpp(), (factor.get() as f32).to_bits());
    let numbers = vec![len as u64, bits.into()];
    let spec = spec("Scale", format!("{t}, {len}, {bits:#010x}u"));
    let spec = spec.with_general(format!("{t}, {}, ANY", any_length(real, len)), numbers);
    flat(real, spec, 2 * len * real.size())
}

/// Dropout, forward or backward.
fn dropout(kind: &OpKind, real: Real) -> Option<CustomKernel> {
    let t = real.cpp();
    let (len, spec) = match *kind {
        OpKind::Dropout(ops::Dropout { len, rate, stream }) if len > 0 => {
            let (threshold, scale) = (dropout_threshold(rate.get()), dropout_scale(rate.get()));
            let numbers = vec![len as u64, u64::from(threshold), scale_bits(rate.get()).into(), u64::from(stream)];
            let spec = spec("Dropout", format!("{t}, {len}, {threshold}u, {scale}, {stream}u"));
            (len, spec.with_general(format!("{t}, ANY, ANY, ANY, ANY"), numbers))
        }
        OpKind::DropoutBwd(ops::DropoutBwd { len, rate }) if len > 0 => {
            let numbers = vec![len as u64, scale_bits(rate.get()).into()];
            let spec = spec("DropoutBwd", format!("{t}, {len}, {}", dropout_scale(rate.get())));
            (len, spec.with_general(format!("{t}, {}, ANY", any_length(real, len)), numbers))
        }
        _ => return None,
    };
    Some(flat(real, spec.with_pdl(leaving_room(len <= FEW_ELEMENTS)), 2 * len * real.size() + len / 8))
}

/// The kernel that converts `len` elements to floats.
#[must_use]
pub fn widening_kernel(real: Real, len: usize) -> KernelSpec {
    array("Widen", real, &[real.cpp()], len)
}

/// Operations on a few numbers: the step counter, the optimizer's corrections and metrics.
fn scalars(kind: &OpKind, real: Real) -> Option<CustomKernel> {
    let (t, small) = (real.cpp(), leaving_room(true));
    Some(match *kind {
        OpKind::StepInc { .. } => single("i64", spec("StepInc", String::new()).with_pdl(small), 16),
        OpKind::BiasCorr(ops::BiasCorr { beta1, beta2 }) => {
            let arguments = format!("{}, {}", cpp_bits(beta1.get()), cpp_bits(beta2.get()));
            let numbers = [beta1, beta2].map(|beta| beta.get().to_bits()).to_vec();
            let spec = spec("BiasCorr", arguments).with_general("(u64)ANY, (u64)ANY".to_owned(), numbers);
            single("f64", spec.with_pdl(small), 24)
        }
        OpKind::LossMean(ops::LossMean { rows }) if rows > 0 => {
            let any = if rows > BLOCK_ROWS { "LARGE" } else { "ANY" };
            let spec = spec("LossMean", rows.to_string()).with_general(any.to_owned(), vec![rows as u64]);
            single("f32", spec.with_pdl(small), 4 * rows)
        }
        OpKind::Accuracy(ops::Accuracy { rows, classes }) if rows * classes > 0 => {
            let bytes = rows * (classes * real.size() + 4);
            let any = if rows * classes > BLOCK_ROWS { "LARGE" } else { "ANY" };
            let spec = spec("Accuracy", format!("{t}, {rows}, {classes}"))
                .with_general(format!("{t}, {any}, ANY"), vec![rows as u64, classes as u64]);
            single(real.name(), spec, bytes)
        }
        OpKind::UpdateMetrics(ops::UpdateMetrics { segments }) if segments > 0 => {
            let spec =
                spec("UpdateMetrics", segments.to_string()).with_general("ANY".to_owned(), vec![segments as u64]);
            single("f32", spec, 8 * segments)
        }
        _ => return None,
    })
}

/// The number of rows above which a block that sums them has four times the threads.
const BLOCK_ROWS: usize = 4096;

/// The template argument for the length of an array of this many groups of elements in a general member; its threshold
/// equals that of `Elementwise`, from which a thread has several groups.
const fn any_groups(groups: usize) -> &'static str {
    if groups >= 1 << 18 { "LARGE" } else { "ANY" }
}

/// Like [`any_groups`], for an array of `len` elements in groups of 16 bytes.
const fn any_length(real: Real, len: usize) -> &'static str {
    any_groups(len * real.size() / 16)
}

/// A kernel over an array, whose template has these arguments and then the length.
fn array(template: &'static str, real: Real, arguments: &[&str], len: usize) -> KernelSpec {
    let first = arguments.join(", ");
    spec(template, format!("{first}, {len}"))
        .with_general(format!("{first}, {}", any_length(real, len)), vec![len as u64])
}

/// A pass over fewer elements than this leaves most of the machine idle.
const FEW_ELEMENTS: usize = 1 << 17;

/// A kernel of this family that uses no property of programmatic dependent launch but the wait for the preceding
/// launch.
fn spec(template: &'static str, arguments: String) -> KernelSpec {
    KernelSpec::new(KernelFile::Elementwise, template, arguments)
}

/// The PDL properties of a kernel that reads its flags, and that may let the next launch start.
const fn leaving_room(leaves_room: bool) -> Pdl {
    Pdl { reads_flags: true, fetches_early: false, leaves_room }
}

/// The bits of the factor of kept elements in dropout, as a template argument.
pub(super) fn dropout_scale(rate: f64) -> String {
    format!("{:#010x}u", scale_bits(rate))
}

/// The bits of the factor of kept elements in dropout.
pub(super) fn scale_bits(rate: f64) -> u32 {
    ((1.0 / (1.0 - rate)) as f32).to_bits()
}

/// Elements that one access moves if rows have `cols` elements; equals `vec_width` of the prelude.
pub(super) const fn vec_width(real: Real, cols: usize) -> usize {
    copy_width(cols, real.size())
}

/// The text for the length of vectors in a kernel's id.
pub(super) fn width_name(width: usize) -> String {
    if width == 1 { "scalar".to_owned() } else { format!("vec{width}") }
}

/// A kernel over an array; only the elements at its end are not accessed in vectors of 16 bytes.
fn flat(real: Real, spec: KernelSpec, bytes: usize) -> CustomKernel {
    CustomKernel {
        tail: format!("{}_vec{}_v0", real.name(), 16 / real.size()),
        spec,
        work_bytes: 0,
        cost_us: LAUNCH_US + bytes as f64 / BYTES_PER_US,
    }
}

/// A type of one block.
fn single(real: &str, spec: KernelSpec, bytes: usize) -> CustomKernel {
    CustomKernel {
        tail: format!("{real}_block_v0"),
        spec,
        work_bytes: 0,
        cost_us: LAUNCH_US + bytes as f64 / BYTES_PER_US_ALONE,
    }
}

fn transpose(real: Real, n: usize, rows: usize, cols: usize) -> CustomKernel {
    let (t, len) = (real.cpp(), n * rows * cols);
    if rows == 1 || cols == 1 {
        return flat(real, array("Copy", real, &[t], len), 2 * len * real.size());
    }
    // The elements that one access moves: as many as fill four bytes if a row has a multiple of them, otherwise one.
    let pair = |row: usize| if row.is_multiple_of(4 / real.size()) { 4 / real.size() } else { 1 };
    let (reads, writes, is_large) = (pair(cols), pair(rows), len >= 1 << 20);
    let spec = spec("Transpose", format!("{t}, {n}, {rows}, {cols}")).with_general(
        format!("{t}, ANY, ANY, ANY, {reads}, {writes}, {is_large}"),
        vec![n as u64, rows as u64, cols as u64],
    );
    let code = flat(real, spec, 2 * len * real.size());
    CustomKernel { tail: format!("{}_tile_v0", real.name()), ..code }
}

/// The number of ranges into which the sums over the rows of each of `n` matrices are divided so that every
/// multiprocessor has work; 1 if that does not help. A block processes 128 bytes of columns and about 32 rows at a
/// time.
pub(super) fn row_chunks(n: usize, rows: usize, row_bytes: usize, gpu: &CudaFacts) -> usize {
    let (blocks, enough) = (n * row_bytes.div_ceil(128).max(1), 2 * gpu.multiprocessors as usize);
    if rows <= 512 || blocks >= enough { 1 } else { enough.div_ceil(blocks).min(rows.div_ceil(128)).clamp(1, 512) }
}

/// The cost of sums over rows in microseconds with one phase, and with two.
pub(super) fn row_sum_us(n: usize, rows: usize, row_bytes: usize) -> [f64; 2] {
    let (bytes, blocks) = ((n * rows * row_bytes) as f64, (n * row_bytes.div_ceil(128)) as f64);
    [LAUNCH_US + bytes / (blocks * BYTES_PER_US_ALONE).min(BYTES_PER_US), 2.0 * LAUNCH_US + bytes / BYTES_PER_US]
}

/// Whether the kernels that sum the rows of a table can count its rows and columns: they use 32 bits.
const fn fits(rows: usize, cols: usize) -> bool {
    rows > 0 && cols > 0 && rows < 1 << 30 && cols < 1 << 30
}

fn bias_grad(real: Real, op: ops::BiasGrad, gpu: &CudaFacts) -> Vec<CustomKernel> {
    let ops::BiasGrad { rows, cols, accumulate, zeros } = op;
    let row_bytes = cols * real.size();
    let width = width_name(vec_width(real, cols));
    let [one, two] = row_sum_us(1, rows, row_bytes);
    let (t, vector) = (real.cpp(), vec_width(real, cols));
    let (any, [from, to]) = (if zeros.is_some() { ", ANY, ANY" } else { "" }, zeros.unwrap_or_default());
    let zeros = zeros.map_or_else(String::new, |[from, to]| format!(", {from}, {to}"));
    // Columns that stay zero are listed after the width, which must then be given even if it is the default.
    let own = if zeros.is_empty() { String::new() } else { format!(", {vector}{zeros}") };
    let code = |chunks: usize| CustomKernel {
        tail: format!("{}_{width}{}_v0", real.name(), if chunks == 1 { "" } else { "_split" }),
        spec: spec("BiasGrad", format!("{t}, {rows}, {cols}, {accumulate}, {chunks}{own}"))
            .with_general(
                format!("{t}, ANY, ANY, {accumulate}, {}, {vector}{any}", if chunks == 1 { "1" } else { "ANY" }),
                [rows, cols, chunks, from, to].map(|n| n as u64).to_vec(),
            )
            .with_pdl(leaving_room(true)),
        work_bytes: if chunks == 1 { 0 } else { 4 * (chunks * cols) as u64 },
        cost_us: if chunks == 1 { one } else { two + (8 * chunks * cols) as f64 / BYTES_PER_US },
    };
    match row_chunks(1, rows, row_bytes, gpu) {
        1 => vec![code(1)],
        chunks => vec![code(1), code(chunks)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::Scalar;
    use crate::select::target::Kernels;

    fn h200() -> CudaFacts {
        crate::select::target::Target::h200().as_cuda().unwrap()
    }

    #[test]
    fn tall_sums_are_split_and_small_ones_are_not() {
        let cheapest = |rows, cols| {
            let codes = kernels(
                &OpKind::BiasGrad(ops::BiasGrad { rows, cols, accumulate: false, zeros: None }),
                Real::Bf16,
                &h200(),
            );
            codes.into_iter().min_by(|a, b| a.cost_us.total_cmp(&b.cost_us)).map(|code| (code.tail, code.work_bytes))
        };
        assert_eq!(cheapest(128, 10), Some(("bf16_vec2_v0".to_owned(), 0)));
        assert_eq!(cheapest(100_352, 64), Some(("bf16_vec8_split_v0".to_owned(), 4 * 264 * 64)));
        assert_eq!(cheapest(512, 7), Some(("bf16_scalar_v0".to_owned(), 0)));
    }

    #[test]
    fn general_sums_read_the_columns_that_stay_zero() {
        let general = |zeros: Option<[usize; 2]>| {
            let op = ops::BiasGrad { rows: 9, cols: 24, accumulate: false, zeros };
            let spec = kernels(&OpKind::BiasGrad(op), Real::F32, &h200()).remove(0).spec.of(Kernels::General);
            (spec.ty(), spec.numbers().to_vec())
        };
        assert_eq!(general(None), ("BiasGrad<float, ANY, ANY, false, 1, 4>".into(), vec![9, 24, 1, 0, 0]));
        let with = "BiasGrad<float, ANY, ANY, false, 1, 4, ANY, ANY>";
        assert_eq!(general(Some([8, 16])), (with.into(), vec![9, 24, 1, 8, 16]));
    }

    #[test]
    fn dropout_passes_its_numbers_exactly() {
        let op = OpKind::Dropout(ops::Dropout { len: 100, rate: Scalar::new(0.3), stream: 7 });
        let types: Vec<String> = kernels(&op, Real::F32, &h200()).into_iter().map(|code| code.spec.ty()).collect();
        assert_eq!(types, ["Dropout<float, 100, 1288490189u, 0x3fb6db6eu, 7u>"]);
    }
}
