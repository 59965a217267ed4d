//! `parallel`: lists of layers beside each other, whose outputs are joined.

use super::{LayerKind, LayerSpec, LayerType};
use crate::model::draw::Draw;
use crate::model::field_value::FieldValue;
use crate::model::infer::{Infer, Join};
use crate::model::mistakes::FieldChecks;
use crate::model::path::ListField;
use crate::model::schema::{FieldSpec, FieldView, Lens, Range};
use crate::model::spec::Fields;
use crate::tensor::Shape;
use serde_json::{Map, Value};

/// Branches on the same input, or on inputs of the network by name, and their outputs joined.
#[derive(Clone, Debug, PartialEq)]
pub struct Parallel {
    pub branches: Vec<Branch>,
    pub join: JoinKind,
}

/// One of the lists of layers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Branch {
    /// The input of the network that it takes; `None` where it takes what the block takes.
    pub input: Option<String>,
    /// Without layers it passes on its input.
    pub layers: Vec<LayerSpec>,
}

/// How the outputs of branches become one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JoinKind {
    /// One behind the other: along the channels of images, and otherwise along the last axis.
    #[default]
    Concat,
    Add,
    Multiply,
}

impl JoinKind {
    const ALL: [Self; 3] = [Self::Concat, Self::Add, Self::Multiply];
    const NAMES: [&'static str; 3] = ["concat", "add", "multiply"];

    /// The name used in presets.
    #[must_use]
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// The axis of a sample's shape along which outputs are one behind the other: the channels of an image, and
    /// otherwise the last.
    #[must_use]
    pub const fn concat_axis(rank: usize) -> usize {
        if rank == 3 { 0 } else { rank.saturating_sub(1) }
    }
}

const JOIN: Lens<Parallel, usize> = Lens {
    get: |layer| layer.join as usize,
    set: |layer, index| layer.join = JoinKind::ALL.get(index).copied().unwrap_or_default(),
};

impl LayerType for Parallel {
    const KIND: LayerKind = LayerKind {
        type_name: "parallel",
        class: "Parallel",
        about: "Applies several lists of layers beside each other and joins what they give.",
    };
    const FIELDS: &'static [FieldSpec<Self>] = &[FieldSpec::<Self>::choice("join", &JoinKind::NAMES, JOIN)
        .default(|_| FieldValue::Choice(0))
        .help("How the outputs of the branches become one: one behind the other, their sum, or their product.")];
    const LISTS: Option<ListField> = Some(ListField::Branches);
    const MAY_BE_EMPTY: bool = true;

    fn example() -> Self {
        Self { branches: vec![Branch::default(); 2], join: JoinKind::Concat }
    }

    fn drawn(draw: &mut Draw, _input: &Shape) -> Self {
        let count = draw.extreme_or(&[1, 5], |d| d.between(2, 3));
        Self { branches: vec![Branch::default(); count], join: draw.pick(&JoinKind::ALL) }
    }

    fn check(&self, fields: &mut FieldChecks<'_>) {
        if self.branches.is_empty() && fields.are_sound(&["branches"]) {
            fields.fail("branches", "there are no branches", "add at least one: {\"layers\": [...]}");
        }
    }

    fn infer(&self, _cx: &mut Infer<'_>) -> Option<Shape> {
        unreachable!("the checker goes through the layers inside")
    }

    fn join(&self, cx: &mut Join<'_>) -> Option<Shape> {
        let (first, others) = cx.outputs.split_first()?;
        let mut output = first.clone();
        let axis = JoinKind::concat_axis(first.rank());
        let is_concat = self.join == JoinKind::Concat;
        // What must agree: everything, but for the axis along which outputs are one behind the other.
        let kept = |shape: &Shape| {
            let dims = shape.0.iter().enumerate();
            dims.map(|(at, size)| if is_concat && at == axis { 0 } else { *size }).collect::<Vec<_>>()
        };
        for (number, other) in (1..).zip(others) {
            if kept(other) != kept(first) {
                let message = format!("this branch gives {other}, and branches[0] gives {first}");
                let help = match (is_concat, first.rank()) {
                    (false, _) => "outputs to add or to multiply must have the same shape",
                    (true, 3) => "images to put together must have the same height and width",
                    (true, _) => "outputs to put together must be equal in all but the last size",
                };
                cx.fields.fail(&format!("branches[{number}]"), message, help);
                return None;
            }
            if is_concat && let Some(size) = output.0.get_mut(axis) {
                *size = size.saturating_add(other.0[axis]);
            }
        }
        Some(output)
    }

    fn keep_shape(&mut self, input: &Shape) {
        // Outputs of the input's shape, one behind the other, are of another.
        if self.branches.len() > 1 && self.join == JoinKind::Concat {
            self.join = JoinKind::Add;
        }
        self.branches.iter_mut().flat_map(|branch| &mut branch.layers).for_each(|layer| layer.keep_shape(input));
    }

    fn keeps_shape_inside(&self, input: &Shape) -> bool {
        self.join != JoinKind::Concat || input.rank() != 1
    }

    fn takes_tokens(&self) -> bool {
        true
    }

    fn named_inputs(&self) -> Vec<&str> {
        self.branches.iter().filter_map(|branch| branch.input.as_deref()).collect()
    }

    fn input_of(&self, number: usize) -> Option<&str> {
        self.branches.get(number)?.input.as_deref()
    }

    fn lists(&self) -> Vec<&Vec<LayerSpec>> {
        self.branches.iter().map(|branch| &branch.layers).collect()
    }

    fn lists_mut(&mut self) -> Vec<&mut Vec<LayerSpec>> {
        self.branches.iter_mut().map(|branch| &mut branch.layers).collect()
    }

    fn insert_list(&mut self, number: usize) {
        self.branches.insert(number, Branch::default());
    }

    fn remove_list(&mut self, number: usize) {
        self.branches.remove(number);
    }

    fn read_entry(&mut self, number: usize, f: &mut Fields<'_>) {
        let name = f.has("input").then(|| f.text("input", None));
        let _ = f.raw("input");
        if let Some(branch) = self.branches.get_mut(number) {
            branch.input = name;
        }
    }

    fn write_entry(&self, number: usize, map: &mut Map<String, Value>) {
        let name = self.input_of(number).map(|name| ("input".to_owned(), name.into()));
        map.extend(name);
    }

    fn entry_fields(&self, number: usize) -> Vec<FieldView> {
        let name = self.input_of(number).unwrap_or_default();
        vec![FieldView {
            name: "input",
            label: "input",
            value: FieldValue::Text(name.to_owned()),
            options: &[],
            range: Range::Any,
            unit: "",
            help: "The input of the network that the branch takes, by name; empty for what the block takes.",
            is_live: false,
        }]
    }

    fn set_in_entry(&mut self, number: usize, name: &str, value: &FieldValue) -> bool {
        let (Some(branch), "input", FieldValue::Text(text)) = (self.branches.get_mut(number), name, value) else {
            return false;
        };
        branch.input = Some(text.clone()).filter(|text| !text.is_empty());
        true
    }
}
