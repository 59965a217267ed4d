//! The common methods of layers with one list of layers.

/// The methods of a [`LayerType`](crate::model::layers::LayerType) whose only list is its field `layers`.
macro_rules! one_list {
    () => {
        fn infer(&self, _cx: &mut $crate::model::infer::Infer<'_>) -> Option<$crate::tensor::Shape> {
            unreachable!("the checker goes through the layers inside")
        }

        fn lists(&self) -> Vec<&Vec<LayerSpec>> {
            vec![&self.layers]
        }

        fn lists_mut(&mut self) -> Vec<&mut Vec<LayerSpec>> {
            vec![&mut self.layers]
        }
    };
}

pub(crate) use one_list;
