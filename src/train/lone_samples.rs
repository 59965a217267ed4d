//! Refuses batches of a single sample, for which some layers have no statistics.

use super::TrainError;
use crate::model::{Diagnostic, Model};

/// Refuses data whose last batch of an epoch, out of `train` samples, is a single sample, if a layer needs more.
///
/// # Errors
/// If that is so.
pub(super) fn refuse_last_batch(model: &Model, train: usize) -> Result<(), TrainError> {
    if train % model.batch != 1 || model.batch == 1 {
        return Ok(());
    }
    let Some(layer) = model.without_statistics_of_one() else { return Ok(()) };
    let message = format!(
        "the last batch of an epoch is the 1 sample that {train} leave at {} a batch, and {} has no variance of a \
         single value",
        model.batch,
        layer.label()
    );
    let help = "set data.last_batch to \"drop\", or change input.batch or data.held_out so that 2 samples or more are \
                left"
        .to_owned();
    let (layer, path) = (Some(layer.path.clone()), layer.path.to_string());
    Err(TrainError::Preset(vec![Diagnostic { layer, path, message, help }]))
}

#[cfg(test)]
mod tests {
    use crate::exec::Executor;
    use crate::model::read_preset;
    use crate::tensor::{HostTensor, Shape};
    use crate::train::{DataChoice, Purpose, Session, SessionSpec, TensorFile};
    use std::path::PathBuf;

    const NORM: &str = r#"{"type": "batch_norm"}"#;

    /// A run with batches of 4 out of 12 samples and `left`, whose last batch is treated as `last` says.
    fn spec(shape: &str, layers: &str, left: usize, last: &str) -> SessionSpec {
        let text = format!(
            r#"{{"name": "n", "input": {{"shape": {shape}, "batch": 4}}, "layers": [{layers}],
            "loss": {{"type": "mse"}}, "optimizer": {{"type": "sgd", "lr": 0.1}}, "train": {{"steps": 8}},
            "data": {{"type": "regression", "samples": {}, "held_out": 0.0, "last_batch": "{last}"}}}}"#,
            12 + left
        );
        SessionSpec::new(read_preset(&text).unwrap(), PathBuf::from("."))
    }

    /// Why a run is refused, if it is.
    fn refusal(spec: &SessionSpec) -> Option<String> {
        let error = Session::prepare(spec).err()?;
        assert!(error.is_user());
        Some(error.to_string())
    }

    #[test]
    fn a_last_batch_of_one_sample_is_refused_before_the_first_step() {
        for purpose in [Purpose::Train, Purpose::Capsule, Purpose::Verify] {
            for executor in [Executor::Eager, Executor::Replay] {
                let spec = SessionSpec { purpose, executor, ..spec("[3]", NORM, 1, "short") };
                let text = refusal(&spec).unwrap();
                assert!(
                    text.starts_with("layers[0]: the last batch of an epoch is the 1 sample that 13 leave"),
                    "{text}"
                );
                assert!(text.contains("L0:BatchNorm") && text.contains("set data.last_batch to \"drop\""), "{text}");
            }
        }
        let inside = format!(r#"{{"type": "residual", "layers": [{{"type": "dense", "units": 3}}, {NORM}]}}"#);
        let text = refusal(&spec("[3]", &inside, 1, "short")).unwrap();
        assert!(text.starts_with("layers[0].layers[1]: "), "{text}");
        assert!(refusal(&spec("[3, 1, 1]", NORM, 1, "short")).is_some());
        // Dropped, of two samples, or of several pixels.
        for (shape, left, last) in [("[3]", 1, "drop"), ("[3]", 2, "short"), ("[3, 1, 2]", 1, "short")] {
            assert_eq!(refusal(&spec(shape, NORM, left, last)), None, "{shape} {left} {last}");
        }
    }

    #[test]
    fn a_layer_that_no_step_runs_needs_no_statistics() {
        let choosing = |values: &str| {
            let layers = format!(
                r#"{{"type": "branch", "paths": [[{NORM}], [{{"type": "dense", "units": 3}}]], "choose": {{"by":
                "cycle", "values": {values}}}}}"#
            );
            refusal(&spec("[3]", &layers, 1, "short"))
        };
        assert_eq!(choosing("[1, 1]"), None);
        assert!(choosing("[1, 0]").is_some_and(|text| text.starts_with("layers[0].paths[0][0]: ")));
    }

    #[test]
    fn a_batch_of_one_sample_in_a_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("b.safetensors");
        let values = HostTensor::from_slice(Shape::from([2, 4, 3]), &[0.5f32; 24]).unwrap();
        for (rows, is_right) in [([4, 1], false), ([4, 2], true)] {
            let rows = HostTensor::from_slice([2], &rows).unwrap();
            let tensors = [("batch.x", values.clone()), ("batch.y", values.clone()), ("batch.rows", rows)];
            let tensors = tensors.map(|(name, tensor)| (name.to_owned(), tensor)).to_vec();
            TensorFile { tensors, ..TensorFile::default() }.write(&path).unwrap();
            let mut spec = spec("[3]", NORM, 0, "drop");
            spec.data = DataChoice::Batches(path.clone());
            let found = refusal(&spec);
            assert_eq!(found.is_none(), is_right, "{found:?}");
            assert!(is_right || found.is_some_and(|text| text.contains("batch.rows holds 1 in batch 1: L0:BatchNorm")));
        }
    }
}
