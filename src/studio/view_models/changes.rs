//! The changes of the plan by an edit: added and removed operations and kernels, added and removed buffers, and buffers
//! whose size changed.
//!
//! Inserting a layer renumbers the following ones, so that items that are matched only by name would all be removed and
//! added. Therefore items are matched by name first, and the remaining ones by their properties.

use crate::plan::BufferId;
use crate::studio::view_models::arena::BufferRect;
use crate::studio::view_models::plan::PlanView;
use crate::tensor::Bytes;
use std::collections::HashMap;

/// An operation that was added or removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpChange {
    /// Its index in the plan that has it.
    pub index: usize,
    pub layer: String,
    pub kernel: String,
}

/// A buffer whose size changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grown {
    pub id: BufferId,
    pub name: String,
    pub before: u64,
    pub after: u64,
}

/// Items that only the newer plan has, and those that only the older one had.
#[derive(Clone, Debug, PartialEq)]
pub struct Exchanged<New, Old = New> {
    pub came: Vec<New>,
    pub went: Vec<Old>,
}

impl<New, Old> Default for Exchanged<New, Old> {
    fn default() -> Self {
        Self { came: Vec::new(), went: Vec::new() }
    }
}

/// The difference of two plans.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlanChanges {
    pub ops: Exchanged<OpChange>,
    /// Kernels that no operation ran before, and those that none runs any more.
    pub kernels: Exchanged<String>,
    /// Buffers in order; removed ones as they were drawn.
    pub buffers: Exchanged<BufferId, BufferRect>,
    /// The largest change first.
    pub grown: Vec<Grown>,
}

/// A name without the number of its layer: `Dense.y` of `L12:Dense.y`.
fn nameless(name: &str) -> &str {
    match name.split_once(':') {
        Some((number, rest)) if number.starts_with('L') => rest,
        _ => name.trim_start_matches("layers.").trim_start_matches(|c: char| c.is_ascii_digit() || c == '.'),
    }
}

/// Pairs the entries of two lists whose keys are equal, each once and in order; returns the unpaired ones of both
/// lists.
fn unpaired<K: std::hash::Hash + Eq>(
    before: Vec<(usize, K)>,
    after: Vec<(usize, K)>,
) -> (Vec<usize>, Vec<usize>, Vec<(usize, usize)>) {
    let mut open: HashMap<K, std::collections::VecDeque<usize>> = HashMap::with_capacity(before.len());
    for (index, key) in before {
        open.entry(key).or_default().push_back(index);
    }
    let (mut alone, mut pairs) = (Vec::new(), Vec::new());
    for (index, key) in after {
        match open.get_mut(&key).and_then(std::collections::VecDeque::pop_front) {
            Some(other) => pairs.push((other, index)),
            None => alone.push(index),
        }
    }
    let mut left: Vec<usize> = open.into_values().flatten().collect();
    left.sort_unstable();
    (left, alone, pairs)
}

impl PlanChanges {
    /// The differences from `before` to `after`.
    #[must_use]
    pub fn between(before: &PlanView, after: &PlanView) -> Self {
        let mut out = Self::default();
        out.take_ops(before, after);
        out.take_buffers(before, after);
        out
    }

    /// True if nothing was added, removed or resized.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn take_ops(&mut self, before: &PlanView, after: &PlanView) {
        type Key<'a> = (&'a str, &'a str, &'a str);
        let full = |p: &'_ PlanView| -> Vec<usize> { (0..p.ops.len()).collect() };
        fn keys<'a>(plan: &'a PlanView, of: &[usize], strip: bool) -> Vec<(usize, Key<'a>)> {
            let key = |i: usize| {
                let o = &plan.ops[i];
                let layer = if strip { nameless(&o.layer) } else { &o.layer };
                (i, (layer, o.kernel.as_str(), o.dims.as_str()))
            };
            of.iter().map(|i| key(*i)).collect()
        }
        let (left, right, _) = unpaired(keys(before, &full(before), false), keys(after, &full(after), false));
        let (left, right, _) = unpaired(keys(before, &left, true), keys(after, &right, true));
        let change = |plan: &PlanView, i: usize| {
            let o = &plan.ops[i];
            OpChange { index: i, layer: o.layer.clone(), kernel: o.kernel.clone() }
        };
        self.ops.went = left.into_iter().map(|i| change(before, i)).collect();
        self.ops.came = right.into_iter().map(|i| change(after, i)).collect();
        let kernels = |p: &PlanView| p.ops.iter().map(|o| o.kernel.clone()).collect::<std::collections::BTreeSet<_>>();
        let (old, new) = (kernels(before), kernels(after));
        self.kernels.came = new.difference(&old).cloned().collect();
        self.kernels.went = old.difference(&new).cloned().collect();
    }

    fn take_buffers(&mut self, before: &PlanView, after: &PlanView) {
        let (old, new) = (&before.arena.rects, &after.arena.rects);
        let all = |rects: &[BufferRect]| rects.iter().map(|r| r.name.clone()).enumerate().collect::<Vec<_>>();
        let (left, right, pairs) = unpaired(all(old), all(new));
        let kind = |rects: &[BufferRect], of: &[usize]| {
            of.iter().map(|&i| (i, (nameless(&rects[i].name).to_owned(), rects[i].bytes))).collect::<Vec<_>>()
        };
        let (left, right, _) = unpaired(kind(old, &left), kind(new, &right));
        self.buffers.went = left.into_iter().map(|i| old[i].clone()).collect();
        self.buffers.came = right.into_iter().map(|i| new[i].id).collect();
        let sized = pairs.into_iter().filter(|(a, b)| old[*a].bytes != new[*b].bytes);
        self.grown = sized
            .map(|(a, b)| Grown { id: new[b].id, name: new[b].name.clone(), before: old[a].bytes, after: new[b].bytes })
            .collect();
        self.grown.sort_by_key(|g| std::cmp::Reverse(g.after.abs_diff(g.before)));
    }
}

/// All changes, one on each line.
impl std::fmt::Display for PlanChanges {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (sign, ops) in [('+', &self.ops.came), ('−', &self.ops.went)] {
            for op in ops {
                writeln!(f, "{sign} op {} {} {}", op.index, op.kernel, op.layer)?;
            }
        }
        for (sign, kernels) in [('+', &self.kernels.came), ('−', &self.kernels.went)] {
            for kernel in kernels {
                writeln!(f, "{sign} kernel {kernel}")?;
            }
        }
        for g in &self.grown {
            writeln!(f, "{} {} -> {}", g.name, Bytes(g.before), Bytes(g.after))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inserting_a_first_layer_adds_only_its_own_operations() {
        let before = crate::studio::document::presets::digits();
        let mut after = before.clone();
        // The new layer maps 64 to 64 features, so that the following ones do not change.
        let mut first = before.layers[0].clone();
        let crate::model::LayerSpec::Dense(dense) = &mut first else { panic!("a dense layer comes first") };
        dense.units = 64;
        after.layers.insert(0, first);
        let c = PlanChanges::between(&PlanView::of_preset(&before), &PlanView::of_preset(&after));
        assert!(c.ops.came.iter().any(|o| o.layer == "L0:Dense"), "{c}");
        assert!(c.ops.came.len() <= 6 && c.ops.went.len() <= 3, "{c}");
        assert!(!c.buffers.came.is_empty(), "{c}");
        assert!(PlanChanges::between(&PlanView::of_preset(&after), &PlanView::of_preset(&after)).is_empty());
    }

    #[test]
    fn wider_layers_have_larger_buffers() {
        let before = crate::studio::document::presets::digits();
        let mut after = before.clone();
        after.input.batch *= 2;
        let c = PlanChanges::between(&PlanView::of_preset(&before), &PlanView::of_preset(&after));
        let x = c.grown.iter().find(|g| g.name == "x").expect("the input");
        assert_eq!(x.after, 2 * x.before);
        assert!(c.grown.is_sorted_by_key(|g| std::cmp::Reverse(g.after.abs_diff(g.before))));
        let text = c.to_string();
        assert!(text.contains("x 16.0 KiB -> 32.0 KiB"), "{text}");
    }
}
