//! Fusion: neighbouring operations that one kernel does in one pass.
//!
//! A producer is absorbed by its reader where nobody else reads what lies between them. The fused operation stands where the reader stood and names
//! what it stands for.

use crate::ir::Mode;
use crate::lower::{Epilogue, LValueId, Op, OpKind, Program, Trans};
use crate::ops;

struct Fuser {
    program: Program,
    ops: Vec<Option<Op>>,
    /// The operation that writes each value.
    writer: Vec<Option<usize>>,
    /// The value whose contents each value shows.
    content: Vec<LValueId>,
    /// How many operations read each value, its plain views included.
    readers: Vec<usize>,
}

/// Fuses what can be fused. Every value that survives keeps its id.
#[must_use]
pub fn fuse(program: &Program) -> Program {
    let content = contents(program);
    let mut readers = vec![0; program.values.len()];
    for read in program.ops.iter().flat_map(Op::reads) {
        readers[content[read.0 as usize].0 as usize] += 1;
    }
    readers[content[program.output.0 as usize].0 as usize] += usize::from(program.mode == Mode::Eval);
    let mut f =
        Fuser { program: program.clone(), ops: Vec::new(), writer: vec![None; program.values.len()], content, readers };
    for op in program.ops.iter().cloned() {
        let fused = f.absorb(op);
        let index = f.ops.len();
        for written in fused.writes() {
            f.writer[written.0 as usize] = Some(index);
        }
        f.ops.push(Some(fused));
    }
    Program { ops: f.ops.into_iter().flatten().collect(), ..f.program }
}

/// For each value, the value whose contents it shows: itself, unless it is a view of the whole of another and nobody writes it.
fn contents(program: &Program) -> Vec<LValueId> {
    let mut written = vec![false; program.values.len()];
    for id in program.ops.iter().flat_map(Op::writes) {
        written[id.0 as usize] = true;
    }
    let mut content: Vec<LValueId> = (0..program.values.len() as u32).map(LValueId).collect();
    for (index, value) in program.values.iter().enumerate() {
        let Some(alias) = value.alias else { continue };
        let whole = alias.start == 0 && program.value(alias.of).shape.len() == value.shape.len();
        // Values stand after what they show, so that one pass resolves chains.
        if whole && !value.persistent && !written[index] && (alias.of.0 as usize) < index {
            content[index] = content[alias.of.0 as usize];
        }
    }
    content
}

impl Fuser {
    /// The operation that makes `value`, where `value` has no other reader and does not outlive the step.
    fn sole_producer(&self, value: Option<LValueId>) -> Option<usize> {
        let id = self.content[value?.0 as usize];
        let free = self.readers[id.0 as usize] == 1 && !self.program.value(id).persistent;
        self.writer[id.0 as usize].filter(|_| free)
    }

    /// The operation that makes `value`, whoever else reads it.
    fn producer(&self, value: Option<LValueId>) -> Option<usize> {
        self.writer[self.content[value?.0 as usize].0 as usize]
    }

    /// Takes the producer at `index` out of the list and merges its history into `op`.
    fn merge(&mut self, index: usize, mut op: Op, kind: OpKind, bound: &[(&str, Option<LValueId>)]) -> Op {
        let Some(before) = self.ops[index].take() else { return op };
        let mut fused = if before.fused.is_empty() { vec![before.kind.name().to_owned()] } else { before.fused };
        fused.push(op.kind.name().to_owned());
        let mut nodes = before.nodes;
        nodes.extend(op.nodes.iter().copied().filter(|n| !nodes.contains(n)).collect::<Vec<_>>());
        // What the absorbed producer read and wrote besides the value between them stays bound.
        let mut args = vec![None; kind.slots().len()];
        if std::mem::discriminant(&before.kind) == std::mem::discriminant(&kind) {
            args.clone_from(&before.args);
        }
        for (name, value) in bound {
            if let Some(slot) = kind.slot(name) {
                args[slot] = *value;
            }
        }
        op.layer = before.layer.or(op.layer);
        Op { kind, args, fused, nodes, ..op }
    }

    fn absorb(&mut self, op: Op) -> Op {
        match op.kind.clone() {
            OpKind::BiasAdd { .. } => self.bias(op),
            OpKind::Act(ops::Act { func, .. }) => self.activation(op, func),
            OpKind::ActBwd(ops::ActBwd { func, .. }) => self.activation_bwd(op, func),
            OpKind::BatchNormBwd(ops::BatchNormBwd { rows, channels, act_grad: None, accumulate }) => {
                let found = self.sole_producer(op.arg("dy"));
                let Some((index, func, dy, saved)) = found.and_then(|i| match &self.ops[i] {
                    Some(p) => match p.kind {
                        OpKind::ActBwd(ops::ActBwd { func, .. }) if func.saves_output() => {
                            Some((i, func, p.arg("dy"), p.arg("saved")))
                        }
                        _ => None,
                    },
                    None => None,
                }) else {
                    return op;
                };
                let kind = OpKind::BatchNormBwd(ops::BatchNormBwd { rows, channels, act_grad: Some(func), accumulate });
                let mut bound: Vec<(&str, Option<LValueId>)> =
                    op.kind.slots().iter().zip(&op.args).map(|(s, a)| (s.name, *a)).collect();
                bound.extend([("dy", dy), ("saved", saved)]);
                let layer = op.layer;
                let mut fused = self.merge(index, op, kind, &bound);
                fused.layer = layer;
                fused
            }
            OpKind::SoftmaxCeGrad(ops::SoftmaxCeGrad { rows, classes, smoothing }) => self.softmax(
                op,
                rows,
                classes,
                OpKind::SoftmaxCeFused(ops::SoftmaxCeFused { rows, classes, smoothing }),
            ),
            OpKind::MseGrad(ops::MseGrad { len }) => self.mse(op, len),
            _ => op,
        }
    }

    /// Product or convolution, then bias.
    fn bias(&mut self, op: Op) -> Op {
        let Some(index) = self.sole_producer(op.arg("x")) else { return op };
        let Some(kind) = self.ops[index]
            .as_ref()
            .and_then(|p| with_epilogue(&p.kind, |e| e.is_empty().then_some(Epilogue { bias: true, ..e })))
        else {
            return op;
        };
        let bound = [("bias", op.arg("bias")), ("c", op.arg("y"))];
        self.merge(index, op, kind, &bound)
    }

    /// Product, convolution or batch normalisation, then activation.
    fn activation(&mut self, op: Op, func: crate::model::Activation) -> Op {
        let (x, y) = (op.arg("x"), op.arg("y"));
        let (sole, any) = (self.sole_producer(x), self.producer(x));
        let Some(index) = any else { return op };
        let Some(before) = self.ops[index].as_ref() else { return op };
        match before.kind.clone() {
            OpKind::BatchNorm(ops::BatchNorm { rows, channels, eps, momentum, act: None })
                if sole.is_some() && func.saves_output() =>
            {
                let kind = OpKind::BatchNorm(ops::BatchNorm { rows, channels, eps, momentum, act: Some(func) });
                self.merge(index, op, kind, &[("y", y)])
            }
            OpKind::BatchNormEval(ops::BatchNormEval { rows, channels, eps, act: None })
                if sole.is_some() && func.saves_output() =>
            {
                let kind = OpKind::BatchNormEval(ops::BatchNormEval { rows, channels, eps, act: Some(func) });
                self.merge(index, op, kind, &[("y", y)])
            }
            kind => {
                // Where the value before the activation has other readers it is kept, but only where those are the activation's own backward pass:
                // the shape is then read while it is written once more.
                let keep = sole.is_none();
                if keep && func.saves_output() {
                    return op;
                }
                let joined = with_epilogue(&kind, |e| {
                    let free = e.act.is_none() && e.act_grad.is_none() && !e.save_z;
                    free.then_some(Epilogue { act: Some(func), save_z: keep, ..e })
                });
                let Some(kind) = joined.filter(|_| is_forward(&kind)) else { return op };
                let z = if keep { before.arg("c") } else { None };
                self.merge(index, op, kind, &[("c", y), ("z", z)])
            }
        }
    }

    /// Input gradient of a product or convolution, then an activation's derivative.
    fn activation_bwd(&mut self, op: Op, func: crate::model::Activation) -> Op {
        let Some(index) = self.sole_producer(op.arg("dy")) else { return op };
        let Some(before) = self.ops[index].as_ref().filter(|p| !is_forward(&p.kind)) else { return op };
        let joined = with_epilogue(&before.kind, |e| e.is_empty().then_some(Epilogue { act_grad: Some(func), ..e }));
        let Some(kind) = joined else { return op };
        let bound = [("saved", op.arg("saved")), ("c", op.arg("dx"))];
        self.merge(index, op, kind, &bound)
    }

    /// Softmax, loss, its mean, accuracy and gradient.
    fn softmax(&mut self, op: Op, rows: usize, classes: usize, kind: OpKind) -> Op {
        let Some(index) = self.sole_producer(op.arg("probs")) else { return op };
        let Some(softmax) = self.ops[index].clone().filter(|p| matches!(p.kind, OpKind::SoftmaxCe { .. })) else {
            return op;
        };
        let logits = softmax.arg("logits");
        let is = |i: usize, want: &dyn Fn(&Op) -> bool| self.ops[i].as_ref().is_some_and(want);
        let mean = (0..self.ops.len()).find(|&i| {
            is(i, &|p| matches!(p.kind, OpKind::LossMean { .. }) && p.arg("row_loss") == softmax.arg("row_loss"))
        });
        let Some(mean) = mean else { return op };
        let accuracy = (0..self.ops.len()).find(|&i| {
            is(i, &|p| p.kind == (OpKind::Accuracy(ops::Accuracy { rows, classes })) && p.arg("scores") == logits)
        });
        let (loss, dlogits, labels) =
            (self.ops[mean].as_ref().and_then(|p| p.arg("loss")), op.arg("dlogits"), op.arg("labels"));
        let score = accuracy.and_then(|i| self.ops[i].as_ref()).and_then(|p| p.arg("accuracy"));
        let mut names = Vec::new();
        let mut nodes = Vec::new();
        for i in [accuracy, Some(mean)].into_iter().flatten() {
            if let Some(p) = self.ops[i].take() {
                names.push(p.kind.name().to_owned());
                nodes.extend(p.nodes);
            }
        }
        let bound = [("logits", logits), ("labels", labels), ("dlogits", dlogits), ("loss", loss), ("accuracy", score)];
        let mut fused = self.merge(index, op, kind, &bound);
        fused.fused.extend(names);
        fused.nodes.extend(nodes.into_iter().filter(|n| !fused.nodes.contains(n)).collect::<Vec<_>>());
        fused
    }

    /// Squared error and its gradient.
    fn mse(&mut self, op: Op, len: usize) -> Op {
        let is_loss = |p: &Op| {
            matches!(p.kind, OpKind::Mse { .. }) && p.arg("y") == op.arg("y") && p.arg("target") == op.arg("target")
        };
        let Some(index) = self.ops.iter().position(|p| p.as_ref().is_some_and(is_loss)) else { return op };
        let loss = self.ops[index].as_ref().and_then(|p| p.arg("loss"));
        let bound = [("y", op.arg("y")), ("target", op.arg("target")), ("dy", op.arg("dy")), ("loss", loss)];
        self.merge(index, op, OpKind::MseFused(ops::MseFused { len }), &bound)
    }
}

/// Whether the operation belongs to a forward product: weight gradients take no epilogue, input gradients only derivatives.
fn is_forward(kind: &OpKind) -> bool {
    matches!(kind, OpKind::Gemm(g) if g.trans == Trans::Nn) || matches!(kind, OpKind::Conv2d { .. })
}

/// The same product with another epilogue, where it takes one and `change` gives one.
fn with_epilogue(kind: &OpKind, change: impl Fn(Epilogue) -> Option<Epilogue>) -> Option<OpKind> {
    match *kind {
        OpKind::Gemm(mut g) if g.trans != Trans::Tn && !g.accumulate => {
            g.epilogue = change(g.epilogue)?;
            Some(OpKind::Gemm(g))
        }
        OpKind::Conv2d(ops::Conv2d { geometry, epilogue }) => {
            Some(OpKind::Conv2d(ops::Conv2d { geometry, epilogue: change(epilogue)? }))
        }
        OpKind::Conv2dBwdX(ops::Conv2dBwdX { geometry, epilogue }) => {
            Some(OpKind::Conv2dBwdX(ops::Conv2dBwdX { geometry, epilogue: change(epilogue)? }))
        }
        _ => None,
    }
}
