//! What a kind of node declares, and the shapes that its rule checks.

use crate::ir::value::{Role, Value, ValueId};

/// The properties of a kind of node.
pub trait NodeType {
    /// The name in listings, if it is not the struct's name.
    fn name(&self) -> Option<&'static str> {
        None
    }

    /// Checks the shapes of inputs and outputs.
    ///
    /// # Errors
    /// The violated rule.
    fn verify(&self, at: &Shapes<'_>) -> Result<(), String>;
}

/// The shapes of a node's inputs and outputs.
pub struct Shapes<'a> {
    pub(in crate::ir) values: &'a [Value],
    pub(in crate::ir) inputs: &'a [ValueId],
    pub(in crate::ir) outputs: &'a [ValueId],
}

impl<'a> Shapes<'a> {
    fn dims(&self, list: &[ValueId], index: usize) -> &'a [usize] {
        list.get(index).map_or(&[][..], |id| &self.values[id.0 as usize].shape.0)
    }

    /// The dimensions of an input; empty if there is no such input.
    pub(super) fn input(&self, index: usize) -> &'a [usize] {
        self.dims(self.inputs, index)
    }

    /// The dimensions of an output; empty if there is no such output.
    pub(super) fn output(&self, index: usize) -> &'a [usize] {
        self.dims(self.outputs, index)
    }

    /// The number of inputs and outputs with this role.
    pub(super) fn count(&self, role: Role) -> [usize; 2] {
        [self.inputs, self.outputs].map(|ids| ids.iter().filter(|id| self.values[id.0 as usize].role == role).count())
    }
}

/// `shape_rules! { Mse, MseGrad: |at| same(at.input(0), at.input(1)); }` implements kinds of nodes whose rule does not
/// depend on their fields: all kinds that are listed together have the same rule.
macro_rules! shape_rules {
    ($($($Node:ident),+: |$at:ident| $rule:expr;)+) => {
        $($(
            impl $crate::ir::nodes::NodeType for $Node {
                fn verify(&self, $at: &$crate::ir::nodes::Shapes<'_>) -> Result<(), String> {
                    $rule
                }
            }
        )+)+
    };
}
pub(super) use shape_rules;

pub(super) fn must(holds: bool, rule: impl Into<String>) -> Result<(), String> {
    if holds { Ok(()) } else { Err(rule.into()) }
}

pub(super) fn same(a: &[usize], b: &[usize]) -> Result<(), String> {
    if a == b { Ok(()) } else { Err(format!("{a:?} and {b:?} should be equal")) }
}

pub(super) fn elements(dims: &[usize]) -> usize {
    dims.iter().product()
}
