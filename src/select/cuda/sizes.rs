//! For which sizes the kernels of a step are compiled.

use super::custom_kernels;
use super::route::Route;
use crate::ops::OpKind;
use crate::select::Selection;
use crate::select::variant::Variant;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// The sizes that a kernel's machine code works for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CompiledFor {
    /// It reads the sizes from the arguments of its launch.
    AnySize,
    /// The sizes of its operation are compiled in.
    ItsSizes,
    /// A library computes the operation.
    Library,
}

impl CompiledFor {
    /// What the kernel of each operation of a selection is compiled for at the start of a run; empty for a CPU, whose
    /// kernels work for all sizes.
    #[must_use]
    pub fn of_all(selection: &Selection) -> Vec<Self> {
        let Some(gpu) = selection.target.as_cuda() else { return Vec::new() };
        let mut known: HashMap<(&OpKind, super::Real, u8), Self> = HashMap::new();
        let mut all = Vec::with_capacity(selection.choices.len());
        for (op, choice) in selection.program.ops.iter().zip(&selection.choices) {
            let Variant::Cuda(Route::Own(number)) = choice.variant else {
                all.push(Self::Library);
                continue;
            };
            let real = super::real_of(&selection.program, op, selection.real);
            let found = *known.entry((&op.kind, real, number)).or_insert_with(|| {
                let kernel = custom_kernels(&op.kind, real, &gpu).into_iter().nth(number.into());
                let is_general = kernel.is_some_and(|kernel| kernel.spec.of(selection.target.kernels).is_general());
                if is_general { Self::AnySize } else { Self::ItsSizes }
            });
            all.push(found);
        }
        all
    }

    /// As text: `any size`.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::AnySize => "any size",
            Self::ItsSizes => "its sizes",
            Self::Library => "by a library",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::{Options, compile};
    use crate::model::{BUNDLED, check, read_preset};
    use crate::select::{Kernels, Target};

    #[test]
    fn general_kernels_work_for_any_size_unless_their_family_has_no_general_member() {
        let plan = |text: &str, target: Target| {
            compile(&check(&read_preset(text).unwrap()).model.unwrap(), &Options::train(target)).unwrap().selection
        };
        let text = |name: &str| BUNDLED.iter().find(|bundled| bundled.name == name).unwrap().text;
        let planned = |name: &str, target: Target| plan(text(name), target);
        let count = |selection: &Selection, what| CompiledFor::of_all(selection).iter().filter(|f| **f == what).count();
        for kernels in [Kernels::General, Kernels::FirstGeneral] {
            let general = planned("digits-cnn", Target::h200().with_kernels(kernels));
            assert_eq!(CompiledFor::of_all(&general).len(), general.choices.len());
            assert!(count(&general, CompiledFor::AnySize) > 10 && count(&general, CompiledFor::Library) == 0);
            // Only the counter, which has no sizes.
            let others = CompiledFor::of_all(&general).into_iter().zip(&general.program.ops);
            let others = others.filter(|(sizes, _)| *sizes == CompiledFor::ItsSizes).map(|(_, op)| op.kind.name());
            assert_eq!(others.collect::<Vec<_>>(), ["step_inc"]);
        }
        let specialised = planned("digits-cnn", Target::h200());
        assert!(count(&specialised, CompiledFor::AnySize) == 0 && count(&specialised, CompiledFor::ItsSizes) > 0);
        // Recurrences whose weights threads or blocks hold have general members; those that read them from memory at
        // every position have none.
        let sized = ["96", "512", "3000"].map(|units| {
            let text = text("gru-digits").replace("\"units\": 96", &format!("\"units\": {units}"));
            plan(&text, Target::h200().with_kernels(Kernels::General))
        });
        assert_eq!(sized.each_ref().map(|plan| count(plan, CompiledFor::ItsSizes)), [1, 1, 1 + 4]);
        assert!(CompiledFor::of_all(&planned("digits-cnn", crate::exec::cpu::host_target(1))).is_empty());
    }
}
