//! Fuses a last dense layer of many classes, its loss and its gradients into one operation, which processes chunks of
//! rows.
//!
//! With a large vocabulary, the scores of all positions are by far the largest value of a step, and each of the
//! operations that read them waits for memory. In chunks they never leave the caches, and need no space in the arena.

use crate::lower::{LValue, LValueId, Op, Program};
use crate::model::Activation;
use crate::ops::{self, Gemm, OpKind, SoftmaxCeFused, Trans};
use crate::rewrite::history::{absorb, parts};
use crate::rewrite::pass::Goal;
use crate::rewrite::rewriter::{Rewriter, made_like};

/// The size of all scores, in bytes, above which they are computed in chunks. Below it they stay in the last-level
/// cache between the operations, which are then equally fast, and little memory can be saved.
pub(crate) const LARGE_SCORES: usize = 16 << 20;

/// The approximate size of a chunk's scores, in bytes: it fits a last-level cache together with a part of the weight.
const CHUNK_BYTES: usize = 8 << 20;

/// The smallest number of rows in a chunk. A chunk reads the weight twice, and reads and writes its gradient once: with
/// fewer rows, that takes longer than the products.
const LEAST_ROWS: usize = 64;

/// The rows of chunks are a multiple of this: the largest tiles of the products have 14 rows, and the first row of a
/// chunk is at the start of a cache line.
const ROWS_ALIGN: usize = 16;

pub(super) fn run(rw: &mut Rewriter, _: &Goal) {
    let losses = rw.find(|kind| matches!(kind, OpKind::SoftmaxCeFused(_)));
    for loss in losses {
        if let Some(classifier) = Classifier::find(rw.program(), loss, LARGE_SCORES) {
            classifier.fuse(rw);
        }
    }
}

/// Rows of a chunk, for chunks of nearly equal size.
fn chunk_rows(rows: usize, classes: usize) -> usize {
    let most = (CHUNK_BYTES / (classes * size_of::<f32>())).max(LEAST_ROWS);
    rows.div_ceil(rows.div_ceil(most)).next_multiple_of(ROWS_ALIGN)
}

/// The operations of a last dense layer with its loss and its gradients, by number.
pub(super) struct Classifier {
    pub(super) product: usize,
    pub(super) loss: usize,
    pub(super) weight: usize,
    pub(super) bias: Option<usize>,
    /// The gradient of the layer's input, and the derivative of the preceding activation that is fused with it.
    pub(super) input: Option<(usize, Option<Activation>)>,
    /// The fused operation.
    kind: ops::ClassifierCe,
}

impl Classifier {
    /// The classifier of a loss, if its scores take more than this many bytes and nothing else reads them or their
    /// gradient.
    pub(super) fn find(program: &Program, loss: usize, large: usize) -> Option<Self> {
        let ops = &program.ops;
        let OpKind::SoftmaxCeFused(SoftmaxCeFused { rows, classes, smoothing, parts: 1 }) = ops[loss].kind else {
            return None;
        };
        if program.value(ops[loss].arg("logits")?).bytes() <= large as u64 {
            return None;
        }
        let (scores, gradient) = (ops[loss].arg("logits")?, ops[loss].arg("dlogits")?);
        let product = ops.iter().position(|op| op.arg("c") == Some(scores))?;
        let forward = plain(&ops[product]).filter(|g| (g.m, g.n) == (rows, classes) && g.trans != Trans::Tn)?;
        let is_bare = forward.epilogue.act.is_none() && forward.epilogue.act_grad.is_none() && !forward.epilogue.save_z;
        let is_own = program.root(scores).0 != program.root(gradient).0;
        if !is_bare || !is_own || readers(program, scores) != [loss] {
            return None;
        }
        let (tied, features) = (forward.trans == Trans::Nt, forward.k);
        let (a, b) = (program.root(ops[product].arg("a")?), program.root(ops[product].arg("b")?));
        let (mut weight, mut bias, mut input) = (None, None, None);
        for reader in readers(program, gradient) {
            let op = &ops[reader];
            let same = |slot: &str, value| op.arg(slot).is_some_and(|id| program.root(id) == value);
            let (is_first, is_second) = (op.arg("a") == Some(gradient), op.arg("b") == Some(gradient));
            let place = match &op.kind {
                OpKind::Gemm(g) if g.trans == Trans::Tn && tied && is_first && same("b", a) => &mut weight,
                OpKind::Gemm(g) if g.trans == Trans::Tn && !tied && is_second && same("a", a) => &mut weight,
                OpKind::Gemm(g) if g.trans != Trans::Tn && is_first && same("b", b) && !g.accumulate => &mut input,
                OpKind::BiasGrad(ops::BiasGrad { zeros: None, .. }) if op.arg("dy") == Some(gradient) => &mut bias,
                _ => return None,
            };
            if place.replace(reader).is_some() {
                return None;
            }
        }
        let weight = weight?;
        if bias.is_some() != forward.epilogue.bias {
            return None;
        }
        let input = match input {
            Some(number) => Some((number, derivative_of(&ops[number])?)),
            None => None,
        };
        let adds = |number: usize, slot: &str| ops[number].arg(slot).is_some();
        let kind = ops::ClassifierCe {
            rows,
            features,
            classes,
            smoothing,
            tied,
            bias: bias.is_some(),
            input_grad: input.is_some(),
            accumulate: adds(weight, "c_prev"),
            accumulate_bias: bias.is_some_and(|number| adds(number, "db_prev")),
            chunk: chunk_rows(rows, classes),
        };
        let found = Self { product, loss, weight, bias, input, kind };
        found.comes_before(program).then_some(found)
    }

    /// Whether all values that the gradients are added to exist when the loss is computed, and the operations are in
    /// order.
    fn comes_before(&self, program: &Program) -> bool {
        let ops = &program.ops;
        let of_bias = self.bias.and_then(|number| ops[number].arg("db_prev"));
        let before: Vec<LValueId> = ops[self.weight].arg("c_prev").into_iter().chain(of_bias).collect();
        let is_late = |op: &Op| before.iter().any(|id| op.writes().any(|written| written == *id));
        let followers = [Some(self.weight), self.bias, self.input.map(|(number, _)| number)];
        self.product < self.loss
            && followers.into_iter().flatten().all(|number| number > self.loss)
            && !ops[self.loss..].iter().any(is_late)
    }

    fn fuse(self, rw: &mut Rewriter) {
        let [product, loss, weight] = [self.product, self.loss, self.weight].map(|at| rw.op(at).clone());
        let bias = self.bias.map(|at| rw.op(at).clone());
        let input = self.input.map(|(at, _)| rw.op(at).clone());
        let dx = self.input.and_then(|(at, derivative)| self.input_gradient(rw, at, derivative));
        let of_bias = |slot: &str| bias.as_ref().and_then(|op| op.arg(slot));
        let bound = [
            ("a", product.arg("a")),
            ("b", product.arg("b")),
            ("bias", product.arg("bias")),
            ("labels", loss.arg("labels")),
            ("dweight_prev", weight.arg("c_prev")),
            ("db_prev", of_bias("db_prev")),
            ("dx", dx),
            ("dweight", weight.arg("c")),
            ("db", of_bias("db")),
            ("loss", loss.arg("loss")),
            ("accuracy", loss.arg("accuracy")),
        ];
        let like = made_like(&product, OpKind::ClassifierCe(self.kind), &bound);
        let mut fused = Op { phase: loss.phase, fused: parts(&product), ..like };
        [Some(&loss), Some(&weight), bias.as_ref(), input.as_ref()].into_iter().flatten().for_each(|op| {
            absorb(&mut fused, op);
        });
        let taken = [Some(self.product), Some(self.weight), self.bias];
        let bare = self.input.filter(|(_, derivative)| derivative.is_none()).map(|(at, _)| at);
        let taken: Vec<usize> = taken.into_iter().flatten().chain(bare).collect();
        rw.fuse(self.loss, fused, &taken);
    }

    /// The value that receives the gradient of the input. If the derivative of an activation was fused with it, that
    /// becomes a separate operation again, in the place of the product at `at`.
    fn input_gradient(&self, rw: &mut Rewriter, at: usize, derivative: Option<Activation>) -> Option<LValueId> {
        let op = rw.op(at).clone();
        let dx = op.arg("c")?;
        let Some(func) = derivative else { return Some(dx) };
        let value = rw.program().value(dx).clone();
        let before = rw.push(LValue { name: format!("{}.before", value.name), alias: None, ..value });
        let len = self.kind.rows * self.kind.features;
        let bound = [("dy", Some(before)), ("saved", op.arg("saved")), ("dx", Some(dx))];
        rw.replace(at, made_like(&op, OpKind::ActBwd(ops::ActBwd { func, len }), &bound));
        Some(before)
    }
}

/// The product, if it overwrites its result.
fn plain(op: &Op) -> Option<Gemm> {
    match op.kind {
        OpKind::Gemm(g) if !g.accumulate => Some(g),
        _ => None,
    }
}

/// The derivative that a product applies to its result: none, or that of an activation; `None` if its epilogue does
/// anything else.
fn derivative_of(op: &Op) -> Option<Option<Activation>> {
    let OpKind::Gemm(Gemm { epilogue, .. }) = op.kind else { return None };
    (!epilogue.bias && epilogue.act.is_none() && !epilogue.save_z).then_some(epilogue.act_grad)
}

/// The operations that read the memory of a value, by number; empty if it outlives the step.
fn readers(program: &Program, id: LValueId) -> Vec<usize> {
    let root = program.root(id).0;
    if program.value(root).persistent {
        return Vec::new();
    }
    let reads = |op: &Op| op.reads().any(|read| program.root(read).0 == root);
    (0..program.ops.len()).filter(|at| reads(&program.ops[*at])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lower::{FilterOrder, verify};
    use crate::model::{Model, Precision};
    use crate::rewrite::pipeline::rewrite;
    use crate::rewrite::sample::{lowered, of_tokens};

    /// A network of tokens, in batches of this many samples of 32 positions.
    fn network(batch: usize, layers: &str) -> Model {
        of_tokens(layers, "sgd", [batch, 32])
    }

    /// The operations after all passes, by name; the classifier with what it does.
    fn rewritten(model: &Model, goal: &Goal) -> (Vec<&'static str>, Option<ops::ClassifierCe>) {
        let program = rewrite(&lowered(model, FilterOrder::Hwio), goal).unwrap().program;
        assert_eq!(verify(&program), Ok(()));
        let classifier = program.ops.iter().find_map(|op| match op.kind {
            OpKind::ClassifierCe(classifier) => Some(classifier),
            _ => None,
        });
        (program.ops.iter().map(|op| op.kind.name()).collect(), classifier)
    }

    #[test]
    fn classifiers_whose_scores_are_large_work_in_chunks() {
        let tied = r#"{"type": "dense", "units": 20000, "tied": "layers.0"}"#;
        let own = r#"{"type": "dense", "units": 20000, "bias": false}"#;
        for (last, is_tied, bias) in [(tied, true, true), (own, false, false)] {
            let (names, found) = rewritten(&network(8, last), &Goal::cpu());
            let found = found.unwrap();
            assert_eq!((found.rows, found.features, found.classes, found.chunk), (256, 24, 20_000, 96));
            let options = [found.tied, found.bias, found.input_grad, found.accumulate, found.accumulate_bias];
            assert_eq!(options, [is_tied, bias, true, false, false]);
            assert!(!names.iter().any(|name| name.starts_with("softmax") || name.starts_with("gemm")), "{names:?}");
            assert!(!names.contains(&"bias_grad"));
        }
        // The derivative of the preceding activation is a separate operation again.
        let relu = format!(r#"{{"type": "dense", "units": 24, "activation": "relu"}}, {tied}"#);
        let (names, found) = rewritten(&network(8, &relu), &Goal::cpu());
        assert!(found.is_some() && names.iter().filter(|name| **name == "relu_bwd").count() == 1, "{names:?}");
    }

    #[test]
    fn other_classifiers_are_not_changed() {
        let tied = r#"{"type": "dense", "units": 20000, "tied": "layers.0"}"#;
        let plain = Goal { fuses: false, ..Goal::cpu() };
        // Few rows; reference kernels; a classifier with an operation between the scores and the loss.
        assert_eq!(rewritten(&network(6, tied), &Goal::cpu()).1, None);
        assert_eq!(rewritten(&network(8, tied), &plain).1, None);
        let normed = format!(r#"{tied}, {{"type": "rms_norm"}}"#);
        assert_eq!(rewritten(&network(8, &normed), &Goal::cpu()).1, None);
        let active = r#"{"type": "dense", "units": 20000, "activation": "tanh"}"#;
        assert_eq!(rewritten(&network(8, active), &Goal::cpu()).1, None);
        assert_eq!(rewritten(&network(8, tied), &Goal::gpu(Precision::F32)).1, None);
    }

    #[test]
    fn chunks_are_of_nearly_equal_size_and_not_too_small() {
        assert_eq!(chunk_rows(256, 20_000), 96);
        assert_eq!(chunk_rows(1_024, 50_000), 64);
        assert_eq!(chunk_rows(8_192, 4_096), 512);
        assert_eq!(chunk_rows(70, 200_000), 48);
    }
}
