//! The ranges of the flat vectors that belong to single parameters, as separate values.

use crate::lower::{Alias, LValue, LValueId, Program};
use crate::model::ParamId;
use crate::ops::Segment;
use crate::rewrite::rewriter::Rewriter;
use std::collections::HashMap;

/// The values that share the memory of others, by their first element.
pub(super) struct Stretches(HashMap<(LValueId, usize), Vec<LValueId>>);

impl Stretches {
    pub(super) fn of(program: &Program) -> Self {
        let mut out: HashMap<_, Vec<LValueId>> = HashMap::new();
        for (value, id) in program.values.iter().zip((0..).map(LValueId)) {
            if let Some(Alias { of, start }) = value.alias {
                out.entry((of, start)).or_default().push(id);
            }
        }
        Self(out)
    }

    /// A parameter's range of a flat vector, before the step.
    pub(super) fn before(
        &mut self,
        rw: &mut Rewriter,
        flat: LValueId,
        like: &LValue,
        (param, segment): (ParamId, Segment),
    ) -> LValueId {
        let there = self.0.entry((flat, segment.start)).or_default();
        if let Some(found) = there.iter().find(|id| rw.program().value(**id).param == Some(param)) {
            return *found;
        }
        let LValue { name, role, dtype, .. } = rw.program().value(flat).clone();
        let alias = Some(Alias { of: flat, start: segment.start });
        let made = rw.push(LValue { name: format!("{name}.{}", like.name), role, dtype, alias, ..like.clone() });
        there.push(made);
        made
    }

    /// The new value of a parameter's range of a flat vector, in the same place.
    pub(super) fn after(
        &mut self,
        rw: &mut Rewriter,
        flat: LValueId,
        like: &LValue,
        place: (ParamId, Segment),
    ) -> LValueId {
        let before = self.before(rw, flat, like, place);
        let there = self.0.entry((before, 0)).or_default();
        if let Some(found) = there.first() {
            return *found;
        }
        let value = rw.program().value(before).clone();
        let alias = Some(Alias { of: before, start: 0 });
        let made = rw.push(LValue { name: format!("{}.new", value.name), alias, ..value });
        there.push(made);
        made
    }
}
