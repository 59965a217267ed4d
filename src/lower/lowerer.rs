//! A program under construction: the lowered values of a graph, their layouts, and the operations so far.

use super::flat::{FLAT_ALIGN, FilterOrder, ParamOrder, Region, regions, segments};
use super::program::{Alias, LValue, LValueId, Layout, Op};
use crate::ir::nodes::image_dims;
use crate::ir::{Graph, Mode, NodeId, Phase, Role, Share, ValueId};
use crate::model::{Model, ParamId};
use crate::ops;
use crate::ops::OpKind;
use crate::ops::Segment;
use crate::tensor::{DType, Shape};
use std::collections::HashMap;

/// A program under construction.
pub(super) struct Lowerer<'g> {
    pub graph: &'g Graph,
    pub values: Vec<LValue>,
    pub ops: Vec<Op>,
    /// The lowered value of each value of the graph, as far as they are lowered.
    map: Vec<Option<LValueId>>,
    /// Values that were rearranged already.
    pub rearranged: HashMap<(LValueId, Layout), LValueId>,
    pub orders: Vec<Option<ParamOrder>>,
    pub filters: FilterOrder,
    /// The regions of the parameters that the step trains; for an evaluation, of all trained parameters.
    pub segments: Vec<(ParamId, Segment)>,
    /// The ranges of the flat vectors that the step updates.
    pub regions: Vec<Region>,
    /// What survives the step for parameters that not every step updates; `None` if every step updates all.
    kept: Option<KeptForGroups>,
    /// The segment of each parameter, if it is trained.
    segment_of: Vec<Option<Segment>>,
    pub flat_len: usize,
    /// The flat vectors, by their content.
    pub flats: HashMap<&'static str, LValueId>,
    /// The flat gradients, by the group of their parameters.
    flat_gradients: HashMap<u32, LValueId>,
    /// Whether gradients survive the step.
    keeps_gradients: bool,
    pub node: NodeId,
}

/// The name of the vector that holds the gradients of several groups of parameters.
pub const ALL_GRADIENTS: &str = "grads.all";

/// What survives the steps of a network for the groups of its parameters.
#[derive(Clone)]
struct KeptForGroups {
    /// The state vectors of the optimizer.
    states: &'static [&'static str],
    /// Whether there are several groups.
    are_several: bool,
    /// Whether moments are corrected by the number of their updates.
    are_corrected: bool,
    /// The range of each group.
    regions: Vec<Region>,
    /// The parameters that the step does not run.
    left_out: Vec<(ParamId, Segment)>,
}

impl KeptForGroups {
    /// `None` for evaluations, and for steps that run all parameters of a network with a single group. The path of
    /// evaluations, with which a run begins, may leave out some that every step runs.
    fn of(graph: &Graph, model: &Model) -> Option<Self> {
        let are_several = model.params.iter().any(|param| param.group > 0);
        let updates = graph.share.is_none_or(|share| share == Share::Last);
        let is_left_out = |(param, _): &(ParamId, Segment)| graph.grads[param.0 as usize].is_none();
        let left_out: Vec<_> = segments(model).into_iter().filter(is_left_out).collect();
        if graph.mode == Mode::Eval || (!are_several && left_out.is_empty()) {
            return None;
        }
        Some(Self {
            states: if updates { model.optimizer.rule().states() } else { &[] },
            are_several,
            are_corrected: updates && model.optimizer.corrected().is_some(),
            regions: regions(model, |_| true),
            left_out,
        })
    }
}

impl<'g> Lowerer<'g> {
    pub fn new(graph: &'g Graph, model: &Model, filters: FilterOrder) -> Self {
        let segments = segments(model);
        let mut segment_of = vec![None; model.params.len()];
        segments.iter().for_each(|(param, segment)| segment_of[param.0 as usize] = Some(*segment));
        let flat_len = segments.last().map_or(0, |(_, s)| (s.start + s.len).next_multiple_of(FLAT_ALIGN));
        let is_run = |param: &ParamId| graph.mode == Mode::Eval || graph.grads[param.0 as usize].is_some();
        let segments: Vec<(ParamId, Segment)> = segments.into_iter().filter(|(param, _)| is_run(param)).collect();
        Self {
            regions: regions(model, is_run),
            kept: KeptForGroups::of(graph, model),
            flat_gradients: HashMap::new(),
            graph,
            values: Vec::new(),
            ops: Vec::new(),
            map: vec![None; graph.values.len()],
            rearranged: HashMap::new(),
            orders: vec![None; model.params.len()],
            filters,
            segments,
            segment_of,
            flat_len,
            flats: HashMap::new(),
            keeps_gradients: graph.share.is_some(),
            node: NodeId(0),
        }
    }

    pub fn lowered(&self, id: ValueId) -> LValueId {
        match self.map[id.0 as usize] {
            Some(lowered) => lowered,
            None => unreachable!("nodes are lowered after those whose values they read"),
        }
    }

    /// Maps a graph value to this lowered one.
    pub fn set_lowered(&mut self, id: ValueId, lowered: LValueId) {
        self.map[id.0 as usize] = Some(lowered);
    }

    pub fn lv(&self, id: LValueId) -> &LValue {
        &self.values[id.0 as usize]
    }

    pub fn root(&self, mut id: LValueId) -> (LValueId, usize) {
        let mut start = 0;
        while let Some(alias) = self.lv(id).alias {
            start += alias.start;
            id = alias.of;
        }
        (id, start)
    }

    pub fn push(&mut self, value: LValue) -> LValueId {
        self.values.push(value);
        LValueId(self.values.len() as u32 - 1)
    }

    /// A flat vector over all trained parameters.
    pub fn flat(&mut self, name: &'static str, role: Role, dtype: DType, persistent: bool) -> LValueId {
        if let Some(&id) = self.flats.get(name) {
            return id;
        }
        let id = self.vector(name.into(), role, dtype, self.flat_len);
        self.values[id.0 as usize].persistent = persistent;
        self.flats.insert(name, id);
        id
    }

    /// A separate vector.
    fn vector(&mut self, name: String, role: Role, dtype: DType, len: usize) -> LValueId {
        self.push(LValue::vector(name, role, dtype, len))
    }

    /// The flat gradient of a region's parameters. If it survives the step and there are several groups, it is a range
    /// of the gradient of all parameters, so that every path finds it at the same place.
    pub fn gradients(&mut self, dtype: DType, region: &Region) -> LValueId {
        let &Region { group, start, len, .. } = region;
        if let Some(&id) = self.flat_gradients.get(&group) {
            return id;
        }
        let name = if group == 0 { "grads".to_owned() } else { format!("grads.{group}") };
        let id = self.vector(name, Role::Grad, dtype, len);
        self.values[id.0 as usize].persistent = self.keeps_gradients;
        if self.keeps_gradients && self.kept.as_ref().is_some_and(|kept| kept.are_several) {
            let of = self.flat(ALL_GRADIENTS, Role::Grad, dtype, true);
            self.values[id.0 as usize].alias = Some(Alias { of, start });
        }
        self.flat_gradients.insert(group, id);
        id
    }

    /// The place of a parameter's gradient: in that of its group, from an element on.
    fn gradient_place(&mut self, param: ParamId, dtype: DType) -> Option<Alias> {
        let segment = self.segment(param)?;
        let holds = |region: &&Region| (region.start..region.start + region.len).contains(&segment.start);
        let region = self.regions.iter().find(holds)?.clone();
        let of = self.gradients(dtype, &region);
        Some(Alias { of, start: segment.start - region.start })
    }

    /// Whether the step updates all parameters of the network at once.
    pub fn updates_all(&self) -> bool {
        self.regions.iter().all(|region| region.start == 0 && region.len == self.flat_len)
    }

    pub fn segment(&self, param: ParamId) -> Option<Segment> {
        self.segment_of[param.0 as usize]
    }

    /// Creates the lowered value of a graph value, not yet aliased.
    pub fn lower_value(&mut self, id: ValueId, layout: Layout) -> LValueId {
        let v = self.graph.value(id);
        let node = v.producer.map(|n| self.graph.node(n));
        let value = LValue {
            name: v.name.clone(),
            role: v.role,
            dtype: v.dtype,
            shape: v.shape.clone(),
            layout,
            alias: None,
            persistent: v.role == Role::Metric,
            layer: v.layer,
            pass: node.map_or(0, |n| n.pass),
            param: v.param,
        };
        let lowered = self.push(value);
        self.set_lowered(id, lowered);
        lowered
    }

    /// Creates the values that exist before the step: parameters and moments in their flat vectors, everything else
    /// separately.
    pub fn sources(&mut self) {
        let graph = self.graph;
        let mut is_updated = vec![false; graph.values.len()];
        graph.updates.iter().for_each(|(_, after)| is_updated[after.0 as usize] = true);
        let mut states = vec![None; graph.values.len()];
        graph.moments().into_iter().for_each(|(value, state)| states[value.0 as usize] = Some(state));
        let real = graph.real();
        for (index, value) in graph.values.iter().enumerate() {
            let id = ValueId(index as u32);
            if value.producer.is_some() || is_updated[index] {
                continue;
            }
            let layout = match value.shape.0[..] {
                [_, c, h, w] if graph.inputs.all_samples().any(|samples| samples == id) => Layout::image(c, h, w),
                _ => Layout::Plain,
            };
            let flat = match (value.role, value.param) {
                (Role::Param, Some(p)) => Some(("params", Role::Param, p)),
                (Role::State, Some(p)) => states[index].map(|state| (state, Role::State, p)),
                _ => None,
            };
            let lowered = self.lower_value(id, layout);
            self.values[lowered.0 as usize].persistent = true;
            if let Some((name, role, param)) = flat
                && let Some(segment) = self.segment(param)
            {
                let of = self.flat(name, role, real, true);
                self.values[lowered.0 as usize].alias = Some(Alias { of, start: segment.start });
            }
            if let (Role::Grad, Some(param)) = (value.role, value.param) {
                self.values[lowered.0 as usize].alias = self.gradient_place(param, real);
            }
            if let Some(group) = value.group {
                let of = self.of_all_groups("counters", DType::I64);
                self.values[lowered.0 as usize].alias = Some(Alias { of, start: 2 * group as usize });
            }
        }
        self.keep_for_groups(real);
    }

    /// Creates what survives the step for parameters that the step does not run, so that the steps of all paths have
    /// the same entries in their store.
    fn keep_for_groups(&mut self, real: DType) {
        let Some(kept) = self.kept.clone() else { return };
        for state in kept.states {
            let of = self.flat(state, Role::State, real, true);
            for (param, segment) in &kept.left_out {
                let value = self.graph.value(self.graph.params[param.0 as usize]);
                let (name, shape, layer) = (format!("{state}.{}", value.name), value.shape.clone(), value.layer);
                let moment = LValue { name, shape, layer, param: Some(*param), ..self.lv(of).clone() };
                self.push(LValue { alias: Some(Alias { of, start: segment.start }), ..moment });
            }
        }
        if kept.are_corrected {
            if kept.are_several {
                self.of_all_groups("counters", DType::I64);
                self.of_all_groups("corrs", real);
            }
            // An evaluation may choose values that no step chooses, and leave out layers that every step runs.
            if kept.regions.iter().any(|region| region.group == 0) && self.graph.values.iter().all(|v| v.name != "corr")
            {
                let corr = self.vector("corr".into(), Role::State, real, 2);
                self.values[corr.0 as usize].persistent = true;
            }
        }
        if self.keeps_gradients {
            kept.regions.iter().for_each(|region| {
                self.gradients(real, region);
            });
        }
    }

    /// A vector with two numbers for each group of parameters.
    pub fn of_all_groups(&mut self, name: &'static str, dtype: DType) -> LValueId {
        if let Some(&id) = self.flats.get(name) {
            return id;
        }
        let groups = self.kept.as_ref().and_then(|kept| kept.regions.last()).map_or(0, |last| last.group as usize);
        let id = self.vector(name.into(), Role::State, dtype, 2 * (groups + 1));
        self.values[id.0 as usize].persistent = true;
        self.flats.insert(name, id);
        id
    }

    pub fn emit(&mut self, kind: OpKind, bound: &[(&str, Option<LValueId>)]) {
        let mut args = vec![None; kind.slots().len()];
        for (name, value) in bound {
            if let Some(slot) = kind.slot(name) {
                args[slot] = *value;
            }
        }
        // A path that runs no layer has no node: an evaluation then returns its samples unchanged.
        let node = self.graph.nodes.get(self.node.0 as usize);
        self.ops.push(Op {
            kind,
            args,
            layer: node.and_then(|node| node.layer),
            pass: node.map_or(0, |node| node.pass),
            phase: node.map_or(Phase::Forward, |node| node.phase),
            nodes: node.map(|_| self.node).into_iter().collect(),
            fused: Vec::new(),
        });
    }

    /// The output of an operation that updates `before` in place.
    pub fn updated(&mut self, id: ValueId, before: LValueId) -> LValueId {
        let layout = self.lv(before).layout;
        let after = self.lower_value(id, layout);
        self.values[after.0 as usize].alias = Some(Alias { of: before, start: 0 });
        after
    }

    /// A parameter's gradient, in its place in the flat vector. `before` is the value that it is added to.
    pub fn gradient(&mut self, id: ValueId) -> LValueId {
        let dtype = self.graph.value(id).dtype;
        let lowered = self.lower_value(id, Layout::Plain);
        if let Some(place) = self.graph.value(id).param.and_then(|p| self.gradient_place(p, dtype)) {
            self.values[lowered.0 as usize].alias = Some(place);
        }
        lowered
    }

    /// The same logical value in another layout.
    pub fn arranged(&mut self, id: LValueId, layout: Layout) -> LValueId {
        let v = self.lv(id).clone();
        if v.layout == layout {
            return id;
        }
        if let Some(&done) = self.rearranged.get(&(id, layout)) {
            return done;
        }
        let n = v.shape.0[0];
        let (rows, cols, suffix) = match (v.layout, layout) {
            (Layout::Plain, Layout::ChannelsLast { c, h, w }) => (c, h * w, "nhwc"),
            (Layout::ChannelsLast { c, h, w }, _) => (h * w, c, "nchw"),
            (Layout::Plain, Layout::Plain) => return id,
        };
        let out = LValue {
            name: format!("{}.{suffix}", v.name),
            layout: if suffix == "nhwc" { layout } else { Layout::Plain },
            alias: None,
            persistent: false,
            ..v
        };
        let out = self.push(out);
        self.emit(OpKind::Transpose(ops::Transpose { n, rows, cols }), &[("x", Some(id)), ("y", Some(out))]);
        self.rearranged.insert((id, layout), out);
        self.arranged(out, layout)
    }

    /// An image value in the layout that kernels require.
    pub fn image(&mut self, id: LValueId) -> LValueId {
        match self.lv(id).shape.0[..] {
            [_, c, h, w] => self.arranged(id, Layout::image(c, h, w)),
            _ => id,
        }
    }

    /// The lowered form of a value of the graph, as [`Self::image`].
    pub fn lowered_image(&mut self, id: ValueId) -> LValueId {
        let lowered = self.lowered(id);
        self.image(lowered)
    }

    /// The stored order of a parameter whose rows correspond to the elements of a value with `layout`; it is fixed at
    /// its first use. Returns the layout that its inputs must have.
    fn row_order(&mut self, param: ValueId, layout: Layout, cols: usize) -> Layout {
        let Some(p) = self.graph.value(param).param else { return layout };
        let wanted = match layout {
            Layout::Plain => ParamOrder::Plain,
            Layout::ChannelsLast { c, h, w } => ParamOrder::RowsHwc { c, h, w, cols },
        };
        match *self.orders[p.0 as usize].get_or_insert(wanted) {
            ParamOrder::RowsHwc { c, h, w, .. } => Layout::ChannelsLast { c, h, w },
            _ => Layout::Plain,
        }
    }

    /// The dimensions of images; sequences are images of one row.
    pub fn dims4(&self, id: LValueId) -> [usize; 4] {
        match image_dims(&self.lv(id).shape.0) {
            Some(dims) => dims,
            None => unreachable!("the graph's verifier lets only images through"),
        }
    }

    pub fn graph_dims4(&self, id: ValueId) -> [usize; 4] {
        match image_dims(&self.graph.value(id).shape.0) {
            Some(dims) => dims,
            None => unreachable!("the graph's verifier lets only images through"),
        }
    }

    /// The layout in which kernels produce an image. A sequence already has its channels last.
    pub fn image_layout(&self, id: ValueId) -> Layout {
        match self.graph.value(id).shape.0[..] {
            [_, c, h, w] => Layout::image(c, h, w),
            _ => Layout::Plain,
        }
    }

    /// Rows and columns of a value whose last axis is multiplied.
    pub fn matrix(&self, id: LValueId) -> (usize, usize) {
        let dims = &self.lv(id).shape.0;
        let cols = dims.last().copied().unwrap_or(1);
        (dims[..dims.len() - 1].iter().product(), cols)
    }

    /// The input of a linear layer or layer norm: rows of features, in the order of the parameter's rows.
    pub fn features(&mut self, x: LValueId, param: ValueId, cols: usize) -> LValueId {
        let layout = if self.lv(x).shape.rank() == 2 { self.lv(x).layout } else { Layout::Plain };
        let layout = self.row_order(param, layout, cols);
        self.arranged(x, layout)
    }

    /// A part of a value's memory: `len` elements from `start` on. Parts of the same elements are one value.
    pub fn part(&mut self, of: LValueId, start: usize, len: usize, what: &str) -> LValueId {
        let is_it = |value: &LValue| {
            value.alias.is_some_and(|alias| alias.of == of && alias.start == start) && value.shape == Shape::from([len])
        };
        if let Some(index) = self.values.iter().position(is_it) {
            return LValueId(index as u32);
        }
        let value = self.lv(of);
        let part = LValue {
            name: format!("{}.{what}", value.name),
            shape: Shape::from([len]),
            layout: Layout::Plain,
            alias: Some(Alias { of, start }),
            persistent: false,
            param: None,
            ..value.clone()
        };
        self.push(part)
    }

    /// An unnamed intermediate like graph value `y`.
    pub fn partial(&mut self, y: ValueId, layout: Layout, what: &str) -> LValueId {
        let id = self.lower_value(y, layout);
        let name = format!("{}.{what}", self.lv(id).name);
        self.values[id.0 as usize].name = name;
        id
    }
}
