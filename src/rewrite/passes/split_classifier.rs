//! Computes a last dense layer of many classes, its loss and its gradients in several parts of the rows.
//!
//! With a large vocabulary, the scores of all positions are by far the largest value of a step. Each part of the rows
//! gets a separate product, loss and gradients, one part after the other, so that the scores of all parts share memory.
//! The results of the parts are added in order: the gradients of weight and bias by the products themselves.

use super::chunked_classifier::Classifier;
use crate::ir::Role;
use crate::lower::{Alias, LValue, LValueId, Layout, Op};
use crate::ops::{self, OpKind};
use crate::rewrite::pass::Goal;
use crate::rewrite::rewriter::{Rewriter, made_like, set};
use crate::tensor::Shape;

/// The size of all scores, in bytes, above which they are computed in parts: below it little memory can be saved.
const LARGE_SCORES: usize = 64 << 20;

/// The largest size of a part's scores, in bytes. Each part reads the weight twice, and reads and writes its gradient
/// once: with smaller parts that takes longer.
const PART_BYTES: u64 = 256 << 20;

/// The rows of a part are a multiple of this, so that products have whole tiles.
const ROWS_ALIGN: usize = 64;

pub(super) fn run(rw: &mut Rewriter, _: &Goal) {
    for loss in rw.find(|kind| matches!(kind, OpKind::SoftmaxCeFused(_))) {
        let Some(classifier) = Classifier::find(rw.program(), loss, LARGE_SCORES) else { continue };
        let OpKind::SoftmaxCeFused(ops::SoftmaxCeFused { rows, .. }) = rw.op(loss).kind else { continue };
        let Some(logits) = rw.op(loss).arg("logits") else { continue };
        if let Some(parts) = parts(rows, rw.program().value(logits).bytes()) {
            split(rw, &classifier, parts);
        }
    }
}

/// The number of parts of equal size into which the rows are divided; `None` if they cannot be divided into about the
/// required number.
fn parts(rows: usize, bytes: u64) -> Option<usize> {
    let least = usize::try_from(bytes.div_ceil(PART_BYTES)).ok()?.max(2);
    (least..=4 * least).find(|parts| rows.is_multiple_of(parts * ROWS_ALIGN))
}

/// The operations of a classifier, each with its number.
struct Whole {
    product: (usize, Op),
    loss: (usize, Op),
    weight: (usize, Op),
    bias: Option<(usize, Op)>,
    input: Option<(usize, Op)>,
}

impl Whole {
    fn of(rw: &Rewriter, classifier: &Classifier) -> Self {
        let numbered = |at: usize| (at, rw.op(at).clone());
        Self {
            product: numbered(classifier.product),
            loss: numbered(classifier.loss),
            weight: numbered(classifier.weight),
            bias: classifier.bias.map(numbered),
            input: classifier.input.map(|(at, _)| numbered(at)),
        }
    }
}

/// Replaces the loss by the parts.
fn split(rw: &mut Rewriter, classifier: &Classifier, parts: usize) {
    let whole = Whole::of(rw, classifier);
    let at = classifier.loss;
    let [losses, right] = ["loss", "accuracy"].map(|slot| {
        whole.loss.1.arg(slot).map(|id| {
            let name = format!("{}.parts", rw.program().value(id).name);
            fresh(rw, name, id, Shape::from([parts]))
        })
    });
    let bias = whole.bias.as_ref().and_then(|(_, op)| op.arg("db_prev"));
    let mut sums = Sums { weight: whole.weight.1.arg("c_prev"), bias };
    for part in 0..parts {
        let share = Share { part, parts };
        for (number, op) in share.ops(rw, &whole, [losses, right], &mut sums) {
            rw.insert_before(at, op, &[number]);
        }
    }
    let bound = [
        ("row_loss", losses),
        ("row_right", right),
        ("loss", whole.loss.1.arg("loss")),
        ("accuracy", whole.loss.1.arg("accuracy")),
    ];
    let mean = made_like(&whole.loss.1, OpKind::LossMean(ops::LossMean { rows: parts }), &bound);
    rw.insert_before(at, mean, &[at]);
    let all = [Some(&whole.product), Some(&whole.loss), Some(&whole.weight), whole.bias.as_ref(), whole.input.as_ref()];
    all.into_iter().flatten().for_each(|(number, _)| rw.remove(*number));
}

/// The gradients that the next part adds to.
struct Sums {
    weight: Option<LValueId>,
    bias: Option<LValueId>,
}

/// One of several parts of the rows.
#[derive(Clone, Copy)]
struct Share {
    part: usize,
    parts: usize,
}

impl Share {
    /// The operations of the part, each with the number of the one that it was made from.
    fn ops(self, rw: &mut Rewriter, whole: &Whole, found: [Option<LValueId>; 2], sums: &mut Sums) -> Vec<(usize, Op)> {
        let mut out = Vec::new();
        let scores = self.own(rw, whole.loss.1.arg("logits"));
        let gradient = self.own(rw, whole.loss.1.arg("dlogits"));
        out.push((whole.product.0, self.product(rw, &whole.product.1, ("c", scores))));
        let mut loss = whole.loss.1.clone();
        if let OpKind::SoftmaxCeFused(kind) = &mut loss.kind {
            (kind.rows, kind.parts) = (kind.rows / self.parts, self.parts);
        }
        let labels = self.of_rows(rw, loss.arg("labels"));
        let [of_loss, of_accuracy] = found.map(|id| self.of_rows(rw, id));
        let bound = [
            ("logits", scores),
            ("labels", labels),
            ("dlogits", gradient),
            ("loss", of_loss),
            ("accuracy", of_accuracy),
        ];
        bound.iter().for_each(|(slot, id)| bind(&mut loss, slot, *id));
        out.push((whole.loss.0, loss));
        out.push((whole.weight.0, self.weight(rw, &whole.weight.1, (whole, gradient), sums)));
        if let Some((number, op)) = &whole.bias {
            out.push((*number, self.bias(rw, op, gradient, sums)));
        }
        if let Some((number, op)) = &whole.input {
            let mut op = self.product(rw, op, ("a", gradient));
            let [saved, dx] = ["saved", "c"].map(|slot| self.of_rows(rw, op.arg(slot)));
            bind(&mut op, "saved", saved);
            bind(&mut op, "c", dx);
            out.push((*number, op));
        }
        out
    }

    /// A product of some rows, one of whose arguments belongs to the part.
    fn product(self, rw: &mut Rewriter, whole: &Op, (slot, own): (&str, Option<LValueId>)) -> Op {
        let mut op = whole.clone();
        if let OpKind::Gemm(gemm) = &mut op.kind {
            gemm.m /= self.parts;
        }
        if slot != "a" {
            let rows = self.of_rows(rw, op.arg("a"));
            bind(&mut op, "a", rows);
        }
        bind(&mut op, slot, own);
        op
    }

    /// The gradient of the weight, added to that of the preceding part.
    fn weight(self, rw: &mut Rewriter, whole: &Op, (all, gradient): (&Whole, Option<LValueId>), sums: &mut Sums) -> Op {
        let mut op = whole.clone();
        if let OpKind::Gemm(gemm) = &mut op.kind {
            gemm.k /= self.parts;
            gemm.accumulate = sums.weight.is_some();
        }
        for slot in ["a", "b"] {
            let is_gradient = op.arg(slot) == all.loss.1.arg("dlogits");
            let own = if is_gradient { gradient } else { self.of_rows(rw, op.arg(slot)) };
            bind(&mut op, slot, own);
        }
        sums.weight = self.sum(rw, &mut op, ["c_prev", "c"], sums.weight);
        op
    }

    /// The gradient of the bias, added to that of the preceding part.
    fn bias(self, rw: &mut Rewriter, whole: &Op, gradient: Option<LValueId>, sums: &mut Sums) -> Op {
        let mut op = whole.clone();
        if let OpKind::BiasGrad(kind) = &mut op.kind {
            kind.rows /= self.parts;
            kind.accumulate = sums.bias.is_some();
        }
        bind(&mut op, "dy", gradient);
        sums.bias = self.sum(rw, &mut op, ["db_prev", "db"], sums.bias);
        op
    }

    /// Binds the value to add to and the sum. All parts share the memory of the final sum; the last part's result is
    /// the final sum itself.
    fn sum(
        self,
        rw: &mut Rewriter,
        op: &mut Op,
        [before, after]: [&str; 2],
        sum: Option<LValueId>,
    ) -> Option<LValueId> {
        let whole = op.arg(after)?;
        bind(op, before, sum);
        if self.part + 1 < self.parts {
            let value = rw.program().value(whole).clone();
            let alias = value.alias.or(Some(Alias { of: whole, start: 0 }));
            let so_far = rw.push(LValue { name: format!("{}.{}", value.name, self.part), alias, param: None, ..value });
            bind(op, after, Some(so_far));
        }
        op.arg(after)
    }

    /// The part's share of a value of all rows.
    fn of_rows(self, rw: &mut Rewriter, of: Option<LValueId>) -> Option<LValueId> {
        let of = of?;
        let value = rw.program().value(of).clone();
        let len = value.shape.len() / self.parts;
        let (name, alias) = (format!("{}.{}", value.name, self.part), Some(Alias { of, start: self.part * len }));
        Some(rw.push(LValue { name, alias, shape: Shape::from([len]), layout: Layout::Plain, param: None, ..value }))
    }

    /// A separate value for the part, as large as its share of a value of all rows.
    fn own(self, rw: &mut Rewriter, like: Option<LValueId>) -> Option<LValueId> {
        let like = like?;
        let value = rw.program().value(like);
        let (name, len) = (format!("{}.{}", value.name, self.part), value.shape.len() / self.parts);
        Some(fresh(rw, name, like, Shape::from([len])))
    }
}

/// A value with separate memory that is otherwise like another one.
fn fresh(rw: &mut Rewriter, name: String, like: LValueId, shape: Shape) -> LValueId {
    let value = rw.program().value(like).clone();
    rw.push(LValue {
        name,
        shape,
        role: Role::Activation,
        alias: None,
        layout: Layout::Plain,
        persistent: false,
        ..value
    })
}

/// Binds a value to a slot if there is a value.
fn bind(op: &mut Op, slot: &str, value: Option<LValueId>) {
    if let Some(value) = value {
        set(op, slot, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lower::Program;
    use crate::model::{Model, Precision};
    use crate::ops::Trans;
    use crate::rewrite::sample::{of_tokens, on_gpu};

    /// A network of tokens, in batches of this many samples of 64 positions.
    fn network(batch: usize, layers: &str) -> Model {
        of_tokens(layers, "adam", [batch, 64])
    }

    /// The rows and parts of every loss.
    fn losses(program: &Program) -> Vec<(usize, usize)> {
        let of = |op: &Op| match op.kind {
            OpKind::SoftmaxCeFused(kind) => Some((kind.rows, kind.parts)),
            _ => None,
        };
        program.ops.iter().filter_map(of).collect()
    }

    const TIED: &str = r#"{"type": "dense", "units": 20000, "tied": "layers.0"}"#;
    const OWN: &str = r#"{"type": "dense", "units": 24, "activation": "relu"}, {"type": "dense", "units": 20000}"#;

    #[test]
    fn large_scores_are_computed_in_parts_that_share_memory() {
        let cases = [(TIED, Precision::F32), (OWN, Precision::Tf32), (TIED, Precision::Bf16), (OWN, Precision::F16)];
        for (layers, precision) in cases {
            // 4,096 rows: 313 MiB of floats, or half of that.
            let program = on_gpu(&network(64, layers), precision);
            assert_eq!(losses(&program), [(2048, 2); 2], "{layers}");
            let gradients = program.ops.iter().filter_map(|op| match op.kind {
                OpKind::Gemm(g) if g.trans == Trans::Tn && g.m * g.n == 20_000 * 24 => Some((g.k, g.accumulate)),
                _ => None,
            });
            assert_eq!(gradients.collect::<Vec<_>>(), [(2048, false), (2048, true)], "{layers}");
            let means = program.ops.iter().filter(|op| op.kind.name() == "loss_mean").count();
            assert_eq!(means, 1);
            // No value that an operation accesses contains all scores.
            let touched = program.ops.iter().flat_map(|op| op.args.iter().flatten());
            let largest = touched.map(|id| program.value(program.root(*id).0).shape.len()).max();
            assert_eq!(largest, Some(2048 * 20_000), "{layers}");
        }
    }

    #[test]
    fn other_classifiers_are_not_changed() {
        // 8 samples have 39 MiB of scores. Rows that cannot be divided into whole tiles stay together.
        assert_eq!(losses(&on_gpu(&network(8, TIED), Precision::F32)), [(512, 1)]);
        assert_eq!(parts(1_000, 100 << 20), None);
        assert_eq!((parts(16_384, 1_572 << 20), parts(4_096, 65 << 20)), (Some(8), Some(2)));
        let small = r#"{"type": "dense", "units": 20000}, {"type": "activation", "function": "tanh"}"#;
        assert_eq!(losses(&on_gpu(&network(64, small), Precision::F32)), [(4096, 1)]);
    }
}
