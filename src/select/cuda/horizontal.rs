//! Horizontal fusion: which neighbouring operations may run at the same time.
//!
//! Small operations leave most of a GPU idle and cost a launch each, so those that do not depend on each other form
//! groups: the executor runs a group as one launch if it can. The memory plan ensures that no member of a group shares
//! bytes with another member's results. Whether an operation is small is decided by its estimated time, so this follows
//! the choice of kernels.

use crate::lower::{LValueId, Op, Program};
use crate::ops::OpKind;
use crate::rewrite::MOST_TOGETHER;

/// Operations of more than this estimated time fill the machine alone.
const SMALL_US: f64 = 14.0;
/// Groups that a counter may be moved over.
const MAX_MOVE: usize = 4;

/// The root values that an operation accesses, and whether it writes them.
fn touched(program: &Program, op: &Op) -> Vec<(LValueId, usize, usize, bool)> {
    let mut out = Vec::new();
    for (slot, arg) in op.kind.slots().iter().zip(&op.args) {
        if let Some(id) = arg {
            let (root, start) = program.root(*id);
            let writes = slot.dir.is_written();
            out.push((root, start, start + program.value(*id).shape.len(), writes));
        }
    }
    out
}

/// Whether two operations access the same elements and one of them writes these.
fn depend(program: &Program, a: &Op, b: &Op) -> bool {
    let (a, b) = (touched(program, a), touched(program, b));
    a.iter().any(|x| b.iter().any(|y| x.0 == y.0 && x.1 < y.2 && y.1 < x.2 && (x.3 || y.3)))
}

/// Whether an operation computes the step counter, or values that follow from it: a few numbers, which any launch can
/// compute in addition to its work.
fn is_counter(op: &Op) -> bool {
    matches!(op.kind, OpKind::StepInc { .. } | OpKind::BiasCorr(_))
}

/// Reorders operations so that those that compute a few numbers join others that run at the same time, and numbers the
/// groups. Returns the new order and the group of each operation in that order; `cost_us` is the estimated time of each
/// operation.
#[must_use]
pub fn fuse_horizontally(program: &Program, cost_us: &[f64]) -> (Vec<usize>, Vec<u32>) {
    let small = |i: usize| cost_us[i] <= SMALL_US;
    let mut groups = neighbours(program, small);
    move_counters(program, &mut groups, small);
    let mut order = Vec::with_capacity(program.ops.len());
    let mut group_of = Vec::with_capacity(program.ops.len());
    for (number, group) in groups.into_iter().enumerate() {
        for index in group {
            order.push(index);
            group_of.push(number as u32);
        }
    }
    (order, group_of)
}

/// Groups of small operations that follow one another.
fn neighbours(program: &Program, small: impl Fn(usize) -> bool) -> Vec<Vec<usize>> {
    let ops = &program.ops;
    let fits = |i: usize| small(i) && !is_counter(&ops[i]);
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for index in 0..ops.len() {
        let joins = groups.last().is_some_and(|group| {
            fits(index)
                && group.len() < MOST_TOGETHER
                && group.iter().all(|&other| fits(other) && !depend(program, &ops[other], &ops[index]))
        });
        match groups.last_mut() {
            Some(group) if joins => group.push(index),
            _ => groups.push(vec![index]),
        }
    }
    groups
}

/// Moves counters to earlier groups that run anyway, away from the end of the step, where operations wait for each
/// other.
fn move_counters(program: &Program, groups: &mut Vec<Vec<usize>>, small: impl Fn(usize) -> bool) {
    let mut at = 1;
    while at < groups.len() {
        let home = match groups[at][..] {
            [counter] if is_counter(&program.ops[counter]) => home_of(program, &groups[..at], counter, &small),
            _ => None,
        };
        match home {
            Some(home) => {
                let counter = groups.remove(at);
                groups[home].extend(counter);
            }
            None => at += 1,
        }
    }
}

/// The first of the last few groups that a counter can join without changing its inputs.
fn home_of(program: &Program, groups: &[Vec<usize>], counter: usize, small: impl Fn(usize) -> bool) -> Option<usize> {
    let depends = |group: &[usize]| group.iter().any(|&i| depend(program, &program.ops[i], &program.ops[counter]));
    let first = groups.len().saturating_sub(MAX_MOVE);
    let reachable = (first..groups.len()).rev().take_while(|number| !depends(&groups[*number]));
    let has_room = |number: &usize| groups[*number].len() < MOST_TOGETHER && groups[*number].iter().all(|&i| small(i));
    reachable.filter(has_room).last()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{Metrics, Mode, build};
    use crate::lower::{FilterOrder, lower_for};
    use crate::model::{Precision, check, read_preset};
    use crate::ops::{Gemm, Trans};
    use crate::rewrite::{Goal, rewrite};
    use crate::select::cuda::{Real, custom_kernels};
    use crate::select::target::Target;
    use crate::tensor::DType;

    const PRESET: &str = r#"{"version": 1, "name": "t", "input": {"shape": [64], "batch": 64}, "layers": [
        {"type": "dense", "units": 128, "activation": "relu"}, {"type": "dense", "units": 10}],
        "loss": {"type": "softmax_cross_entropy"}, "optimizer": {"type": "adamw", "lr": 0.001}}"#;

    #[test]
    fn a_small_step_is_few_groups_and_no_dependency_runs_inside_one() {
        let model = check(&read_preset(PRESET).unwrap()).model.unwrap();
        let program = lower_for(&build(&model, Mode::Train, Metrics::default(), DType::F32), &model, FilterOrder::Ohwi);
        let program = rewrite(&program, &Goal::gpu(Precision::F32)).unwrap().program;
        let (order, group_of) = fuse_horizontally(&program, &vec![2.0; program.ops.len()]);
        let mut seen = order.clone();
        seen.sort_unstable();
        assert_eq!(seen, (0..program.ops.len()).collect::<Vec<_>>());
        for (i, &a) in order.iter().enumerate() {
            for (j, &b) in order.iter().enumerate().skip(i + 1) {
                let depends = depend(&program, &program.ops[a], &program.ops[b]);
                assert!(!depends || (group_of[i] < group_of[j] && a < b), "{a} and {b}");
            }
        }
        // Product, last layer with its loss, gradients with their updates, metrics.
        assert_eq!(group_of.last(), Some(&3), "{group_of:?}");
    }

    #[test]
    fn products_that_share_a_launch_have_one_kernel_of_one_phase() {
        let gpu = Target::h200().as_cuda().unwrap();
        for real in [Real::F32, Real::Tf32, Real::Bf16, Real::F16] {
            let of = |together: usize| {
                let gemm = Gemm { together, ..Gemm::plain(64, 64, 1024, Trans::Tn) };
                custom_kernels(&OpKind::Gemm(gemm), real, &gpu)
            };
            let alone = of(0).into_iter().map(|code| code.cost_us).fold(f64::INFINITY, f64::min);
            let [shared] = of(25 * 64 * 64).try_into().unwrap();
            assert_eq!(shared.work_bytes, 0, "{real:?}");
            // Its share of a launch of 25 such products takes less than a launch of its own.
            assert!(shared.cost_us < alone, "{real:?}: {} against {alone}", shared.cost_us);
        }
    }
}
