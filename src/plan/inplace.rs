//! Which operations may write over what they read.

use crate::lower::{Alias, LValueId, Op, OpKind, Program};

/// The pairs of slots of an operation whose kernels allow input and output to be the same memory.
const fn pairs(kind: &OpKind) -> &'static [(&'static str, &'static str)] {
    match kind {
        OpKind::BiasAdd { .. } | OpKind::Act { .. } | OpKind::Dropout { .. } | OpKind::BatchNormEval { .. } => {
            &[("x", "y")]
        }
        OpKind::ActBwd { .. } | OpKind::DropoutBwd { .. } | OpKind::BatchNormBwd { .. } => &[("dy", "dx")],
        OpKind::Add { .. } => &[("a", "y"), ("b", "y")],
        OpKind::SoftmaxCe { .. } => &[("logits", "probs")],
        OpKind::SoftmaxCeGrad { .. } => &[("probs", "dlogits")],
        OpKind::SoftmaxCeFused { .. } => &[("logits", "dlogits")],
        OpKind::MseGrad { .. } | OpKind::MseFused { .. } => &[("y", "dy")],
        _ => &[],
    }
}

/// The root of every value, followed through aliases, with the first element in it.
pub(super) fn roots(program: &Program) -> Vec<(LValueId, usize)> {
    (0..program.values.len() as u32).map(|i| program.root(LValueId(i))).collect()
}

/// Marks values as aliases of what they may overwrite: where the input's memory is read by nobody later, is not kept after the step, and is
/// exactly as large as the output.
pub(super) fn alias_in_place(program: &mut Program) {
    let mut root: Vec<LValueId> = roots(program).into_iter().map(|(r, _)| r).collect();
    let mut last_read = vec![0usize; program.values.len()];
    for (index, op) in program.ops.iter().enumerate() {
        for read in op.reads() {
            let r = root[read.0 as usize];
            last_read[r.0 as usize] = last_read[r.0 as usize].max(index);
        }
    }
    for index in 0..program.ops.len() {
        let op = &program.ops[index];
        let found =
            pairs(&op.kind).iter().find_map(|&(from, to)| candidate(program, &root, &last_read, index, op, from, to));
        if let Some((from, to)) = found {
            let (into, out) = (root[from.0 as usize], root[to.0 as usize]);
            program.values[to.0 as usize].alias = Some(Alias { of: from, start: 0 });
            last_read[into.0 as usize] = last_read[into.0 as usize].max(last_read[out.0 as usize]);
            // Views of the output follow it into its new home; they stand after it.
            for r in root.iter_mut().skip(to.0 as usize).filter(|r| **r == out) {
                *r = into;
            }
        }
    }
}

fn candidate(
    program: &Program,
    root: &[LValueId],
    last_read: &[usize],
    index: usize,
    op: &Op,
    from: &str,
    to: &str,
) -> Option<(LValueId, LValueId)> {
    let (input, output) = (op.arg(from)?, op.arg(to)?);
    let (into, out) = (root[input.0 as usize], root[output.0 as usize]);
    let (home, value) = (program.value(into), program.value(output));
    let others = op.reads().filter(|r| root[r.0 as usize] == into).count();
    let free = !home.persistent && last_read[into.0 as usize] == index && others == 1;
    let own = value.alias.is_none() && out == output && !value.persistent;
    let fits = home.shape.len() == value.shape.len() && home.dtype == value.dtype;
    (free && own && fits).then_some((input, output))
}
