//! The pointer ledger: compares the addresses in a recording with those of the plan before every replay.

use super::call::{Call, MAX_ARGS};
use crate::compile::Compiled;
use crate::exec::env::SealedEnv;
use crate::exec::error::ExecError;

/// The planned address of every argument of every call.
pub struct Ledger {
    /// The start addresses of the store and the arena.
    bases: [u64; 2],
    planned: Vec<[usize; MAX_ARGS]>,
}

impl Ledger {
    /// The ledger of a plan in `env`.
    #[must_use]
    pub fn new(compiled: &Compiled, env: &SealedEnv) -> Self {
        let ops = compiled.plan.program.ops.len();
        Self { bases: env.memory().bases(), planned: (0..ops).map(|op| Self::new_row(compiled, env, op)).collect() }
    }

    /// The planned addresses of one operation, computed again from the plan.
    #[must_use]
    pub fn new_row(compiled: &Compiled, env: &SealedEnv, index: usize) -> [usize; MAX_ARGS] {
        let plan = &compiled.plan;
        let count = plan.program.ops[index].kind.slots().len();
        let at = |slot| if slot < count { plan.argument(index, slot) } else { None };
        std::array::from_fn(|slot| at(slot).map_or(0, |p| env.address(plan, p) as usize))
    }

    /// The planned addresses of operation `op`, by slot; 0 if a slot is unused.
    #[must_use]
    pub fn row(&self, op: usize) -> &[usize; MAX_ARGS] {
        &self.planned[op]
    }

    /// Compares a recording with the plan.
    ///
    /// # Errors
    /// The first call whose addresses differ, with its layer.
    pub fn check(&self, calls: &[Call], env: &SealedEnv, compiled: &Compiled) -> Result<(), ExecError> {
        let found = env.memory().bases();
        if self.bases != found {
            return Err(ExecError::moved(self.bases, found));
        }
        for (index, (call, planned)) in calls.iter().zip(&self.planned).enumerate() {
            let differs = (0..MAX_ARGS).fold(0, |acc, i| acc | (call.ptr[i] as usize ^ planned[i]));
            if differs != 0 {
                return Err(self.mismatch(index, call, compiled));
            }
        }
        Ok(())
    }

    #[cold]
    fn mismatch(&self, index: usize, call: &Call, compiled: &Compiled) -> ExecError {
        let planned = &self.planned[index];
        let slot = (0..MAX_ARGS).find(|&i| call.ptr[i] as usize != planned[i]).unwrap_or(0);
        ExecError::ledger(compiled, index, slot, planned[slot], call.ptr[slot] as usize)
    }
}
