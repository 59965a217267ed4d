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

/// The largest difference of two implementations, relative to the results, in units in the last place of the step's
/// type. Each is off by about one unit.
const UNITS: f64 = 8.0;

/// The results of one operation's candidates.
#[derive(Default)]
struct Candidates {
    tolerance: f64,
    own: Option<(String, Vec<SlotValue>)>,
    libraries: Vec<(String, Vec<SlotValue>)>,
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
        let of = self.0.entry(key.to_owned()).or_default();
        of.tolerance = UNITS * unit(real);
        if !matches!(choice.variant, Variant::Cuda(cuda::Route::Own(_))) {
            of.libraries.push((choice.kernel.clone(), run(SEED)?));
        } else if of.own.is_none() {
            of.own = Some((choice.kernel.clone(), run(SEED)?));
        }
        Ok(())
    }

    /// The libraries whose results differ from those of the kernel, or could not be compared.
    pub(super) fn different(self) -> Vec<Differs> {
        let mut out = Vec::new();
        for (key, Candidates { tolerance, own, libraries }) in self.0 {
            for (kernel, results) in libraries {
                let why = match &own {
                    None => Some("no kernel computed the same".to_owned()),
                    Some((name, own)) => difference(own, &results, tolerance).map(|why| format!("{why} of {name}")),
                };
                out.extend(why.map(|why| Differs { key: key.clone(), kernel, why }));
            }
        }
        out
    }
}

/// What differs by more than the tolerance, if anything does.
fn difference(own: &[SlotValue], other: &[SlotValue], tolerance: f64) -> Option<String> {
    if own.len() != other.len() {
        return Some("other results than those".into());
    }
    let differences = own.iter().zip(other).map(|(a, b)| (a.name, a.relative_difference(b)));
    let (name, worst) = differences.max_by(|a, b| a.1.total_cmp(&b.1))?;
    (worst > tolerance)
        .then(|| format!("{name} differs by {worst:.1e} of its length (allowed {tolerance:.1e}) from that"))
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
        let own = || Some(("mma".to_owned(), values([3.0, 4.0])));
        let found = |own, library: [f32; 2]| {
            let libraries = vec![("cudnn".to_owned(), values(library))];
            let all = BTreeMap::from([("key".to_owned(), Candidates { tolerance: 8.0 / 128.0, own, libraries })]);
            ComparedResults(all).different().into_iter().map(|d| format!("{} {}: {}", d.key, d.kernel, d.why)).next()
        };
        assert_eq!(found(own(), [3.0, 4.1]), None);
        let why = found(own(), [4.0, 3.0]).unwrap();
        assert!(why.starts_with("key cudnn: y differs by 2.8e-1") && why.ends_with("of mma"), "{why}");
        assert!(found(own(), [f32::NAN, 4.0]).unwrap().contains("inf"));
        assert!(found(None, [3.0, 4.0]).unwrap().contains("no kernel"), "nothing to compare with");
    }
}
