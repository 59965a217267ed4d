//! Standardisation: every feature with mean 0 and deviation 1.

use super::Dataset;
use serde::{Deserialize, Serialize};

/// What a data set's features were standardised with: `(value - mean) * scale`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Scaling {
    pub mean: Vec<f64>,
    /// One over the deviation; 0 for a constant feature.
    pub scale: Vec<f64>,
}

impl Scaling {
    /// Standardises samples of `mean.len()` features, row by row.
    pub(super) fn apply(&self, x: &mut [f32]) {
        for row in x.chunks_exact_mut(self.mean.len().max(1)) {
            for ((value, mean), scale) in row.iter_mut().zip(&self.mean).zip(&self.scale) {
                *value = ((f64::from(*value) - mean) * scale).clamp(f64::from(f32::MIN), f64::from(f32::MAX)) as f32;
            }
        }
    }
}

/// Brings every feature to mean 0 and standard deviation 1 over the samples `train`; a feature that is constant there becomes 0.
///
/// Mean and deviation come from the training part alone, so that nothing of the held-out part leaks into the network. Without training
/// samples nothing is changed.
pub(super) fn standardize(data: &mut Dataset, train: &[u32]) {
    let width = data.sample.len();
    if train.is_empty() || width == 0 {
        return;
    }
    let count = train.len() as f64;
    let mut scaling = Scaling::default();
    for feature in 0..width {
        let column = || train.iter().map(|&i| f64::from(data.x[i as usize * width + feature]));
        let mean = column().sum::<f64>() / count;
        let variance = column().map(|v| (v - mean) * (v - mean)).sum::<f64>() / count;
        // Equal values can leave a rounding residue, which must not be blown up to 1.
        let constant = column().all(|v| v == f64::from(data.x[train[0] as usize * width + feature]));
        let scale = if constant || variance <= 0.0 { 0.0 } else { 1.0 / variance.sqrt() };
        scaling.mean.push(mean);
        scaling.scale.push(scale);
    }
    scaling.apply(&mut data.x);
    data.preprocessing.scaling = Some(scaling);
    data.notes.push("features are standardised with the training part's mean and deviation".to_owned());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Preprocessing, Target};

    #[test]
    fn features_get_mean_0_and_deviation_1_and_constants_0() {
        let n = 40usize;
        let x: Vec<f32> =
            (0..n).flat_map(|i| [0.1, i as f32 * 3.0 + 100.0, if i < 30 { 7.7 } else { 9.0 }, f32::MAX]).collect();
        let target = Target::Classes { labels: vec![0; n], names: vec![] };
        let mut data = Dataset {
            name: String::new(),
            sample: [4].into(),
            x,
            target,
            feature_names: vec![],
            notes: vec![],
            preprocessing: Preprocessing::default(),
        };
        let train: Vec<u32> = (0..30).collect();
        standardize(&mut data, &train);
        let column = |f: usize| (0..30).map(|i| f64::from(data.x[i * 4 + f])).collect::<Vec<_>>();
        assert!(data.x.iter().skip(2).step_by(4).all(|&v| v == 0.0), "constant in the training part");
        assert!(column(0).iter().chain(&column(3)).all(|&v| v == 0.0));
        let (mean, squares) =
            (column(1).iter().sum::<f64>() / 30.0, column(1).iter().map(|v| v * v).sum::<f64>() / 30.0);
        assert!(mean.abs() < 1e-6 && (squares - 1.0).abs() < 1e-6, "{mean} {squares}");
    }
}
