//! From a graph to a program.

use super::flat::{FilterOrder, ParamOrder};
use super::layers::lower_node;
use super::lowerer::Lowerer;
use super::program::{Layout, ParamSlot, Program};
use crate::ir::{Graph, Metrics, Mode, NodeId, build};
use crate::model::Model;
use crate::tensor::DType;
use std::sync::Arc;

/// Lowers a graph of `model` for a CPU.
#[must_use]
pub fn lower(graph: &Graph, model: &Model) -> Program {
    lower_for(graph, model, FilterOrder::Hwio)
}

/// Lowers a graph of `model`, with the filters of convolutions in the given order.
#[must_use]
pub fn lower_for(graph: &Graph, model: &Model, filters: FilterOrder) -> Program {
    lower_in_order(graph, model, filters, None)
}

/// As [`lower_for`]; `known` is how another step of the same network stores each parameter, if the graph is that of a
/// path.
#[must_use]
pub fn lower_in_order(graph: &Graph, model: &Model, filters: FilterOrder, known: Option<&[ParamOrder]>) -> Program {
    let mut l = Lowerer::new(graph, model, filters);
    if let Some(of) = &model.of_path {
        let known = known.filter(|known| known.len() == model.params.len());
        l.orders = known.map_or_else(|| orders(&of.whole, filters), |known| known.iter().copied().map(Some).collect());
    }
    lower_all(&mut l);
    let output = l.lowered(graph.output);
    let output = if graph.mode == Mode::Eval { l.arranged(output, Layout::Plain) } else { output };
    if graph.mode == Mode::Eval {
        let (root, _) = l.root(output);
        l.values[root.0 as usize].persistent = true;
    }
    let params = (0..model.params.len())
        .map(|i| ParamSlot {
            value: l.lowered(graph.params[i]),
            order: l.orders[i].unwrap_or_default(),
            grad: graph.grads[i].map(|g| l.lowered(g)),
        })
        .collect();
    Program {
        mode: graph.mode,
        real: graph.real(),
        inputs: graph.inputs.map(|id| l.lowered(id)),
        output,
        params,
        segments: l.segments,
        values: l.values,
        ops: l.ops,
    }
}

/// Lowers every node of the graph.
fn lower_all(l: &mut Lowerer<'_>) {
    let graph = l.graph;
    l.sources();
    for (index, node) in graph.nodes.iter().enumerate() {
        l.node = NodeId(index as u32);
        lower_node(l, node);
    }
}

/// How each parameter of a network with layers that choose is stored, for the steps of all its paths: in the order of
/// its first use, in a list of paths that together use all parameters.
fn orders(whole: &Arc<Model>, filters: FilterOrder) -> Vec<Option<ParamOrder>> {
    let mut orders = vec![None; whole.params.len()];
    for path in whole.covering_paths() {
        let model = Model::along_in(whole, &path);
        let graph = build(&model, Mode::Eval, Metrics::default(), DType::F32);
        let mut l = Lowerer::new(&graph, &model, filters);
        l.orders = orders;
        lower_all(&mut l);
        orders = l.orders;
    }
    orders
}
