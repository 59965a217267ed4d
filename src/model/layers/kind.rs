//! The names and the description of a layer.

/// A kind of layer, without its fields: an entry of the palette.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LayerKind {
    /// The name in presets.
    pub type_name: &'static str,
    /// The name in listings: `Conv2d`.
    pub class: &'static str,
    /// One sentence that describes what it does.
    pub about: &'static str,
}

impl LayerKind {
    pub(super) const fn new(type_name: &'static str, class: &'static str, about: &'static str) -> Self {
        Self { type_name, class, about }
    }
}
