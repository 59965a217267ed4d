//! The data sets inside the program; `assets/README.md` has their origin and licence.

use super::dataset::Loaded;
use super::{CsvOptions, DataError, FeatureColumns, InputSamples, Preprocessing, Target, read_csv};
use crate::model::{Header, TargetColumn};

const DIGITS: &[u8] = include_bytes!("../../assets/digits.csv.gz");
const IRIS: &[u8] = include_bytes!("../../assets/iris.csv");
const IRIS_FEATURES: [&str; 4] = ["sepal length", "sepal width", "petal length", "petal width"];
const IRIS_CLASSES: [&str; 3] = ["setosa", "versicolor", "virginica"];
/// The largest pixel value of the digits as published.
const DIGITS_SCALE: f32 = 16.0;

fn table(bytes: &[u8], name: &str, header: Header) -> Result<Loaded, DataError> {
    let options = CsvOptions {
        header,
        target: TargetColumn::Last,
        delimiter: ',',
        classes: true,
        features: FeatureColumns::default(),
    };
    Ok(read_csv(bytes, name, &options)?.into_loaded(name.to_owned(), name.to_owned()))
}

/// 1,797 handwritten digits, `[1, 8, 8]`, scaled to 0..1, in the published order: the last ones are by other writers.
pub(super) fn digits() -> Result<Loaded, DataError> {
    let mut loaded = table(DIGITS, "digits", Header::No)?;
    let data = &mut loaded.dataset;
    data.inputs[0].sample = [1, 8, 8].into();
    data.feature_names.clear();
    data.preprocessing = Preprocessing::default();
    data.x_mut().iter_mut().for_each(|pixel| *pixel /= DIGITS_SCALE);
    // The options for reading the user's own table do not apply to this one.
    data.notes.clear();
    data.notes.push("samples are divided by 16".to_owned());
    data.notes.push("UCI Machine Learning Repository, E. Alpaydin and C. Kaynak, 1998; CC BY 4.0".to_owned());
    Ok(loaded)
}

/// The row and column means of each digit: of every row from the top, then of every column from the left, `[16]`.
pub(super) fn digit_sums() -> Result<Loaded, DataError> {
    const SIDE: usize = 8;
    let mut loaded = digits()?;
    loaded.file = "digit_sums".to_owned();
    let data = &mut loaded.dataset;
    let of_picture = |pixels: &[f32]| -> Vec<f32> {
        let row = |r: usize| pixels[r * SIDE..(r + 1) * SIDE].iter().sum::<f32>() / SIDE as f32;
        let column = |c: usize| pixels.iter().skip(c).step_by(SIDE).sum::<f32>() / SIDE as f32;
        (0..SIDE).map(row).chain((0..SIDE).map(column)).collect()
    };
    let means = data.x().chunks_exact(SIDE * SIDE).flat_map(of_picture).collect();
    data.inputs = InputSamples::only([2 * SIDE], means);
    data.name = "digit_sums".to_owned();
    data.feature_names =
        (0..SIDE).map(|r| format!("row {r}")).chain((0..SIDE).map(|c| format!("column {c}"))).collect();
    data.notes.insert(0, "features are the means of the eight rows and of the eight columns of each digit".to_owned());
    Ok(loaded)
}

/// 150 flowers with 4 measurements in cm, as published; the file's first line contains counts and names, and is skipped
/// like a header.
pub(super) fn iris() -> Result<Loaded, DataError> {
    let mut loaded = table(IRIS, "iris", Header::Yes)?;
    let data = &mut loaded.dataset;
    data.feature_names = IRIS_FEATURES.map(|name| format!("{name} (cm)")).into();
    data.preprocessing.targets.clear();
    if let Target::Classes { names, .. } = &mut data.target {
        *names = IRIS_CLASSES.map(str::to_owned).into();
    }
    data.notes.push("UCI Machine Learning Repository, R. A. Fisher, 1936; CC BY 4.0".to_owned());
    Ok(loaded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Dataset, Request, load};
    use crate::model::{DataSource, DataSpec, LossSpec, NamedInput};
    use crate::tensor::Shape;
    use std::path::Path;

    fn loaded(source: DataSource, input: impl Into<Shape>, outputs: usize) -> Dataset {
        let request = Request {
            inputs: vec![NamedInput::only(input.into())],
            output: [outputs].into(),
            loss: LossSpec::SOFTMAX_CROSS_ENTROPY,
            seed: 0,
        };
        load(&DataSpec::of(source), &request, Path::new("")).unwrap()
    }

    #[test]
    fn digits_fit_flat_and_as_images() {
        for shape in [vec![64], vec![1, 8, 8]] {
            let data = loaded(DataSource::Digits, shape.clone(), 10);
            assert_eq!((data.len(), data.sample().0.clone(), data.classes()), (1797, shape, Some(10)));
            assert_eq!(data.sample_slice(0)[..4], [0.0, 0.0, 5.0 / 16.0, 13.0 / 16.0]);
            assert!(data.x().iter().all(|v| (0.0..=1.0).contains(v)));
            let Target::Classes { labels, .. } = &data.target else { panic!("classes") };
            assert_eq!(labels[..4], [0, 1, 2, 3]);
        }
    }

    #[test]
    fn digit_sums_are_means_of_rows_and_columns() {
        let (sums, digits) = (loaded(DataSource::DigitSums, [16], 10), loaded(DataSource::Digits, [64], 10));
        assert_eq!((sums.len(), sums.feature_names.len(), &sums.target), (1797, 16, &digits.target));
        for sample in [0, 7, 1796] {
            let (own, pixels) = (sums.sample_slice(sample), digits.sample_slice(sample));
            let mean = |of: &dyn Fn(usize) -> usize| (0..8).map(|i| pixels[of(i)]).sum::<f32>() / 8.0;
            for line in 0..8 {
                assert!((own[line] - mean(&|i| 8 * line + i)).abs() < 1e-6);
                assert!((own[8 + line] - mean(&|i| 8 * i + line)).abs() < 1e-6);
            }
        }
    }

    #[test]
    fn iris_is_standardised() {
        let data = loaded(DataSource::Iris, [4], 3);
        assert_eq!((data.len(), data.classes(), data.feature_names.len()), (150, Some(3), 4));
        for feature in 0..4 {
            let mean = data.x().iter().skip(feature).step_by(4).sum::<f32>() / 150.0;
            assert!(mean.abs() < 0.1 && data.x().iter().all(|v| v.abs() < 4.0), "{mean}");
        }
        assert!(matches!(&data.target, Target::Classes { names, .. } if names[1] == "versicolor"));
    }
}
