//! What a file dialog is for.

use crate::train::export::Format;

/// A field of the document's data that names a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataField {
    /// The place of the input whose source it is, where several are joined.
    pub input: Option<usize>,
    /// As in [`Owner::Preset`](super::fields::value::Owner), such as `data.path`.
    pub name: &'static str,
}

impl DataField {
    /// A field of the only source.
    #[must_use]
    pub const fn only(name: &'static str) -> Self {
        Self { input: None, name }
    }
}

/// What a dialog is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DialogPurpose {
    Open,
    SaveAs,
    /// A place for the weights of the run.
    Weights,
    /// A file, or a folder of pictures, for this field of the document's data.
    Data(DataField),
    DataFolder(DataField),
    /// A place for a kept run in this format.
    Export(Format),
    /// A place for a capsule.
    Capsule,
    /// A capsule to replay.
    Replay,
}
