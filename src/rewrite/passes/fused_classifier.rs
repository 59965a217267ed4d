//! Fuses the end of a classifier into one operation: its last dense layer, the loss, and the gradient of the layer's
//! input.
//!
//! With few classes these are three launches, each with little work, that wait for each other. Rows are independent,
//! and the layer's weight is small, so that each block can hold the weight and compute, for some rows, the gradient of
//! the activations from the activations. Sums over rows (the mean loss, the layer's own gradients) are left to
//! operations that run in parallel with the rest of the backward pass.

use crate::lower::{LValue, LValueId, Op, Program};
use crate::model::Activation;
use crate::ops::{self, Gemm, OpKind, Scalar, Trans};
use crate::rewrite::history::{absorb, parts};
use crate::rewrite::pass::Goal;
use crate::rewrite::rewriter::{Rewriter, made_like};

/// The largest number of classes: a warp holds the scores of a row.
const CLASSES: usize = 32;
/// The largest number of elements of the weight: it must fit the registers of a block.
const WEIGHT: usize = 256 * 64;
/// The largest number of multiplications: beyond it separate launches on tensor cores are faster.
const SMALL: usize = 1 << 26;

pub(super) fn run(rw: &mut Rewriter, _: &Goal) {
    if let Some(classifier) = Classifier::find(rw.program()) {
        classifier.fuse(rw);
    }
}

/// The operations that are fused, by number.
struct Classifier {
    product: usize,
    loss: usize,
    gradient: usize,
    kind: ops::DenseCe,
    /// The losses of the rows.
    row_loss: LValueId,
    back: Option<Back>,
}

/// The backward pass of dropout and ReLU before the layer, if it is fused too.
struct Back {
    ops: [usize; 2],
    /// The value that it ends with.
    dx: LValueId,
    rate: Scalar,
}

impl Classifier {
    fn find(program: &Program) -> Option<Self> {
        let ops = &program.ops;
        let loss = ops.iter().position(|op| matches!(op.kind, OpKind::SoftmaxCeFused(_)))?;
        let OpKind::SoftmaxCeFused(softmax) = ops[loss].kind else { return None };
        let (product, forward) = product_of(program, loss)?;
        let gradient = gradient_of(program, product, loss)?;
        let OpKind::Gemm(of_input) = ops[gradient].kind else { return None };
        let back = through_dropout(program, ops[product].arg("a")?, ops[gradient].arg("c")?);
        let back = back.filter(|_| of_input.epilogue.act_grad.is_none());
        let (rows, classes, features) = (softmax.rows, softmax.classes, forward.k);
        let act_grad = if back.is_some() { Some(Activation::Relu) } else { of_input.epilogue.act_grad };
        let saved = ops[gradient].arg("saved").map(|id| program.root(id));
        let is_input = saved == ops[product].arg("a").map(|id| program.root(id));
        let kind = ops::DenseCe {
            rows,
            features,
            classes,
            smoothing: softmax.smoothing,
            bias: forward.epilogue.bias,
            act_grad,
            saved_is_input: back.is_some() || act_grad.is_some() && is_input,
            dropout: back.as_ref().map_or(Scalar::new(0.0), |back| back.rate),
        };
        let small = classes <= CLASSES
            && features.saturating_mul(classes.next_power_of_two()) <= WEIGHT
            && rows.saturating_mul(features).saturating_mul(classes) <= SMALL;
        let fits =
            of_input.m == rows && of_input.n == features && of_input.k == classes && product < loss && loss < gradient;
        let row_loss = program.find("loss.rows")?;
        (small && fits).then_some(Self { product, loss, gradient, kind, row_loss, back })
    }

    fn fuse(self, rw: &mut Rewriter) {
        let [product, loss, gradient] = [self.product, self.loss, self.gradient].map(|at| rw.op(at).clone());
        let rows = self.kind.rows;
        let row_loss = Some(self.row_loss);
        let row_right = LValue { name: "loss.right".into(), ..rw.program().value(self.row_loss).clone() };
        let row_right = Some(rw.push(row_right));
        let (saved, dx) = match &self.back {
            Some(back) => (product.arg("a"), Some(back.dx)),
            None => (gradient.arg("saved"), gradient.arg("c")),
        };
        let bound = [
            ("a", product.arg("a")),
            ("b", product.arg("b")),
            ("bias", product.arg("bias")),
            ("labels", loss.arg("labels")),
            ("scale", loss.arg("scale")),
            ("dlogits", loss.arg("dlogits")),
            ("saved", saved),
            ("dx", dx),
            ("row_loss", row_loss),
            ("row_right", row_right),
        ];
        let like = made_like(&product, OpKind::DenseCe(self.kind), &bound);
        let mut fused = Op { phase: loss.phase, fused: parts(&product), ..like };
        let mut taken = vec![self.product, self.gradient];
        taken.extend(self.back.iter().flat_map(|back| back.ops));
        absorb(&mut fused, &loss);
        taken[1..].iter().for_each(|&number| absorb(&mut fused, rw.op(number)));
        let accuracy = loss.arg("accuracy");
        let bound = [
            ("row_loss", row_loss),
            ("loss", loss.arg("loss")),
            ("row_right", row_right.filter(|_| accuracy.is_some())),
            ("accuracy", accuracy),
        ];
        let mean = made_like(&loss, OpKind::LossMean(ops::LossMean { rows }), &bound);
        rw.fuse(self.loss, fused, &taken);
        // The mean is placed where the gradient was, so that it runs in parallel with the rest of the backward pass.
        rw.insert_before(self.gradient, mean, &[self.loss]);
    }
}

/// The product that computes the scores of a loss, if nothing else reads them.
fn product_of(program: &Program, loss: usize) -> Option<(usize, Gemm)> {
    let ops = &program.ops;
    let OpKind::SoftmaxCeFused(ops::SoftmaxCeFused { rows, classes, .. }) = ops[loss].kind else { return None };
    let (logits, dlogits) = (ops[loss].arg("logits")?, ops[loss].arg("dlogits")?);
    let product = ops.iter().position(|op| op.arg("c") == Some(logits))?;
    let OpKind::Gemm(gemm @ Gemm { m, n, trans: Trans::Nn, accumulate: false, epilogue, .. }) = ops[product].kind
    else {
        return None;
    };
    let root = program.root(logits).0;
    let readers = ops.iter().flat_map(Op::reads).filter(|read| program.root(*read).0 == root).count();
    // The gradient may share the memory of the scores; then the readers of the scores' memory include the gradient's
    // readers.
    let own = root != program.root(dlogits).0 && !program.value(root).persistent;
    let plain = (m, n) == (rows, classes) && epilogue.act.is_none() && !epilogue.save_z;
    (plain && own && readers == 1).then_some((product, gemm))
}

/// The product that computes the gradient of the input of the layer whose product computes the scores.
fn gradient_of(program: &Program, product: usize, loss: usize) -> Option<usize> {
    let ops = &program.ops;
    let (dlogits, weight) = (ops[loss].arg("dlogits")?, program.root(ops[product].arg("b")?));
    let is_plain = |g: &Gemm| g.trans == Trans::Nt && !g.accumulate && !g.epilogue.bias && g.epilogue.act.is_none();
    ops.iter().position(|op| {
        matches!(&op.kind, OpKind::Gemm(g) if is_plain(g))
            && op.arg("a") == Some(dlogits)
            && op.arg("b").is_some_and(|b| program.root(b) == weight)
    })
}

/// The operations of the backward pass of dropout and ReLU, from `dy`, the gradient of a layer's input. That input,
/// `a`, is zero exactly where the gradient is set to zero, so that nothing else must be read.
fn through_dropout(program: &Program, a: LValueId, dy: LValueId) -> Option<Back> {
    let ops = &program.ops;
    let sole_reader = |id: LValueId| {
        let mut readers =
            (0..ops.len()).filter(|at| ops[*at].reads().any(|read| program.root(read) == program.root(id)));
        let reader = readers.next()?;
        readers.next().is_none().then_some(reader)
    };
    let root = |op: &Op, slot: &str| op.arg(slot).map(|id| program.root(id));
    let forward =
        ops.iter().find(|op| matches!(op.kind, OpKind::Dropout(_)) && root(op, "y") == Some(program.root(a)))?;
    let dropout = sole_reader(dy)?;
    let OpKind::DropoutBwd(ops::DropoutBwd { rate, .. }) = ops[dropout].kind else { return None };
    let relu = sole_reader(ops[dropout].arg("dx")?)?;
    let is_relu = matches!(ops[relu].kind, OpKind::ActBwd(ops::ActBwd { func: Activation::Relu, .. }));
    let same = root(forward, "mask") == root(&ops[dropout], "mask") && root(forward, "x") == root(&ops[relu], "saved");
    let dx = ops[relu].arg("dx")?;
    (is_relu && same).then_some(Back { ops: [dropout, relu], dx, rate })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Precision;
    use crate::rewrite::sample::{classifier, on_gpu};

    #[test]
    fn the_backward_pass_of_dropout_and_relu_is_fused_into_the_last_layer() {
        let dense = |activation: &str| format!(r#"{{"type": "dense", "units": 128, "activation": "{activation}"}}"#);
        let with = |activation: &str| format!(r#"{}, {{"type": "dropout", "rate": 0.5}}"#, dense(activation));
        for (between, rate, left) in [
            (dense("relu"), 0.0, 0),
            (with("relu"), 0.5, 0),
            // For other activations, an output of zero does not show whether it was dropped.
            (with("tanh"), 0.0, 2),
        ] {
            let program = on_gpu(&classifier(&between, "sgd"), Precision::F32);
            let heads: Vec<&Op> = program.ops.iter().filter(|op| matches!(op.kind, OpKind::DenseCe(_))).collect();
            let [head] = heads[..] else { panic!("{} heads", heads.len()) };
            assert!(
                matches!(head.kind, OpKind::DenseCe(ops::DenseCe { dropout, .. }) if dropout.get() == rate),
                "{:?}",
                head.kind
            );
            let back = |op: &&Op| matches!(op.kind, OpKind::DropoutBwd(_) | OpKind::ActBwd(_));
            assert_eq!(program.ops.iter().filter(back).count(), left, "{between}");
        }
    }
}
