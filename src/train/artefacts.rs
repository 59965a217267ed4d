//! What a prepared run shares with a window in the same process: its compiled step and its data, found by a key.
//!
//! Both are too large to be sent, and neither changes during the run. A listener in another process makes them from the
//! run's description, and compares the key of the plan that it gets.

use super::RecordingPlans;
use crate::compile::Compiled;
use crate::data::{Dataset, Split};
use crate::tensor::Fnv;
use serde::{Deserialize, Serialize};
use std::fmt::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A checksum over a plan's values and their places in the arena. Steps with the same key store the same values in the
/// same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PlanKey(u64);

impl PlanKey {
    /// The key of a compiled step's plan.
    #[must_use]
    pub fn of(compiled: &Compiled) -> Self {
        let plan = &compiled.plan;
        let mut sum = Sum(Fnv::new());
        let outcome = write!(sum, "{} {:?} {:?}", plan.arena_bytes, plan.places, plan.program.values);
        debug_assert_eq!(outcome, Ok(()), "a checksum takes any text");
        Self(sum.0.sum())
    }
}

/// A checksum that implements writing.
struct Sum(Fnv);

impl Write for Sum {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.add(text.as_bytes());
        Ok(())
    }
}

/// Identifies a prepared run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunKey {
    /// Counts the prepared runs of a process, from 0.
    number: u64,
    pub plan: PlanKey,
}

impl RunKey {
    /// The key of a run that was just prepared.
    #[must_use]
    pub fn new(plan: PlanKey) -> Self {
        static PREPARED: AtomicU64 = AtomicU64::new(0);
        Self { number: PREPARED.fetch_add(1, Ordering::Relaxed), plan }
    }
}

/// The values of a prepared run that its window shows.
#[derive(Clone, Debug)]
pub struct RunArtefacts {
    pub compiled: Arc<Compiled>,
    /// What plans the steps of its recordings.
    pub plans: RecordingPlans,
    /// The data set with its split, if there is one.
    pub data: Option<(Arc<Dataset>, Arc<Split>)>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::{Options, compile};
    use crate::model::{BUNDLED, check, read_preset};
    use crate::select::{Isa, Target};

    #[test]
    fn plans_with_other_values_or_places_have_other_keys() {
        let key = |batch: usize| {
            let mut preset = read_preset(BUNDLED[0].text).unwrap();
            preset.input.batch = batch;
            let model = check(&preset).model.unwrap();
            PlanKey::of(&compile(&model, &Options::train(Target::cpu(Isa::Avx2, 1))).unwrap())
        };
        assert_eq!(key(64), key(64));
        assert_ne!(key(64), key(32));
        assert_ne!(RunKey::new(key(64)), RunKey::new(key(64)), "two runs of one plan are two");
    }
}
