//! `lion`: steps of equal size, by the sign of a mean of the gradients.

use super::optimizer_type::{OptimizerType, UpdateRule, betas, lr, weight_decay};
use crate::model::draw::Draw;
use crate::model::field_value::FieldValue;
use crate::model::schema::{FieldSpec, lens};

/// Chen et al. 2023, *Symbolic Discovery of Optimization Algorithms*.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lion {
    pub lr: f64,
    pub betas: [f64; 2],
    pub weight_decay: f64,
}

impl OptimizerType for Lion {
    const NAME: &'static str = "lion";
    const TITLE: &'static str = "Lion";
    const PYTORCH_CLASS: Option<&'static str> = Some(
        r#"class Lion(torch.optim.Optimizer):
    """Chen et al. 2023, Symbolic Discovery of Optimization Algorithms."""

    def __init__(self, params, lr, betas, weight_decay):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["m"] = torch.zeros_like(p)
                direction = torch.sign(beta1 * state["m"] + (1 - beta1) * p.grad)
                p.mul_(1 - group["lr"] * group["weight_decay"]).add_(direction, alpha=-group["lr"])
                state["m"].mul_(beta2).add_(p.grad, alpha=1 - beta2)
        return loss
"#,
    );
    const FIELDS: &'static [FieldSpec<Self>] = &[
        lr::<Self>(lens!(lr)).default(|_| FieldValue::Number(1e-4)),
        betas::<Self>(lens!(betas), |_| FieldValue::Numbers([0.9, 0.99]))
            .help("The share of the running mean in the direction of a step, and the decay of the mean."),
        weight_decay::<Self>(lens!(weight_decay)),
    ];

    fn example() -> Self {
        Self { lr: 1e-4, betas: [0.9, 0.99], weight_decay: 0.0 }
    }

    fn drawn(draw: &mut Draw, _way: usize) -> Self {
        let first = draw.extreme_or(&[0.0, 0.999, 0.999_999], |d| d.pick(&[0.5, 0.8, 0.9, 0.95]));
        let second = draw.extreme_or(&[0.0, 0.9, 0.999_999], |d| d.pick(&[0.9, 0.98, 0.99]));
        Self { betas: [first, second], ..Self::example() }
    }

    fn cost(&self) -> usize {
        3
    }

    fn rule(&self) -> UpdateRule {
        UpdateRule::Lion { betas: self.betas }
    }

    fn is_decoupled(&self) -> bool {
        true
    }

    fn first_gradient(&self) -> Option<(&'static str, f64)> {
        Some(("m", 1.0 - self.betas[1]))
    }
}
