//! The plain-loop form of every operation: what the fast kernels are compared with.
//!
//! One thread, one phase, loops in the order of the definition, transcendental functions taken in f64. Everything is generic over
//! [`Real`], so the same loops serve as the f32 reference and as the f64 kernels of gradient checks. There every real-valued buffer
//! holds f64; labels stay `i32`, counters `i64`, masks and indices `u8` or `u16`.

pub mod bounded;
mod conv;
mod elementwise;
mod gemm;
mod loss;
mod norm;
mod optimizer;
mod pool;
pub mod real;

use crate::exec::cpu::call::{Call, KernelImpl, Part};
use crate::lower::{Epilogue, OpKind};
use crate::ops;
pub use real::Real;

/// The reference kernel; the operation is looked up when it runs. Every operation has one.
#[must_use]
pub fn resolve<T: Real>() -> KernelImpl {
    KernelImpl::simple(run::<T>, false)
}

/// Runs a whole operation on the thread with index 0.
///
/// # Safety
/// As for [`crate::exec::cpu::call::KernelFn`], with reals of type `T`.
unsafe fn run<T: Real>(call: &Call, part: Part) {
    if part.index != 0 {
        return;
    }
    let args = Args { call };
    match &call.op {
        OpKind::Fill(ops::Fill { len }) => elementwise::fill::<T>(args, *len),
        OpKind::Transpose(ops::Transpose { n, rows, cols }) => elementwise::transpose::<T>(args, *n, *rows, *cols),
        OpKind::BiasAdd(ops::BiasAdd { rows, cols }) => elementwise::bias_add::<T>(args, *rows, *cols),
        OpKind::Act(ops::Act { func, len }) => elementwise::act::<T>(args, *func, *len),
        OpKind::ActBwd(ops::ActBwd { func, len }) => elementwise::act_bwd::<T>(args, *func, *len),
        OpKind::BiasGrad(ops::BiasGrad { rows, cols, accumulate }) => {
            elementwise::bias_grad::<T>(args, *rows, *cols, *accumulate)
        }
        OpKind::Add(ops::Add { len }) => elementwise::add::<T>(args, *len),
        OpKind::Dropout(ops::Dropout { len, rate, stream }) => {
            elementwise::dropout::<T>(args, *len, rate.get(), *stream)
        }
        OpKind::SignBits(ops::SignBits { len }) => elementwise::sign_bits::<T>(args, *len),
        OpKind::DropoutBwd(ops::DropoutBwd { len, rate }) => elementwise::dropout_bwd::<T>(args, *len, rate.get()),
        OpKind::Gemm(shape) => gemm::gemm::<T>(args, shape),
        OpKind::Conv2d(ops::Conv2d { geometry, epilogue }) => conv::forward::<T>(args, geometry, epilogue),
        OpKind::Conv2dBwdX(ops::Conv2dBwdX { geometry, epilogue }) => conv::backward_x::<T>(args, geometry, epilogue),
        OpKind::Conv2dBwdW(ops::Conv2dBwdW { geometry, accumulate }) => {
            conv::backward_w::<T>(args, geometry, *accumulate)
        }
        OpKind::BatchNorm(ops::BatchNorm { rows, channels, eps, momentum, act }) => {
            norm::batch_norm::<T>(args, *rows, *channels, eps.get(), momentum.get(), *act);
        }
        OpKind::BatchNormEval(ops::BatchNormEval { rows, channels, eps, act }) => {
            norm::batch_norm_eval::<T>(args, *rows, *channels, eps.get(), *act);
        }
        OpKind::BatchNormBwd(ops::BatchNormBwd { rows, channels, act_grad, accumulate }) => {
            norm::batch_norm_bwd::<T>(args, *rows, *channels, *act_grad, *accumulate);
        }
        OpKind::LayerNorm(ops::LayerNorm { rows, cols, eps }) => norm::layer_norm::<T>(args, *rows, *cols, eps.get()),
        OpKind::LayerNormBwd(ops::LayerNormBwd { rows, cols, accumulate }) => {
            norm::layer_norm_bwd::<T>(args, *rows, *cols, *accumulate)
        }
        OpKind::MaxPool(ops::MaxPool { geometry }) => pool::max_pool::<T>(args, geometry),
        OpKind::MaxPoolBwd(ops::MaxPoolBwd { geometry }) => pool::max_pool_bwd::<T>(args, geometry),
        OpKind::AvgPool(ops::AvgPool { geometry }) => pool::avg_pool::<T>(args, geometry),
        OpKind::AvgPoolBwd(ops::AvgPoolBwd { geometry }) => pool::avg_pool_bwd::<T>(args, geometry),
        OpKind::GlobalAvgPool(ops::GlobalAvgPool { n, hw, c }) => pool::global_avg_pool::<T>(args, *n, *hw, *c),
        OpKind::GlobalAvgPoolBwd(ops::GlobalAvgPoolBwd { n, hw, c }) => {
            pool::global_avg_pool_bwd::<T>(args, *n, *hw, *c)
        }
        OpKind::SoftmaxCe(ops::SoftmaxCe { rows, classes, smoothing }) => {
            loss::softmax_ce::<T>(args, *rows, *classes, smoothing.get())
        }
        OpKind::SoftmaxCeGrad(ops::SoftmaxCeGrad { rows, classes, smoothing }) => {
            loss::softmax_ce_grad::<T>(args, *rows, *classes, smoothing.get());
        }
        OpKind::SoftmaxCeFused(ops::SoftmaxCeFused { rows, classes, smoothing }) => {
            loss::softmax_ce_fused::<T>(args, *rows, *classes, smoothing.get());
        }
        OpKind::LossMean(ops::LossMean { rows }) => loss::loss_mean::<T>(args, *rows),
        OpKind::Accuracy(ops::Accuracy { rows, classes }) => loss::accuracy::<T>(args, *rows, *classes),
        OpKind::Mse(ops::Mse { len }) => loss::mse::<T>(args, *len),
        OpKind::MseGrad(ops::MseGrad { len }) => loss::mse_grad::<T>(args, *len),
        OpKind::MseFused(ops::MseFused { len }) => loss::mse_fused::<T>(args, *len),
        OpKind::StepInc => optimizer::step_inc(args),
        OpKind::BiasCorr(ops::BiasCorr { beta1, beta2 }) => optimizer::bias_corr::<T>(args, beta1.get(), beta2.get()),
        OpKind::AdamStep(ops::AdamStep { segments, beta1, beta2, eps, decoupled, .. }) => {
            let betas = [beta1.get(), beta2.get()];
            optimizer::adam_step::<T>(args, segments, betas, eps.get(), *decoupled);
        }
        OpKind::SgdStep(ops::SgdStep { segments, momentum, nesterov, .. }) => {
            optimizer::sgd_step::<T>(args, segments, momentum.get(), *nesterov);
        }
        OpKind::UpdateMetrics(ops::UpdateMetrics { segments }) => optimizer::update_metrics::<T>(args, *segments),
        OpKind::Cast { .. }
        | OpKind::ScaleUpdate { .. }
        | OpKind::AddAct { .. }
        | OpKind::DenseCe { .. }
        | OpKind::WeightStep { .. }
        | OpKind::BiasStep { .. }
        | OpKind::StepMetrics { .. } => {
            unreachable!("resolve gives no kernel for these")
        }
    }
}

/// The arguments of the call that is running. Made by [`run`] alone, whose contract vouches for every pointer in it.
#[derive(Clone, Copy)]
struct Args<'a> {
    call: &'a Call,
}

impl Args<'_> {
    /// The buffer in slot `slot`. Elements are reached through [`Buf::get`] and [`Buf::set`], at indices within the operation's dimensions.
    fn buf<E: Copy>(self, slot: usize) -> Buf<E> {
        Buf(self.call.arg(slot))
    }
}

/// A bound buffer, or none. Read and written element by element, so that an output may lie on an input.
#[derive(Clone, Copy)]
struct Buf<E>(*mut E);

impl<E: Copy> Buf<E> {
    /// Whether the slot is used.
    fn is_bound(self) -> bool {
        !self.0.is_null()
    }

    /// This buffer, or `other` where the slot is unused.
    fn or(self, other: Self) -> Self {
        if self.is_bound() { self } else { other }
    }

    fn get(self, index: usize) -> E {
        debug_assert!(self.is_bound());
        // SAFETY: `run`'s caller promises valid pointers for the operation's dimensions, and the loops stay within them.
        unsafe { self.0.add(index).read() }
    }

    fn set(self, index: usize, value: E) {
        debug_assert!(self.is_bound());
        // SAFETY: as for `get`.
        unsafe { self.0.add(index).write(value) }
    }
}

impl<T: Real> Buf<T> {
    /// The element, or `default` where the slot is unused.
    fn get_or(self, index: usize, default: T) -> T {
        if self.is_bound() { self.get(index) } else { default }
    }

    /// Writes the element where the slot is used.
    fn put(self, index: usize, value: T) {
        if self.is_bound() {
            self.set(index, value);
        }
    }

    /// Writes `value`, or adds it to what is there.
    fn store(self, index: usize, value: T, accumulate: bool) {
        if self.is_bound() {
            self.set(index, if accumulate { self.get(index) + value } else { value });
        }
    }
}

/// The tail of a product or convolution: slots `bias [n]`, `saved [m, n]`, `c [m, n]`, `z [m, n]`.
#[derive(Clone, Copy)]
struct Tail<T> {
    bias: Buf<T>,
    saved: Buf<T>,
    c: Buf<T>,
    z: Buf<T>,
    accumulate: bool,
    epilogue: Epilogue,
}

impl<T: Real> Tail<T> {
    fn new(args: Args, accumulate: bool, epilogue: Epilogue) -> Self {
        Self { bias: args.buf(2), saved: args.buf(3), c: args.buf(5), z: args.buf(6), accumulate, epilogue }
    }

    /// Finishes and stores element `index`, of column `col`, from its sum of products.
    fn store(self, index: usize, col: usize, sum: T) {
        let mut value = if self.accumulate { self.c.get(index) + sum } else { sum };
        if self.epilogue.bias {
            value = value + self.bias.get(col);
        }
        if self.epilogue.save_z {
            self.z.put(index, value);
        }
        if let Some(func) = self.epilogue.act {
            value = value.act(func);
        }
        if let Some(func) = self.epilogue.act_grad {
            value = value * self.saved.get(index).act_grad(func);
        }
        self.c.set(index, value);
    }
}
