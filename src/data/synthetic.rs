//! Data drawn from a seed: small problems that are easy to visualise.
//!
//! Everything comes from [`Rng`] and `libm`, so that a seed gives the same samples on every machine. Classes alternate
//! from sample to sample, so that every part of the set is balanced.

use super::dataset::Loaded;
use super::{DataError, Dataset, InputSamples, Preprocessing, Target};
use crate::model::{DataSource, Rng};
use crate::tensor::Shape;
use std::f64::consts::{PI, TAU};

/// The generator's stream for samples, separate from every other use of a run's seed.
const STREAM: u64 = 0x6461_7461_0002;
/// The largest number of samples.
const MOST_SAMPLES: usize = 10_000_000;
/// The largest number of values: samples times features.
const MOST_VALUES: usize = 1 << 28;
/// The angle that an arm of the spirals turns through, in radians.
const SPIRAL_TURN: f64 = 4.5;

/// Draws a synthetic source; `input` and `output` give the number of variables and of target values of the regression.
///
/// # Errors
/// If a field of the source has an invalid value.
pub(super) fn draw(source: &DataSource, input: &Shape, output: &Shape, seed: u64) -> Result<Loaded, DataError> {
    let mut rng = Rng::new(seed, STREAM);
    let dataset = match *source {
        DataSource::Spirals { samples, classes, noise } => {
            if classes == 0 || classes > samples {
                let expected = "from 1 to the number of samples";
                return Err(DataError::field("classes", classes, expected, "2 or 3 arms are typical"));
            }
            plane(source, classes, noise, samples, &mut rng, |class, rng| {
                let along = rng.uniform();
                let angle = TAU * class as f64 / classes as f64 + SPIRAL_TURN * along;
                let radius = 0.05 + 0.95 * along;
                [radius * libm::cos(angle), radius * libm::sin(angle)]
            })?
        }
        DataSource::Moons { samples, noise } => plane(source, 2, noise, samples, &mut rng, |class, rng| {
            let angle = PI * rng.uniform();
            let (c, s) = (libm::cos(angle), libm::sin(angle));
            // Both half circles have radius 1; the pair is centred on the origin.
            if class == 0 { [c - 0.5, s - 0.25] } else { [0.5 - c, 0.25 - s] }
        })?,
        DataSource::Circles { samples, noise, factor } => {
            if !(factor > 0.0 && factor < 1.0) {
                let help = "0.5 makes the gap between the circles as wide as the radius of the inner one";
                return Err(DataError::field("factor", factor, "above 0 and below 1", help));
            }
            plane(source, 2, noise, samples, &mut rng, |class, rng| {
                let angle = TAU * rng.uniform();
                let radius = if class == 0 { 1.0 } else { factor };
                [radius * libm::cos(angle), radius * libm::sin(angle)]
            })?
        }
        DataSource::Xor { samples, noise } => plane(source, 2, noise, samples, &mut rng, |class, rng| {
            let right = rng.next_u64() >> 63 == 1;
            let up = right == (class == 0);
            [if right { 0.7 } else { -0.7 }, if up { 0.7 } else { -0.7 }]
        })?,
        DataSource::Regression { samples, noise } => regression(source, [input, output], noise, samples, &mut rng)?,
        DataSource::Waves { samples, noise } => waves([input, output], noise, samples, &mut rng)?,
        DataSource::Digits
        | DataSource::DigitSums
        | DataSource::Joined { .. }
        | DataSource::Iris
        | DataSource::Csv { .. }
        | DataSource::Npz { .. }
        | DataSource::Npy { .. }
        | DataSource::Idx { .. }
        | DataSource::Cifar10 { .. }
        | DataSource::Images { .. }
        | DataSource::Text { .. }
        | DataSource::SourceCode
        | DataSource::Sums { .. }
        | DataSource::Series { .. } => {
            let expected = "spirals, moons, circles, xor, regression or waves";
            return Err(DataError::field("type", source.name(), expected, "load this source from its file"));
        }
    };
    Ok(Loaded::new(source.name().to_owned(), dataset))
}

fn check(samples: usize, features: usize, noise: f64) -> Result<(), DataError> {
    let most = MOST_SAMPLES.min(MOST_VALUES / features.max(1));
    if samples == 0 || samples > most {
        return Err(DataError::field("samples", samples, format!("from 1 to {most}"), "1000 is a good start"));
    }
    if !(0.0..=1e6).contains(&noise) {
        return Err(DataError::field("noise", noise, "a deviation from 0 to 1e6", "0.1 is a moderate value"));
    }
    Ok(())
}

/// Points of the plane; `point` returns the next point of a class, to which normal noise of deviation `noise` is added.
fn plane(
    source: &DataSource,
    classes: usize,
    noise: f64,
    samples: usize,
    rng: &mut Rng,
    point: impl Fn(usize, &mut Rng) -> [f64; 2],
) -> Result<Dataset, DataError> {
    check(samples, 2, noise)?;
    let (mut x, mut labels) = (Vec::with_capacity(2 * samples), Vec::with_capacity(samples));
    for i in 0..samples {
        let class = i % classes;
        for coordinate in point(class, rng) {
            x.push((coordinate + noise * rng.normal()) as f32);
        }
        labels.push(class as i32);
    }
    let names = (0..classes).map(|class| class.to_string()).collect();
    Ok(Dataset {
        name: source.name().to_owned(),
        inputs: InputSamples::only([2], x),
        target: Target::classes(labels, names),
        feature_names: vec!["x".to_owned(), "y".to_owned()],
        notes: Vec::new(),
        preprocessing: Preprocessing::default(),
    })
}

/// Variables uniform in [-1, 1) and as many target values as the network has outputs, each standardised. With d
/// variables counted cyclically, target k is `f_k(x) = (1 / sqrt(d)) * sum_i (sin(pi (x_i + k / 2)) + x_i x_{i+1+k})`,
/// plus normal noise of deviation `noise` before the standardisation.
fn regression(
    source: &DataSource,
    [input, output]: [&Shape; 2],
    noise: f64,
    samples: usize,
    rng: &mut Rng,
) -> Result<Dataset, DataError> {
    let variables = input.checked_len().unwrap_or(usize::MAX);
    let outputs = output.checked_len().unwrap_or(usize::MAX).max(1);
    check(samples, variables.max(outputs), noise)?;
    let (mut x, mut raw) = (Vec::with_capacity(variables * samples), Vec::with_capacity(outputs * samples));
    for _ in 0..samples {
        let start = x.len();
        x.extend((0..variables).map(|_| rng.range(-1.0, 1.0) as f32));
        let row = &x[start..];
        for k in 0..outputs {
            let term = |i: usize| {
                let (here, other) = (f64::from(row[i]), f64::from(row[(i + 1 + k) % variables]));
                libm::sin(PI * (here + 0.5 * k as f64)) + here * other
            };
            let sum: f64 = (0..variables).map(term).sum();
            raw.push(sum / (variables.max(1) as f64).sqrt() + noise * rng.normal());
        }
    }
    let mut values = vec![0.0; raw.len()];
    for k in 0..outputs {
        let column = || raw.iter().skip(k).step_by(outputs);
        let mean = column().sum::<f64>() / samples as f64;
        let variance = column().map(|t| (t - mean) * (t - mean)).sum::<f64>() / samples as f64;
        let scale = if variance > 0.0 { 1.0 / variance.sqrt() } else { 0.0 };
        for (value, t) in values.iter_mut().skip(k).step_by(outputs).zip(column()) {
            *value = ((t - mean) * scale) as f32;
        }
    }
    Ok(Dataset {
        name: source.name().to_owned(),
        inputs: InputSamples::only([variables], x),
        target: Target::Values { values, shape: [outputs].into() },
        feature_names: (0..variables).map(|i| format!("x{i}")).collect(),
        notes: vec!["the target is standardised".to_owned()],
        preprocessing: Preprocessing::default(),
    })
}

/// Windows of noisy sums of three sines, with the values that follow each window: as many as the network has inputs and
/// outputs. Amplitudes, periods and phases are drawn for each sample.
fn waves([input, output]: [&Shape; 2], noise: f64, samples: usize, rng: &mut Rng) -> Result<Dataset, DataError> {
    /// The periods of the sines, in positions.
    const PERIODS: [[f64; 2]; 3] = [[6.0, 12.0], [12.0, 24.0], [24.0, 48.0]];
    let seen = input.checked_len().unwrap_or(usize::MAX);
    let ahead = output.checked_len().unwrap_or(usize::MAX).max(1);
    check(samples, seen.saturating_add(ahead), noise)?;
    let (mut x, mut values) = (Vec::with_capacity(seen * samples), Vec::with_capacity(ahead * samples));
    let mut repeated = 0.0;
    for _ in 0..samples {
        let sines =
            PERIODS.map(|[least, most]| [rng.range(0.3, 1.0), TAU / rng.range(least, most), rng.range(0.0, TAU)]);
        let at = |position: usize| -> f64 {
            sines.iter().map(|[amplitude, speed, phase]| amplitude * libm::sin(speed * position as f64 + phase)).sum()
        };
        x.extend((0..seen).map(|position| (at(position) + noise * rng.normal()) as f32));
        values.extend((seen..seen + ahead).map(|position| (at(position) + noise * rng.normal()) as f32));
        let last = x.last().copied().unwrap_or(0.0);
        repeated += values[values.len() - ahead..].iter().map(|v| f64::from(v - last).powi(2)).sum::<f64>();
    }
    let error = repeated / values.len().max(1) as f64;
    Ok(Dataset {
        name: "waves".to_owned(),
        inputs: InputSamples::only([seen], x),
        target: Target::Values { values, shape: [ahead].into() },
        feature_names: Vec::new(),
        notes: vec![format!("repeating the last value has a mean squared error of {error:.3} over all samples")],
        preprocessing: Preprocessing::default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(samples: usize, noise: f64) -> [DataSource; 5] {
        [
            DataSource::Spirals { samples, classes: 3, noise },
            DataSource::Moons { samples, noise },
            DataSource::Circles { samples, noise, factor: 0.5 },
            DataSource::Xor { samples, noise },
            DataSource::Regression { samples, noise },
        ]
    }

    fn drawn(source: &DataSource, seed: u64) -> Dataset {
        draw(source, &[2].into(), &[1].into(), seed).unwrap_or_else(|e| panic!("{e}")).dataset
    }

    #[test]
    fn a_seed_gives_the_same_samples() {
        for source in all(60, 0.1) {
            let data = drawn(&source, 3);
            assert_eq!(data, drawn(&source, 3));
            assert_ne!(data.x(), drawn(&source, 4).x(), "{}", source.name());
            assert!(
                data.len() == 60 && data.x().len() == 120 && data.x().iter().all(|v| v.abs() < 2.2),
                "{}",
                source.name()
            );
        }
    }

    #[test]
    fn the_first_samples_never_change() {
        // These numbers come from an implementation of the generator and the formulas in another language.
        let expected = [
            [-0.461_831_35, -0.987_337_2],
            [-1.615_043_7, -0.227_703_46],
            [0.858_413_2, -0.285_644_7],
            [0.579_636_34, 0.619_284_1],
            [0.934_303_7, 0.776_505_5],
        ];
        for (source, expected) in all(6, 0.1).iter().zip(expected) {
            for (found, expected) in drawn(source, 0).x().iter().zip(expected) {
                assert!((found - expected).abs() < 1e-6, "{}: {found}, expected {expected}", source.name());
            }
        }
    }

    #[test]
    fn classes_are_balanced_in_every_part() {
        for source in &all(60, 0.0)[..4] {
            let Target::Classes { labels, names, .. } = drawn(source, 1).target else { panic!("classes") };
            for class in 0..names.len() {
                let count = labels[30..].iter().filter(|&&label| label == class as i32).count();
                assert_eq!(count, 30 / names.len(), "{}", source.name());
            }
        }
    }

    #[test]
    fn shapes_match_their_names() {
        let classes = |data: &Dataset| match &data.target {
            Target::Classes { labels, .. } => labels.clone(),
            Target::Values { .. } | Target::Windows(_) => panic!("classes"),
        };
        let xor = drawn(&DataSource::Xor { samples: 50, noise: 0.05 }, 0);
        for (point, label) in xor.x().chunks(2).zip(classes(&xor)) {
            assert_eq!(label == 0, point[0] * point[1] > 0.0, "{point:?}");
        }
        let circles = drawn(&DataSource::Circles { samples: 50, noise: 0.0, factor: 0.3 }, 0);
        for (point, label) in circles.x().chunks(2).zip(classes(&circles)) {
            let radius = point[0].hypot(point[1]);
            assert!((radius - if label == 0 { 1.0 } else { 0.3 }).abs() < 1e-5, "{radius}");
        }
        let line =
            draw(&DataSource::Regression { samples: 500, noise: 0.0 }, &[1].into(), &[1].into(), 0).unwrap().dataset;
        let Target::Values { values, .. } = &line.target else { panic!("values") };
        let raw: Vec<f64> = line.x().iter().map(|&x| libm::sin(PI * f64::from(x)) + f64::from(x * x)).collect();
        let slope = (values[1] - values[0]) as f64 / (raw[1] - raw[0]);
        for (value, raw_value) in values.iter().zip(&raw) {
            assert!((f64::from(*value) - f64::from(values[0]) - slope * (raw_value - raw[0])).abs() < 1e-4);
        }
        let squares: f32 = values.iter().map(|v| v * v).sum::<f32>() / 500.0;
        assert!((squares - 1.0).abs() < 1e-4 && values.iter().sum::<f32>().abs() < 1e-2);
        let source = DataSource::Regression { samples: 400, noise: 0.0 };
        let several = draw(&source, &[4].into(), &[3].into(), 0).unwrap().dataset;
        let Target::Values { values, shape } = &several.target else { panic!("values") };
        assert_eq!((shape.0.as_slice(), several.len()), (&[3][..], 400));
        for k in 0..3 {
            let column: Vec<f32> = values.iter().skip(k).step_by(3).copied().collect();
            let squares: f32 = column.iter().map(|v| v * v).sum::<f32>() / 400.0;
            assert!((squares - 1.0).abs() < 1e-3, "every target is scaled separately");
        }
    }

    #[test]
    fn invalid_fields_are_reported() {
        let big = Shape::from([usize::MAX, 3]);
        let fails = |source: DataSource, input: &Shape, wanted: &str| {
            let text = draw(&source, input, &[1].into(), 0).err().unwrap().to_string();
            assert!(text.starts_with(wanted), "{text}");
        };
        let two = Shape::from([2]);
        for samples in [0, usize::MAX] {
            all(samples, 0.1)[1..].iter().for_each(|source| fails(source.clone(), &two, "data.samples: found "));
        }
        for noise in [-1.0, f64::NAN, f64::INFINITY] {
            all(9, noise).into_iter().for_each(|source| fails(source, &two, "data.noise: found "));
        }
        for classes in [0, 10] {
            fails(DataSource::Spirals { samples: 9, classes, noise: 0.1 }, &two, "data.classes: found ");
        }
        for factor in [0.0, 1.0, f64::NAN] {
            fails(DataSource::Circles { samples: 9, noise: 0.1, factor }, &two, "data.factor: found ");
        }
        fails(DataSource::Regression { samples: 9, noise: 0.1 }, &big, "data.samples: found 9");
        fails(DataSource::Digits, &two, "data.type: found digits");
    }
}
