//! The purposes of file dialogs.

use crate::train::export::Format;

/// A field of the document's data that names a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataField {
    /// The index of the input that the source belongs to, if several are joined.
    pub input: Option<usize>,
    /// The name as in [`Owner::Preset`](super::fields::value::Owner), such as `data.path`.
    pub name: &'static str,
}

impl DataField {
    /// A field of the only source.
    #[must_use]
    pub const fn only(name: &'static str) -> Self {
        Self { input: None, name }
    }
}

/// The purpose of a dialog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DialogPurpose {
    Open,
    SaveAs,
    /// A path for the weights of the run.
    Weights,
    /// A file, or a folder of pictures, for this field of the document's data.
    Data(DataField),
    DataFolder(DataField),
    /// A path for a kept run in this format.
    Export(Format),
    /// A path for a capsule.
    Capsule,
    /// A capsule to replay.
    Replay,
}
