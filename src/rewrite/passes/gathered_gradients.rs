//! Gradients of small parameters that sum over many rows are computed at the same time, at the end of the backward pass.
//!
//! Nothing in the backward pass reads the gradient of a parameter. Where it is small, its kernel leaves most of a GPU idle,
//! and the longer it sums, the longer the next layer waits for it. All of them together fill the machine: they move to
//! one place, where horizontal fusion puts them into one launch. The gradients of a normalisation of rows are divided
//! into that of its input, which stays where it is, and those of its parameters. What the gradients are made from lives
//! longer, so that this is for networks whose activations are small.

use crate::ir::Phase;
use crate::lower::{LValueId, Op, Program};
use crate::ops::{self, Epilogue, GradientPart, OpKind, Trans};
use crate::rewrite::pass::Goal;
use crate::rewrite::rewriter::{Rewriter, made_like};
use crate::rewrite::tiles::MOST_TOGETHER;
use crate::rewrite::updates::is_large;
use crate::rewrite::uses::shares;
use std::collections::HashMap;

/// Rows from which on a sum over them takes longer than the rest of a small layer.
const MANY_ROWS: usize = 512;
/// Elements of a weight at most: 64 tiles of 32 by 32, which is half as many as a large GPU has multiprocessors.
const FEW_ELEMENTS: usize = 1 << 16;
/// Columns of a normalisation at most: rows that threads hold in registers.
const FEW_COLUMNS: usize = 512;
/// Products from which on they are worth moving.
const LEAST_PRODUCTS: usize = 3;
/// Elements that live longer, at most.
const MOST_KEPT: usize = 1 << 23;

pub(super) fn run(rw: &mut Rewriter, _: &Goal) {
    let Some(Gathered { numbers, place, together }) = Gathered::of(rw.program()) else { return };
    for number in numbers {
        let op = rw.op(number).clone();
        match op.kind {
            OpKind::Gemm(gemm) => {
                rw.replace(number, Op { kind: OpKind::Gemm(ops::Gemm { together, ..gemm }), ..op });
                rw.move_before(number, place);
            }
            OpKind::LayerNormBwd(norm) => {
                let of = |part| part_of(&op, ops::LayerNormBwd { part, ..norm });
                rw.replace(number, of(GradientPart::Input));
                rw.insert_before(place, of(GradientPart::Parameters), &[number]);
            }
            _ => rw.move_before(number, place),
        }
    }
}

/// A part of the derivative of a normalisation: the same operation with those of its arguments that the part has.
fn part_of(whole: &Op, norm: ops::LayerNormBwd) -> Op {
    let bound = |name: &str| match name {
        "dx" | "gamma" | "residual" => norm.part.has_input(),
        "dgamma" | "dbeta" | "dgamma_prev" | "dbeta_prev" => norm.part.has_parameters(),
        _ => true,
    };
    let slots = whole.kind.slots().iter().filter(|slot| bound(slot.name));
    let args: Vec<(&str, Option<LValueId>)> = slots.map(|slot| (slot.name, whole.arg(slot.name))).collect();
    Op { fused: whole.fused.clone(), ..made_like(whole, OpKind::LayerNormBwd(norm), &args) }
}

/// What moves, and where to.
struct Gathered {
    /// The operations, in order.
    numbers: Vec<usize>,
    /// The operation in front of which they go.
    place: usize,
    /// Elements of the products of one launch.
    together: usize,
}

impl Gathered {
    fn of(program: &Program) -> Option<Self> {
        if is_large(program) {
            return None;
        }
        let movable = |number: &usize| is_movable(&program.ops[*number]);
        let found: Vec<(usize, usize)> =
            (0..program.ops.len()).filter(movable).map(|number| (number, limit(program, number))).collect();
        let last = found.last()?.0;
        let (numbers, limits): (Vec<usize>, Vec<usize>) = found.into_iter().filter(|(_, limit)| *limit > last).unzip();
        let place = limits.into_iter().min()?;
        let products: Vec<usize> = numbers.iter().filter_map(|number| elements(&program.ops[*number])).collect();
        let launches = products.len().div_ceil(MOST_TOGETHER);
        if products.len() < LEAST_PRODUCTS || kept(program, &numbers) > MOST_KEPT {
            return None;
        }
        Some(Self { numbers, place, together: products.iter().sum::<usize>() / launches })
    }
}

/// Whether an operation is the gradient of small parameters over many rows.
fn is_movable(op: &Op) -> bool {
    let is_sum = match &op.kind {
        OpKind::Gemm(g) => {
            let plain = matches!(g.trans, Trans::Tn) && g.epilogue == Epilogue::default();
            plain && g.k >= MANY_ROWS && g.m * g.n <= FEW_ELEMENTS
        }
        OpKind::LayerNormBwd(norm) => norm.part.is_all() && norm.rows >= MANY_ROWS && norm.cols <= FEW_COLUMNS,
        OpKind::BiasGrad(sum) => sum.rows >= MANY_ROWS && sum.cols <= FEW_ELEMENTS,
        _ => false,
    };
    is_sum && op.phase == Phase::Backward
}

/// Elements of a product; nothing of other operations.
fn elements(op: &Op) -> Option<usize> {
    match &op.kind {
        OpKind::Gemm(g) => Some(g.m * g.n),
        _ => None,
    }
}

/// The arguments of an operation that the gradients of parameters are made from, and those gradients.
fn arguments(op: &Op) -> [Vec<LValueId>; 2] {
    let norm = matches!(op.kind, OpKind::LayerNormBwd(_));
    let of = |wanted: fn(&ops::Slot) -> bool, others: &[&str]| {
        let slots = op.kind.slots().iter().zip(&op.args).filter(|(slot, _)| wanted(slot));
        let slots = slots.filter(|(slot, _)| !norm || !others.contains(&slot.name));
        slots.filter_map(|(_, arg)| *arg).collect()
    };
    [of(|slot| slot.dir.is_read(), &["gamma", "residual"]), of(|slot| slot.dir.is_written(), &["dx"])]
}

/// The first operation behind `number` that touches a gradient of parameters which this one makes, or that writes what
/// it is made from.
fn limit(program: &Program, number: usize) -> usize {
    let [reads, writes] = arguments(&program.ops[number]);
    let meets = |id: LValueId, others: &[LValueId]| others.iter().any(|other| shares(program, id, *other));
    let depends = |op: &Op| {
        let touches = op.args.iter().flatten().any(|id| meets(*id, &writes));
        touches || op.writes().any(|id| meets(id, &reads))
    };
    let behind = program.ops.iter().skip(number + 1).position(depends);
    behind.map_or(program.ops.len(), |distance| number + 1 + distance)
}

/// Elements that the gradients are made from, each counted once.
fn kept(program: &Program, numbers: &[usize]) -> usize {
    let reads = numbers.iter().flat_map(|number| arguments(&program.ops[*number])[0].clone());
    let lens: HashMap<(LValueId, usize), usize> =
        reads.map(|id| (program.root(id), program.value(id).shape.len())).collect();
    lens.into_values().sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Precision;
    use crate::rewrite::sample::{network, on_gpu};

    /// A block with a normalisation and two products.
    const BLOCK: &str = r#"{"type": "residual", "layers": [{"type": "layer_norm"},
        {"type": "dense", "units": 64, "activation": "gelu"}, {"type": "dense", "units": 64}]}"#;

    fn step(batch: usize, optimizer: &str) -> Program {
        let layers = format!(r#"{{"type": "dense", "units": 64}}, {BLOCK}, {BLOCK}, {{"type": "rms_norm"}}"#);
        on_gpu(&network(&layers, optimizer, batch), Precision::F32)
    }

    fn gathered(program: &Program) -> Vec<usize> {
        let is_gathered = |op: &Op| match &op.kind {
            OpKind::Gemm(gemm) => gemm.together > 0,
            OpKind::LayerNormBwd(norm) => norm.part == GradientPart::Parameters,
            _ => false,
        };
        (0..program.ops.len()).filter(|number| is_gathered(&program.ops[*number])).collect()
    }

    #[test]
    fn gradients_over_many_rows_come_last_on_the_way_back() {
        for optimizer in ["adamw", "sgd"] {
            let program = step(1024, optimizer);
            let found = gathered(&program);
            // Five dense layers and that of the classes; two layer normalisations and one of root mean squares.
            assert_eq!(found.len(), 9, "{optimizer}");
            let inputs = program.ops.iter().filter(|op| op.arg("dx").is_some() && op.arg("rstd").is_some());
            assert_eq!(inputs.count(), 3);
            let products: usize = found.iter().filter_map(|number| elements(&program.ops[*number])).sum();
            assert_eq!(products, 5 * 64 * 64 + 64 * 10);
            let is_whole = |number: &usize| match &program.ops[*number].kind {
                OpKind::Gemm(gemm) => gemm.together == products,
                _ => true,
            };
            assert!(found.iter().all(is_whole));
            // What is behind them reads the gradients or comes from the same pass.
            let last = *found.last().unwrap();
            let on_the_way = |op: &Op| op.phase == Phase::Backward && !is_movable(op) && op.arg("dx").is_some();
            assert!(!program.ops[last..].iter().any(on_the_way));
        }
    }

    #[test]
    fn short_sums_and_large_weights_stay_where_they_are() {
        assert!(gathered(&step(256, "sgd")).is_empty());
        let wide = r#"{"type": "dense", "units": 2048}, {"type": "dense", "units": 2048}, {"type": "layer_norm"}"#;
        assert!(gathered(&on_gpu(&network(wide, "sgd", 1024), Precision::F32)).is_empty());
    }

    #[test]
    fn a_gradient_that_is_added_to_stays_before_what_adds() {
        let repeat =
            format!(r#"{{"type": "dense", "units": 64}}, {{"type": "repeat", "times": 2, "layers": [{BLOCK}]}}"#);
        let program = on_gpu(&network(&repeat, "sgd", 1024), Precision::F32);
        for (number, op) in program.ops.iter().enumerate() {
            let Some(before) = op.arg("c_prev").filter(|_| matches!(op.kind, OpKind::Gemm(_))) else { continue };
            let root = program.root(before);
            let wrote = |op: &Op| op.writes().any(|id| program.root(id) == root);
            assert!(program.ops[..number].iter().any(wrote), "{}", op.kind.name());
        }
    }
}
