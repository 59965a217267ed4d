//! The arena as rectangles and numbers.

use crate::compile::Compiled;
use crate::ir::Role;
use crate::model::LayerPath;
use crate::plan::BufferId;
use crate::tensor::{Bytes, Shape};
use std::collections::HashMap;

/// One buffer: the horizontal axis is the index of the operation, the vertical axis the address.
#[derive(Clone, Debug, PartialEq)]
pub struct BufferRect {
    pub id: BufferId,
    pub role: Role,
    pub name: String,
    pub shape: Shape,
    pub dtype: &'static str,
    pub bytes: u64,
    pub offset: u64,
    /// First operation, and one past the last.
    pub live: [usize; 2],
    pub layer: Option<LayerPath>,
    pub writers: Vec<usize>,
    pub readers: Vec<usize>,
}

/// The result of one planner.
#[derive(Clone, Debug, PartialEq)]
pub struct AttemptRow {
    pub planner: &'static str,
    pub bytes: u64,
    pub micros: u64,
    pub chosen: bool,
}

/// The whole arena.
#[derive(Clone, Debug, PartialEq)]
pub struct ArenaView {
    pub rects: Vec<BufferRect>,
    pub ops: usize,
    pub arena_bytes: u64,
    pub persistent_bytes: u64,
    pub lower_bound_bytes: u64,
    pub unshared_bytes: u64,
    pub ratio: f64,
    pub is_optimal: bool,
    /// Bytes of all buffers of a role, summed over the step; not all of them are alive at the same time.
    pub by_role: Vec<(Role, u64)>,
    /// Bytes added by alignment.
    pub padding_bytes: u64,
    pub attempts: Vec<AttemptRow>,
    /// Live bytes at every operation.
    pub live_bytes: Vec<u64>,
    /// The largest buffers, by size in falling order; among equals the one at the lower offset first.
    pub largest: Vec<BufferId>,
}

/// The number of buffers in that list.
const LARGEST: usize = 8;

impl ArenaView {
    /// The arena of a compiled step.
    #[must_use]
    pub fn new(compiled: &Compiled) -> Self {
        let (plan, model) = (&compiled.plan, &compiled.model);
        let own = || (0u32..).zip(&plan.buffers).filter(|(_, b)| !b.is_external());
        let rect = |(index, b): (u32, &crate::plan::Buffer)| BufferRect {
            id: BufferId(index),
            role: b.role,
            name: b.name.clone(),
            shape: b.shape.clone(),
            dtype: b.dtype.name(),
            bytes: b.bytes,
            offset: b.offset,
            live: b.live,
            layer: b.layer.map(|l| model.layer(l).path.clone()),
            writers: b.writers.clone(),
            readers: b.readers.clone(),
        };
        let of_role = |role: Role| (role, own().filter(|(_, b)| b.role == role).map(|(_, b)| b.bytes).sum::<u64>());
        let payload = |b: &crate::plan::Buffer| (b.shape.len() * b.dtype.size()) as u64;
        let report = &plan.report;
        let attempt = |a: &crate::plan::arena::Attempt| AttemptRow {
            planner: a.planner.name(),
            bytes: plan.persistent_bytes + a.height,
            micros: a.micros,
            chosen: a.planner == report.planner,
        };
        let mut rects: Vec<BufferRect> = own().map(rect).collect();
        tell_apart(&mut rects, compiled);
        let mut by_size: Vec<&BufferRect> = rects.iter().collect();
        by_size.sort_by_key(|r| (std::cmp::Reverse(r.bytes), r.offset));
        let largest = by_size.iter().take(LARGEST).map(|r| r.id).collect();
        Self {
            largest,
            rects,
            ops: plan.program.ops.len(),
            arena_bytes: plan.arena_bytes,
            persistent_bytes: plan.persistent_bytes,
            lower_bound_bytes: plan.lower_bound_bytes,
            unshared_bytes: plan.unshared_bytes,
            ratio: plan.ratio(),
            is_optimal: report.proved_optimal,
            by_role: Role::ALL.map(of_role).into_iter().filter(|(_, b)| *b > 0).collect(),
            padding_bytes: own().map(|(_, b)| b.bytes.saturating_sub(payload(b))).sum(),
            attempts: report.tried.iter().map(attempt).collect(),
            live_bytes: plan.live_bytes(),
        }
    }

    /// The rectangle of a buffer.
    #[must_use]
    pub fn rect(&self, id: BufferId) -> Option<&BufferRect> {
        // Buffers are in order; those of another plan are left out.
        self.rects.binary_search_by_key(&id, |r| r.id).ok().map(|i| &self.rects[i])
    }
}

/// Buffers with the same name get the kind of the first operation that writes them, and a number if that is the same
/// too. Neither depends on other parts of the step, so that names do not change by edits elsewhere.
fn tell_apart(rects: &mut [BufferRect], compiled: &Compiled) {
    let count = |rects: &[BufferRect]| {
        let mut named: HashMap<String, usize> = HashMap::new();
        rects.iter().for_each(|r| *named.entry(r.name.clone()).or_default() += 1);
        named
    };
    let named = count(rects);
    for r in rects.iter_mut().filter(|r| named.get(&r.name).is_some_and(|n| *n > 1)) {
        let op = r.writers.first().or(r.readers.first()).copied().unwrap_or(r.live[0]);
        let kind = compiled.plan.program.ops.get(op).map_or("unused", |o| o.kind.name());
        r.name = format!("{} ({kind})", r.name);
    }
    let (named, mut passed) = (count(rects), HashMap::<String, usize>::new());
    for r in rects.iter_mut().filter(|r| named.get(&r.name).is_some_and(|n| *n > 1)) {
        let number = passed.entry(r.name.clone()).or_default();
        *number += 1;
        r.name = format!("{} {number}", r.name);
    }
}

impl BufferRect {
    /// The lines of the tooltip.
    #[must_use]
    pub fn tooltip(&self) -> String {
        let list = |ops: &[usize]| match ops {
            [] => "none".to_owned(),
            ops => {
                let shown: Vec<String> = ops.iter().take(6).map(ToString::to_string).collect();
                if ops.len() > 6 {
                    format!("{} and {} more", shown.join(", "), ops.len() - 6)
                } else {
                    shown.join(", ")
                }
            }
        };
        format!(
            "{}\n{} {}{}\n{} at {:#x}\nlive in ops {} to {}\nwritten by {}\nread by {}",
            self.name,
            self.role.name(),
            self.dtype,
            self.shape,
            Bytes(self.bytes),
            self.offset,
            self.live[0],
            self.live[1].saturating_sub(1),
            list(&self.writers),
            list(&self.readers)
        )
    }
}

#[cfg(test)]
mod tests {
    use crate::studio::document::presets;

    #[test]
    fn buffer_names_are_distinct() {
        for name in ["stress-200", "digits-residual", "shared-weights"] {
            let index = (0..presets::count()).find(|i| presets::name(*i) == name).unwrap();
            let plan = crate::studio::view_models::plan::PlanView::of_preset(&presets::bundled(index).unwrap());
            let mut seen = std::collections::HashSet::new();
            for r in &plan.arena.rects {
                assert!(seen.insert(r.name.clone()), "{name}: {}", r.name);
            }
        }
    }
}
