//! The end of a classifier in one pass: its last dense layer, the loss, and the gradient of the layer's input.
//!
//! With few classes these are three launches of which each does next to nothing, one waiting for the other. A row needs nothing of another row, and the
//! layer's weight is small: so blocks that hold the weight take a row from its activations to the gradient of these. What is summed over rows (the
//! mean loss, the layer's own gradients) is left to operations that run beside the rest of the way back.

use super::adapt::{push, set};
use crate::lower::{Gemm, LValue, LValueId, Op, OpKind, Program, Scalar, Trans};
use crate::model::Activation;
use crate::ops;

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
    /// The way back through dropout and ReLU in front of the layer, where that is joined too, and the value that it ends with.
    back: Option<([usize; 2], LValueId)>,
}

impl Head {
    fn find(program: &Program) -> Option<Self> {
        let ops = &program.ops;
        let loss = ops.iter().position(|op| matches!(op.kind, OpKind::SoftmaxCeFused { .. }))?;
        let OpKind::SoftmaxCeFused(ops::SoftmaxCeFused { rows, classes, smoothing }) = ops[loss].kind else {
            return None;
        };
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
        let back = through_dropout(program, ops[product].arg("a")?, ops[gradient].arg("c")?);
        let back = back.filter(|_| of_input.epilogue.act_grad.is_none());
        let dropout = back.map_or(Scalar::new(0.0), |(_, _, rate)| rate);
        let act_grad = if back.is_some() { Some(Activation::Relu) } else { of_input.epilogue.act_grad };
        let saved = ops[gradient].arg("saved").map(|id| program.root(id));
        let is_input = saved == ops[product].arg("a").map(|id| program.root(id));
        let saved_is_input = back.is_some() || act_grad.is_some() && is_input;
        let back = back.map(|(ops, dx, _)| (ops, dx));
        let small = classes <= CLASSES
            && features.saturating_mul(classes.next_power_of_two()) <= WEIGHT
            && rows.saturating_mul(features).saturating_mul(classes) <= SMALL;
        let fits =
            of_input.m == rows && of_input.n == features && of_input.k == classes && product < loss && loss < gradient;
        let bias = epilogue.bias;
        let kind = OpKind::DenseCe(ops::DenseCe {
            rows,
            features,
            classes,
            smoothing,
            bias,
            act_grad,
            saved_is_input,
            dropout,
        });
        let row_loss = program.find("loss.rows")?;
        (small && fits).then_some(Self { product, loss, gradient, kind, row_loss, back })
    }

    fn carry_out(self, program: &mut Program) {
        let [product, loss, gradient] = [self.product, self.loss, self.gradient].map(|at| program.ops[at].clone());
        let OpKind::DenseCe(ops::DenseCe { rows, .. }) = self.kind else { return };
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
        let mut gone = vec![self.product];
        if let Some((ops, dx)) = self.back {
            let input = product.arg("a");
            input.into_iter().for_each(|input| set(&mut joined, "saved", input));
            set(&mut joined, "dx", dx);
            joined.nodes.extend(ops.iter().flat_map(|at| program.ops[*at].nodes.clone()));
            joined.fused.extend(ops.iter().flat_map(|at| parts(&program.ops[*at])));
            gone.extend(ops);
        }
        set(&mut joined, "row_loss", row_loss);
        set(&mut joined, "row_right", row_right);
        let kind = OpKind::LossMean(ops::LossMean { rows });
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
        gone.sort_unstable();
        gone.into_iter().rev().for_each(|at| drop(program.ops.remove(at)));
    }
}

/// The operations that lead `dy`, the gradient of a layer's input, back through dropout and ReLU, what they end with, and the rate. That input, `a`, is then zero
/// just where the gradient is lost, and nothing else has to be read for it.
fn through_dropout(program: &Program, a: LValueId, dy: LValueId) -> Option<([usize; 2], LValueId, Scalar)> {
    let ops = &program.ops;
    let sole_reader = |id: LValueId| {
        let mut readers =
            (0..ops.len()).filter(|at| ops[*at].reads().any(|read| program.root(read) == program.root(id)));
        let reader = readers.next()?;
        readers.next().is_none().then_some(reader)
    };
    let root = |op: &Op, slot: &str| op.arg(slot).map(|id| program.root(id));
    let forward =
        ops.iter().find(|op| matches!(op.kind, OpKind::Dropout { .. }) && root(op, "y") == Some(program.root(a)))?;
    let dropout = sole_reader(dy)?;
    let OpKind::DropoutBwd(ops::DropoutBwd { rate, .. }) = ops[dropout].kind else { return None };
    let relu = sole_reader(ops[dropout].arg("dx")?)?;
    let is_relu = matches!(ops[relu].kind, OpKind::ActBwd(ops::ActBwd { func: Activation::Relu, .. }));
    let same = root(forward, "mask") == root(&ops[dropout], "mask") && root(forward, "x") == root(&ops[relu], "saved");
    (is_relu && same).then_some(([dropout, relu], ops[relu].arg("dx")?, rate))
}

/// The names of what an operation consists of.
fn parts(op: &Op) -> Vec<String> {
    if op.fused.is_empty() { vec![op.kind.name().to_owned()] } else { op.fused.clone() }
}

#[cfg(test)]
mod tests {
    use super::super::{Real, adapt};
    use super::*;
    use crate::ir::{Metrics, Mode, build};
    use crate::lower::{FilterOrder, lower_for, verify};
    use crate::model::{check, read_preset};
    use crate::select::fuse;
    use crate::tensor::DType;

    fn adapted(between: &str) -> Program {
        let text = format!(
            r#"{{"version": 1, "name": "t", "input": {{"shape": [64], "batch": 64}}, "layers": [{between},
            {{"type": "dense", "units": 10}}], "loss": {{"type": "softmax_cross_entropy"}}, "optimizer": {{"type": "sgd", "lr": 0.1}}}}"#
        );
        let model = check(&read_preset(&text).unwrap()).model.unwrap();
        let program = lower_for(&build(&model, Mode::Train, Metrics::default(), DType::F32), &model, FilterOrder::Ohwi);
        adapt(&fuse(&program), Real::F32)
    }

    #[test]
    fn the_way_back_through_dropout_and_relu_is_part_of_the_last_layer() {
        let dense = |activation: &str| format!(r#"{{"type": "dense", "units": 128, "activation": "{activation}"}}"#);
        let with = |activation: &str| format!(r#"{}, {{"type": "dropout", "rate": 0.5}}"#, dense(activation));
        for (between, rate, left) in [
            (dense("relu"), 0.0, 0),
            (with("relu"), 0.5, 0),
            // Whether another activation's output is zero does not say whether it was dropped.
            (with("tanh"), 0.0, 2),
        ] {
            let program = adapted(&between);
            assert_eq!(verify(&program), Ok(()));
            let heads: Vec<&Op> = program.ops.iter().filter(|op| matches!(op.kind, OpKind::DenseCe { .. })).collect();
            let [head] = heads[..] else { panic!("{} heads", heads.len()) };
            assert!(
                matches!(head.kind, OpKind::DenseCe(ops::DenseCe { dropout, .. }) if dropout.get() == rate),
                "{:?}",
                head.kind
            );
            let back = |op: &&Op| matches!(op.kind, OpKind::DropoutBwd { .. } | OpKind::ActBwd { .. });
            assert_eq!(program.ops.iter().filter(back).count(), left, "{between}");
        }
    }
}
