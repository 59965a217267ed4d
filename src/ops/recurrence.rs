//! Recurrent layers: the loop over the positions, and its derivative.

use super::Operation;
use super::geometry::RecurrenceGeometry;
use super::operation::operation;
use super::slots::slots;
use serde::{Deserialize, Serialize};

/// The loop of one direction of a recurrent layer over the positions of each sequence, from a state of zeros.
///
/// `x [batch, positions, gates, units]` is the input part of all gates, with its bias; `weight [units, gates, units]`
/// and `bias [gates, units]` are those of the state. `y` is the new state at each position, or the final one; if
/// `other`, the output of the other direction, is given, each row of `y` is a row of `other` followed by its own.
///
/// For the derivative it stores the values of the gates, which may be in place of `x`, one `inner` value of each unit
/// (see [`Cell::keeps_inner`](crate::model::Cell::keeps_inner)), and the state `before` each position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Recurrence {
    pub geometry: RecurrenceGeometry,
}

slots! {
    pub mod recurrence(op: Recurrence) {
        X: in activation [op.geometry.rows() * op.geometry.wide()],
        WEIGHT: in [op.geometry.units * op.geometry.wide()],
        BIAS: in [op.geometry.wide()],
        OTHER: in activation [op.geometry.states() * op.geometry.units] if op.geometry.joins(),
        Y: out activation [op.geometry.states() * op.geometry.units * if op.geometry.joins() { 2 } else { 1 }],
        GATES: out activation [op.geometry.rows() * op.geometry.wide()],
        INNER: out activation [op.geometry.rows() * op.geometry.units] if op.geometry.cell.keeps_inner(),
        BEFORE: out activation [op.geometry.rows() * op.geometry.units],
        WORK: scratch,
    }
}

/// The properties of one direction over the positions: its slots and name, the arguments that may share memory, and the
/// cost of the functions of a gate, in FLOPs and picoseconds.
macro_rules! walk {
    ($Walk:ident: $slots:ident, $name:ident, [$read:ident, $written:ident], $flops:literal, $gate_ps:ident) => {
        operation! {
            $Walk: $slots, op.geometry.cell.$name(), |op| {
                dims: dims(&op.geometry),
                flops: (op.geometry.product_flops() + op.geometry.rows() * op.geometry.wide() * $flops) as u64,
                least_flops: least_flops(&op.geometry),
                bytes_moved(elem): bytes(op, elem),
                in_place: &[($slots::$read, $slots::$written)],
                work_ps: {
                    let g = &op.geometry;
                    g.product_ps() + g.rows() * g.wide() * $gate_ps
                },
            }
        }
    };
}

walk!(Recurrence: recurrence, name, [X, GATES], 4, GATE_PS);

/// The derivative of [`Recurrence`]: the gradient `dx` of the input part, which may share the memory of the gates, and,
/// if it differs, the gradient `dhidden` of the state's product and bias. `dy` is the gradient of the layer's output;
/// if there are two directions, each has half of every row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RecurrenceBwd {
    pub geometry: RecurrenceGeometry,
}

slots! {
    pub mod recurrence_bwd(op: RecurrenceBwd) {
        DY: in activation [op.geometry.states() * op.geometry.output_width()],
        WEIGHT: in [op.geometry.units * op.geometry.wide()],
        GATES: in activation [op.geometry.rows() * op.geometry.wide()],
        INNER: in activation [op.geometry.rows() * op.geometry.units] if op.geometry.cell.keeps_inner(),
        BEFORE: in activation [op.geometry.rows() * op.geometry.units] if op.geometry.cell.has_hidden_gradient(),
        DX: out activation [op.geometry.rows() * op.geometry.wide()],
        DHIDDEN: out activation [op.geometry.rows() * op.geometry.wide()] if op.geometry.cell.has_hidden_gradient(),
        WORK: scratch,
    }
}

walk!(RecurrenceBwd: recurrence_bwd, backward_name, [GATES, DX], 6, GATE_GRADIENT_PS);

/// Picoseconds of the functions of a gate, and of its derivative.
const GATE_PS: usize = 1_500;
const GATE_GRADIENT_PS: usize = 500;

fn dims(g: &RecurrenceGeometry) -> String {
    let direction = if g.reverse { " reverse" } else { "" };
    format!("batch={} positions={} units={}{direction}", g.batch, g.positions, g.units)
}

fn least_flops(g: &RecurrenceGeometry) -> u64 {
    (g.product_flops() + g.rows() * g.wide()) as u64
}

/// The bytes of all required arguments, each accessed once.
fn bytes(op: &dyn Operation, elem: usize) -> u64 {
    let needed = (0..op.slots().len()).filter(|&slot| op.is_needed(slot));
    (needed.filter_map(|slot| op.extent(slot)).sum::<usize>() * elem) as u64
}
