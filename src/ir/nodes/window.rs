//! Windows over images and sequences.

use serde::{Deserialize, Serialize};

/// What a window slides over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Over {
    /// `[N, C, H, W]`.
    #[default]
    Image,
    /// `[N, T, C]`: an image of one row, whose columns are the positions.
    Sequence,
    /// The same, with all of the padding before the first position.
    Causal,
}

impl Over {
    fn is_image(&self) -> bool {
        *self == Self::Image
    }
}

/// A window that slides over an image or a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Window {
    pub size: [usize; 2],
    pub stride: [usize; 2],
    pub padding: [usize; 2],
    pub dilation: [usize; 2],
    #[serde(default, skip_serializing_if = "Over::is_image")]
    pub over: Over,
}

/// The dimensions `[n, c, h, w]` of images, or of sequences `[n, t, c]` as images of one row.
#[must_use]
pub fn image_dims(dims: &[usize]) -> Option<[usize; 4]> {
    match *dims {
        [n, c, h, w] => Some([n, c, h, w]),
        [n, t, c] => Some([n, c, 1, t]),
        _ => None,
    }
}
