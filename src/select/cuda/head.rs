//! The end of a classifier in one pass: its last dense layer, the loss, and the gradient of the layer's input.
//!
//! With few classes these are three launches of which each does next to nothing, one waiting for the other. A row needs nothing of another row, and the
//! layer's weight is small: so blocks that hold the weight take a row from its activations to the gradient of these. What is summed over rows (the
//! mean loss, the layer's own gradients) is left to operations that run beside the rest of the way back.

use super::adapt::{push, set};
use crate::lower::{Gemm, LValue, LValueId, Op, OpKind, Program, Trans};

/// Classes at most: a warp holds the scores of a row.
const CLASSES: usize = 32;
/// Elements of the weight at most: what the registers of a block hold.
const WEIGHT: usize = 256 * 64;
/// Multiplications at most: beyond them tensor cores earn their launches.
const SMALL: usize = 1 << 26;

/// Joins product, loss and gradient where they follow one another and nobody else reads the scores.
pub(super) fn join_head(program: &mut Program) {
    let Some(head) = Head::find(program) else { return };
    head.carry_out(program);
}

/// The operations that are joined, by number.
struct Head {
    product: usize,
    loss: usize,
    gradient: usize,
    kind: OpKind,
    /// The losses of the rows.
    row_loss: LValueId,
}

impl Head {
    fn find(program: &Program) -> Option<Self> {
        let ops = &program.ops;
        let loss = ops.iter().position(|op| matches!(op.kind, OpKind::SoftmaxCeFused { .. }))?;
        let OpKind::SoftmaxCeFused { rows, classes, smoothing } = ops[loss].kind else { return None };
        let (logits, dlogits) = (ops[loss].arg("logits")?, ops[loss].arg("dlogits")?);
        let product = ops.iter().position(|op| op.arg("c") == Some(logits))?;
        let OpKind::Gemm(Gemm { m, n, k: features, trans: Trans::Nn, accumulate: false, epilogue }) = ops[product].kind
        else {
            return None;
        };
        let readers = |id: LValueId| {
            let root = program.root(id).0;
            ops.iter().flat_map(Op::reads).filter(|read| program.root(*read).0 == root).count()
        };
        // The loss may lie on the scores: then its readers are those of the scores' memory too.
        let own =
            program.root(logits).0 != program.root(dlogits).0 && !program.value(program.root(logits).0).persistent;
        if (m, n) != (rows, classes) || epilogue.act.is_some() || epilogue.save_z || !own || readers(logits) != 1 {
            return None;
        }
        let weight = program.root(ops[product].arg("b")?);
        let is_gradient = |op: &Op| {
            matches!(&op.kind, OpKind::Gemm(g) if g.trans == Trans::Nt && !g.accumulate && !g.epilogue.bias && g.epilogue.act.is_none())
                && op.arg("a") == Some(dlogits)
                && op.arg("b").is_some_and(|b| program.root(b) == weight)
        };
        let gradient = ops.iter().position(is_gradient)?;
        let OpKind::Gemm(of_input) = ops[gradient].kind else { return None };
        let act_grad = of_input.epilogue.act_grad;
        let saved = ops[gradient].arg("saved").map(|id| program.root(id));
        let saved_is_input = act_grad.is_some() && saved == ops[product].arg("a").map(|id| program.root(id));
        let small = classes <= CLASSES
            && features.saturating_mul(classes.next_power_of_two()) <= WEIGHT
            && rows.saturating_mul(features).saturating_mul(classes) <= SMALL;
        let fits =
            of_input.m == rows && of_input.n == features && of_input.k == classes && product < loss && loss < gradient;
        let bias = epilogue.bias;
        let kind = OpKind::DenseCe { rows, features, classes, smoothing, bias, act_grad, saved_is_input };
        let row_loss = program.find("loss.rows")?;
        (small && fits).then_some(Self { product, loss, gradient, kind, row_loss })
    }

    fn carry_out(self, program: &mut Program) {
        let [product, loss, gradient] = [self.product, self.loss, self.gradient].map(|at| program.ops[at].clone());
        let OpKind::DenseCe { rows, .. } = self.kind else { return };
        let row_loss = self.row_loss;
        let row_right = LValue { name: "loss.right".into(), ..program.value(row_loss).clone() };
        let row_right = push(program, row_right);
        let mut joined = Op {
            args: vec![None; self.kind.slots().len()],
            kind: self.kind,
            layer: product.layer,
            pass: product.pass,
            phase: loss.phase,
            nodes: [&product, &loss, &gradient].into_iter().flat_map(|op| op.nodes.iter().copied()).collect(),
            fused: [&product, &loss, &gradient].into_iter().flat_map(parts).collect(),
        };
        let taken = [
            (&product, "a", "a"),
            (&product, "b", "b"),
            (&product, "bias", "bias"),
            (&loss, "labels", "labels"),
            (&loss, "scale", "scale"),
            (&loss, "dlogits", "dlogits"),
            (&gradient, "saved", "saved"),
            (&gradient, "c", "dx"),
        ];
        for (from, slot, to) in taken {
            if let Some(value) = from.arg(slot) {
                set(&mut joined, to, value);
            }
        }
        set(&mut joined, "row_loss", row_loss);
        set(&mut joined, "row_right", row_right);
        let kind = OpKind::LossMean { rows };
        let mut mean = Op { args: vec![None; kind.slots().len()], kind, fused: Vec::new(), ..loss.clone() };
        set(&mut mean, "row_loss", row_loss);
        if let Some(value) = loss.arg("loss") {
            set(&mut mean, "loss", value);
        }
        if let Some(value) = loss.arg("accuracy") {
            set(&mut mean, "row_right", row_right);
            set(&mut mean, "accuracy", value);
        }
        // The mean stands where the gradient stood: among what runs beside the rest of the way back.
        program.ops[self.gradient] = mean;
        program.ops[self.loss] = joined;
        program.ops.remove(self.product);
    }
}

/// The names of what an operation consists of.
fn parts(op: &Op) -> Vec<String> {
    if op.fused.is_empty() { vec![op.kind.name().to_owned()] } else { op.fused.clone() }
}
