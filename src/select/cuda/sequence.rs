//! Which types of `joined.cu` and `sequence.cu` compute an operation.

use super::elementwise::{vec_width, width_name};
use super::speed::{BYTES_PER_US, CACHED_BYTES_PER_US, LAUNCH_US};
use crate::ops::{self, OpKind};
use crate::select::cuda::custom::{CustomKernel, general};
use crate::select::cuda::real::Real;
use crate::select::cuda::spec::{KernelFile, KernelSpec};
use crate::select::target::CudaFacts;

/// Every type of these families for an operation.
#[must_use]
pub fn kernels(kind: &OpKind, real: Real, _: &CudaFacts) -> Vec<CustomKernel> {
    let t = real.cpp();
    let width = |multiples: &[usize]| common_width(real, multiples);
    let of = |file, template, arguments: String, v: usize, bytes: usize| {
        moving(real, KernelSpec::new(file, template, arguments), v, bytes)
    };
    let bytes = kind.bytes_moved(real.size()) as usize;
    let take = |template, [n, positions, cols, at]: [usize; 4]| {
        let v = width(&[cols]);
        let kernel = of(KernelFile::Sequence, template, format!("{t}, {n}, {positions}, {cols}, {at}, {v}"), v, bytes);
        vec![general(kernel, format!("{t}, ANY, ANY, ANY, ANY, {v}"), &[n, positions, cols, at].map(|n| n as u64))]
    };
    vec![match kind {
        OpKind::Concat(op) if op.rows * op.cols() > 0 => {
            let (v, rows) = (width(&op.widths), op.rows);
            let widths: Vec<String> = op.widths.iter().map(ToString::to_string).collect();
            let kernel = of(KernelFile::Joined, "Concat", format!("{t}, {rows}, {v}, {}", widths.join(", ")), v, bytes);
            let mut numbers: Vec<u64> = [rows].iter().chain(&op.widths).map(|n| *n as u64).collect();
            numbers.resize(1 + ops::Concat::MOST, 0);
            let any = vec!["ANY"; widths.len()].join(", ");
            general(kernel, format!("{t}, ANY, {v}, {any}"), &numbers)
        }
        &OpKind::Slice(ops::Slice { rows, cols, from, width: wide }) if rows * wide > 0 => {
            let v = width(&[cols, from, wide]);
            let kernel = of(KernelFile::Joined, "Slice", format!("{t}, {rows}, {v}, {cols}, {from}, {wide}"), v, bytes);
            general(kernel, format!("{t}, ANY, {v}, ANY, ANY, ANY"), &[rows, cols, from, wide].map(|n| n as u64))
        }
        &OpKind::Embedding(ops::Embedding { rows, vocab, units, positions }) if rows * units > 0 => {
            // Rows of the table are floats.
            let v = vec_width(Real::F32, units);
            let [own, any] = position_arguments(positions);
            let arguments = format!("{t}, {rows}, {vocab}, {units}, {v}{own}");
            let kernel = of(KernelFile::Sequence, "Embedding", arguments, v, bytes);
            general(kernel, format!("{t}, ANY, ANY, ANY, {v}{any}"), &[rows, vocab, units, positions].map(|n| n as u64))
        }
        &OpKind::EmbeddingBwd(op) if op.rows * op.units > 0 => return embedding_bwd(real, op, bytes),
        &OpKind::AddSinusoids(ops::AddSinusoids { n, positions, cols }) if n * positions * cols > 0 => {
            let kernel = of(KernelFile::Sequence, "AddSinusoids", format!("{t}, {n}, {positions}, {cols}"), 1, bytes);
            general(kernel, format!("{t}, ANY, ANY, ANY"), &[n, positions, cols].map(|n| n as u64))
        }
        &OpKind::Take(ops::Take { n, positions, cols, at }) if n * cols > 0 => {
            return take("Take", [n, positions, cols, at]);
        }
        &OpKind::TakeBwd(ops::TakeBwd { n, positions, cols, at }) if n * positions * cols > 0 => {
            return take("TakeBwd", [n, positions, cols, at]);
        }
        _ => return Vec::new(),
    }]
}

/// Elements that one access moves if rows start at multiples of all of these.
fn common_width(real: Real, multiples: &[usize]) -> usize {
    vec_width(real, multiples.iter().copied().fold(0, greatest_divisor))
}

/// A kernel that moves this many bytes, `v` elements at a time.
fn moving(real: Real, spec: KernelSpec, v: usize, bytes: usize) -> CustomKernel {
    let tail = format!("{}_{}_v0", real.name(), width_name(v));
    CustomKernel { tail, spec, work_bytes: 0, cost_us: LAUNCH_US + bytes as f64 / BYTES_PER_US }
}

/// The types for the gradient of a table: a block for each row of the table, or, where that is possible, for several.
fn embedding_bwd(real: Real, op: ops::EmbeddingBwd, bytes: usize) -> Vec<CustomKernel> {
    let ops::EmbeddingBwd { rows, vocab, units, accumulate } = op;
    let (t, v, numbers) = (real.cpp(), common_width(real, &[units]), [rows, vocab, units].map(|n| n as u64));
    let arguments = format!("{t}, {rows}, {vocab}, {units}, {v}, {accumulate}");
    let kernel = moving(real, KernelSpec::new(KernelFile::Sequence, "EmbeddingBwd", arguments), v, bytes);
    let kernel = general(kernel, format!("{t}, ANY, ANY, ANY, {v}, {accumulate}"), &numbers);
    // For every row of the table, all tokens are scanned.
    let looks_us = |each: usize| (4 * vocab.div_ceil(each) * rows) as f64 / CACHED_BYTES_PER_US;
    let one = CustomKernel { cost_us: kernel.cost_us + looks_us(1), ..kernel.clone() };
    let Some(each) = rows_of_block(vocab, units) else { return vec![one] };
    let arguments = format!("{t}, {rows}, {vocab}, {units}, {v}, {each}, {accumulate}");
    let spec = KernelSpec::new(KernelFile::Sequence, "EmbeddingBwdRows", arguments);
    let tail = format!("{}_rows{each}_{}_v0", real.name(), width_name(v));
    let several = CustomKernel { tail, spec, cost_us: kernel.cost_us + looks_us(each), ..kernel };
    let any = format!("{t}, ANY, ANY, ANY, {v}, {each}, {accumulate}, {MOST_SUMS}");
    vec![one, general(several, any, &numbers)]
}

/// The template arguments of an embedding that adds positions, behind the width: of a specialised member, and of a
/// general one.
fn position_arguments(positions: usize) -> [String; 2] {
    match positions {
        0 => [String::new(), String::new()],
        _ => [format!(", {positions}"), ", ANY".to_owned()],
    }
}

/// The largest number of sums, in floats, of a block that has several rows of a table: four blocks share a
/// multiprocessor.
const MOST_SUMS: usize = 12 << 10;

/// Rows of a table that a block of its gradient has, where there are many rows and their sums fit into shared memory.
fn rows_of_block(vocab: usize, units: usize) -> Option<usize> {
    /// With fewer rows each multiprocessor has too little work at a time.
    const MANY: usize = 4096;
    [16, 8, 4].into_iter().find(|each| vocab >= MANY && each * units <= MOST_SUMS)
}

/// The greatest common divisor; the other number if one is zero.
const fn greatest_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { greatest_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::select::target::{Kernels, Target};

    /// The general member of each type for an operation: its C++ type and its numbers.
    fn generals(kind: &OpKind, real: Real) -> Vec<(String, Vec<u64>)> {
        let found = kernels(kind, real, &Target::h200().as_cuda().unwrap()).into_iter();
        let found = found.map(|kernel| kernel.spec.of(Kernels::General));
        found.map(|spec| (spec.ty(), spec.numbers().to_vec())).collect()
    }

    fn only(kind: &OpKind, real: Real) -> (String, String) {
        let gpu = Target::h200().as_cuda().unwrap();
        let kernel = kernels(kind, real, &gpu).remove(0);
        (kernel.spec.ty(), kernel.tail)
    }

    #[test]
    fn accesses_are_as_wide_as_every_row_allows() {
        let joined = OpKind::Concat(ops::Concat { rows: 5, widths: vec![8, 12, 4] });
        assert_eq!(only(&joined, Real::F32), ("Concat<float, 5, 4, 8, 12, 4>".into(), "f32_vec4_v0".into()));
        assert_eq!(only(&joined, Real::Bf16).0, "Concat<bf16, 5, 4, 8, 12, 4>");
        let part = |from| OpKind::Slice(ops::Slice { rows: 5, cols: 24, from, width: 12 });
        assert_eq!(only(&part(8), Real::F32).0, "Slice<float, 5, 4, 24, 8, 12>");
        assert_eq!(only(&part(0), Real::F32).0, "Slice<float, 5, 4, 24, 0, 12>");
        assert_eq!(only(&part(3), Real::F32), ("Slice<float, 5, 1, 24, 3, 12>".into(), "f32_scalar_v0".into()));
        let take = OpKind::Take(ops::Take { n: 2, positions: 3, cols: 7, at: 2 });
        assert_eq!(only(&take, Real::F16).0, "Take<f16, 2, 3, 7, 2, 1>");
    }

    #[test]
    fn blocks_have_several_rows_of_a_large_table() {
        let gpu = Target::h200().as_cuda().unwrap();
        let of = |vocab: usize, units: usize| {
            let op = ops::EmbeddingBwd { rows: 16_384, vocab, units, accumulate: true };
            kernels(&OpKind::EmbeddingBwd(op), Real::Bf16, &gpu)
        };
        let [one, several] = of(50_304, 768).try_into().unwrap();
        assert_eq!(several.spec.ty(), "EmbeddingBwdRows<bf16, 16384, 50304, 768, 8, 16, true>");
        assert_eq!(several.tail, "bf16_rows16_vec8_v0");
        assert!(several.cost_us * 4.0 < one.cost_us, "{} {}", several.cost_us, one.cost_us);
        assert_eq!((of(96, 384).len(), of(50_304, 8_192).len()), (1, 1));
    }

    #[test]
    fn general_members_read_rows_and_widths() {
        let joined = OpKind::Concat(ops::Concat { rows: 5, widths: vec![8, 12, 4] });
        let numbers = vec![5, 8, 12, 4, 0, 0, 0, 0, 0];
        assert_eq!(generals(&joined, Real::F32), [("Concat<float, ANY, 4, ANY, ANY, ANY>".into(), numbers)]);
        let added = OpKind::AddSinusoids(ops::AddSinusoids { n: 3, positions: 7, cols: 10 });
        assert_eq!(generals(&added, Real::F16), [("AddSinusoids<f16, ANY, ANY, ANY>".into(), vec![3, 7, 10])]);
        let op = ops::EmbeddingBwd { rows: 16_384, vocab: 50_304, units: 768, accumulate: true };
        assert_eq!(
            generals(&OpKind::EmbeddingBwd(op), Real::Bf16),
            [
                ("EmbeddingBwd<bf16, ANY, ANY, ANY, 8, true>".into(), vec![16_384, 50_304, 768]),
                ("EmbeddingBwdRows<bf16, ANY, ANY, ANY, 8, 16, true, 12288>".into(), vec![16_384, 50_304, 768]),
            ]
        );
    }
}
