//! Views of predictions for bundled data sets.

use super::*;
use crate::train::{Session, SessionSpec};

fn asked(name: &str, change: impl Fn(&mut crate::model::Preset)) -> (PredictionsView, Session) {
    let bundled = crate::model::BUNDLED.iter().find(|b| b.name == name).unwrap();
    let mut preset = crate::model::read_preset(bundled.text).unwrap();
    change(&mut preset);
    let source = preset.data.as_ref().unwrap().source.clone();
    let mut session = Session::prepare(&SessionSpec { threads: 1, ..SessionSpec::new(preset, ".".into()) }).unwrap();
    for _ in 0..5 {
        session.step().unwrap();
    }
    let (set, split) = session.dataset().map(|(d, s)| (Arc::clone(d), Arc::clone(s))).unwrap();
    let model = Arc::new(session.model().clone());
    let answer = Box::new(session.query(query(&model, &set, &split, &source)).unwrap());
    (view(&AnsweredQuery { run: 1, model, source, data: (set, split), maybe_trained: false, answer }), session)
}

#[test]
fn the_matrix_and_the_loss_equal_those_of_the_evaluation() {
    let (view, mut session) = asked("digits-mlp", |_| {});
    let found = session.evaluate().unwrap().unwrap();
    assert_eq!(view.quality.confusion, found.confusion);
    assert_eq!((view.quality.loss, view.quality.accuracy), (found.loss, found.accuracy), "{view}");
    assert!(view.to_string().starts_with("step 5, 360 held-out samples: loss "), "{view}");
    let wrong = view.rows.answered.iter().take_while(|a| a.truth != a.guess).count();
    assert!(wrong > 0 && view.rows.answered[wrong..].iter().all(|a| a.truth == a.guess));
    assert!(view.rows.answered[..wrong].windows(2).all(|w| w[0].confidence >= w[1].confidence));
    // Every row of probabilities is still with its sample.
    for (at, a) in view.rows.answered.iter().enumerate() {
        let top = view.top(at, 3);
        assert_eq!(top[0], (a.guess, a.confidence));
        assert!((view.row(at).iter().sum::<f32>() - 1.0).abs() < 1e-4 && top[1].1 >= top[2].1);
    }
    let filters = view.pages.filters.as_ref().unwrap();
    assert_eq!((filters.pictures.len(), filters.total, filters.width), (96, 128, 8));
    let cell = view.of_cell(Some((3, 3)));
    assert_eq!(cell.len() as u32, view.quality.confusion[3][3]);
    let recall = f64::from(view.quality.confusion[3][3]) / f64::from(view.quality.scores[3].rates.samples);
    assert_eq!(view.quality.scores[3].rates.recall, Some(recall));
}

#[test]
fn samples_that_are_correct_at_every_position_are_counted() {
    let (view, mut session) = asked("gpt-sums", |p| p.data.as_mut().unwrap().held_out = 40.0);
    let found = session.evaluate().unwrap().unwrap();
    let (whole, samples) = view.quality.exact.unwrap();
    assert_eq!((samples, Some(whole as f64 / samples as f64)), (40, found.exact));
    assert_eq!(asked("digits-mlp", |_| {}).0.quality.exact, None);
}

#[test]
fn the_plane_is_queried_from_the_top() {
    let (view, _) = asked("spirals", |p| p.data.as_mut().unwrap().held_out = 0.0);
    assert!(view.what.contains("training samples"), "{}", view.what);
    let plane = view.pages.plane.as_ref().unwrap();
    assert_eq!((plane.classes.len(), plane.shades.len()), (GRID * GRID, GRID * GRID));
    assert!(plane.shades.iter().all(|s| (0.3..=1.0).contains(s)));
    let q = query(
        &crate::model::check(&crate::studio::document::presets::digits()).model.unwrap(),
        &view.set,
        &Split::default(),
        &DataSource::Digits,
    );
    assert!(q.points[1] > q.points[2 * GRID * GRID - 1] && q.points[0] < q.points[2]);
    assert!(view.pages.filters.is_none());
}

#[test]
fn predicted_values_are_compared_with_true_values() {
    let (view, mut session) = asked("regression", |_| {});
    let fit = view.pages.fit.as_ref().unwrap();
    let found = session.evaluate().unwrap().unwrap();
    assert!(
        (view.quality.loss - found.loss).abs() < 1e-5 * found.loss.max(1.0)
            && (fit.rmse.powi(2) - found.loss).abs() < 1e-4
    );
    assert_eq!(fit.pairs.len(), found.samples * view.rows.outputs);
    assert!(
        view.rows.answered.windows(2).all(|w| w[0].confidence >= w[1].confidence) && view.quality.confusion.is_empty()
    );
}

#[test]
fn filters_of_a_convolution_are_pictures() {
    let (view, _) = asked("digits-cnn", |_| {});
    let filters = view.pages.filters.unwrap();
    assert!((filters.height, filters.width) == (3, 3) && filters.total == filters.pictures.len(), "{}", filters.title);
}

/// Points of the plane, whose two classes are trained as no and yes.
fn binary(preset: &mut crate::model::Preset) {
    preset.loss = crate::model::LossSpec::example("binary_cross_entropy").unwrap();
    if let Some(crate::model::LayerSpec::Dense(dense)) = preset.layers.last_mut() {
        dense.units = 1;
    }
}

#[test]
fn yes_or_no_predictions_are_classes_with_probabilities() {
    let (view, mut session) = asked("circles", binary);
    let found = session.evaluate().unwrap().unwrap();
    assert!(
        (view.quality.loss - found.loss).abs() < 1e-6 * found.loss.max(1.0) && view.quality.accuracy == found.accuracy,
        "{view}"
    );
    assert!(view.pages.fit.is_none() && view.rows.outputs == 2 && view.rows.answered.len() == found.samples);
    assert_eq!(view.quality.confusion.iter().flatten().sum::<u32>() as usize, found.samples);
    for (at, a) in view.rows.answered.iter().enumerate() {
        let row = view.row(at);
        assert!(
            (row[0] + row[1] - 1.0).abs() < 1e-6 && (a.guess == 1) == (row[1] > 0.5) && row[a.guess] == a.confidence
        );
        assert_eq!(view.truth_text(at), view.name(a.truth));
    }
    let plane = view.pages.plane.as_ref().unwrap();
    assert_eq!((plane.classes.len(), plane.shades.len()), (GRID * GRID, GRID * GRID));
    assert!(plane.shades.iter().all(|s| (0.5..=1.0).contains(s)) && plane.classes.iter().all(|c| *c <= 1));
}

#[test]
fn a_nan_output_is_never_correct() {
    let mut preset =
        crate::model::read_preset(crate::model::BUNDLED.iter().find(|b| b.name == "circles").unwrap().text);
    binary(preset.as_mut().unwrap());
    let model = crate::model::check(&preset.unwrap()).model.unwrap();
    let (mut view, _) = asked("circles", binary);
    let count = view.rows.answered.len();
    view.rows.answered.clear();
    view.rows.values.clear();
    view.rows.outputs = 1;
    let indices: Vec<u32> = (0..count as u32).collect();
    view.take(&indices, &vec![f32::NAN; count], &model).unwrap();
    assert_eq!((view.quality.accuracy, view.rows.answered.len()), (Some(0.0), count));
    assert!(view.quality.loss.is_nan() && view.name(view.rows.answered[0].guess) == "?");
}

#[test]
fn large_outputs_are_requested_for_few_samples_or_none() {
    let (view, session) = asked("digits-mlp", |_| {});
    let split = Split { train: Vec::new(), held_out: (0..1000).collect() };
    let samples = |positions: usize, vocab: usize| {
        let text = format!(
            r#"{{"name": "v", "input": {{"type": "tokens", "shape": [{positions}], "vocab": {vocab}, "batch": 1}},
            "layers": [{{"type": "embedding", "units": 4}}, {{"type": "dense", "units": {vocab}}}],
            "loss": {{"type": "softmax_cross_entropy"}}, "optimizer": {{"type": "sgd", "lr": 0.1}}}}"#
        );
        let model = crate::model::check(&crate::model::read_preset(&text).unwrap()).model.unwrap();
        let pages = answer_pages(&model, &view.set, &DataSource::SourceCode);
        (query(&model, &view.set, &split, &DataSource::SourceCode).samples.len(), pages.len())
    };
    // A matrix of 256 classes can be read, one of more cannot.
    assert_eq!([samples(64, 256), samples(64, 257), samples(1024, 50_000)], [(512, 2), (510, 1), (0, 1)]);
    assert_eq!(answer_pages(session.model(), &view.set, &DataSource::Digits).len(), 3);
}
