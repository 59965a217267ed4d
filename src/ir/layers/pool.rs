//! `max_pool2d`, `avg_pool2d` and `global_avg_pool`.

use super::unary::unary;
use crate::ir::Mode;
use crate::ir::builder::{At, Backward, Builder, Derivative, Forward};
use crate::ir::nodes::{self, Over, PoolKind, Window};
use crate::ir::value::{Role, ValueId};
use crate::model::layers::{GlobalAvgPool, Pool, Pool1d};
use crate::tensor::{DType, Shape};

impl<const MAX: bool> Forward for Pool<MAX> {
    fn forward(&self, b: &mut Builder<'_>, at: &At<'_>) -> ValueId {
        let pool = if MAX { PoolKind::Max } else { PoolKind::Avg };
        let Self { size, stride, padding } = *self;
        pooled(b, at, pool, Window { size, stride, padding, dilation: [1, 1], over: Over::Image })
    }
}

impl<const MAX: bool> Forward for Pool1d<MAX> {
    fn forward(&self, b: &mut Builder<'_>, at: &At<'_>) -> ValueId {
        let pool = if MAX { PoolKind::Max } else { PoolKind::Avg };
        let (size, stride, padding) = ([1, self.size], [1, self.stride], [0, self.padding]);
        pooled(b, at, pool, Window { size, stride, padding, dilation: [1, 1], over: Over::Sequence })
    }
}

fn pooled(b: &mut Builder<'_>, at: &At<'_>, pool: PoolKind, window: Window) -> ValueId {
    let y = b.real("y", at.out.clone());
    let mut outputs = vec![y];
    let index = (pool == PoolKind::Max && b.mode == Mode::Train).then(|| {
        let dtype = if window.size[0] * window.size[1] <= 256 { DType::U8 } else { DType::U16 };
        let name = b.local_name("index");
        b.value(name, Role::Activation, at.out.clone(), dtype)
    });
    outputs.extend(index);
    b.node(nodes::Pool { pool, window }, vec![at.x], outputs);
    let input = b.shape(at.x);
    b.record(Pooled { pool, window, index, input });
    y
}

struct Pooled {
    pool: PoolKind,
    window: Window,
    index: Option<ValueId>,
    input: Shape,
}

impl Derivative for Pooled {
    fn backward(&self, b: &mut Builder<'_>, at: &Backward<'_>) -> Option<ValueId> {
        let inputs = std::iter::once(at.dy).chain(self.index).collect();
        b.input_gradient(at, nodes::PoolBwd { pool: self.pool, window: self.window }, inputs, self.input.clone())
    }
}

impl Forward for GlobalAvgPool {
    fn forward(&self, b: &mut Builder<'_>, at: &At<'_>) -> ValueId {
        unary(b, at, nodes::GlobalAvgPool {}, nodes::GlobalAvgPoolBwd {})
    }
}
