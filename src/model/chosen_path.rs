//! The path of a step: the value of every choosing layer that it reaches.

use super::path::LayerPath;
use std::fmt;
use std::sync::Arc;

/// The values that a step chooses, with the layers that choose them, in the order in which the step reaches these.
/// Empty in a network that does not choose.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Path(pub(super) Arc<[(LayerPath, usize)]>);

impl Path {
    /// The value that a layer chooses; `None` if the path does not reach it.
    #[must_use]
    pub fn value(&self, layer: &LayerPath) -> Option<usize> {
        self.0.iter().find(|(at, _)| at == layer).map(|(_, value)| *value)
    }

    /// Whether it contains no choices, because the network does not choose.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.0.is_empty()
    }

    /// The layers that choose, with their values.
    #[must_use]
    pub fn choices(&self) -> &[(LayerPath, usize)] {
        &self.0
    }
}

/// `L1=0 L4=2`: the layers by their numbers, with the values; `whole` if nothing is chosen. The same in every run.
impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_whole() {
            return f.write_str("whole");
        }
        for (number, (layer, value)) in self.0.iter().enumerate() {
            let space = if number == 0 { "" } else { " " };
            write!(f, "{space}L{}={value}", layer.number())?;
        }
        Ok(())
    }
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
