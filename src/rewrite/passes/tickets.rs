//! Adds the tickets: counters of finished blocks, by which a kernel whose blocks share a result determines the last
//! block.

use crate::rewrite::pass::Goal;
use crate::rewrite::rewriter::Rewriter;
use crate::tensor::DType;
use std::collections::HashMap;

pub(super) fn run(rw: &mut Rewriter, _: &Goal) {
    // Operations that do not depend on each other may run in one launch, so that each has a separate counter.
    let mut made: HashMap<&'static str, usize> = HashMap::new();
    for number in 0..rw.len() {
        let kind = &rw.op(number).kind;
        if kind.slot("ticket").is_some() {
            let count = made.entry(kind.name()).or_default();
            *count += 1;
            let name = match *count {
                1 => format!("ticket.{}", kind.name()),
                more => format!("ticket.{}.{more}", kind.name()),
            };
            let ticket = rw.state(name, DType::I32, 1);
            rw.bind(number, "ticket", ticket);
        }
    }
}
