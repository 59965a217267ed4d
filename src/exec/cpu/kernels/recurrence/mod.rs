//! Recurrent layers: the loop over the positions, forward and backward.
//!
//! Both have two phases. In the first, all threads rearrange the weight into panels in the order that the matrix
//! kernels read ([`pack`]). In the second, each thread processes its own samples at all positions, some tiles of
//! samples together, so that threads do not synchronise at every position ([`forward`], [`backward`]): at each position
//! the state of these samples is multiplied with the panels, and the functions of the gates follow while their
//! arguments are in the cache ([`cells`]). Every element is summed in a fixed order, independently of the number of
//! threads.

mod backward;
mod cells;
mod forward;
mod groups;
mod pack;

use self::backward::run as walk_back;
use self::forward::run as walk;
use super::gemm::machine::for_machine;
use crate::exec::cpu::call::KernelImpl;
use crate::ops::OpKind;
use crate::select::Isa;
use crate::select::cpu_recurrence::is_parallel;

/// The fast kernel of an operation of this family.
#[must_use]
pub fn resolve(op: &OpKind, isa: Isa, threads: usize) -> Option<KernelImpl> {
    let (run, geometry) = match op {
        OpKind::Recurrence(op) => (for_machine!(isa, walk), &op.geometry),
        OpKind::RecurrenceBwd(op) => (for_machine!(isa, walk_back), &op.geometry),
        _ => return None,
    };
    Some(KernelImpl { phases: 2, ..KernelImpl::simple(run, is_parallel(op, geometry, threads)) })
}
