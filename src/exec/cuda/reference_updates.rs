//! References of operations that are fused only on GPUs, composed of the references of their parts.

use super::reference_bounds::Judged;
use crate::exec::cpu::call::{Call, MAX_ARGS, Part};
use crate::exec::cpu::kernels::reference;
use crate::ops::{self, Epilogue, Gemm, OpKind, Segment, Trans};

/// The results of an operation by slot, from its inputs by slot; `None` if it is not one of these operations.
pub(super) fn reference<T: Judged>(
    kind: &OpKind,
    input: &dyn Fn(&str) -> Option<Vec<T>>,
) -> Option<Vec<(&'static str, Vec<T>)>> {
    let nan = T::exact(f64::NAN);
    let get = |slot: &str| input(slot).unwrap_or_default();
    let (grad, [beta1, beta2, eps], decoupled) = match *kind {
        OpKind::WeightStep(ops::WeightStep { m, n, k, beta1, beta2, eps, decoupled, .. }) => {
            let gemm = Gemm::plain(m, n, k, Trans::Tn);
            let mut bound = [("a", get("a")), ("b", get("b")), ("c", vec![nan; m * n])];
            run(OpKind::Gemm(gemm), &mut bound);
            let [.., (_, grad)] = bound;
            (grad, [beta1, beta2, eps], decoupled)
        }
        OpKind::BiasStep(ops::BiasStep { rows, cols, beta1, beta2, eps, decoupled }) => {
            let mut bound = [("dy", get("a")), ("db", vec![nan; cols])];
            run(OpKind::BiasGrad(ops::BiasGrad { rows, cols, accumulate: false, zeros: None }), &mut bound);
            let [_, (_, grad)] = bound;
            (grad, [beta1, beta2, eps], decoupled)
        }
        OpKind::LossMean(ops::LossMean { rows }) => {
            let mean = |slot: &str| vec![sum_of(&get(slot)) / T::exact(rows as f64)];
            return Some(vec![("loss", mean("row_loss")), ("accuracy", mean("row_right"))]);
        }
        OpKind::StepMetrics(ops::StepMetrics { ref segments }) => {
            let parts = get("parts");
            let of = |s: &Segment| totals(&parts[2 * s.start..2 * (s.start + s.len)]);
            let (max, norms): (Vec<T>, Vec<T>) = segments.iter().map(of).map(|t| (t[0], t[1])).unzip();
            let (largest, norm) = (max.iter().copied().fold(T::ZERO, T::larger), root_of_squares(&norms));
            return Some(vec![
                ("update_max_seg", max),
                ("grad_norm_seg", norms),
                ("update_max", vec![largest]),
                ("grad_norm", vec![norm]),
            ]);
        }
        _ => return joined_product(kind, &get),
    };
    let len = grad.len();
    let (segments, options) = (vec![Segment { start: 0, len }], ops::StepOptions::default());
    let mut bound = [
        ("param_prev", get("param_prev")),
        ("grad", grad),
        ("m_prev", get("m_prev")),
        ("v_prev", get("v_prev")),
        ("hyper", get("hyper")),
        ("corr", get("corr")),
        ("param", vec![nan; len]),
        ("m", vec![nan; len]),
        ("v", vec![nan; len]),
        ("update_max", vec![nan]),
        ("grad_norm_seg", vec![nan]),
    ];
    run(OpKind::AdamStep(ops::AdamStep { len, segments, beta1, beta2, eps, decoupled, options }), &mut bound);
    let [.., (_, param), (_, m), (_, v), (_, max), (_, norms)] = bound;
    let mut parts = vec![T::ZERO; 2 * kind.step_parts()];
    parts[..2].copy_from_slice(&[max[0], norms[0]]);
    Some(vec![("shadow", param.clone()), ("param", param), ("m", m), ("v", v), ("parts", parts)])
}

/// What an operation gives that is a product and what follows it; nothing where it is none.
fn joined_product<T: Judged>(kind: &OpKind, get: &dyn Fn(&str) -> Vec<T>) -> Option<Vec<(&'static str, Vec<T>)>> {
    match *kind {
        OpKind::DenseCe { .. } => Some(dense_ce(kind, get)),
        OpKind::GemmNorm(op) => Some(normalised(op, get)),
        OpKind::GemmNormBwd(op) => Some(norm_gradient(op, get)),
        _ => None,
    }
}

/// Product, loss and gradient, one after the other.
fn dense_ce<T: Judged>(kind: &OpKind, get: &dyn Fn(&str) -> Vec<T>) -> Vec<(&'static str, Vec<T>)> {
    let nan = T::exact(f64::NAN);
    let OpKind::DenseCe(ops::DenseCe { rows, features, classes, smoothing, bias, act_grad, saved_is_input, dropout }) =
        *kind
    else {
        return Vec::new();
    };
    let (weight, len) = (get("b"), rows * classes);
    let gemm = |m, n, k, trans, epilogue| OpKind::Gemm(Gemm { epilogue, ..Gemm::plain(m, n, k, trans) });
    let forward = Epilogue { bias, ..Epilogue::default() };
    let mut bound = [("a", get("a")), ("b", weight.clone()), ("bias", get("bias")), ("c", vec![nan; len])];
    run(gemm(rows, classes, features, Trans::Nn, forward), &mut bound);
    let [.., (_, scores)] = bound;
    let labels: Vec<i32> = get("labels").into_iter().map(|label| label.f64() as i32).collect();
    let right = scores.chunks(classes).zip(&labels).map(|(row, label)| {
        let best = (0..classes).fold(0, |best, col| if row[col] > row[best] { col } else { best });
        T::exact(f64::from(u8::from(usize::try_from(*label) == Ok(best))))
    });
    let right = right.collect();
    let mut bound = [("logits", scores), ("row_loss", vec![nan; rows]), ("probs", vec![nan; len])];
    run_with(OpKind::SoftmaxCe(ops::SoftmaxCe { rows, classes, smoothing }), &mut bound, &labels);
    let [_, (_, row_loss), (_, probs)] = bound;
    let mut bound = [("probs", probs), ("dlogits", vec![nan; len])];
    run_with(OpKind::SoftmaxCeGrad(ops::SoftmaxCeGrad { rows, classes, smoothing }), &mut bound, &labels);
    let [_, (_, mut dlogits)] = bound;
    let scale = get("scale").first().copied().unwrap_or(T::exact(1.0));
    dlogits.iter_mut().for_each(|v| *v = *v * scale);
    let saved = if saved_is_input { get("a") } else { get("saved") };
    let backward = Epilogue { act_grad, ..Epilogue::default() };
    let mut bound = [("a", dlogits.clone()), ("b", weight), ("saved", saved), ("c", vec![nan; rows * features])];
    run(gemm(rows, features, classes, Trans::Nt, backward), &mut bound);
    let [.., (_, mut dx)] = bound;
    let kept = T::of(1.0 - dropout.get());
    dx.iter_mut().for_each(|v| *v = *v / kept);
    vec![("dlogits", dlogits), ("row_loss", row_loss), ("row_right", right), ("dx", dx)]
}

/// A product and the normalisation of its rows, one after the other.
fn normalised<T: Judged>(op: ops::GemmNorm, get: &dyn Fn(&str) -> Vec<T>) -> Vec<(&'static str, Vec<T>)> {
    let ops::GemmNorm { m, n, k, trans, accumulate, bias, eps, rms } = op;
    let (nan, epilogue) = (T::exact(f64::NAN), Epilogue { bias, ..Epilogue::default() });
    let before = if accumulate { get("c_prev") } else { vec![nan; m * n] };
    let mut bound = [("a", get("a")), ("b", get("b")), ("bias", get("bias")), ("c", before)];
    run(OpKind::Gemm(Gemm { accumulate, epilogue, ..Gemm::plain(m, n, k, trans) }), &mut bound);
    let [.., (_, c)] = bound;
    let mut bound = [
        ("x", c.clone()),
        ("gamma", get("gamma")),
        ("beta", get("beta")),
        ("y", vec![nan; m * n]),
        ("mean", if rms { Vec::new() } else { vec![nan; m] }),
        ("rstd", vec![nan; m]),
    ];
    run(OpKind::LayerNorm(ops::LayerNorm { rows: m, cols: n, eps, rms }), &mut bound);
    let [.., y, mean, rstd] = bound;
    [("c", c), y, mean, rstd].into_iter().filter(|(_, values)| !values.is_empty()).collect()
}

/// A product and the gradient of the preceding normalisation, one after the other.
fn norm_gradient<T: Judged>(op: ops::GemmNormBwd, get: &dyn Fn(&str) -> Vec<T>) -> Vec<(&'static str, Vec<T>)> {
    let ops::GemmNormBwd { m, n, k, trans, rms } = op;
    let nan = T::exact(f64::NAN);
    let mut bound = [("a", get("a")), ("b", get("b")), ("c", vec![nan; m * n])];
    run(OpKind::Gemm(Gemm::plain(m, n, k, trans)), &mut bound);
    let [.., (_, c)] = bound;
    let mut bound = [
        ("dy", c.clone()),
        ("x", get("x")),
        ("gamma", get("gamma")),
        ("mean", get("mean")),
        ("rstd", get("rstd")),
        ("dx", vec![nan; m * n]),
    ];
    let part = ops::GradientPart::Input;
    run(OpKind::LayerNormBwd(ops::LayerNormBwd { rows: m, cols: n, accumulate: false, rms, part }), &mut bound);
    let [.., (_, mut dx)] = bound;
    dx.iter_mut().zip(get("residual")).for_each(|(own, around)| *own = *own + around);
    vec![("c", c), ("dx", dx)]
}

/// The largest change and the norm of all pairs; NaN if one of them is NaN.
pub(super) fn totals<T: Judged>(parts: &[T]) -> [T; 2] {
    let larger = |most: T, v: &T| if most.f64().is_nan() { most } else { most.larger(*v) };
    let norms: Vec<T> = parts.iter().skip(1).step_by(2).copied().collect();
    [parts.iter().step_by(2).fold(T::ZERO, larger), root_of_squares(&norms)]
}

/// The norm of a whole from the norms of its parts.
pub(super) fn root_of_squares<T: Judged>(norms: &[T]) -> T {
    norms.iter().fold(T::ZERO, |sum, n| sum + *n * *n).sqrt()
}

fn sum_of<T: Judged>(values: &[T]) -> T {
    values.iter().fold(T::ZERO, |sum, v| sum + *v)
}

/// Runs the plain loops of an operation on these buffers.
fn run<T: Judged>(kind: OpKind, bound: &mut [(&str, Vec<T>)]) {
    run_with(kind, bound, &[]);
}

/// Like [`run`], with class labels.
fn run_with<T: Judged>(kind: OpKind, bound: &mut [(&str, Vec<T>)], labels: &[i32]) {
    let mut call = Call {
        run: reference::resolve::<T>().run,
        ptr: [std::ptr::null_mut(); MAX_ARGS],
        table: Box::default(),
        phases: 1,
        parallel: false,
        around: None,
        op: kind,
    };
    for (slot, values) in bound.iter_mut().filter(|(_, values)| !values.is_empty()) {
        if let Some(index) = call.op.slot(slot).filter(|i| *i < MAX_ARGS) {
            call.ptr[index] = values.as_mut_ptr().cast();
        }
    }
    if let Some(index) = call.op.slot("labels").filter(|i| *i < MAX_ARGS) {
        // No operation writes labels.
        call.ptr[index] = labels.as_ptr().cast_mut().cast();
    }
    // SAFETY: every slot that the operation needs points at as many elements as its dimensions demand, and nobody
    // else touches them.
    unsafe { (call.run)(&call, Part::WHOLE) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::cpu::kernels::reference::Real as _;
    use crate::exec::cpu::kernels::reference::bounded::Bounded;
    use crate::ops::Scalar;

    #[test]
    fn a_fused_update_equals_the_gradient_followed_by_the_update() {
        let (m, n, k) = (3, 2, 4);
        let [beta1, beta2, eps] = [0.9, 0.999, 1e-8].map(Scalar::new);
        let kind =
            OpKind::WeightStep(ops::WeightStep { m, n, k, grain: 8, together: 0, beta1, beta2, eps, decoupled: true });
        let input = |slot: &str| {
            let values: Vec<f64> = match slot {
                "a" => (0..m * k).map(|i| i as f64 * 0.1).collect(),
                "b" => (0..n * k).map(|i| 1.0 - i as f64 * 0.2).collect(),
                "hyper" => vec![0.01, 0.0],
                "corr" => vec![10.0, 1000.0f64.sqrt()],
                _ => vec![0.0; m * n],
            };
            Some(values.into_iter().map(Bounded::<24, 24>::exact).collect())
        };
        let out = reference(&kind, &input).unwrap();
        let find =
            |name: &str| -> Vec<f64> { out.iter().find(|o| o.0 == name).unwrap().1.iter().map(|v| v.f64()).collect() };
        // Element (0, 0) of the gradient: the sum over k of a[k, 0] b[k, 0].
        let grad: f64 = (0..k).map(|i| (i * m) as f64 * 0.1 * (1.0 - (i * n) as f64 * 0.2)).sum();
        assert!((find("m")[0] - 0.1 * grad).abs() < 1e-12);
        // The first step of Adam has the size of the learning rate.
        assert!((find("param")[0] + 0.01 * grad.signum()).abs() < 1e-6);
        assert!((find("parts")[0] - 0.01).abs() < 1e-6 && find("parts")[1] > grad * grad);
        assert_eq!(find("parts").len(), 2 * 32);
    }
}
