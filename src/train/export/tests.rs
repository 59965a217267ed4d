//! Exports of a small run, as files.

use super::*;
use crate::tensor::temporary::temporary_file;
use crate::train::runs::{EvaluationPoint, LayerCurves};
use crate::train::{StepReport, read_tensors};

/// Thirty steps, with an evaluation after the twentieth.
pub fn curves() -> Curves {
    let report = |step: u64| StepReport {
        step,
        loss: 2.0 / step as f32,
        update_max: 1e-3,
        grad_norm: 0.5,
        accuracy: 1.0 - 1.0 / step as f32,
        lr: 1e-3,
        loss_scale: f32::NAN,
        step_us: 12.5,
        feed_us: 1.0,
        ..StepReport::default()
    };
    let mut curves = Curves::default();
    curves.append(&(1..=20).map(report).collect::<Vec<_>>(), 0.0, 100.0);
    curves.append(&(21..=30).map(report).collect::<Vec<_>>(), 100.0, 200.0);
    curves.evaluations.push(EvaluationPoint { step: 20, ms: 101.0, loss: 0.25, accuracy: 0.75 });
    curves
}

/// The same run, with known changes of its layers in two ranges of steps.
pub fn with_layers() -> Curves {
    let text = crate::model::BUNDLED.iter().find(|b| b.name == "digits-mlp").unwrap().text;
    let model = check(&crate::model::read_preset(text).unwrap()).model.unwrap();
    let mut layers = LayerCurves::of(&model);
    for (first, top) in [(1, 0.2), (11, 0.5)] {
        let mut spans = crate::train::Spans::default();
        spans.add(first, &[top, 0.1, 0.4, 0.3]);
        spans.add(if first == 1 { 10 } else { 30 }, &[0.1, 0.1, 0.1, 0.1]);
        layers.push(&spans);
    }
    let mut curves = curves();
    curves.layers = layers;
    curves
}

fn subject(preset: &str) -> Subject {
    let text = crate::model::BUNDLED.iter().find(|b| b.name == preset).unwrap().text;
    let preset = crate::model::read_preset(text).unwrap();
    Subject::of_preset(&preset, Path::new("."), None, None, Format::Safetensors).unwrap()
}

#[test]
fn nothing_is_replaced_without_a_request() {
    let (folder, path) = temporary_file("run.csv");
    let run = Subject { curves: Some(curves()), ..subject("xor") };
    let options = PlotOptions::default();
    std::fs::write(&path, "a letter").unwrap();
    let refused = run.write(Format::Csv, &path, options, Replace::Nothing).unwrap_err();
    assert!(matches!(&refused, ExportError::Exists(p) if *p == path));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "a letter");
    let kept = run.write(Format::Csv, &path, options, Replace::Older).unwrap_err();
    assert!(kept.is_user() && kept.to_string().contains("exists and is not of this kind: table of curves"), "{kept}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "a letter");
    assert_eq!(run.write(Format::Csv, &path, options, Replace::Anything).unwrap(), std::slice::from_ref(&path));
    assert!(std::fs::read_to_string(&path).unwrap().starts_with("step,"));
    let preset =
        subject("xor").write(Format::Csv, &folder.path().join("b.csv"), options, Replace::Nothing).unwrap_err();
    assert!(preset.to_string().contains("is a preset without curves"));
}

#[test]
fn a_script_is_written_beside_its_weights_and_its_samples() {
    let (_folder, path) = temporary_file("net.py");
    let files = subject("iris").write(Format::PyTorch, &path, PlotOptions::default(), Replace::Nothing).unwrap();
    let names: Vec<String> = files.iter().map(|f| f.file_name().unwrap().to_string_lossy().into_owned()).collect();
    assert_eq!(names, ["net.py", "net.weights.safetensors", "net.data.safetensors"]);
    let script = std::fs::read_to_string(&files[0]).unwrap();
    assert!(script.contains("CLASSES = [\"setosa\", \"versicolor\", \"virginica\"]"), "{script}");
    assert!(script.contains("\nMEAN = [5.") && script.contains("\nSCALE = [") && script.contains("def prepare(rows):"));
    let data = read_tensors(&files[2]).unwrap();
    let rows = |name: &str| data.get(name).unwrap().shape.0[0];
    assert_eq!((rows("x"), rows("y"), rows("train") + rows("held_out")), (150, 150, 150));
    // One of the three already exists: none is written.
    std::fs::remove_file(&files[0]).unwrap();
    assert!(subject("iris").write(Format::PyTorch, &path, PlotOptions::default(), Replace::Nothing).is_err());
    assert!(!files[0].exists());
}

#[test]
fn formats_follow_from_names() {
    for format in Format::ALL {
        let path = Path::new("folder/run").with_extension(format.extension());
        assert_eq!(Format::of_path(&path), Some(format).filter(|f| *f != Format::TensorBoard));
    }
    assert_eq!(Format::of_path(Path::new("a.docx")), None);
}

#[test]
fn every_format_writes_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let run = Subject { curves: Some(curves()), started_ms: 1_700_000_000_000, ..subject("digits-cnn") };
    for format in Format::ALL {
        let path = folder.path().join(format!("{}-out", format.name())).with_extension(format.extension());
        let files = run.write(format, &path, PlotOptions::default(), Replace::Nothing).unwrap();
        assert!(files.iter().all(|f| std::fs::metadata(f).unwrap().len() > 100), "{files:?}");
    }
}

#[test]
fn an_export_replaces_its_own_kind_and_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let run = Subject { curves: Some(curves()), started_ms: 1_700_000_000_000, ..subject("iris") };
    let options = PlotOptions::default();
    let at = |format: Format| folder.path().join(format!("of-{}", format.name()));
    let files = |format: Format| run.files(format, &at(format));
    for format in Format::ALL {
        run.write(format, &at(format), options, Replace::Nothing).unwrap();
        run.write(format, &at(format), options, Replace::Older).unwrap();
    }
    // Every file of another export takes the place of every file of this one, in turn.
    for (format, index, file) in
        Format::ALL.iter().flat_map(|f| files(*f).into_iter().enumerate().map(|(i, p)| (*f, i, p)))
    {
        let own = std::fs::read(&file).unwrap();
        for (other, place, path) in
            Format::ALL.iter().flat_map(|f| files(*f).into_iter().enumerate().map(|(i, p)| (*f, i, p)))
        {
            let are_weights = |f: Format, i: usize| f == Format::Safetensors || (f == Format::PyTorch && i == 1);
            let is_same =
                (format, index) == (other, place) || (are_weights(format, index) && are_weights(other, place));
            std::fs::write(&file, std::fs::read(&path).unwrap()).unwrap();
            let written = run.write(format, &at(format), options, Replace::Older);
            assert_eq!(written.is_ok(), is_same, "{} over {}: {written:?}", file.display(), path.display());
            std::fs::write(&file, &own).unwrap();
        }
    }
}

#[test]
fn a_plot_of_an_unmeasured_quantity_lists_the_available_ones() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = Subject { curves: Some(curves()), ..subject("xor") };
    let options = PlotOptions { quantity: Quantity::LossScale, ..PlotOptions::default() };
    let message =
        run.write(Format::Svg, &folder.path().join("a.svg"), options, Replace::Nothing).unwrap_err().to_string();
    assert_eq!(message, "xor has no loss_scale; it has loss, accuracy, update_max, grad_norm, lr, step_us, feed_us");
    run.curves = None;
    assert!(run.write(Format::Svg, &folder.path().join("a.svg"), options, Replace::Nothing).is_err());
}
