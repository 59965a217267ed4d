//! Results of libraries that are compared with those of this program's kernels before they may be used.
//!
//! Kernels are proven by `verify` and by tests, and libraries are installed by the user. Products and convolutions of
//! libraries are single operations of theirs. Attention is a graph of twenty, for which a library must recognise what
//! is meant.

use crate::exec::cuda::SlotValue;
use crate::lower::Op;
use crate::select::cuda::{Real, is_compared};
use crate::select::{Choice, Variant, cuda};
use crate::train::TrainError;
use std::collections::BTreeMap;

/// The seed of the inputs.
const SEED: u64 = 0x5EED;

/// The largest difference of two implementations, relative to a group of results, in units in the last place of the
/// step's type. Each is off by about one unit.
const UNITS: f64 = 8.0;

/// The largest difference of two logarithms.
const LOGARITHM: f64 = 0.01;

/// The name of a candidate, with its results.
type Named = (String, Vec<SlotValue>);

/// The results of one operation's candidates.
#[derive(Default)]
struct Candidates {
    own: Option<Named>,
    /// Libraries that ran before a kernel.
    waiting: Vec<Named>,
    /// The libraries that must not be used, each with what was found.
    different: Vec<(String, String)>,
}

impl Candidates {
    /// Takes the kernel's results, and compares the libraries that ran before it.
    fn compare_with(&mut self, own: Named, tolerance: f64) {
        self.own = Some(own);
        for library in std::mem::take(&mut self.waiting) {
            self.judge(library, tolerance);
        }
    }

    /// Compares a library with the kernel, or keeps its results until that has run.
    fn judge(&mut self, library: Named, tolerance: f64) {
        let Some((name, own)) = &self.own else { return self.waiting.push(library) };
        if let Some(why) = difference(own, &library.1, tolerance) {
            self.different.push((library.0, format!("{why} of {name}")));
        }
    }
}

/// The results of all operations that are compared, by key.
#[derive(Default)]
pub(super) struct ComparedResults(BTreeMap<String, Candidates>);

/// A candidate that must not be used.
pub(super) struct Differs {
    pub(super) key: String,
    pub(super) kernel: String,
    /// What was found.
    pub(super) why: String,
}

impl ComparedResults {
    /// Runs a candidate on random inputs, if it is one that is compared: a library, or the first kernel beside it.
    ///
    /// # Errors
    /// If the device fails.
    pub(super) fn add(
        &mut self,
        (key, real): (&str, Real),
        (op, choice): (&Op, &Choice),
        run: impl FnOnce(u64) -> Result<Vec<SlotValue>, TrainError>,
    ) -> Result<(), TrainError> {
        if !is_compared(&op.kind) {
            return Ok(());
        }
        let (of, tolerance) = (self.0.entry(key.to_owned()).or_default(), UNITS * unit(real));
        if !matches!(choice.variant, Variant::Cuda(cuda::Route::Own(_))) {
            of.judge((choice.kernel.clone(), run(SEED)?), tolerance);
        } else if of.own.is_none() {
            of.compare_with((choice.kernel.clone(), run(SEED)?), tolerance);
        }
        Ok(())
    }

    /// The libraries whose results differ from those of the kernel, or could not be compared.
    pub(super) fn different(self) -> Vec<Differs> {
        let mut out = Vec::new();
        for (key, Candidates { waiting, different, .. }) in self.0 {
            let alone = waiting.into_iter().map(|(kernel, _)| (kernel, "no kernel computed the same".to_owned()));
            let found = different.into_iter().chain(alone);
            out.extend(found.map(|(kernel, why)| Differs { key: key.clone(), kernel, why }));
        }
        out
    }
}

/// What differs by more than the tolerance, if anything does.
fn difference(own: &[SlotValue], other: &[SlotValue], tolerance: f64) -> Option<String> {
    if own.len() != other.len() || own.is_empty() {
        return Some("it has other results than those".into());
    }
    let judged = own.iter().zip(other).map(|(a, b)| {
        let allowed = if a.name == "lse" { LOGARITHM } else { tolerance };
        (a.name, a.largest_difference(b), allowed)
    });
    let wrong = judged.filter(|(_, found, allowed)| found > allowed);
    let (name, found, allowed) = wrong.max_by(|a, b| (a.1 / a.2).total_cmp(&(b.1 / b.2)))?;
    Some(format!("{name} differs by {found:.1e}, where {allowed:.1e} is allowed, from that"))
}

/// A unit in the last place of 1 in a step's 16-bit type, or in TF32; for floats that of a sum of many.
const fn unit(real: Real) -> f64 {
    match real {
        Real::F32 => 1e-5,
        Real::Tf32 | Real::F16 => 1.0 / 1024.0,
        Real::Bf16 => 1.0 / 128.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::DType;

    fn values(elements: [f32; 2]) -> Vec<SlotValue> {
        let bytes = |v: f32| v.to_le_bytes();
        vec![SlotValue { name: "y", dtype: DType::F32, bytes: elements.into_iter().flat_map(bytes).collect() }]
    }

    #[test]
    fn a_library_with_other_results_is_found() {
        let found = |is_first: bool, library: [f32; 2]| {
            const TOLERANCE: f64 = 8.0 / 128.0;
            let (own, library) = (("mma".to_owned(), values([3.0, 4.0])), ("cudnn".to_owned(), values(library)));
            let mut of = Candidates::default();
            if is_first {
                of.judge(library, TOLERANCE);
                of.compare_with(own, TOLERANCE);
            } else {
                of.compare_with(own, TOLERANCE);
                of.judge(library, TOLERANCE);
            }
            let all = ComparedResults(BTreeMap::from([("key".to_owned(), of)])).different();
            all.into_iter().map(|d| format!("{} {}: {}", d.key, d.kernel, d.why)).next()
        };
        for is_first in [false, true] {
            assert_eq!(found(is_first, [3.0, 4.1]), None);
            let why = found(is_first, [4.0, 3.0]).unwrap();
            assert!(why.starts_with("key cudnn: y differs by 2.8e-1") && why.ends_with("of mma"), "{why}");
            assert!(found(is_first, [f32::NAN, 4.0]).unwrap().contains("inf"));
        }
        let mut alone = Candidates::default();
        alone.judge(("cudnn".to_owned(), values([3.0, 4.0])), 1.0);
        let all = ComparedResults(BTreeMap::from([("key".to_owned(), alone)])).different();
        assert!(all[0].why.contains("no kernel"), "nothing to compare with");
        assert!(difference(&[], &[], 1.0).is_some(), "no results are no agreement");
    }
}
