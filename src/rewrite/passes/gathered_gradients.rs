//! Computes the gradients of small parameters that sum over many rows at the same time, at the end of the backward
//! pass.
//!
//! Nothing in the backward pass reads the gradient of a parameter. If it is small, its kernel leaves most of a GPU
//! idle, and the longer it sums, the longer the next layer waits for it. All of them together use the whole GPU: they
//! are moved to one position in the program, where horizontal fusion puts them into one launch. The gradients of a
//! normalisation of rows are divided into that of its input, which is not moved, and those of its parameters. Gradients
//! of convolutions are added in two phases, each of which is a launch. The operands of the gradients are alive longer,
//! so that this pass is only for networks with small activations.

use crate::ir::Phase;
use crate::lower::{LValueId, Op, Program};
use crate::model::Precision;
use crate::ops::{self, Epilogue, GradientPart, OpKind, ROW_PRODUCT_COLUMNS, Trans};
use crate::rewrite::pass::Goal;
use crate::rewrite::rewriter::{Rewriter, made_like};
use crate::rewrite::tiles::MOST_TOGETHER;
use crate::rewrite::updates::is_large;
use crate::rewrite::uses::shares;
use std::collections::HashMap;

/// The smallest number of rows whose sum takes longer than the rest of a small layer.
const MANY_ROWS: usize = 512;
/// The same if the gradient of a normalisation can then become part of the product before it (`join_row_norm`), which
/// saves a launch for each. On an H200, a small GPT with 128 to 384 rows takes 7 to 13 % less time; without
/// normalisations, 16 layers of 256 units with 256 rows take 4 % more.
const ROWS_OF_NORMS: usize = 128;
/// The largest number of elements of a weight: 64 tiles of 32 by 32, half as many as a large GPU has multiprocessors.
const FEW_ELEMENTS: usize = 1 << 16;
/// The largest number of columns of a normalisation: such rows fit into the registers of threads.
const FEW_COLUMNS: usize = 512;
/// The smallest number of products that are worth moving.
const LEAST_PRODUCTS: usize = 3;
/// The same for gradients of convolutions: their kernels add in two phases, so that two of them save two launches.
const LEAST_CONVOLUTIONS: usize = 2;
/// The largest number of multiplications of the gradient of a convolution's weight: about 2 us on a large GPU.
const FEW_MULTIPLICATIONS: usize = 1 << 26;
/// The largest number of elements that may be alive longer.
const MOST_KEPT: usize = 1 << 23;

pub(super) fn run(rw: &mut Rewriter, goal: &Goal) {
    let program = rw.program();
    let Some(Gathered { numbers, place, together }) = Gathered::of(program, least_rows(program, goal)) else { return };
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

/// The smallest number of rows whose sums are gathered in a program.
fn least_rows(program: &Program, goal: &Goal) -> usize {
    let joins = |op: &Op| match &op.kind {
        OpKind::LayerNormBwd(norm) => norm.rows >= ROWS_OF_NORMS && ROW_PRODUCT_COLUMNS.contains(&norm.cols),
        _ => false,
    };
    let has_such = goal.precision == Precision::F32 && program.ops.iter().any(joins);
    if has_such { ROWS_OF_NORMS } else { MANY_ROWS }
}

/// A part of the derivative of a normalisation: the same operation with only the arguments that the part has.
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

/// The operations to move, and their new position.
struct Gathered {
    /// The operations, in order.
    numbers: Vec<usize>,
    /// The operation before which they are inserted.
    place: usize,
    /// Elements of the products of one launch.
    together: usize,
}

impl Gathered {
    /// Those that sum over at least `rows` rows.
    fn of(program: &Program, rows: usize) -> Option<Self> {
        if is_large(program) {
            return None;
        }
        let movable = |number: &usize| is_movable(&program.ops[*number], rows);
        let found: Vec<(usize, usize)> =
            (0..program.ops.len()).filter(movable).map(|number| (number, limit(program, number))).collect();
        let last = found.last()?.0;
        let mut found: Vec<(usize, usize)> = found.into_iter().filter(|(_, limit)| *limit > last).collect();
        let elements_of = |number: usize| elements(&program.ops[number]);
        let products: Vec<usize> = found.iter().filter_map(|(number, _)| elements_of(*number)).collect();
        // A few products are faster alone, where several blocks share a sum.
        found.retain(|(number, _)| products.len() >= LEAST_PRODUCTS || elements_of(*number).is_none());
        let (numbers, limits): (Vec<usize>, Vec<usize>) = found.into_iter().unzip();
        let place = limits.into_iter().min()?;
        let launches = products.len().div_ceil(MOST_TOGETHER).max(1);
        let is_convolution = |number: &&usize| matches!(program.ops[**number].kind, OpKind::Conv2dBwdW(_));
        let convolutions = numbers.iter().filter(is_convolution).count();
        let are_enough = products.len() >= LEAST_PRODUCTS || convolutions >= LEAST_CONVOLUTIONS;
        if !are_enough || kept(program, &numbers) > MOST_KEPT {
            return None;
        }
        Some(Self { numbers, place, together: products.iter().sum::<usize>() / launches })
    }
}

/// Whether an operation is the gradient of small parameters over at least `rows` rows.
fn is_movable(op: &Op, rows: usize) -> bool {
    let is_sum = match &op.kind {
        OpKind::Gemm(g) => {
            let plain = matches!(g.trans, Trans::Tn) && g.epilogue == Epilogue::default();
            plain && g.k >= rows && g.m * g.n <= FEW_ELEMENTS
        }
        OpKind::Conv2dBwdW(ops::Conv2dBwdW { geometry: g, .. }) => {
            let (positions, [_, weights, _]) = (g.n * g.ho * g.wo, g.elements());
            positions >= rows && weights <= FEW_ELEMENTS && positions * weights <= FEW_MULTIPLICATIONS
        }
        OpKind::LayerNormBwd(norm) => norm.part.is_all() && norm.rows >= rows && norm.cols <= FEW_COLUMNS,
        OpKind::BiasGrad(sum) => sum.rows >= rows && sum.cols <= FEW_ELEMENTS,
        _ => false,
    };
    is_sum && op.phase == Phase::Backward
}

/// The number of elements of a product; `None` for other operations.
fn elements(op: &Op) -> Option<usize> {
    match &op.kind {
        OpKind::Gemm(g) => Some(g.m * g.n),
        _ => None,
    }
}

/// The arguments of an operation from which it computes gradients of parameters, and those gradients.
fn arguments(op: &Op) -> [Vec<LValueId>; 2] {
    let norm = matches!(op.kind, OpKind::LayerNormBwd(_));
    let of = |wanted: fn(&ops::Slot) -> bool, others: &[&str]| {
        let slots = op.kind.slots().iter().zip(&op.args).filter(|(slot, _)| wanted(slot));
        let slots = slots.filter(|(slot, _)| !norm || !others.contains(&slot.name));
        slots.filter_map(|(_, arg)| *arg).collect()
    };
    [of(|slot| slot.dir.is_read(), &["gamma", "residual"]), of(|slot| slot.dir.is_written(), &["dx"])]
}

/// The first operation after `number` that uses a gradient of parameters which this one computes, or that writes one of
/// its operands.
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

/// The number of elements that the gradients are computed from, each counted once.
fn kept(program: &Program, numbers: &[usize]) -> usize {
    let reads = numbers.iter().flat_map(|number| arguments(&program.ops[*number])[0].clone());
    let lens: HashMap<(LValueId, usize), usize> =
        reads.map(|id| (program.root(id), program.value(id).shape.len())).collect();
    lens.into_values().sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{check, read_preset};
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
            // Five dense layers and the classifier; two layer normalisations and one RMS normalisation.
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
            // The operations after them read the gradients or were moved by the same pass.
            let last = *found.last().unwrap();
            let on_the_way =
                |op: &Op| op.phase == Phase::Backward && !is_movable(op, MANY_ROWS) && op.arg("dx").is_some();
            assert!(!program.ops[last..].iter().any(on_the_way));
        }
    }

    /// A residual network of two convolutions on images of one channel, then one on images of 16.
    fn convolutional(side: usize, batch: usize) -> Program {
        let text = format!(
            r#"{{"version": 1, "name": "t", "input": {{"shape": [1, {side}, {side}], "batch": {batch}}}, "layers": [
            {{"type": "conv2d", "filters": 16, "kernel": 3, "padding": "same"}}, {{"type": "batch_norm"}},
            {{"type": "residual", "layers": [
                {{"type": "conv2d", "filters": 16, "kernel": 3, "padding": "same", "activation": "relu"}},
                {{"type": "conv2d", "filters": 16, "kernel": 3, "padding": "same", "bias": false}}]}},
            {{"type": "global_avg_pool"}}, {{"type": "dense", "units": 10}}],
            "loss": {{"type": "softmax_cross_entropy"}}, "optimizer": {{"type": "adamw", "lr": 0.001}}}}"#
        );
        on_gpu(&check(&read_preset(&text).unwrap()).model.unwrap(), Precision::F32)
    }

    #[test]
    fn gradients_of_small_convolutions_come_last_too() {
        let names = |program: &Program| program.ops.iter().map(|op| op.kind.name()).collect::<Vec<_>>();
        let small = convolutional(8, 64);
        let all = names(&small);
        let first = all.iter().position(|name| *name == "conv2d_bwd_w").unwrap();
        let moved = all[first..].iter().take_while(|name| ["conv2d_bwd_w", "reduce_sum"].contains(name));
        assert_eq!(moved.filter(|name| **name == "conv2d_bwd_w").count(), 3, "{all:?}");
        assert!(!all[first..].contains(&"conv2d_bwd_x"), "{all:?}");
        // The classifier's product sums over the samples. With 512 of them it could move too, but is faster alone.
        let many = convolutional(4, 512);
        let first = names(&many).iter().position(|name| *name == "conv2d_bwd_w").unwrap();
        assert!(!names(&many)[first..].contains(&"conv2d_bwd_x"));
        let is_classifier = |op: &Op| matches!(&op.kind, OpKind::Gemm(g) if g.trans == Trans::Tn && g.k == 512);
        let classifier = many.ops.iter().position(is_classifier).unwrap();
        assert!(classifier < first && gathered(&many).is_empty());
        // The sums of large images fill a GPU alone.
        let large = names(&convolutional(64, 64));
        let first = large.iter().position(|name| *name == "conv2d_bwd_w").unwrap();
        assert!(large[first..].contains(&"conv2d_bwd_x"), "{large:?}");
    }

    #[test]
    fn short_sums_and_large_weights_stay_where_they_are() {
        assert!(gathered(&step(64, "sgd")).is_empty());
        let plain = r#"{"type": "dense", "units": 64}, {"type": "dense", "units": 64}, {"type": "dense", "units": 64}"#;
        assert!(gathered(&on_gpu(&network(plain, "sgd", 256), Precision::F32)).is_empty());
        let wide = r#"{"type": "dense", "units": 2048}, {"type": "dense", "units": 2048}, {"type": "layer_norm"}"#;
        assert!(gathered(&on_gpu(&network(wide, "sgd", 1024), Precision::F32)).is_empty());
    }

    #[test]
    fn with_normalisations_of_short_rows_fewer_rows_are_many() {
        let step = |precision| {
            let layers = format!(r#"{{"type": "dense", "units": 64}}, {BLOCK}, {BLOCK}"#);
            on_gpu(&network(&layers, "sgd", 128), precision)
        };
        let [short, half] = [Precision::F32, Precision::Bf16].map(step);
        let is_joined = |op: &&Op| matches!(op.kind, OpKind::GemmNormBwd(_));
        assert_eq!(short.ops.iter().filter(is_joined).count(), 2);
        assert!(!gathered(&short).is_empty());
        assert!(gathered(&half).is_empty());
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
