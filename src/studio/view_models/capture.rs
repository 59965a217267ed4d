//! The capture plan as a table, and every scalar as frozen or live.

use crate::compile::Compiled;
use crate::model::LayerPath;
use crate::plan::{BindingPlan, BufferId, CapturePlan, TensorRef};
use crate::studio::commands::selection::Selection;
use crate::tensor::Bytes;

/// What cells show of a tensor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shown {
    #[default]
    Shape,
    Type,
    Bytes,
    Offset,
    Aliases,
}

impl Shown {
    pub const ALL: [Self; 5] = [Self::Shape, Self::Type, Self::Bytes, Self::Offset, Self::Aliases];

    /// The text of the button, and its description.
    #[must_use]
    pub const fn words(self) -> [&'static str; 2] {
        match self {
            Self::Shape => ["Shape", "Show shapes"],
            Self::Type => ["Type", "Show element types"],
            Self::Bytes => ["Bytes", "Show sizes in bytes"],
            Self::Offset => ["Offset", "Show the first byte in the arena"],
            Self::Aliases => ["Aliases", "Show what else begins at the same byte"],
        }
    }
}

/// A tensor in its cell.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// In the order of [`Shown::ALL`].
    pub texts: [String; 5],
    pub tooltip: String,
    pub buffer: BufferId,
    /// The part of the buffer that it is, if the buffer is a flat vector.
    pub part: Option<usize>,
    pub bytes: u64,
    /// First byte in the arena.
    pub offset: u64,
}

/// One row: a layer, the loss, or the input.
#[derive(Clone, Debug, PartialEq)]
pub struct CaptureRow {
    pub name: String,
    pub layer: Option<LayerPath>,
    /// In the order of [`COLUMNS`].
    pub cells: Vec<Option<Cell>>,
}

/// A scalar of an operation.
#[derive(Clone, Debug, PartialEq)]
pub struct ConstantRow {
    pub op: usize,
    pub kernel: String,
    pub name: String,
    pub value: String,
    pub live: bool,
}

/// The columns after the layer's name.
pub const COLUMNS: [&str; 6] = ["y", "z", "gA", "gW", "gB", "work"];

/// The capture plan.
#[derive(Clone, Debug, PartialEq)]
pub struct CaptureView {
    pub layers: Vec<CaptureRow>,
    /// Values that belong to no layer, by name: the gradient of the loss, the inputs and the targets.
    pub others: Vec<(String, Option<Cell>)>,
    pub constants: Vec<ConstantRow>,
}

impl Cell {
    /// What a click on it selects.
    #[must_use]
    pub fn selection(&self) -> Selection {
        self.part.map_or(Selection::Buffer(self.buffer), |part| Selection::Part(self.buffer, part))
    }
}

fn cell(t: &Option<TensorRef>, plan: &BindingPlan) -> Option<Cell> {
    let t = t.as_ref()?;
    let buffer = plan.buffer(t.buffer);
    let part = buffer.parts.iter().position(|p| buffer.offset + p.start == t.offset);
    let part = part.filter(|_| buffer.parts.len() > 1);
    let aliases =
        if t.aliases.is_empty() { String::new() } else { format!("\nshares its bytes with {}", t.aliases.join(", ")) };
    let tooltip = format!("{}\n{}{}\n{} at {:#x}{aliases}", t.name, t.dtype, t.shape, Bytes(t.bytes), t.offset);
    let aliases = match t.aliases.as_slice() {
        [] => "–".to_owned(),
        [only] => only.clone(),
        [first, rest @ ..] => format!("{first} +{}", rest.len()),
    };
    let texts =
        [t.shape.to_string(), t.dtype.to_string(), Bytes(t.bytes).to_string(), format!("{:#x}", t.offset), aliases];
    Some(Cell { texts, tooltip, buffer: t.buffer, part, bytes: t.bytes, offset: t.offset })
}

impl CaptureView {
    /// The capture plan of a compiled step.
    #[must_use]
    pub fn new(compiled: &Compiled) -> Self {
        let plan = CapturePlan::new(&compiled.plan, &compiled.model);
        let cell = |t: &Option<TensorRef>| cell(t, &compiled.plan);
        let layers = plan
            .layers
            .iter()
            .map(|l| CaptureRow {
                name: l.name.clone(),
                layer: Some(compiled.model.layer(l.layer).path.clone()),
                cells: [&l.y, &l.z, &l.grad_a, &l.grad_w, &l.grad_b, &l.work].map(cell).into(),
            })
            .collect();
        let constants = compiled
            .plan
            .constants()
            .into_iter()
            .map(|c| ConstantRow {
                kernel: compiled.selection.choices[c.op].kernel.clone(),
                op: c.op,
                name: c.name,
                value: c.value.trim_matches('"').to_owned(),
                live: c.live,
            })
            .collect();
        let mut others = vec![("loss dY".to_owned(), cell(&plan.loss.grad_y)), ("input x".to_owned(), cell(&plan.x))];
        others.extend(plan.more.iter().map(|t| (format!("input {}", t.name), cell(&Some(t.clone())))));
        others.push(("input y".to_owned(), cell(&plan.y)));
        Self { layers, others, constants }
    }
}
