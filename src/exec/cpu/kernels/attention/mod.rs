//! Attention of positions to positions without a matrix of all scores (Dao and others, *FlashAttention*, 2022), and its
//! derivative.
//!
//! Each lane of a vector works on one query of a tile of 16 or 32, so that the largest score, the sum and the
//! probabilities of each query are a lane's own, and keys and values are broadcast from a copy of the head's, whatever
//! its number of features. Scores are made for a block of keys ([`KEYS`](crate::select::cpu_attention::KEYS)) at a
//! time and stay in the first-level cache; keys that come after every query of a tile are skipped.
//!
//! Threads share tiles, and in the derivative heads of keys and values. Their gradients are summed by one thread, head
//! by head and tile by tile in order; where there are few heads, in chunks whose number depends on the shape alone and
//! whose sums are added in order. Products use fused multiply-add where there is one.

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
