//! Faults in sequences, branches, losses on points, and recipes.

use super::{Fault, SEQUENCES, kernel, moved, with_step};
use stepgraph::exec::cpu::plant::Faulty;
use stepgraph::model::losses::PointFn;
use stepgraph::ops::{self, AttentionGeometry, OpKind, RecurrenceGeometry};

/// Runs the kernel of an operation with other constants.
fn as_other(f: &Faulty<'_>, change: impl FnOnce(&mut OpKind)) {
    // SAFETY: every fault below changes what is computed from the same arguments, or reads fewer rows.
    unsafe { f.run_as(change) };
}

pub fn as_other_attention(f: &Faulty<'_>, change: impl FnOnce(&mut AttentionGeometry)) {
    as_other(f, |op| match op {
        OpKind::Attention(ops::Attention { geometry }) | OpKind::AttentionBwd(ops::AttentionBwd { geometry }) => {
            change(geometry);
        }
        other => panic!("{} is no attention", other.name()),
    });
}

fn as_other_recurrence(f: &Faulty<'_>, change: impl FnOnce(&mut RecurrenceGeometry)) {
    as_other(f, |op| match op {
        OpKind::Recurrence(ops::Recurrence { geometry }) | OpKind::RecurrenceBwd(ops::RecurrenceBwd { geometry }) => {
            change(geometry);
        }
        other => panic!("{} is no recurrence", other.name()),
    });
}

pub fn table() -> Vec<Fault> {
    [attention(), tokens(), recurrences(), branches(), recipes()].into_iter().flatten().collect()
}

/// Two names, and a change of an operation.
type NamedFault = ([&'static str; 2], fn(&Faulty<'_>));

/// The faults of attention, which its derivative may have too: the name of each in both.
const OF_ATTENTION: [NamedFault; 3] = [
    (
        [
            "positions attend to what comes after them",
            "the gradient of attention has positions that nobody attended to",
        ],
        |f| as_other_attention(f, |g| g.causal = false),
    ),
    (["queries and keys are not turned", "the gradient of attention is not turned back"], |f| {
        as_other_attention(f, |g| g.rotary = false);
    }),
    (
        ["probabilities are dropped by the mask of the next step", "the gradient of attention has a mask of its own"],
        |f| with_step(f, |step| step + 1),
    ),
];

fn attention() -> Vec<Fault> {
    let of = |(names, spoil): NamedFault| {
        let [forward, backward] = names;
        [kernel(forward, SEQUENCES, "attention", spoil), kernel(backward, SEQUENCES, "attention_bwd", spoil)]
    };
    OF_ATTENTION.into_iter().flat_map(of).collect()
}

fn tokens() -> Vec<Fault> {
    vec![
        kernel("a position has the row of the token before it", SEQUENCES, "embedding", |f| {
            f.run_with("tokens", |tokens| tokens.rotate_right(1));
        }),
        kernel("the gradient of a token's row lacks the last position", SEQUENCES, "embedding_bwd", |f| {
            as_other(f, |op| {
                if let OpKind::EmbeddingBwd(ops::EmbeddingBwd { rows, .. }) = op {
                    *rows -= 1;
                }
            });
        }),
        kernel("sines and cosines change places", SEQUENCES, "add_sinusoids", |f| {
            let x = f.get("x");
            f.run();
            f.edit("y", |y| {
                for (y, x) in y.chunks_exact_mut(2).zip(x.chunks_exact(2)) {
                    let added = [y[0] - x[0], y[1] - x[1]];
                    (y[0], y[1]) = (x[0] + added[1], x[1] + added[0]);
                }
            });
        }),
        kernel("the position in front is taken", SEQUENCES, "take", |f| {
            as_other(f, |op| {
                if let OpKind::Take(ops::Take { at, .. }) = op {
                    *at -= 1;
                }
            });
        }),
    ]
}

fn recurrences() -> Vec<Fault> {
    vec![
        kernel("both directions walk the same way", SEQUENCES, "gru", |f| {
            as_other_recurrence(f, |g| g.reverse = false);
        }),
        kernel("a state forgets what it was", SEQUENCES, "lstm", |f| f.run_with("weight", |w| w.fill(0.0))),
        kernel("the gates of a state have no bias", SEQUENCES, "gru", |f| f.run_with("bias", |b| b.fill(0.0))),
        kernel("the gradient does not go through the states", SEQUENCES, "lstm_bwd", |f| {
            f.run_with("weight", |w| w.fill(0.0));
        }),
        kernel("the gradient of both directions walks the same way", SEQUENCES, "gru_bwd", |f| {
            as_other_recurrence(f, |g| g.reverse = false);
        }),
    ]
}

fn branches() -> Vec<Fault> {
    vec![
        kernel("a branch is put beside the others a column too far", SEQUENCES, "concat", |f| moved(f, "y", 1)),
        kernel("a branch gets the gradient of another", SEQUENCES, "slice", |f| {
            as_other(f, |op| {
                if let OpKind::Slice(ops::Slice { from, cols, width, .. }) = op {
                    *from = *cols - *width - *from;
                }
            });
        }),
        kernel("a product of branches is their sum", SEQUENCES, "multiply", |f| {
            let (a, b) = (f.get("a"), f.get("b"));
            f.run();
            f.set("y", &a.iter().zip(b).map(|(a, b)| a + b).collect::<Vec<f32>>());
        }),
        kernel("Huber's loss is no square near its target", SEQUENCES, "huber_loss_fused", |f| {
            as_other(f, |op| {
                if let OpKind::PointLossFused(ops::PointLossFused { func, .. }) = op {
                    *func = PointFn::L1;
                }
            });
        }),
    ]
}

fn recipes() -> Vec<Fault> {
    vec![
        kernel("the schedule is a step late", SEQUENCES, "update_rates", |f| with_step(f, |step| step - 1)),
        kernel("gradients are limited by the square of their norm", SEQUENCES, "update_rates", |f| {
            f.run_with("grad_norm_seg", |norms| norms.iter_mut().for_each(|n| *n *= *n));
        }),
        kernel("the norm of a parameter's gradient is another's", SEQUENCES, "grad_norms", |f| {
            f.run();
            f.edit("grad_norm_seg", |norms| norms.rotate_right(1));
        }),
        kernel("biases decay", SEQUENCES, "adam_step", |f| {
            as_other(f, |op| {
                if let OpKind::AdamStep(ops::AdamStep { options, .. }) = op {
                    options.exempt.clear();
                }
            });
        }),
        kernel("an update leaves the limit of its gradient out", SEQUENCES, "adam_step", |f| {
            f.run_with("hyper", |rates| rates[2] = 1.0);
        }),
    ]
}
