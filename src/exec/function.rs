//! Functions of one number that the kernels of a step compute, and their exact values.

use crate::model::Activation;

/// A function of one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// The exponential function, as losses compute it.
    Exp,
    /// The natural logarithm, as losses compute it.
    Ln,
    Activation(Activation),
    /// The derivative of an activation at its saved value: its output if [`Activation::saves_output`], otherwise its
    /// input.
    Derivative(Activation),
}

impl Function {
    /// Every function.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let activations = Activation::ALL.into_iter().flat_map(|f| [Self::Activation(f), Self::Derivative(f)]);
        [Self::Exp, Self::Ln].into_iter().chain(activations).collect()
    }

    /// The name in reports; a derivative has a prime after the function's name.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Exp => "exp".to_owned(),
            Self::Ln => "ln".to_owned(),
            Self::Activation(f) => f.name().to_owned(),
            Self::Derivative(f) => format!("{}'", f.name()),
        }
    }

    /// Whether a step can need the function's value at `x`: the saved output of an activation is always one of its
    /// values.
    #[must_use]
    pub fn meets(self, x: f32) -> bool {
        match self {
            Self::Derivative(Activation::Sigmoid) => x.is_nan() || (0.0..=1.0).contains(&x),
            Self::Derivative(Activation::Tanh) => x.is_nan() || x.abs() <= 1.0,
            _ => true,
        }
    }

    /// The value at `x`, to a few units in the last place of an `f64`; at a zero of a derivative, to 1e-16.
    #[must_use]
    pub fn exact(self, x: f64) -> f64 {
        match self {
            Self::Exp => x.exp(),
            Self::Ln => x.ln(),
            Self::Activation(f) => activation(f, x),
            Self::Derivative(f) => derivative(f, x),
        }
    }
}

/// Beyond this, `x` times a tail is below every `f32`.
const TAIL_END: f64 = 200.0;

fn activation(f: Activation, x: f64) -> f64 {
    match f {
        Activation::Relu if x < 0.0 => 0.0,
        Activation::Relu => x,
        Activation::LeakyRelu if x < 0.0 => 0.01 * x,
        Activation::LeakyRelu => x,
        // Infinity times a tail of 0 is defined as 0 here.
        Activation::Gelu | Activation::Silu if x < -TAIL_END => -0.0,
        Activation::Gelu => x * normal_cdf(x),
        Activation::Silu => x * sigmoid(x),
        Activation::Sigmoid => sigmoid(x),
        Activation::Tanh => libm::tanh(x),
    }
}

fn derivative(f: Activation, saved: f64) -> f64 {
    match f {
        Activation::Relu if saved <= 0.0 => 0.0,
        Activation::LeakyRelu if saved <= 0.0 => 0.01,
        Activation::Relu | Activation::LeakyRelu => 1.0,
        Activation::Gelu | Activation::Silu if saved.abs() > TAIL_END => f64::from(u8::from(saved > 0.0)),
        Activation::Gelu => {
            let density = (-0.5 * saved * saved).exp() / std::f64::consts::TAU.sqrt();
            normal_cdf(saved) + saved * density
        }
        // 1 - sigmoid(x) is sigmoid(-x), which avoids the subtraction.
        Activation::Silu => sigmoid(saved) * (1.0 + saved * sigmoid(-saved)),
        Activation::Sigmoid => saved * (1.0 - saved),
        Activation::Tanh => (1.0 - saved) * (1.0 + saved),
    }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// The normal distribution function, by the complementary error function, which keeps its digits in the tail.
fn normal_cdf(x: f64) -> f64 {
    0.5 * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values from a computation with 60 digits.
    #[allow(clippy::excessive_precision, reason = "more digits than an `f64` has, as they were computed")]
    #[test]
    fn exact_values_agree_with_those_of_60_digits() {
        let table = [
            (Function::Exp, -103.5, 1.1233656060805691e-45),
            (Function::Exp, -20.25, 1.6052280551856116e-9),
            (Function::Exp, -0.001, 0.99900049983337499),
            (Function::Exp, 0.5, 1.6487212707001281),
            (Function::Exp, 88.5, 2.7230878250681116e+38),
            (Function::Ln, 1.0009765625, 0.0009760859730554589),
            (Function::Ln, 0.99951171875, -0.00048840049810887446),
            (Function::Ln, 3.5, 1.252762968495368),
            (Function::Ln, 7.174648137343064e-43, -97.040605278392343),
            (Function::Ln, 1e+30, 69.077552789821371),
            (Function::Activation(Activation::Gelu), -13.25, -2.9892216500836705e-39),
            (Function::Activation(Activation::Gelu), -9.5, -9.9697893215944771e-21),
            (Function::Activation(Activation::Gelu), -3.125, -0.0027782040597138502),
            (Function::Activation(Activation::Gelu), -0.5, -0.15426876936299345),
            (Function::Activation(Activation::Gelu), -9.313225746154785e-10, -4.6566128696171199e-10),
            (Function::Activation(Activation::Gelu), 0.75, 0.58002948571734885),
            (Function::Activation(Activation::Gelu), 5.5, 5.4999998955574064),
            (Function::Derivative(Activation::Gelu), -13.25, -3.9604687086853048e-38),
            (Function::Derivative(Activation::Gelu), -5.5, -5.7334723987399248e-7),
            (Function::Derivative(Activation::Gelu), -1.5, -0.12746919222997953),
            (Function::Derivative(Activation::Gelu), -0.75, 0.00077427826076489563),
            (Function::Derivative(Activation::Gelu), -0.25, 0.30462664511636397),
            (Function::Derivative(Activation::Gelu), 2.5, 1.0376110859081452),
            (Function::Activation(Activation::Silu), -91.5, -1.6729231843800724e-38),
            (Function::Activation(Activation::Silu), -20.5, -2.5628133728889139e-8),
            (Function::Activation(Activation::Silu), -1.25, -0.27837517353163607),
            (Function::Activation(Activation::Silu), 9.5367431640625e-07, 4.7683738557680044e-7),
            (Function::Activation(Activation::Silu), 30.5, 30.499999999998269),
            (Function::Derivative(Activation::Silu), -91.5, -1.6546398708895798e-38),
            (Function::Derivative(Activation::Silu), -20.5, -2.4377980832026194e-8),
            (Function::Derivative(Activation::Silu), -1.25, 0.0063191550846875812),
            (Function::Derivative(Activation::Silu), -1.28125, -0.00060556778666834456),
            (Function::Derivative(Activation::Silu), 0.5, 0.73996118730265181),
            (Function::Derivative(Activation::Silu), 17.5, 1.0000004143148393),
            (Function::Activation(Activation::Sigmoid), -87.25, 1.2817592313147442e-38),
            (Function::Activation(Activation::Sigmoid), -1.5, 0.18242552380635634),
            (Function::Activation(Activation::Sigmoid), 16.5, 0.9999999317439709),
            (Function::Activation(Activation::Tanh), 9.5367431640625e-07, 9.5367431640596088e-7),
            (Function::Activation(Activation::Tanh), -0.03125, -0.031239831446031257),
            (Function::Activation(Activation::Tanh), 0.75, 0.63514895238728732),
            (Function::Activation(Activation::Tanh), 8.5, 0.99999991720124905),
        ];
        for (function, x, expected) in table {
            let found = function.exact(x);
            let error = (found - expected).abs();
            assert!(error <= 2e-13 * expected.abs() + 2e-16, "{}({x}) is {found:e}, not {expected:e}", function.name());
        }
    }

    #[test]
    fn values_at_infinity_are_the_limits() {
        let inf = f64::INFINITY;
        let of = |f, x| Function::Activation(f).exact(x);
        assert_eq!((of(Activation::Gelu, -inf), of(Activation::Silu, -inf)), (0.0, 0.0));
        assert_eq!((of(Activation::Gelu, inf), of(Activation::Silu, inf)), (inf, inf));
        for f in Activation::ALL {
            assert!(Function::Derivative(f).exact(if f.saves_output() { 1.0 } else { inf }).is_finite());
            assert!(of(f, f64::NAN).is_nan());
        }
        assert!(Function::Ln.exact(-1.0).is_nan() && Function::Exp.exact(-inf) == 0.0);
    }
}
