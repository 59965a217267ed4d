//! What a file dialog is for.

use crate::train::export::Format;

/// What a dialog is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DialogPurpose {
    Open,
    SaveAs,
    /// A place for the weights of the run.
    Weights,
    /// A file, or a folder of pictures, for this field of the document's data.
    Data(&'static str),
    DataFolder(&'static str),
    /// A place for a kept run in this format.
    Export(Format),
    /// A place for a capsule.
    Capsule,
    /// A capsule to replay.
    Replay,
}
