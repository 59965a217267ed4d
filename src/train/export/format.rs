//! The formats that exports have.

use crate::train::ResultKind;
use std::path::Path;

/// A format to export to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    Csv,
    Jsonl,
    Png,
    Svg,
    Safetensors,
    PyTorch,
    Onnx,
    TensorBoard,
}

impl Format {
    pub const ALL: [Self; 8] =
        [Self::Csv, Self::Jsonl, Self::Png, Self::Svg, Self::Safetensors, Self::PyTorch, Self::Onnx, Self::TensorBoard];

    /// The name in commands.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Jsonl => "jsonl",
            Self::Png => "png",
            Self::Svg => "svg",
            Self::Safetensors => "safetensors",
            Self::PyTorch => "pytorch",
            Self::Onnx => "onnx",
            Self::TensorBoard => "tensorboard",
        }
    }

    /// The name for the user.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Csv => "Curves as CSV",
            Self::Jsonl => "Curves as JSON lines",
            Self::Png => "Plot as PNG",
            Self::Svg => "Plot as SVG",
            Self::Safetensors => "Weights as safetensors",
            Self::PyTorch => "PyTorch script",
            Self::Onnx => "ONNX for inference",
            Self::TensorBoard => "TensorBoard events",
        }
    }

    /// The suffix of a file's name; TensorBoard's events are in a folder.
    #[must_use]
    pub const fn extension(self) -> &'static str {
        match self {
            Self::PyTorch => "py",
            Self::TensorBoard => "",
            other => other.name(),
        }
    }

    /// The format that a file's name implies; a TensorBoard folder is chosen by the format's name.
    #[must_use]
    pub fn of_path(path: &Path) -> Option<Self> {
        let extension = path.extension().and_then(|e| e.to_str()).unwrap_or_default().to_lowercase();
        Self::ALL.into_iter().find(|f| !extension.is_empty() && f.extension() == extension)
    }

    /// The content of file `index` of an export, in the order of [`Subject::files`].
    pub(super) const fn kind(self, index: usize) -> ResultKind<'static> {
        match (self, index) {
            (Self::Csv, _) => ResultKind::Curves,
            (Self::Jsonl, _) => ResultKind::Log,
            (Self::Png, _) => ResultKind::Png,
            (Self::Svg, _) => ResultKind::Picture,
            (Self::Onnx, _) => ResultKind::Onnx,
            (Self::TensorBoard, _) => ResultKind::Events,
            (Self::PyTorch, 0) => ResultKind::Script,
            (Self::Safetensors, _) | (Self::PyTorch, 1) => ResultKind::Weights(None),
            (Self::PyTorch, _) => ResultKind::Data,
        }
    }

    /// Whether it contains curves instead of a network.
    #[must_use]
    pub const fn shows_curves(self) -> bool {
        matches!(self, Self::Csv | Self::Jsonl | Self::Png | Self::Svg | Self::TensorBoard)
    }
}
