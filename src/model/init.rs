//! Initial parameters: the same from one seed on every machine.

use super::param::{Init, Param};
use super::rng::Rng;

/// The initial values of `param`, row-major in its logical shape. Each parameter has its own stream, so that adding a
/// layer at the end does not change the others.
#[must_use]
pub fn init_values(param: &Param, index: usize, seed: u64) -> Vec<f32> {
    let mut out = Vec::with_capacity(param.shape.len());
    init_into(param, index, seed, &mut out);
    out
}

/// Like [`init_values`], appended to `out`.
pub fn init_into(param: &Param, index: usize, seed: u64, out: &mut Vec<f32>) {
    let len = param.shape.len();
    match drawn(param, index, seed) {
        Drawn::Same(value) => out.resize(out.len() + len, value),
        Drawn::Within(bound, mut rng) => out.extend((0..len).map(|_| rng.range(-bound, bound) as f32)),
        Drawn::Normal(deviation, mut rng) => out.extend((0..len).map(|_| (deviation * rng.normal()) as f32)),
    }
}

/// Like [`init_values`], written to `out`, which must have the right length.
pub fn init_over(param: &Param, index: usize, seed: u64, out: &mut [f32]) {
    match drawn(param, index, seed) {
        Drawn::Same(value) => out.fill(value),
        Drawn::Within(bound, mut rng) => out.fill_with(|| rng.range(-bound, bound) as f32),
        Drawn::Normal(deviation, mut rng) => out.fill_with(|| (deviation * rng.normal()) as f32),
    }
}

/// The distribution of a parameter's values.
enum Drawn {
    Same(f32),
    Within(f64, Rng),
    Normal(f64, Rng),
}

fn drawn(param: &Param, index: usize, seed: u64) -> Drawn {
    let rng = Rng::new(seed, 0x1000 + index as u64);
    let bound = match param.init {
        Init::Normal { deviation } => return Drawn::Normal(deviation, rng),
        Init::Constant { value } => return Drawn::Same(value as f32),
        Init::He { fan_in } => (6.0 / fan_in as f64).sqrt(),
        Init::Xavier { fan_in, fan_out } => (6.0 / (fan_in + fan_out) as f64).sqrt(),
        Init::Recurrent { units } => 1.0 / (units as f64).sqrt(),
    };
    Drawn::Within(bound, rng)
}
