//! Recurrent layers: the loop of one direction over the positions, and its derivative.

use super::Lower;
use crate::ir::nodes::{self, Direction};
use crate::ir::{Node, ValueId};
use crate::lower::lowerer::Lowerer;
use crate::lower::program::Layout;
use crate::ops::{self, OpKind, RecurrenceGeometry};

impl Lower for nodes::Recurrence {
    fn lower(&self, l: &mut Lowerer<'_>, node: &Node) {
        let geometry = geometry(l, self.direction, node.inputs[0]);
        let inputs = ["x", "weight", "bias", "other"];
        let mut bound: Vec<_> =
            inputs.into_iter().zip(&node.inputs).map(|(slot, &v)| (slot, Some(l.lowered(v)))).collect();
        let outputs = present(["y", "gates", "inner", "before"], 2, geometry.cell.keeps_inner());
        for (slot, &v) in outputs.into_iter().zip(&node.outputs) {
            bound.push((slot, Some(l.lower_value(v, Layout::Plain))));
        }
        l.emit(OpKind::Recurrence(ops::Recurrence { geometry }), &bound);
    }
}

impl Lower for nodes::RecurrenceBwd {
    fn lower(&self, l: &mut Lowerer<'_>, node: &Node) {
        let geometry = geometry(l, self.direction, node.inputs[2]);
        let inputs = present(["dy", "weight", "gates", "inner", "before"], 3, geometry.cell.keeps_inner());
        let mut bound: Vec<_> =
            inputs.into_iter().zip(&node.inputs).map(|(slot, &v)| (slot, Some(l.lowered(v)))).collect();
        for (slot, &v) in ["dx", "dhidden"].into_iter().zip(&node.outputs) {
            bound.push((slot, Some(l.lower_value(v, Layout::Plain))));
        }
        l.emit(OpKind::RecurrenceBwd(ops::RecurrenceBwd { geometry }), &bound);
    }
}

/// The slots without the one at `optional`, if it is not bound.
fn present<const N: usize>(slots: [&'static str; N], optional: usize, is_there: bool) -> Vec<&'static str> {
    slots.into_iter().enumerate().filter(|(i, _)| is_there || *i != optional).map(|(_, slot)| slot).collect()
}

/// The geometry of a loop, where `wide` is the value of all gates.
fn geometry(l: &Lowerer<'_>, direction: Direction, wide: ValueId) -> RecurrenceGeometry {
    let Direction { cell, reverse, bidirectional, last } = direction;
    let [batch, positions, values] = l.graph.value(wide).shape.0[..] else {
        unreachable!("the graph's verifier lets only sequences through")
    };
    RecurrenceGeometry { cell, batch, positions, units: values / cell.gates(), reverse, bidirectional, last }
}
