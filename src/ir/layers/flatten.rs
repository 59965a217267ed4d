//! `flatten`.

use super::unary::unary;
use crate::ir::builder::{At, Builder, Forward};
use crate::ir::nodes;
use crate::ir::value::ValueId;
use crate::model::layers::Flatten;

impl Forward for Flatten {
    fn forward(&self, b: &mut Builder<'_>, at: &At<'_>) -> ValueId {
        unary(b, at, nodes::Flatten {}, nodes::FlattenBwd {})
    }
}
