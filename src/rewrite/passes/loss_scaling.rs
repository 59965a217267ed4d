//! Multiplies the gradient of the loss by a scale that the step itself adapts, so that small gradients are not lost in
//! `f16`.
//!
//! All gradients are checked together, before any parameter changes. If a step updates several groups of parameters,
//! their gradients are parts of one vector, and the counters of their updates skip steps that overflow. A step that
//! only adds to gradients scales its loss as the step that uses them.

use crate::ir::{Mode, Phase, Role};
use crate::lower::{ALL_GRADIENTS, Alias, LValue, LValueId, Op};
use crate::ops::{self, OpKind, SCALER, Segment};
use crate::rewrite::pass::Goal;
use crate::rewrite::rewriter::{Rewriter, made_like};
use crate::tensor::DType;

pub(super) fn run(rw: &mut Rewriter, _: &Goal) {
    if rw.program().mode != Mode::Train || rw.find(|kind| kind.slot("scale").is_some()).is_empty() {
        return;
    }
    let before = rw.state("scaler".into(), DType::F32, SCALER);
    let scale = rw.view("loss_scale".into(), before, 1);
    let after = rw.view("scaler.new".into(), before, SCALER);
    let skipped = LValue {
        name: "skipped_steps".into(),
        role: Role::State,
        dtype: DType::F32,
        alias: Some(Alias { of: before, start: 4 }),
        ..rw.program().value(scale).clone()
    };
    let skipped = rw.push(skipped);
    for number in 0..rw.len() {
        rw.bind(number, "scale", scale);
    }
    // The norms of gradients are computed before updates if gradients are clipped.
    let is_scaled = |op: &Op| op.kind.slot("scaler").is_some() && op.arg("grad").is_some();
    let Some(first) = rw.program().ops.iter().position(is_scaled) else { return };
    let Some(Gradients { vector, len, segments }) = Gradients::joined(rw) else { return };
    let kind = OpKind::ScaleUpdate(ops::ScaleUpdate { len, segments });
    let bound = [("grad", Some(vector)), ("scaler_prev", Some(before)), ("scaler", Some(after))];
    let op = Op { phase: Phase::Optimizer, ..made_like(rw.op(first), kind, &bound) };
    rw.insert_before(first, op, &[]);
    for number in 0..rw.len() {
        if counts_updates(rw, number) {
            rw.bind(number, "scaler", after);
            rw.move_before(number, first);
        } else if !matches!(rw.op(number).kind, OpKind::StepInc(_)) {
            rw.bind(number, "scaler", after);
            rw.bind(number, "skipped", skipped);
        }
    }
}

/// Whether an operation counts the updates of a group of parameters that not every step updates, or computes a
/// correction from that count. Their counts are parts of one vector, after those of the group that every step updates.
fn counts_updates(rw: &Rewriter, number: usize) -> bool {
    let op = rw.op(number);
    let is_counter = matches!(op.kind, OpKind::StepInc(_) | OpKind::BiasCorr(_));
    is_counter && op.arg("counter").is_some_and(|counter| rw.program().root(counter).1 > 0)
}

/// The gradients of all parameters that a step updates.
struct Gradients {
    vector: LValueId,
    /// The length of the vector, in elements.
    len: usize,
    segments: Vec<Segment>,
}

impl Gradients {
    /// The flat gradients, as one vector; `None` if the step updates nothing.
    fn joined(rw: &mut Rewriter) -> Option<Self> {
        let updates = rw.find(|kind| kind.flat_update().is_some());
        let parts = updates.into_iter().filter_map(|number| {
            let (op, update) = (rw.op(number), rw.op(number).kind.flat_update()?);
            Some((op.arg("grad")?, update.len, update.segments.to_vec()))
        });
        let mut parts: Vec<(LValueId, usize, Vec<Segment>)> = parts.collect();
        if let [_] = parts[..] {
            return parts.pop().map(|(vector, len, segments)| Self { vector, len, segments });
        }
        let (first, ..) = *parts.first()?;
        if rw.program().value(first).alias.is_none() {
            join(rw, &parts);
        }
        let (vector, _) = rw.program().root(first);
        let start = |part: &LValueId| rw.program().root(*part).1;
        let moved = |(part, _, own): &(LValueId, usize, Vec<Segment>)| {
            let start = start(part);
            own.iter().map(move |s| Segment { start: start + s.start, ..*s }).collect::<Vec<_>>()
        };
        let segments = parts.iter().flat_map(moved).collect();
        Some(Self { vector, len: rw.program().value(vector).shape.len(), segments })
    }
}

/// Makes vectors of these lengths parts of one, in this order.
fn join(rw: &mut Rewriter, parts: &[(LValueId, usize, Vec<Segment>)]) {
    let like = rw.program().value(parts[0].0);
    let len = parts.iter().map(|part| part.1).sum();
    let whole = LValue::vector(ALL_GRADIENTS.into(), like.role, like.dtype, len);
    let of = rw.push(whole);
    let mut start = 0;
    for &(part, len, _) in parts {
        rw.value_mut(part).alias = Some(Alias { of, start });
        start += len;
    }
}

#[cfg(test)]
mod tests {
    use crate::compile::{Options, compile};
    use crate::ir::Share;
    use crate::lower::Program;
    use crate::model::{Model, check, read_preset};
    use crate::ops::{OpKind, Segment};
    use crate::select::Target;

    const ACCUMULATED: &str = r#"{"version": 1, "name": "t", "precision": "f16", "input": {"shape": [8],
        "batch": 4}, "layers": [{"type": "dense", "units": 5}], "loss": {"type": "mse"}, "optimizer": {"type": "adam",
        "lr": 0.1}, "train": {"accumulate": 3}}"#;

    const CHOOSING: &str = r#"{"version": 1, "name": "t", "precision": "f16", "input": {"shape": [8], "batch": 4},
        "layers": [{"type": "dense", "units": 8}, {"type": "residual", "choose": {"by": "cycle", "values": [1, 0]},
        "layers": [{"type": "dense", "units": 8}]}, {"type": "dense", "units": 3}], "loss": {"type":
        "softmax_cross_entropy"}, "optimizer": {"type": "adam", "lr": 0.1}}"#;

    fn program(text: &str, share: Share) -> Program {
        let model = check(&read_preset(text).unwrap()).model.unwrap();
        compiled(&model, share)
    }

    fn compiled(model: &Model, share: Share) -> Program {
        let options = Options { share, ..Options::train(Target::h200()) };
        compile(model, &options).unwrap().selection.program
    }

    #[test]
    fn each_part_of_a_step_scales_its_loss() {
        for share in Share::before_last(3).iter().copied().chain([Share::Last]) {
            let program = program(ACCUMULATED, share);
            let scaled = program.ops.iter().filter(|op| op.kind.slot("scale").is_some());
            let scales: Vec<_> = scaled.map(|op| op.arg("scale").map(|id| program.value(id).name.as_str())).collect();
            assert_eq!(scales, [Some("loss_scale")], "{share:?}");
            let checks = program.ops.iter().filter(|op| matches!(op.kind, OpKind::ScaleUpdate(_))).count();
            assert_eq!(checks, usize::from(share == Share::Last), "{share:?}");
        }
    }

    #[test]
    fn the_gradients_of_all_groups_are_checked_before_any_update_is_counted() {
        let program = program(CHOOSING, Share::Last);
        let at = |want: &dyn Fn(&OpKind) -> bool| {
            let all = program.ops.iter().enumerate().filter(|(_, op)| want(&op.kind));
            all.map(|(number, _)| number).collect::<Vec<_>>()
        };
        let [check] = at(&|kind| matches!(kind, OpKind::ScaleUpdate(_)))[..] else { panic!("one check") };
        let OpKind::ScaleUpdate(scaling) = &program.ops[check].kind else { unreachable!() };
        let updates = at(&|kind| kind.flat_update().is_some());
        let lens: Vec<usize> =
            updates.iter().map(|&number| program.ops[number].kind.flat_update().unwrap().len).collect();
        assert_eq!((lens.len(), lens.iter().sum::<usize>()), (2, scaling.len));
        let lens: Vec<usize> = scaling.segments.iter().map(|s| s.len).collect();
        assert_eq!(lens, [64, 8, 24, 3, 64, 8], "weights and biases, those of the block last");
        assert!(updates.iter().all(|&number| number > check));
        let counters = at(&|kind| matches!(kind, OpKind::StepInc(_)));
        let skips: Vec<(bool, bool)> =
            counters.iter().map(|&number| (program.ops[number].arg("scaler").is_some(), number > check)).collect();
        let mut sorted = skips;
        sorted.sort_unstable();
        assert_eq!(sorted, [(false, false), (true, true)], "the count of steps, and that of the block's updates");
    }

    #[test]
    fn gradients_of_several_batches_have_the_same_places_on_every_path() {
        let block = |values| {
            format!(
                r#"{{"type": "residual", "choose": {{"by": "cycle", "values": {values}}},
                "layers": [{{"type": "dense", "units": 8}}]}}"#
            )
        };
        let text = format!(
            r#"{{"version": 1, "name": "t", "precision": "f16", "input": {{"shape": [8], "batch": 4}}, "layers": [
            {{"type": "dense", "units": 8}}, {}, {}, {{"type": "dense", "units": 3}}],
            "loss": {{"type": "softmax_cross_entropy"}}, "optimizer": {{"type": "adam", "lr": 0.1}},
            "train": {{"accumulate": 2}}}}"#,
            block("[1, 0, 1, 0]"),
            block("[1, 1, 0, 0]")
        );
        let model = check(&read_preset(&text).unwrap()).model.unwrap();
        // Each block is a group. Its part of the flat vectors follows that of the layers that every step runs.
        let [first, block] = [[64, 8, 24, 3].to_vec(), [64, 8].to_vec()];
        let at = |start: usize, lens: &[usize]| {
            let place = |next: &mut usize, len: &usize| {
                let own = Segment { start: *next, len: *len };
                *next = (*next + len).next_multiple_of(64);
                Some(own)
            };
            lens.iter().scan(start, place).collect::<Vec<_>>()
        };
        let checked = |path: &str| {
            let program = compiled(&model.along(&model.path_named(path, 0).unwrap()), Share::Last);
            let check = program.ops.iter().find(|op| matches!(op.kind, OpKind::ScaleUpdate(_))).unwrap();
            let OpKind::ScaleUpdate(scaling) = &check.kind else { unreachable!() };
            let vector = program.value(check.arg("grad").unwrap());
            assert!(vector.persistent && vector.shape.len() == scaling.len, "{path}");
            (vector.name.clone(), scaling.len, scaling.segments.clone())
        };
        for (path, blocks) in [("L1=1 L2=1", vec![256, 384]), ("L1=0 L2=1", vec![384]), ("L1=1 L2=0", vec![256])] {
            let mut segments = at(0, &first);
            blocks.into_iter().for_each(|start| segments.extend(at(start, &block)));
            assert_eq!(checked(path), ("grads.all".to_owned(), 512, segments), "{path}");
        }
        assert_eq!(checked("L1=0 L2=0"), ("grads".to_owned(), 256, at(0, &first)));
    }
}
