//! Zeros around an image.

/// Zeros around the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Padding {
    /// Rows and columns on each side.
    Fixed([usize; 2]),
    /// `dilation * (kernel - 1) / 2` for odd kernels: with stride 1 the output is as large as the input.
    Same,
    /// None.
    Valid,
}
