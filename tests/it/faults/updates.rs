//! Faults in losses, optimizers and the metrics of a step.

use super::{CLASSES, Fault, IMAGES, VALUES, kernel, scaled, swapped, with_step};
use stepgraph::exec::cpu::plant::Faulty;
use stepgraph::ops::{self, OpKind, Scalar};

/// Runs the kernel of an operation with other constants.
fn as_other(f: &Faulty<'_>, change: impl FnOnce(&mut OpKind)) {
    // SAFETY: every fault below changes constants, or leaves a segment out.
    unsafe { f.run_as(change) };
}

fn batch(f: &Faulty<'_>) -> f32 {
    match f.op() {
        OpKind::SoftmaxCeFused(ops::SoftmaxCeFused { rows, .. }) => *rows as f32,
        OpKind::MseFused(ops::MseFused { len }) => *len as f32,
        other => panic!("{} is no loss", other.name()),
    }
}

pub fn table() -> Vec<Fault> {
    [losses(), adam(), descent_and_metrics()].into_iter().flatten().collect()
}

fn losses() -> Vec<Fault> {
    vec![
        kernel("a gradient is of the sum of the losses", CLASSES, "softmax_ce_fused", |f| {
            scaled(f, "dlogits", batch(f))
        }),
        kernel("a loss is the sum over the batch", IMAGES, "softmax_ce_fused", |f| scaled(f, "loss", batch(f))),
        kernel("smoothing is left out", CLASSES, "softmax_ce_fused", |f| {
            as_other(f, |op| {
                if let OpKind::SoftmaxCeFused(ops::SoftmaxCeFused { smoothing, .. }) = op {
                    *smoothing = Scalar::new(0.0);
                }
            });
        }),
        kernel("a loss takes the labels of other rows", CLASSES, "softmax_ce_fused", |f| {
            f.run_with("labels", |labels| labels.rotate_right(1));
        }),
        kernel("the accuracy counts one answer too many", CLASSES, "softmax_ce_fused", |f| {
            f.run();
            f.edit("accuracy", |v| v[0] += 1.0 / batch(f));
        }),
        kernel("the gradient of a square lacks its factor 2", VALUES, "mse_fused", |f| scaled(f, "dy", 0.5)),
        kernel("a squared loss is a sum", VALUES, "mse_fused", |f| scaled(f, "loss", batch(f))),
        kernel("a squared loss has targets of other rows", VALUES, "mse_fused", |f| {
            f.run_with("target", |target| target.rotate_right(2));
        }),
    ]
}

fn adam() -> Vec<Fault> {
    vec![
        kernel("the step counter is late by one", CLASSES, "step_inc", |f| {
            let before = f.bytes("counter_prev");
            f.run();
            f.set_bytes("counter", &before);
        }),
        kernel("the bias correction is a step ahead", CLASSES, "bias_corr", |f| with_step(f, |step| step + 1)),
        kernel("the corrections of both moments are exchanged", VALUES, "bias_corr", |f| {
            f.run();
            f.edit("corr", |corr| corr.swap(0, 1));
        }),
        kernel("both moments are exchanged", CLASSES, "adam_step", |f| swapped(f, "m", "v")),
        kernel("decay is in the gradient instead of beside it", CLASSES, "adam_step", |f| {
            as_other(f, |op| {
                if let OpKind::AdamStep(ops::AdamStep { decoupled, .. }) = op {
                    *decoupled = !*decoupled;
                }
            });
        }),
        kernel("decay is beside the gradient instead of in it", VALUES, "adam_step", |f| {
            as_other(f, |op| {
                if let OpKind::AdamStep(ops::AdamStep { decoupled, .. }) = op {
                    *decoupled = !*decoupled;
                }
            });
        }),
        kernel("both decay rates are exchanged", VALUES, "adam_step", |f| {
            as_other(f, |op| {
                if let OpKind::AdamStep(ops::AdamStep { beta1, beta2, .. }) = op {
                    std::mem::swap(beta1, beta2);
                }
            });
        }),
        kernel("the first moment forgets what it was", CLASSES, "adam_step", |f| {
            f.run_with("m_prev", |m| m.iter_mut().for_each(|v| *v = 0.0));
        }),
        kernel("the last parameter is not updated", CLASSES, "adam_step", |f| {
            as_other(f, |op| {
                if let OpKind::AdamStep(ops::AdamStep { segments, .. }) = op {
                    segments.pop();
                }
            });
        }),
        kernel("the part of one thread is left out", VALUES, "adam_step", |f| f.run_part(0, 2)),
        kernel("an update goes the other way", VALUES, "adam_step", |f| {
            let before = f.get("param_prev");
            f.run();
            f.edit("param", |p| p.iter_mut().zip(before).for_each(|(p, before)| *p = 2.0 * before - *p));
        }),
    ]
}

fn descent_and_metrics() -> Vec<Fault> {
    vec![
        kernel("the momentum is not Nesterov's", IMAGES, "sgd_step", |f| {
            as_other(f, |op| {
                if let OpKind::SgdStep(ops::SgdStep { nesterov, .. }) = op {
                    *nesterov = false;
                }
            });
        }),
        kernel("the momentum forgets what it was", IMAGES, "sgd_step", |f| {
            f.run_with("momentum_prev", |m| m.iter_mut().for_each(|v| *v = 0.0));
        }),
        kernel("decay has the wrong sign", IMAGES, "sgd_step", |f| f.run_with("hyper", |hyper| hyper[1] = -hyper[1])),
        kernel("the last parameter's momentum is not kept", IMAGES, "sgd_step", |f| {
            as_other(f, |op| {
                if let OpKind::SgdStep(ops::SgdStep { segments, .. }) = op {
                    segments.pop();
                }
            });
        }),
        kernel("a parameter's largest change is another's", CLASSES, "adam_step", |f| {
            f.run();
            f.edit("update_max", |max| max.rotate_right(1));
        }),
        kernel("the gradient's length is its square", CLASSES, "update_metrics", |f| {
            f.run();
            f.edit("grad_norm", |norm| norm[0] *= norm[0]);
        }),
        kernel("the largest change is half of what it is", CLASSES, "update_metrics", |f| {
            f.run_with("update_max_seg", |max| max.iter_mut().for_each(|v| *v *= 0.5));
        }),
    ]
}
