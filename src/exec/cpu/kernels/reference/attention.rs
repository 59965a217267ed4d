//! Attention with whole rows of scores, and its gradient.

use crate::exec::cpu::kernels::dropout::random;
use crate::exec::cpu::kernels::reference::args::{Args, Buf};
use crate::exec::cpu::kernels::reference::real::Real;
use crate::ops::{self, AttentionGeometry, OpKind, dropout_threshold as threshold};
use std::f64::consts::{LN_2, LOG2_E};

/// Runs an operation of this family, and says whether it is one.
pub(super) fn run<T: Real>(args: Args, op: &OpKind) -> bool {
    match op {
        OpKind::Attention(ops::Attention { geometry }) => attention::<T>(args, geometry),
        OpKind::AttentionBwd(ops::AttentionBwd { geometry }) => attention_bwd::<T>(args, geometry),
        _ => return false,
    }
    true
}

/// The features of one head at every position, `[positions, head_dim]`.
struct Features<T> {
    values: Vec<T>,
    head_dim: usize,
}

impl<T: Real> Features<T> {
    fn of(&self, position: usize) -> &[T] {
        &self.values[position * self.head_dim..][..self.head_dim]
    }

    fn of_mut(&mut self, position: usize) -> &mut [T] {
        &mut self.values[position * self.head_dim..][..self.head_dim]
    }

    fn zeros(g: &AttentionGeometry) -> Self {
        Self { values: vec![T::ZERO; g.positions * g.head_dim], head_dim: g.head_dim }
    }

    /// From the column `column` of rows of `width` columns on, for one sample.
    fn read(g: &AttentionGeometry, from: impl Fn(usize) -> T, [sample, column, width]: [usize; 3]) -> Self {
        let at = |i: usize| (sample * g.positions + i / g.head_dim) * width + column + i % g.head_dim;
        let values = (0..g.positions * g.head_dim).map(|i| from(at(i))).collect();
        Self { values, head_dim: g.head_dim }
    }

    /// Rotates the pairs of features of every position by its angles, or back.
    fn turned(mut self, g: &AttentionGeometry, is_back: bool) -> Self {
        let half = g.head_dim / 2;
        for position in 0..if g.rotary { g.positions } else { 0 } {
            for pair in 0..half {
                let [cos, sin] = g.rotation(position, pair);
                let (cos, sin) = (T::of(cos), T::of(if is_back { -sin } else { sin }));
                let features = self.of_mut(position);
                let (x, y) = (features[pair], features[pair + half]);
                (features[pair], features[pair + half]) = (x * cos - y * sin, y * cos + x * sin);
            }
        }
        self
    }
}

fn dot<T: Real>(a: &[T], b: &[T]) -> T {
    a.iter().zip(b).fold(T::ZERO, |sum, (a, b)| sum + *a * *b)
}

/// The queries, keys and values of a head for one sample, queries and keys rotated.
fn head_of<T: Real>(
    g: &AttentionGeometry,
    packed: impl Fn(usize) -> T,
    [sample, head]: [usize; 2],
) -> [Features<T>; 3] {
    let [q, k, v] = g.columns(head).map(|column| Features::read(g, &packed, [sample, column, g.packed()]));
    [q.turned(g, false), k.turned(g, false), v]
}

/// The scaled scores of a query, one for each key that it attends to; probabilities are proportional to two to the
/// power of them, as in the kernels.
fn scores<T: Real>(g: &AttentionGeometry, q: &Features<T>, k: &Features<T>, position: usize) -> Vec<T> {
    let (scale, to_powers) = (T::of(g.scale()), T::of(LOG2_E));
    (0..g.keys(position)).map(|key| dot(q.of(position), k.of(key)) * scale * to_powers).collect()
}

/// Two to a power; kernels give 0 if that is below the normal numbers.
fn exp2<T: Real>(power: T) -> T {
    (power * T::of(LN_2)).exp().zero_below_normal()
}

/// The probabilities of a row of scores, and the logarithm of the sum of their exponentials.
fn softmax<T: Real>(scores: &[T]) -> (Vec<T>, T) {
    let max = scores.iter().skip(1).fold(scores[0], |max, s| max.larger(*s));
    // None of the terms is above 1, and one of them is 1.
    let terms: Vec<T> = scores.iter().map(|s| exp2(*s - max).within(0.0, 1.0)).collect();
    let sum = terms.iter().fold(T::ZERO, |sum, term| sum + *term);
    let lse = max * T::of(LN_2) + sum.ln().within(0.0, (scores.len() as f64).ln());
    (terms.iter().map(|term| (*term / sum).within(0.0, 1.0)).collect(), lse)
}

/// The factors of the probabilities of a row: 0 for dropped ones.
struct Kept {
    counter: [i64; 2],
    rate: f64,
}

impl Kept {
    fn new(g: &AttentionGeometry, counter: Buf<i64>) -> Self {
        let counter = if g.has_dropout() { [counter.get(0), counter.get(1)] } else { [0; 2] };
        Self { counter, rate: g.dropout.get() }
    }

    /// `row` counts queries of all samples and heads.
    fn applied<T: Real>(&self, g: &AttentionGeometry, value: T, row: usize, key: usize) -> T {
        if self.rate == 0.0 {
            return value;
        }
        let number = random(self.counter[0], g.stream, self.counter[1], g.dropout_place(row, key));
        if number >= threshold(self.rate) { value * T::of(1.0 / (1.0 - self.rate)) } else { T::ZERO }
    }
}

/// `qkv [batch, positions, packed]`, `y [batch, positions, width]`, `lse [batch, heads, positions]`.
fn attention<T: Real>(args: Args, g: &AttentionGeometry) {
    use crate::ops::slot::attention as slot;
    let (qkv, y, lses): (Buf<T>, Buf<T>, Buf<T>) = (args.buf(slot::QKV), args.buf(slot::Y), args.buf(slot::LSE));
    let kept = Kept::new(g, args.buf(slot::COUNTER));
    for (sample, head) in (0..g.batch).flat_map(|b| (0..g.heads).map(move |h| (b, h))) {
        let [q, k, v] = head_of(g, |i| qkv.get(i), [sample, head]);
        for position in 0..g.positions {
            let row = (sample * g.heads + head) * g.positions + position;
            let (probabilities, lse) = softmax(&scores(g, &q, &k, position));
            lses.put(row, lse);
            let weights = probabilities.iter().enumerate().map(|(key, p)| kept.applied(g, *p, row, key));
            let weights: Vec<T> = weights.collect();
            for feature in 0..g.head_dim {
                let sum = weights.iter().enumerate().fold(T::ZERO, |sum, (key, w)| sum + *w * v.of(key)[feature]);
                y.set((sample * g.positions + position) * g.width() + head * g.head_dim + feature, sum);
            }
        }
    }
}

/// As [`attention`], with `dy` like `y` and `dx` like `qkv`.
fn attention_bwd<T: Real>(args: Args, g: &AttentionGeometry) {
    use crate::ops::slot::attention_bwd as slot;
    let (dy, qkv, y): (Buf<T>, Buf<T>, Buf<T>) = (args.buf(slot::DY), args.buf(slot::QKV), args.buf(slot::Y));
    let (lse, dx): (Buf<T>, Buf<T>) = (args.buf(slot::LSE), args.buf(slot::DX));
    let kept = Kept::new(g, args.buf(slot::COUNTER));
    for sample in 0..g.batch {
        let mut shared: Vec<[Features<T>; 2]> = (0..g.kv_heads).map(|_| [(); 2].map(|()| Features::zeros(g))).collect();
        let store = |features: &Features<T>, column: usize| {
            for (i, value) in features.values.iter().enumerate() {
                dx.set((sample * g.positions + i / g.head_dim) * g.packed() + column + i % g.head_dim, *value);
            }
        };
        for head in 0..g.heads {
            let [q, k, v] = head_of(g, |i| qkv.get(i), [sample, head]);
            let of_output = [sample, head * g.head_dim, g.width()];
            let (dy, y) = (Features::read(g, |i| dy.get(i), of_output), Features::read(g, |i| y.get(i), of_output));
            let mut dq = Features::zeros(g);
            let [dk, dv] = &mut shared[head / g.group()];
            for position in 0..g.positions {
                let row = (sample * g.heads + head) * g.positions + position;
                let delta = dot(dy.of(position), y.of(position));
                for (key, score) in scores(g, &q, &k, position).into_iter().enumerate() {
                    let p = exp2(score - lse.get(row) * T::of(LOG2_E));
                    let weight = kept.applied(g, p, row, key);
                    let of_weight = kept.applied(g, dot(dy.of(position), v.of(key)), row, key);
                    let of_score = p * (of_weight - delta) * T::of(g.scale());
                    for feature in 0..g.head_dim {
                        let add = |to: &mut [T], value: T| to[feature] = to[feature] + value;
                        add(dv.of_mut(key), weight * dy.of(position)[feature]);
                        add(dk.of_mut(key), of_score * q.of(position)[feature]);
                        add(dq.of_mut(position), of_score * k.of(key)[feature]);
                    }
                }
            }
            store(&dq.turned(g, true), g.columns(head)[0]);
        }
        for (kv, [dk, dv]) in shared.into_iter().enumerate() {
            let [_, keys, values] = g.columns(kv * g.group());
            store(&dk.turned(g, true), keys);
            store(&dv, values);
        }
    }
}

/// The probabilities of one head for one sample, `[positions, positions]`, from the packed values `[batch, positions,
/// packed]` of a step: a row for each query, 0 for keys that it does not attend to. Dropout is not applied.
///
/// # Panics
/// If `packed` does not contain this sample, or the head does not exist.
#[must_use]
pub fn attention_map(g: &AttentionGeometry, packed: &[f32], sample: usize, head: usize) -> Vec<f32> {
    let [q, k, _] = head_of(g, |i| f64::from(packed[i]), [sample, head]);
    let mut map = vec![0.0; g.positions * g.positions];
    for (position, row) in map.chunks_exact_mut(g.positions).enumerate() {
        let (probabilities, _) = softmax(&scores(g, &q, &k, position));
        row.iter_mut().zip(probabilities).for_each(|(to, p)| *to = p as f32);
    }
    map
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::Scalar;

    #[test]
    fn rows_of_a_causal_map_are_probabilities_without_later_positions() {
        let g = AttentionGeometry {
            batch: 2,
            positions: 3,
            heads: 2,
            kv_heads: 1,
            head_dim: 2,
            causal: true,
            rotary: false,
            dropout: Scalar::new(0.5),
            stream: 0,
        };
        // Queries and keys of the second sample are chosen so that scores are multiples of ln 3 for head 1.
        let (s, ln3) = (2f64.sqrt() as f32, 3f64.ln() as f32);
        let mut packed = vec![0.0; 2 * 3 * g.packed()];
        for (position, key) in [0.0, 1.0, 2.0].into_iter().enumerate() {
            let row = &mut packed[(3 + position) * g.packed()..][..g.packed()];
            row[2] = s * ln3;
            row[4] = key;
        }
        let map = attention_map(&g, &packed, 1, 1);
        let expected = [1.0, 0.0, 0.0, 0.25, 0.75, 0.0, 1.0 / 13.0, 3.0 / 13.0, 9.0 / 13.0];
        for (found, expected) in map.iter().zip(expected) {
            assert!((f64::from(*found) - expected).abs() < 1e-6, "{map:?}");
        }
        let even = attention_map(&g, &packed, 0, 0);
        assert_eq!(even[..6], [1.0, 0.0, 0.0, 0.5, 0.5, 0.0]);
    }
}
