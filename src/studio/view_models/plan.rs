//! A compiled step with its views, made once on the compile thread.

use crate::compile::Compiled;
use crate::model::LayerPath;
use crate::plan::BufferId;
use crate::studio::view_models::arena::ArenaView;
use crate::studio::view_models::capture::CaptureView;
use crate::studio::view_models::levels::Levels;
use crate::studio::view_models::step_graph::OpRow;
use std::sync::Arc;

/// The share of a layer in a step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LayerUse {
    /// The share of the step's floating-point operations.
    pub share: f64,
    /// Bytes of the buffers that belong to it.
    pub bytes: u64,
}

/// The cost of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepCost {
    /// Its estimated time in microseconds.
    pub us: f64,
    pub flops: u64,
}

/// A compiled step, ready to be drawn.
#[derive(Debug)]
pub struct PlanView {
    pub compiled: Arc<Compiled>,
    pub ops: Vec<OpRow>,
    pub arena: ArenaView,
    pub capture: CaptureView,
    /// The step at every stage of the compiler.
    pub levels: Levels,
    pub whole: StepCost,
    /// The share of each layer in the step, by [`crate::model::LayerId`]; for a block without the layers inside it.
    pub layers: Vec<LayerUse>,
}

impl PlanView {
    /// The views of a compiled step.
    #[must_use]
    pub fn new(compiled: Arc<Compiled>) -> Self {
        let mut layers = vec![LayerUse::default(); compiled.model.layers.len()];
        let flops = compiled.selection.flops();
        for (op, choice) in compiled.plan.program.ops.iter().zip(&compiled.selection.choices) {
            if let Some(layer) = op.layer.and_then(|l| layers.get_mut(l.0 as usize)) {
                layer.share += choice.flops as f64 / flops.max(1) as f64;
            }
        }
        let mut add = |layer: Option<crate::model::LayerId>, bytes| {
            if let Some(layer) = layer.and_then(|l| layers.get_mut(l.0 as usize)) {
                layer.bytes += bytes;
            }
        };
        for buffer in &compiled.plan.buffers {
            if buffer.parts.is_empty() {
                add(buffer.layer, buffer.bytes);
            }
            buffer.parts.iter().for_each(|p| add(p.layer, p.bytes));
        }
        Self {
            ops: OpRow::all(&compiled),
            arena: ArenaView::new(&compiled),
            capture: CaptureView::new(&compiled),
            levels: Levels::new(&compiled),
            whole: StepCost { us: compiled.selection.cost_us(), flops },
            layers,
            compiled,
        }
    }

    /// The path of the plan, `path L1=0 L4=2`; `None` if the network does not choose.
    #[must_use]
    pub fn path_text(&self) -> Option<String> {
        let path = self.compiled.model.path();
        (!path.is_whole()).then(|| format!("path {path}"))
    }

    /// The first byte of a part of a flat vector in the arena, and one past its last.
    #[must_use]
    pub fn part_bytes(&self, id: BufferId, part: usize) -> Option<[u64; 2]> {
        let buffer = self.compiled.plan.buffers.get(id.0 as usize)?;
        let part = buffer.parts.get(part)?;
        let from = buffer.offset + part.start;
        Some([from, from + part.bytes])
    }

    /// The share of the step's floating-point operations of a layer including all layers inside it.
    #[must_use]
    pub fn flop_share(&self, path: &LayerPath) -> f64 {
        let layers = self.compiled.model.layers.iter().zip(&self.layers);
        layers.filter(|(layer, _)| layer.path.starts_with(path)).map(|(_, part)| part.share).sum()
    }
}

#[cfg(test)]
impl PlanView {
    /// The views of a preset without mistakes, planned for the same machine everywhere.
    pub(crate) fn of_preset(preset: &crate::model::Preset) -> Self {
        use crate::compile::{Options, compile};
        use crate::select::{Isa, Target};
        let model = crate::model::check(preset).model.unwrap();
        Self::new(Arc::new(compile(&model, &Options::train(Target::cpu(Isa::Avx2, 1))).unwrap()))
    }
}
