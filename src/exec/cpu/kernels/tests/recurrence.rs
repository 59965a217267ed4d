//! Recurrent layers against plain loops and differences: sizes around every tile edge, every cell, both directions,
//! any number of parts.

use super::fast::checked;
use super::harness::{How, Values, assert_close, assert_same, isas, run, slots};
use crate::model::{Cell, Rng};
use crate::ops::{self, OpKind, RecurrenceGeometry};
use crate::select::Variant;

fn inputs(op: &OpKind, rng: &mut Rng) -> Values {
    let reads = slots(op).into_iter().filter(|(_, dir, ..)| dir.is_read());
    reads.map(|(name, _, _, len)| (name, (0..len).map(|_| f64::from(rng.range(-0.7, 0.7) as f32)).collect())).collect()
}

fn forward(geometry: RecurrenceGeometry) -> OpKind {
    OpKind::Recurrence(ops::Recurrence { geometry })
}

fn backward(geometry: RecurrenceGeometry) -> OpKind {
    OpKind::RecurrenceBwd(ops::RecurrenceBwd { geometry })
}

/// The inputs of a derivative: the results of the forward loop, and a gradient of the output.
fn inputs_back(g: RecurrenceGeometry, walk: &Values, walked: &Values, rng: &mut Rng) -> Values {
    let mut values = inputs(&backward(g), rng);
    values.insert("weight", walk["weight"].clone());
    for name in ["gates", "inner", "before"] {
        if let (Some(value), true) = (walked.get(name), values.contains_key(name)) {
            values.insert(name, value.clone());
        }
    }
    values
}

fn geometry(cell: Cell, [batch, positions, units]: [usize; 3]) -> RecurrenceGeometry {
    RecurrenceGeometry { cell, batch, positions, units, reverse: false, bidirectional: false, last: false }
}

/// Each direction of each kind of layer.
fn walks(cell: Cell, sizes: [usize; 3]) -> Vec<RecurrenceGeometry> {
    let one = geometry(cell, sizes);
    let both = RecurrenceGeometry { bidirectional: true, ..one };
    let all = [one, both, RecurrenceGeometry { reverse: true, ..both }];
    all.into_iter().flat_map(|g| [g, RecurrenceGeometry { last: true, ..g }]).collect()
}

/// Compares the fast kernels with plain loops, and with their own results for other parts and in place.
fn check(op: &OpKind, values: &Values, alias: (&'static str, &'static str)) {
    let expected = run(op, values, &How::new(Variant::RefF64));
    assert_close(&format!("{op:?} in f32"), &run(op, values, &How::new(Variant::RefF32)), &expected, 1e-4);
    for isa in isas() {
        let how = How::new(Variant::Fast(isa));
        let found = checked(op, values, &how, &expected, 2e-5);
        let other = run(op, values, &How { aliases: vec![alias], parts: 2, ..how });
        assert_same(&format!("{op:?} {isa:?}, in place"), &other, &found);
    }
}

#[test]
fn recurrences_agree_with_plain_loops() {
    let mut rng = Rng::new(3, 1);
    let sizes = [[1, 1, 1], [2, 1, 3], [3, 4, 8], [7, 3, 17], [5, 2, 33], [30, 2, 16], [61, 3, 5], [15, 2, 40]];
    for cell in Cell::ALL {
        for geometry in sizes.into_iter().flat_map(|sizes| walks(cell, sizes)) {
            let op = forward(geometry);
            let values = inputs(&op, &mut rng);
            check(&op, &values, ("gates", "x"));
            let walked = run(&op, &values, &How::new(Variant::RefF64));
            let back = inputs_back(geometry, &values, &walked, &mut rng);
            check(&backward(geometry), &back, ("dx", "gates"));
        }
    }
}

/// Compares the plain loops' derivative with central differences of the forward loop.
#[test]
fn derivatives_of_recurrences_agree_with_differences() {
    const STEP: f64 = 1e-6;
    let mut rng = Rng::new(5, 1);
    let how = How::new(Variant::RefF64);
    for geometry in [Cell::RnnTanh, Cell::Gru, Cell::Lstm].into_iter().flat_map(|cell| walks(cell, [2, 4, 3])) {
        let op = forward(geometry);
        let values = inputs(&op, &mut rng);
        let walked = run(&op, &values, &how);
        let back = inputs_back(geometry, &values, &walked, &mut rng);
        let found = run(&backward(geometry), &back, &how);
        // The gradient of the bias is the sum of that of the product over all rows.
        let hidden = found.get("dhidden").unwrap_or(&found["dx"]);
        let wide = geometry.wide();
        let of_bias: Vec<f64> = (0..wide).map(|c| hidden.iter().skip(c).step_by(wide).sum()).collect();
        let width = geometry.output_width();
        // This direction's half of the output, whose gradient is in `dy`.
        let loss = |values: &Values| -> f64 {
            let y = &run(&op, values, &how)["y"];
            let (own, start) = (if geometry.joins() { width } else { geometry.units }, geometry.output_start());
            let rows = y.chunks(own).zip(back["dy"].chunks(width));
            let half = |row: &[f64], at: usize| row[at..at + geometry.units].to_vec();
            let pairs = rows.flat_map(|(y, dy)| {
                let at = if geometry.joins() { start } else { 0 };
                half(y, at).into_iter().zip(half(dy, start)).collect::<Vec<_>>()
            });
            pairs.map(|(y, dy)| y * dy).sum()
        };
        for (name, gradient) in [("x", &found["dx"]), ("bias", &of_bias)] {
            for (i, gradient) in gradient.iter().enumerate() {
                let moved = |by: f64| {
                    let mut values = values.clone();
                    values.get_mut(name).unwrap()[i] += by;
                    loss(&values)
                };
                let slope = (moved(STEP) - moved(-STEP)) / (2.0 * STEP);
                assert!((slope - gradient).abs() < 1e-7, "{geometry:?}: {name}[{i}] {gradient}, not {slope}");
            }
        }
    }
}
