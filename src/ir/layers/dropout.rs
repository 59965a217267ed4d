//! `dropout`.

use super::unary::WithSaved;
use crate::ir::builder::{At, Builder, Forward};
use crate::ir::nodes;
use crate::ir::value::{Role, ValueId};
use crate::model::layers::Dropout;
use crate::tensor::{DType, Shape};

impl Forward for Dropout {
    fn forward(&self, b: &mut Builder<'_>, at: &At<'_>) -> ValueId {
        let (rate, stream) = (self.rate, b.streams);
        b.streams += 1;
        let Some(counter) = b.drawn_by().filter(|_| rate > 0.0) else { return at.x };
        let y = b.real("y", at.out.clone());
        let name = b.local_name("mask");
        let mask = b.value(name, Role::Activation, Shape::from([at.out.len().div_ceil(8)]), DType::U8);
        b.node(nodes::Dropout { rate, stream }, vec![at.x, counter], vec![y, mask]);
        b.record(WithSaved { gradient: nodes::DropoutBwd { rate }.into(), saved: mask });
        y
    }
}
