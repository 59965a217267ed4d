//! The selection in the next plan: indices change with every edit, and the selection must remain the same item.

use crate::plan::BufferId;
use crate::studio::commands::selection::Selection;
use crate::studio::view_models::levels::{Level, selection_of};
use crate::studio::view_models::plan::PlanView;

/// The same item in another plan: a buffer with the same name, the same operation of the same layer. `None` if it does
/// not exist.
#[must_use]
pub fn selection_in_plan(selection: &Selection, before: &PlanView, after: &PlanView) -> Option<Selection> {
    let row = |level: Level, index: usize| place(level, index, before, after).map(|i| selection_of(level, i));
    match selection {
        Selection::Nothing | Selection::Layer(_) | Selection::Bytes(_) => Some(selection.clone()),
        Selection::Kernel(kernel) => after.ops.iter().any(|o| o.kernel == *kernel).then(|| selection.clone()),
        Selection::Buffer(id) => {
            let name = &before.compiled.plan.buffers.get(id.0 as usize)?.name;
            let found = after.compiled.plan.buffers.iter().position(|b| b.name == *name)?;
            Some(Selection::Buffer(BufferId(found as u32)))
        }
        Selection::Part(id, part) => {
            let name = &before.compiled.plan.buffers.get(id.0 as usize)?.parts.get(*part)?.name;
            let all = (0u32..).map(BufferId).zip(&after.compiled.plan.buffers);
            let mut found = all.filter_map(|(id, b)| Some((id, b.parts.iter().position(|p| p.name == *name)?)));
            found.next().map(|(id, part)| Selection::Part(id, part))
        }
        Selection::Op(index) => row(Level::Selected, *index),
        Selection::Call(index) => row(Level::Recorded, *index),
        Selection::Lowered(index) => row(Level::Lowered, *index),
        Selection::Node(id) => row(Level::Ir, id.0 as usize),
    }
}

/// The row of another plan with the same layer, phase and name, and the same number among those.
fn place(level: Level, index: usize, before: &PlanView, after: &PlanView) -> Option<usize> {
    let rows = before.levels.rows(level);
    let own = rows.get(index)?;
    let same = |r: &&crate::studio::view_models::levels::LevelRow| {
        r.name == own.name && r.phase == own.phase && r.layer == own.layer
    };
    let number = rows[..index].iter().filter(same).count();
    after.levels.rows(level).iter().filter(same).nth(number).map(|r| r.index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_selection_remains_the_same_item() {
        let preset = crate::studio::document::presets::digits();
        let mut longer = preset.clone();
        longer.layers.push(preset.layers[2].clone());
        let (before, after) = (PlanView::of_preset(&preset), PlanView::of_preset(&longer));
        for level in Level::ALL {
            for row in before.levels.rows(level).iter().filter(|r| !r.layer.is_empty()) {
                let to = selection_in_plan(&selection_of(level, row.index), &before, &after)
                    .expect("the layer is still there");
                let found = after.levels.rows(level).iter().find(|r| selection_of(level, r.index) == to).unwrap();
                assert_eq!((found.name, &found.layer, found.phase), (row.name, &row.layer, row.phase));
            }
        }
        let name = |p: &PlanView, id: BufferId| p.compiled.plan.buffer(id).name.clone();
        for id in (0..before.compiled.plan.buffers.len() as u32).map(BufferId) {
            if let Some(Selection::Buffer(to)) = selection_in_plan(&Selection::Buffer(id), &before, &after) {
                assert_eq!(name(&before, id), name(&after, to));
            }
        }
        // In the opposite direction, the operations of the removed layer do not exist.
        let last = after.ops.iter().find(|o| o.layer == "L3:Dense").unwrap();
        assert_eq!(selection_in_plan(&Selection::Op(last.index), &after, &before), None);
    }
}
