//! How the CPU computes a classifier in chunks of rows: phases and scratch memory, as pure functions of shape and
//! instruction set, which the kernel uses too. Only the size of scratch memory depends on the number of threads.

use super::cpu_gemm::{self, gemm_blocking};
use crate::ops::{ClassifierCe, Gemm, OpKind};
use crate::select::target::Isa;

/// Floats in a line of the cache.
const LINE: usize = 16;

/// The work in a phase of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// A phase of the product that computes the scores.
    Scores(usize),
    /// Softmax, loss and the gradient of the scores, in the memory of the scores.
    Softmax,
    /// A phase of the product that computes the gradient of the weight. The first one also computes that of the bias.
    Weight(usize),
    /// A phase of the product that computes the gradient of the input.
    Input(usize),
}

/// The phases of a chunk, in order: those of the first chunk, which has the most rows. Products of fewer rows may have
/// fewer phases; then their last one is empty.
fn stages(op: &ClassifierCe, isa: Isa) -> impl Iterator<Item = Stage> + Clone {
    let products = op.products(0);
    let phases_of = move |product: &Gemm| 0..gemm_blocking(product, isa).phases();
    let scores = phases_of(&products.scores).map(Stage::Scores);
    let weight = phases_of(&products.weight).map(Stage::Weight);
    let input = products.input.as_ref().map_or(0..0, phases_of).map(Stage::Input);
    scores.chain([Stage::Softmax]).chain(weight).chain(input)
}

/// The phases of the whole operation; the last one sums the losses of the rows.
#[must_use]
pub fn phases(op: &ClassifierCe, isa: Isa) -> usize {
    op.chunks() * stages(op, isa).count() + 1
}

/// The chunk of a phase and its work there; `None` in the last phase.
#[must_use]
pub fn stage(op: &ClassifierCe, isa: Isa, phase: usize) -> Option<(usize, Stage)> {
    let mut stages = stages(op, isa);
    let count = stages.clone().count();
    let stage = stages.nth(phase % count)?;
    (phase / count < op.chunks()).then_some((phase / count, stage))
}

/// The offsets of the parts of scratch memory, in floats. The scores of a chunk come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scratch {
    /// `[rows]`: the loss of each row.
    pub losses: usize,
    /// `[rows]`: 1 for a correct answer, 0 for a wrong one.
    pub right: usize,
    /// The scratch memory of the products of a chunk.
    pub products: usize,
}

impl Scratch {
    #[must_use]
    pub const fn new(op: &ClassifierCe) -> Self {
        let chunk = if op.rows < op.chunk { op.rows } else { op.chunk };
        let losses = (chunk * op.classes).next_multiple_of(LINE);
        let rows = op.rows.next_multiple_of(LINE);
        Self { losses, right: losses + rows, products: losses + 2 * rows }
    }
}

/// Bytes of scratch memory with up to `threads` threads; `None` for other operations.
#[must_use]
pub fn workspace_bytes(op: &OpKind, isa: Isa, threads: usize) -> Option<usize> {
    let OpKind::ClassifierCe(op) = op else { return None };
    let last = op.products(op.chunks() - 1);
    let all = [op.products(0), last].map(|p| [Some(p.scores), Some(p.weight), p.input]);
    let bytes = |product: &Gemm| cpu_gemm::workspace_bytes(&OpKind::Gemm(*product), isa, threads);
    let products = all.iter().flatten().flatten().map(bytes).max().unwrap_or(0);
    Some(Scratch::new(op).products * size_of::<f32>() + products)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::Scalar;

    #[test]
    fn every_phase_has_a_chunk_and_memory_does_not_grow_with_the_rows() {
        for isa in [Isa::Portable, Isa::Avx2, Isa::Avx512] {
            for (rows, features, classes, chunk) in
                [(1, 1, 1, 1), (33, 300, 700, 16), (100, 64, 20_000, 48), (1_250, 20, 30, 600)]
            {
                for (tied, input_grad) in [(false, false), (false, true), (true, true)] {
                    let op = ClassifierCe {
                        rows,
                        features,
                        classes,
                        smoothing: Scalar::new(0.0),
                        tied,
                        bias: true,
                        input_grad,
                        accumulate: false,
                        accumulate_bias: false,
                        chunk,
                    };
                    let all: Vec<_> = (0..phases(&op, isa)).map(|phase| stage(&op, isa, phase)).collect();
                    assert_eq!(all.iter().position(Option::is_none), Some(all.len() - 1));
                    let softmax = all.iter().flatten().filter(|(_, stage)| *stage == Stage::Softmax);
                    assert_eq!(softmax.map(|(chunk, _)| *chunk).collect::<Vec<_>>(), Vec::from_iter(0..op.chunks()));
                    // The phases of a chunk are the same for any number of rows, except that few rows have no separate
                    // sums, which only 600 rows have here.
                    let shorter = ClassifierCe { rows: op.rows_of(op.chunks() - 1).1, ..op };
                    let of_first = stages(&op, isa).filter(|stage| chunk < 600 || *stage != Stage::Weight(1));
                    assert!(stages(&shorter, isa).eq(of_first));
                    assert_eq!(stages(&op, isa).any(|stage| stage == Stage::Weight(1)), chunk == 600);
                    let bytes = |rows| workspace_bytes(&OpKind::ClassifierCe(ClassifierCe { rows, ..op }), isa, 2);
                    let more = bytes(1_000 * chunk).unwrap() - bytes(chunk).unwrap();
                    assert!(more <= 2 * 4 * 1_000 * chunk, "{more}");
                }
            }
        }
    }
}
