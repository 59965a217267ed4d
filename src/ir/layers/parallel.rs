//! `parallel`: parallel branches whose outputs are combined.

use crate::ir::builder::{At, Backward, Builder, Derivative, Forward, Tape};
use crate::ir::nodes::{self, MOST_JOINED};
use crate::ir::value::ValueId;
use crate::model::layers::{JoinKind, Parallel};

impl Forward for Parallel {
    fn forward(&self, b: &mut Builder<'_>, at: &At<'_>) -> ValueId {
        let before = b.trained_before;
        let mut branches = Vec::with_capacity(self.branches.len());
        for number in 0..self.branches.len() {
            let named = self.branches[number].input.as_deref().and_then(|name| b.input(name));
            // No parameter comes before an input of the network.
            b.trained_before = named.is_none() && before;
            let takes_gradient = b.trained_before;
            let (tape, y) = b.apart(|b| (at.inside)(b, at.layer, number, named.unwrap_or(at.x)));
            branches.push(Part { tape, y, takes_gradient, is_trained: b.trained_before });
        }
        b.trained_before = branches.iter().any(|branch| branch.is_trained);
        let (y, products) = joined(self.join, b, at, &branches);
        let axis = nodes::joined_axis(at.out.rank());
        b.record(Joined { join: self.join, axis, branches, products });
        y
    }
}

/// What the derivative needs for a branch.
struct Part {
    tape: Tape,
    y: ValueId,
    /// Whether its input is the block's input and needs a gradient.
    takes_gradient: bool,
    /// Whether there is a parameter in it or before it, so that its output needs a gradient.
    is_trained: bool,
}

/// The output of a block, with the factors that the derivative of a product needs.
fn joined(join: JoinKind, b: &mut Builder<'_>, at: &At<'_>, branches: &[Part]) -> (ValueId, Vec<[ValueId; 2]>) {
    let mut values: Vec<ValueId> = branches.iter().map(|branch| branch.y).collect();
    let mut products = Vec::new();
    if join == JoinKind::Concat {
        concat(b, at, &mut values);
        return (values[0], products);
    }
    let mut combined = values[0];
    for (number, &value) in values.iter().enumerate().skip(1) {
        let is_last = number + 1 == values.len();
        let name = if is_last { "y".to_owned() } else { format!("y.{number}") };
        let factors = [combined, value];
        combined = b.real(&name, at.out.clone());
        match join {
            JoinKind::Multiply => {
                // The gradient of a factor is that of the product times the other factor.
                let needed = [branches[..number].iter().any(|branch| branch.is_trained), branches[number].is_trained];
                let saved = [(factors[0], needed[1]), (factors[1], needed[0])];
                products.push(saved.map(|(factor, needed)| if needed { b.save(factor) } else { factor }));
                b.node(nodes::Multiply {}, factors.to_vec(), vec![combined]);
            }
            _ => b.node(nodes::Add {}, factors.to_vec(), vec![combined]),
        }
    }
    (combined, products)
}

/// Concatenates values until one is left.
fn concat(b: &mut Builder<'_>, at: &At<'_>, values: &mut Vec<ValueId>) {
    let axis = nodes::joined_axis(at.out.rank());
    while values.len() > 1 {
        let rest = values.split_off(values.len().min(MOST_JOINED));
        let mut shape = at.out.clone();
        shape.0[axis] = values.iter().map(|&value| b.shape(value).0[axis]).sum();
        let y = b.real(if rest.is_empty() { "y" } else { "y.begin" }, shape);
        b.node(nodes::Concat { axis }, std::mem::take(values), vec![y]);
        values.extend(std::iter::once(y).chain(rest));
    }
}

/// Each branch gets the gradient of its output: for a sum that of the block's output, for a concatenation a part of it,
/// for a product that gradient times the other factors. The gradients of branches with the same input are added.
struct Joined {
    join: JoinKind,
    /// The axis along which outputs are concatenated.
    axis: usize,
    branches: Vec<Part>,
    /// The factors of each multiplication: the product of the preceding branches, and the output of the next one.
    products: Vec<[ValueId; 2]>,
}

impl Derivative for Joined {
    fn backward(&self, b: &mut Builder<'_>, at: &Backward<'_>) -> Option<ValueId> {
        let first_reader = self.branches.iter().position(|branch| branch.takes_gradient);
        let (mut dy, mut sum) = (Some(at.dy), None);
        for (number, branch) in self.branches.iter().enumerate().rev() {
            let own = match self.join {
                JoinKind::Add => dy,
                JoinKind::Concat => branch.is_trained.then(|| self.part(b, at.dy, number)),
                JoinKind::Multiply => {
                    let (own, others) = self.factors(b, dy, number);
                    dy = others;
                    own
                }
            };
            let Some(own) = own.filter(|_| branch.is_trained) else { continue };
            let Some(dx) = b.back_over(&branch.tape, own).filter(|_| branch.takes_gradient) else { continue };
            sum = Some(match sum {
                None => dx,
                Some(others) => {
                    let is_last = first_reader == Some(number);
                    let name = if is_last { "gA".to_owned() } else { format!("gA.{number}") };
                    let shape = b.shape(dx);
                    let both = b.real(&name, shape);
                    b.node(nodes::GradAdd {}, vec![dx, others], vec![both]);
                    both
                }
            });
        }
        sum
    }
}

impl Joined {
    /// The part of a gradient that belongs to the output of a branch.
    fn part(&self, b: &mut Builder<'_>, dy: ValueId, number: usize) -> ValueId {
        if self.branches.len() == 1 {
            return dy;
        }
        let width = |branch: &Part| b.shape(branch.y).0[self.axis];
        let from = self.branches[..number].iter().map(width).sum();
        let shape = b.shape(self.branches[number].y);
        let part = b.real(&format!("gY.{number}"), shape);
        b.node(nodes::ConcatBwd { axis: self.axis, from }, vec![dy], vec![part]);
        part
    }

    /// The gradients of a branch's factor and of the product of the preceding branches, if they are needed.
    fn factors(&self, b: &mut Builder<'_>, dy: Option<ValueId>, number: usize) -> (Option<ValueId>, Option<ValueId>) {
        let Some(dy) = dy else { return (None, None) };
        let Some([before, own]) = number.checked_sub(1).map(|at| self.products[at]) else { return (Some(dy), None) };
        let mut times = |factor: ValueId, name: String| {
            let shape = b.shape(factor);
            let product = b.real(&name, shape);
            b.node(nodes::Multiply {}, vec![dy, factor], vec![product]);
            product
        };
        let of_own = self.branches[number].is_trained.then(|| times(before, format!("gY.{number}")));
        let before_is_trained = self.branches[..number].iter().any(|branch| branch.is_trained);
        let name = if number == 1 { "gY.0".to_owned() } else { format!("gY.before.{number}") };
        let of_before = before_is_trained.then(|| times(own, name));
        (of_own, of_before)
    }
}
