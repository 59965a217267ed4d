//! Finds layers that need statistics over a batch in which each sample has only a single value.

use super::{Layer, LayerSpec, Model};

/// The number of paths that are searched for such a layer; if there are more, all layers are assumed to run.
const MOST_PATHS: usize = 64;

impl Model {
    /// The first layer on a path that steps may take whose statistics over a batch of one sample would be those of a
    /// single value, which has no variance.
    #[must_use]
    pub fn without_statistics_of_one(&self) -> Option<&Layer> {
        let has_single_values = |layer: &Layer| match (&layer.spec, &layer.input.0[..]) {
            (LayerSpec::BatchNorm(_), [_]) => true,
            (LayerSpec::BatchNorm(_), [_, height, width]) => height * width == 1,
            _ => false,
        };
        self.layers.iter().find(|layer| has_single_values(layer))?;
        let foreseen = self.foreseen(MOST_PATHS);
        let mut is_run = vec![!foreseen.are_all; self.layers.len()];
        for path in &foreseen.paths {
            is_run.iter_mut().zip(self.along(path).run_layers()).for_each(|(any, this)| *any |= this);
        }
        let mut layers = self.layers.iter().zip(is_run);
        layers.find(|(layer, is_run)| *is_run && has_single_values(layer)).map(|(layer, _)| layer)
    }
}
