//! Sequences: tables by token, positions, and the selection of one position.

use super::Lower;
use crate::ir::{Node, ValueId, nodes};
use crate::lower::lowerer::Lowerer;
use crate::lower::program::{LValueId, Layout};
use crate::ops;
use crate::ops::OpKind;

impl Lower for nodes::Embedding {
    fn lower(&self, l: &mut Lowerer<'_>, node: &Node) {
        let [tokens, weight] = [0, 1].map(|i| l.lowered(node.inputs[i]));
        let (vocab, units) = l.matrix(weight);
        let rows = l.lv(tokens).shape.len();
        let y = l.lower_value(node.outputs[0], Layout::Plain);
        let bound = [("tokens", Some(tokens)), ("weight", Some(weight)), ("y", Some(y))];
        l.emit(OpKind::Embedding(ops::Embedding { rows, vocab, units, positions: 0 }), &bound);
    }
}

impl Lower for nodes::EmbeddingBwd {
    fn lower(&self, l: &mut Lowerer<'_>, node: &Node) {
        let accumulate = self.accumulate;
        let tokens = l.lowered(node.inputs[0]);
        let dy = plain(l, node.inputs[1]);
        let before = accumulate.then(|| l.lowered(node.inputs[2]));
        let dweight = l.gradient(node.outputs[0]);
        let (vocab, units) = l.matrix(dweight);
        let rows = l.lv(tokens).shape.len();
        let kind = OpKind::EmbeddingBwd(ops::EmbeddingBwd { rows, vocab, units, accumulate });
        let bound = [("tokens", Some(tokens)), ("dy", Some(dy)), ("dweight_prev", before), ("dweight", Some(dweight))];
        l.emit(kind, &bound);
    }
}

/// A table of positions is added like a bias of whole samples. If samples are shorter than the table, its first rows
/// are used.
impl Lower for nodes::AddPositions {
    fn lower(&self, l: &mut Lowerer<'_>, node: &Node) {
        let (x, weight) = (plain(l, node.inputs[0]), l.lowered(node.inputs[1]));
        let (rows, cols) = samples(l, x);
        let weight = first_of(l, weight, cols);
        let y = l.lower_value(node.outputs[0], Layout::Plain);
        let bound = [("x", Some(x)), ("bias", Some(weight)), ("y", Some(y))];
        l.emit(OpKind::BiasAdd(ops::BiasAdd { rows, cols }), &bound);
    }
}

impl Lower for nodes::AddPositionsBwd {
    fn lower(&self, l: &mut Lowerer<'_>, node: &Node) {
        let accumulate = self.accumulate;
        let dy = plain(l, node.inputs[0]);
        let before = accumulate.then(|| l.lowered(node.inputs[1]));
        let (rows, cols) = samples(l, dy);
        let dweight = l.gradient(node.outputs[0]);
        let before = before.map(|before| first_of(l, before, cols));
        let used = first_of(l, dweight, cols);
        if let Some(unused) = rest_of(l, dweight, cols).filter(|_| !accumulate) {
            let len = l.lv(unused).shape.len();
            l.emit(OpKind::Fill(ops::Fill { len }), &[("y", Some(unused))]);
        }
        let bound = [("dy", Some(dy)), ("db_prev", before), ("db", Some(used))];
        l.emit(OpKind::BiasGrad(ops::BiasGrad { rows, cols, accumulate, zeros: None }), &bound);
    }
}

impl Lower for nodes::AddSinusoids {
    fn lower(&self, l: &mut Lowerer<'_>, node: &Node) {
        let x = plain(l, node.inputs[0]);
        let [n, positions, cols] = dims(l, node.inputs[0]);
        let y = l.lower_value(node.outputs[0], Layout::Plain);
        l.emit(OpKind::AddSinusoids(ops::AddSinusoids { n, positions, cols }), &[("x", Some(x)), ("y", Some(y))]);
    }
}

impl Lower for nodes::Take {
    fn lower(&self, l: &mut Lowerer<'_>, node: &Node) {
        let x = plain(l, node.inputs[0]);
        let [n, positions, cols] = dims(l, node.inputs[0]);
        let y = l.lower_value(node.outputs[0], Layout::Plain);
        l.emit(OpKind::Take(ops::Take { n, positions, cols, at: self.at }), &[("x", Some(x)), ("y", Some(y))]);
    }
}

impl Lower for nodes::TakeBwd {
    fn lower(&self, l: &mut Lowerer<'_>, node: &Node) {
        let dy = plain(l, node.inputs[0]);
        let [n, positions, cols] = dims(l, node.outputs[0]);
        let dx = l.lower_value(node.outputs[0], Layout::Plain);
        let kind = OpKind::TakeBwd(ops::TakeBwd { n, positions, cols, at: self.at });
        l.emit(kind, &[("dy", Some(dy)), ("dx", Some(dx))]);
    }
}

/// The value in the order of its shape.
fn plain(l: &mut Lowerer<'_>, id: ValueId) -> LValueId {
    let value = l.lowered(id);
    l.arranged(value, Layout::Plain)
}

/// The first `len` elements of a value, which may be all of it.
fn first_of(l: &mut Lowerer<'_>, id: LValueId, len: usize) -> LValueId {
    if l.lv(id).shape.len() == len { id } else { l.part(id, 0, len, "first") }
}

/// The elements of a value after the first `len`.
fn rest_of(l: &mut Lowerer<'_>, id: LValueId, len: usize) -> Option<LValueId> {
    let all = l.lv(id).shape.len();
    (all > len).then(|| l.part(id, len, all - len, "rest"))
}

/// The number of samples, and the number of elements of one.
fn samples(l: &Lowerer<'_>, id: LValueId) -> (usize, usize) {
    let dims = &l.lv(id).shape.0;
    (dims[0], dims[1..].iter().product())
}

fn dims(l: &Lowerer<'_>, id: ValueId) -> [usize; 3] {
    match l.graph.value(id).shape.0[..] {
        [n, positions, cols] => [n, positions, cols],
        _ => unreachable!("the graph's verifier lets only sequences through"),
    }
}
