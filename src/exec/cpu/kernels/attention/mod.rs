//! Attention without a matrix of all scores (Dao and others, *FlashAttention*, 2022), and its derivative.
//!
//! Each lane of a vector processes one query of a tile of 16 or 32, so that the maximum score, the sum and the
//! probabilities of each query stay in one lane. Keys and values are broadcast from a copy of those of the head; this
//! works for any number of features. Scores are computed for one block of keys
//! ([`KEYS`](crate::select::cpu_attention::KEYS)) at a time and stay in the first-level cache; keys that come after
//! every query of a tile are skipped.
//!
//! Threads share tiles, and, in the derivative, heads of keys and values. The gradients of keys and values are summed
//! by one thread, head by head and tile by tile, in order; if there are few heads, they are summed in chunks, whose
//! number depends only on the shape, and the chunks are added in order. Products use fused multiply-add if the
//! instruction set has it.

mod backward;
mod forward;
mod head;
mod product;

use self::backward::attention_bwd;
use self::forward::attention;
use super::lanes::{LANES, for_isa};
use crate::exec::cpu::call::KernelImpl;
use crate::ops::{self, OpKind};
use crate::select::{Isa, cpu_attention, cpu_rest};

/// The fast kernel of an operation of this family.
#[must_use]
pub fn resolve(op: &OpKind, isa: Isa, threads: usize) -> Option<KernelImpl> {
    let parallel = cpu_rest::is_parallel(op, threads);
    Some(match op {
        OpKind::Attention(ops::Attention { geometry }) => {
            let run = match cpu_attention::queries(geometry, isa) / LANES {
                1 => for_isa!(isa, attention, 1),
                _ => for_isa!(isa, attention, 2),
            };
            KernelImpl { table: head::angles(geometry), ..KernelImpl::simple(run, parallel) }
        }
        OpKind::AttentionBwd(ops::AttentionBwd { geometry }) => {
            let run = match cpu_attention::queries(geometry, isa) / LANES {
                1 => for_isa!(isa, attention_bwd, 1),
                _ => for_isa!(isa, attention_bwd, 2),
            };
            let phases = if cpu_attention::chunks(geometry, isa) > 1 { 2 } else { 1 };
            KernelImpl { phases, table: head::angles(geometry), ..KernelImpl::simple(run, parallel) }
        }
        _ => return None,
    })
}
