//! `parallel`: parallel lists of layers, whose outputs are combined.

use super::{LayerKind, LayerSpec, LayerType};
use crate::model::draw::Draw;
use crate::model::field_value::FieldValue;
use crate::model::infer::{Infer, Join};
use crate::model::mistakes::FieldChecks;
use crate::model::path::ListField;
use crate::model::schema::{FieldSpec, FieldView, Lens, Range, choice_lens};
use crate::model::spec::Fields;
use crate::tensor::Shape;
use serde_json::{Map, Value};

/// Branches with the same input, or with inputs of the network by name, whose outputs are combined.
#[derive(Clone, Debug, PartialEq)]
pub struct Parallel {
    pub branches: Vec<Branch>,
    pub join: JoinKind,
}

/// One of the lists of layers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Branch {
    /// The input of the network that it takes; `None` for the block's input.
    pub input: Option<String>,
    /// Without layers it returns its input.
    pub layers: Vec<LayerSpec>,
}

/// How the outputs of branches are combined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JoinKind {
    /// Concatenated: along the channels of images, and otherwise along the last axis.
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

    /// The axis of a sample's shape along which outputs are concatenated: the channels of an image, and otherwise the
    /// last.
    #[must_use]
    pub const fn concat_axis(rank: usize) -> usize {
        if rank == 3 { 0 } else { rank.saturating_sub(1) }
    }
}

const JOIN: Lens<Parallel, usize> = choice_lens!(join: JoinKind);

impl LayerType for Parallel {
    const KIND: LayerKind = LayerKind::new(
        "parallel",
        "Parallel",
        "Applies several lists of layers beside each other and joins what they give.",
    );
    const FIELDS: &'static [FieldSpec<Self>] = &[FieldSpec::<Self>::choice("join", &JoinKind::NAMES, JOIN)
        .default(|_| FieldValue::Choice(0))
        .help("How the outputs of the branches become one: concatenated, added, or multiplied.")];
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
        // What must agree: all dimensions, except for the axis along which outputs are concatenated.
        let kept = |shape: &Shape| {
            let dims = shape.0.iter().enumerate();
            dims.map(|(at, size)| if is_concat && at == axis { 0 } else { *size }).collect::<Vec<_>>()
        };
        for (number, other) in (1..).zip(others) {
            if kept(other) != kept(first) {
                let message = format!("this branch gives {other}, and branches[0] gives {first}");
                let help = match (is_concat, first.rank()) {
                    (false, _) => "outputs to add or to multiply must have the same shape",
                    (true, 3) => "images to concatenate must have the same height and width",
                    (true, _) => "outputs to concatenate must be equal in all sizes but the last",
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
        // Concatenated outputs of the input's shape have another shape.
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
            help: "The input of the network that the branch reads, by name; empty for the input of the block.",
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

#[cfg(test)]
mod tests {
    use crate::model::{LayerPath, ListField, ListId, Preset, check, read_preset, write_preset};

    fn network(input: &str, layers: &str) -> String {
        format!(
            r#"{{"name": "n", {input}, "layers": [{layers}], "loss": {{"type": "mse"}},
            "optimizer": {{"type": "sgd", "lr": 0.1}}}}"#
        )
    }

    fn read(input: &str, layers: &str) -> Preset {
        read_preset(&network(input, layers)).unwrap()
    }

    /// The paths and messages of all mistakes.
    fn mistakes(input: &str, layers: &str) -> Vec<(String, String)> {
        let found = match read_preset(&network(input, layers)) {
            Ok(preset) => check(&preset).diagnostics,
            Err(mistakes) => mistakes,
        };
        found.into_iter().map(|d| (d.path, d.message)).collect()
    }

    fn expect(input: &str, layers: &str, path: &str, message: &str) {
        assert_eq!(mistakes(input, layers), [(path.to_owned(), message.to_owned())]);
    }

    const FEATURES: &str = r#""input": {"shape": [6], "batch": 4}"#;
    const IMAGE: &str = r#""input": {"shape": [3, 8, 8], "batch": 4}"#;

    #[test]
    fn branches_have_distinct_paths_and_parameter_names() {
        let layers = r#"{"type": "parallel", "branches": [{"layers": []},
            {"layers": [{"type": "dense", "units": 5}, {"type": "parallel", "join": "multiply",
                "branches": [{"layers": [{"type": "dense", "units": 5}]}]}]}]}"#;
        let preset = read(FEATURES, layers);
        let model = check(&preset).model.unwrap();
        assert_eq!(model.output.0, [11]);
        let names: Vec<&str> = model.params.iter().map(|p| p.name.as_str()).collect();
        let inner = "layers.0.branches.1.layers.1.branches.0.layers.0";
        let outer = "layers.0.branches.1.layers.0";
        let expected = [(outer, "weight"), (outer, "bias"), (inner, "weight"), (inner, "bias")];
        assert_eq!(names, expected.map(|(layer, name)| format!("{layer}.{name}")));
        assert_eq!(model.layers[2].label(), "L0.1.1:Parallel");
        let path: LayerPath = inner.parse().unwrap();
        assert_eq!(path.to_string(), "layers[0].branches[1].layers[1].branches[0].layers[0]");
        assert!(preset.layer(&path).is_some() && model.layers[3].path == path);
        assert_eq!(read_preset(&write_preset(&preset)).as_ref(), Ok(&preset));
        assert_eq!(preset.layers[0].lists()[1].0, ListId::new(ListField::Branches, 1));
    }

    #[test]
    fn outputs_that_cannot_be_combined_are_a_mistake_at_their_branch() {
        let branches = |join: &str, first: &str, second: &str| {
            format!(
                r#"{{"type": "parallel", "join": "{join}", "branches": [{{"layers": [{first}]}},
                {{"layers": [{second}]}}]}}, {{"type": "flatten"}}, {{"type": "dense", "units": 2}}"#
            )
        };
        let conv = |kernel| format!(r#"{{"type": "conv2d", "filters": 4, "kernel": {kernel}}}"#);
        let place = "layers[0].branches[1]";
        let found = "this branch gives [4, 6, 6], and branches[0] gives [4, 8, 8]";
        expect(IMAGE, &branches("concat", &conv(1), &conv(3)), place, found);
        let found = "this branch gives [3, 8, 8], and branches[0] gives [4, 8, 8]";
        expect(IMAGE, &branches("add", &conv(1), ""), place, found);
        assert_eq!(mistakes(IMAGE, &branches("concat", &conv(1), "")), []);
        let nothing = r#"{"type": "parallel", "branches": []}, {"type": "dense", "units": 2}"#;
        expect(FEATURES, nothing, "layers[0].branches", "there are no branches");
        let wrong = r#"{"type": "parallel", "branches": [{"layer": []}]}"#;
        let found: Vec<String> = mistakes(FEATURES, wrong).into_iter().map(|(path, _)| path).collect();
        // Such a network has nothing to train.
        assert_eq!(found, ["layers", "layers[0].branches[0].layers", "layers[0].branches[0].layer"]);
    }

    #[test]
    fn a_branch_takes_an_input_of_the_network_by_its_name() {
        let inputs = r#""inputs": {"image": {"shape": [1, 4, 4]}, "facts": {"shape": [3]}}, "input": {"batch": 2}"#;
        let layers = |second: &str| {
            format!(
                r#"{{"type": "parallel", "branches": [{{"input": "image", "layers": [{{"type": "flatten"}}]}},
                {{{second} "layers": [{{"type": "dense", "units": 5}}]}}]}}"#
            )
        };
        let model = check(&read(inputs, &layers(r#""input": "facts","#))).model.unwrap();
        assert_eq!(model.output.0, [21]);
        let unknown = mistakes(inputs, &layers(r#""input": "fact","#));
        assert!(unknown.contains(&(
            "layers[0].branches[1].input".to_owned(),
            "the network has no input named \"fact\"".to_owned()
        )));
        let absent = mistakes(inputs, &layers(""));
        assert!(absent.iter().any(|(path, text)| path == "layers[0].branches[1].input" && text == "is missing"));
    }
}
