//! Checks whether an export fits, given only the network: before parameters are read or drawn.

use super::onnx::MAX_BYTES;
use super::{ExportError, Format};
use crate::data::{DataSize, Request, expected_size};
use crate::model::{Model, Preset, check};
use crate::tensor::Bytes;
use crate::train::TrainError;
use crate::train::file_header::read_header;
use crate::train::memory_needs::{Needs, PROGRAM};
use std::path::Path;

/// The prefix of the names of a checkpoint's tensors that are not parameters.
pub(super) const STATE: &str = "state.";

/// Refuses an export of a network whose file the format does not allow, or for which the memory is too small; `file`
/// contains its parameters, which are drawn if there is none.
///
/// # Errors
/// What does not fit, with numbers and what to do.
pub(super) fn check_room(
    preset: Option<&Preset>,
    base: &Path,
    file: Option<&Path>,
    format: Format,
) -> Result<(), ExportError> {
    if format.shows_curves() {
        return Ok(());
    }
    let model = preset.and_then(|preset| check(preset).model);
    let params = model.as_ref().map_or(0, |model| model.params.iter().map(|p| 4 * p.shape.len() as u64).sum());
    if format == Format::Onnx && params > MAX_BYTES as u64 {
        let (needed, limit) = (Bytes(params), Bytes(MAX_BYTES as u64));
        return Err(ExportError::TooLarge { what: "ONNX", needed, limit });
    }
    let data = preset
        .zip(model.as_ref())
        .map_or_else(DataSize::default, |(preset, model)| data_of(preset, model, base, format));
    let needs = needs(model.as_ref(), file.map(bytes_of), data, format);
    Ok(needs.check_here().map_err(TrainError::from)?)
}

/// The samples that an export reads.
fn data_of(preset: &Preset, model: &Model, base: &Path, format: Format) -> DataSize {
    let source = preset.data.as_ref().map(|data| &data.source).filter(|_| format != Format::Safetensors);
    source.map_or_else(DataSize::default, |source| expected_size(source, &Request::of(model, 0), base))
}

/// The memory of an export, with parameters of this many bytes `read` from a file, or drawn.
fn needs(model: Option<&Model>, read: Option<u64>, data: DataSize, format: Format) -> Needs {
    let sizes = || model.into_iter().flat_map(|model| &model.params).map(|p| 4 * p.shape.len() as u64);
    let (params, largest) = (sizes().sum::<u64>(), sizes().max().unwrap_or(0));
    let mut needs = Needs::default();
    needs.add("the program's own tables", PROGRAM);
    needs.add("the parameters", read.unwrap_or(params));
    needs.add("the largest parameter, while it is copied", largest);
    // The graph grows, and becomes a part of the file.
    needs.add("the file, while it is composed", if format == Format::Onnx { 3 * params + largest } else { 0 });
    needs.add("the samples", data.held);
    needs.add("the files of the samples, while they are read", data.reading);
    needs.add("the samples, while they are written", if format == Format::PyTorch { data.held } else { 0 });
    needs
}

/// Bytes of the parameters in a file, by its header; a file that cannot be read is refused when it is read.
fn bytes_of(path: &Path) -> u64 {
    let header = path.is_file().then(|| read_header(path).ok()).flatten().map(|(header, _)| header);
    let tensors = header.as_ref().and_then(|header| header.as_object()).into_iter().flatten();
    let params = tensors.filter(|(name, _)| !name.starts_with(STATE));
    let length = |[from, to]: [u64; 2]| to.saturating_sub(from);
    let offsets = params.filter_map(|(_, t)| serde_json::from_value::<[u64; 2]>(t["data_offsets"].clone()).ok());
    offsets.map(length).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::read_preset;
    use crate::train::{Session, SessionSpec};

    fn preset(units: usize) -> Preset {
        let text = format!(
            r#"{{"version": 1, "name": "n", "input": {{"shape": [2], "batch": 16}},
            "layers": [{{"type": "dense", "units": {units}}}, {{"type": "dense", "units": {units}}},
            {{"type": "dense", "units": 2}}],
            "loss": {{"type": "softmax_cross_entropy"}}, "optimizer": {{"type": "adam", "lr": 0.01}},
            "data": {{"type": "moons", "samples": 200, "noise": 0.1}}}}"#
        );
        read_preset(&text).unwrap()
    }

    #[test]
    fn every_format_estimates_its_memory() {
        let model = check(&preset(512)).model.unwrap();
        let params = 4 * model.params.iter().map(|p| p.shape.len() as u64).sum::<u64>();
        let of = |format| {
            let data = data_of(&preset(512), &model, Path::new("."), format);
            needs(Some(&model), None, data, format).bytes()
        };
        let weights = of(Format::Safetensors);
        assert_eq!(weights, PROGRAM + params + 512 * 512 * 4);
        assert_eq!(of(Format::PyTorch), weights + 2 * 200 * 3 * 4);
        assert_eq!(of(Format::Onnx), weights + 200 * 3 * 4 + 3 * params + 512 * 512 * 4);
        // Data that are read have the same size as in their file.
        let read = needs(Some(&model), Some(7), DataSize::default(), Format::Safetensors);
        assert_eq!(read.bytes(), weights - params + 7);
    }

    #[test]
    fn a_checkpoints_state_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let [weights, checkpoint] = ["w", "c"].map(|name| folder.path().join(name));
        let spec = SessionSpec { threads: 1, ..SessionSpec::new(preset(16), ".".into()) };
        let session = Session::prepare(&spec).unwrap();
        session.save_weights(&weights).unwrap();
        session.save_checkpoint(&checkpoint, &spec.preset).unwrap();
        let params = 4 * (2 * 16 + 16 + 16 * 16 + 16 + 2 * 16 + 2);
        assert_eq!([bytes_of(&weights), bytes_of(&checkpoint), bytes_of(Path::new("none"))], [params, params, 0]);
    }

    #[test]
    fn parameters_beyond_the_limit_of_onnx_are_refused_with_numbers() {
        let message = check_room(Some(&preset(50_000)), Path::new("."), None, Format::Onnx).unwrap_err();
        assert!(
            message.is_user() && message.to_string().contains("take 9.3 GiB, and ONNX allows 2.0 GiB"),
            "{message}"
        );
        assert!(message.to_string().contains("export safetensors or pytorch"), "{message}");
    }
}
