//! The choice of a kernel for each operation on a GPU.

use super::measured::Measured;
use super::selection::{Candidate, Choice, SelectError};
use super::{cuda, least};
use crate::lower::Program;
use crate::ops::OpKind;
use crate::select::target::{CudaFacts, Kernels, Target};
use crate::select::variant::Variant;
use crate::tensor::Bytes;
use std::collections::{BTreeMap, HashMap};

/// Measured times that differ by a smaller share are equal: measuring again may reverse them.
const EQUAL: f64 = 0.02;

/// The ways to run an operation, and what is known about them.
struct Offers<'a> {
    stem: String,
    all: Vec<cuda::Offer>,
    /// Remembered times by kernel.
    known: Option<&'a BTreeMap<String, f64>>,
}

impl Offers<'_> {
    fn kernel(&self, offer: &cuda::Offer) -> String {
        format!("{}_{}", self.stem, offer.tail)
    }

    /// The remembered time of an offer.
    fn time(&self, offer: &cuda::Offer) -> Option<f64> {
        self.known.and_then(|known| known.get(&self.kernel(offer)).copied())
    }

    /// The best offer and its time: by index if one is forced, otherwise the fastest of those that were measured,
    /// otherwise the cheapest by estimate. The estimate also decides between measured times that are equal.
    fn best(&self, force: Option<usize>) -> Option<(&cuda::Offer, f64)> {
        let mut usable: Vec<(&cuda::Offer, f64)> =
            self.all.iter().filter_map(|o| o.cost.as_ref().ok().map(|cost| (o, *cost))).collect();
        // Among equals the last one comes first: kernels are in rising order of preference.
        usable.reverse();
        usable.sort_by(|a, b| a.1.total_cmp(&b.1));
        let times = || usable.iter().filter_map(|(o, _)| Some((*o, self.time(o)?)));
        let least = times().map(|(_, us)| us).fold(cuda::NOT_OFFERED_US, f64::min);
        match force {
            Some(number) => usable.get(number).or_else(|| usable.first()).copied(),
            None if least < cuda::NOT_OFFERED_US => times().find(|(_, us)| *us <= least * (1.0 + EQUAL)),
            None => usable.first().copied(),
        }
    }

    /// Refuses the offers that are not ready at once, if there are others.
    fn keep_quick_ones(&mut self) {
        if self.all.iter().any(|offer| offer.cost.is_ok() && offer.slow_start.is_none()) {
            for offer in &mut self.all {
                if let Some(why) = offer.slow_start {
                    offer.cost = Err(why.to_owned());
                }
            }
        }
    }

    /// Refuses the plans of cuDNN whose results must be compared with those of a kernel first, and were not.
    fn keep_compared_ones(&mut self, kind: &OpKind) {
        let unknown: Vec<bool> = self.all.iter().map(|offer| self.time(offer).is_none()).collect();
        for (offer, is_unknown) in self.all.iter_mut().zip(unknown) {
            if is_unknown && offer.cost.is_ok() && matches!(offer.route, cuda::Route::Dnn(_)) && cuda::is_compared(kind)
            {
                offer.cost = Err("its results are compared with those of a kernel when it is timed".into());
            }
        }
    }

    /// Why each offer but the chosen one was not taken.
    fn candidates(&self, chosen: &cuda::Offer, cost_us: f64) -> Vec<Candidate> {
        let lost = |o: &cuda::Offer| match &o.cost {
            _ if o.route == chosen.route => String::new(),
            Ok(_) if self.time(o).is_some_and(|us| us >= cuda::WRONG_US) => {
                "its results differ from those of a kernel".into()
            }
            Ok(_) if self.time(o).is_some_and(|us| us >= cuda::NOT_OFFERED_US) => {
                "the library does not offer it".into()
            }
            Ok(cost) => match self.time(o) {
                Some(us) if us <= cost_us * (1.0 + EQUAL) => {
                    let own = chosen.cost.as_ref().map_or(f64::NAN, |cost| *cost);
                    format!("measured {us:.1} us, which is equal; estimated {cost:.1} us against {own:.1} us")
                }
                Some(us) => format!("measured {us:.1} us against {cost_us:.1} us"),
                None => format!("estimated {cost:.1} us against {cost_us:.1} us"),
            },
            Err(why) => why.clone(),
        };
        let of = |o| Candidate { kernel: self.kernel(o), cost_us: o.cost.as_ref().ok().copied(), lost: lost(o) };
        self.all.iter().map(of).collect()
    }
}

/// Chooses kernels for the operations of a program, once for each kind of operation.
pub(super) struct Chooser<'a> {
    program: &'a Program,
    target: &'a Target,
    gpu: CudaFacts,
    real: cuda::Real,
    measured: Measured<'a>,
    /// Previous choices, by operation and by the type that its kernels work in, with the bytes of the operation that
    /// they were made for.
    chosen: HashMap<(&'a OpKind, cuda::Real), Choice>,
}

impl<'a> Chooser<'a> {
    pub(super) fn new(
        program: &'a Program,
        (target, gpu): (&'a Target, CudaFacts),
        real: cuda::Real,
        measured: Measured<'a>,
    ) -> Self {
        Self { program, target, gpu, real, measured, chosen: HashMap::new() }
    }

    /// The kernel of operation `index`.
    pub(super) fn choose(&mut self, index: usize) -> Result<Choice, SelectError> {
        let op = &self.program.ops[index];
        let (of, bytes) = (cuda::real_of(self.program, op, self.real), least::bytes(self.program, op));
        if let Some(choice) = self.chosen.get(&(&op.kind, of)) {
            return Ok(Choice { bytes, ..choice.clone() });
        }
        let known = self.measured.gpu_times.and_then(|t| t.of(&op.kind, of));
        let mut offers = Offers { stem: op.kind.stem(), all: cuda::offers(&op.kind, of, &self.gpu), known };
        if self.target.kernels != Kernels::Specialised {
            offers.keep_quick_ones();
        }
        if self.measured.force.is_none() {
            offers.keep_compared_ones(&op.kind);
        }
        let Some((offer, cost_us)) = offers.best(self.measured.force) else {
            return Err(no_kernel(self.program, index, (self.target, self.gpu), &offers));
        };
        let choice = Choice {
            kernel: offers.kernel(offer),
            variant: Variant::Cuda(offer.route),
            shared: true,
            cost_us,
            workspace_bytes: offer.work_bytes,
            flops: op.kind.flops(),
            least_flops: op.kind.least_flops_with_tiles(),
            bytes,
            candidates: offers.candidates(offer, cost_us),
        };
        self.chosen.insert((&op.kind, of), choice.clone());
        Ok(choice)
    }
}

/// Why there is none: usually because the network is too large for the machine.
fn no_kernel(program: &Program, index: usize, (target, gpu): (&Target, CudaFacts), offers: &Offers<'_>) -> SelectError {
    let (needed, target) = ((program.flat_len() as u64).saturating_mul(size_of::<f32>() as u64), target.name.clone());
    if needed > gpu.memory_bytes {
        return SelectError::TooLarge { needed: Bytes(needed), target, memory: Bytes(gpu.memory_bytes) };
    }
    let reasons: Vec<String> = offers.all.iter().map(|o| format!("{}: {:?}", offers.kernel(o), o.cost)).collect();
    let reasons = if reasons.is_empty() { "no family knows it".into() } else { reasons.join("; ") };
    SelectError::NoKernel { op: index, name: program.ops[index].kind.name(), target, reasons }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Activation;
    use crate::ops::{self, AttentionGeometry, ConvGeometry, Epilogue, Scalar, SoftmaxCeFused};

    #[test]
    fn the_estimate_decides_between_equal_times() {
        let kind =
            OpKind::SoftmaxCeFused(SoftmaxCeFused { rows: 64, classes: 10, smoothing: Scalar::new(0.0), parts: 1 });
        let gpu = Target::h200().as_cuda().unwrap();
        let best = |known: Option<&BTreeMap<String, f64>>| {
            let offers = Offers { stem: kind.stem(), all: cuda::offers(&kind, cuda::Real::F32, &gpu), known };
            let (offer, us) = offers.best(None).unwrap();
            let others: Vec<String> = offers.all.iter().map(|o| offers.kernel(o)).collect();
            (offers.kernel(offer), us, others)
        };
        let (cheapest, _, all) = best(None);
        let other = all.iter().find(|kernel| **kernel != cheapest).unwrap();
        let times = |own, its| BTreeMap::from([(cheapest.clone(), own), (other.clone(), its)]);
        for (own, its, expected) in [(2.02, 2.0, &cheapest), (2.1, 2.0, other), (2.0, 2.1, &cheapest)] {
            let (found, us, _) = best(Some(&times(own, its)));
            assert_eq!((&found, us), (expected, if *expected == cheapest { own } else { its }));
        }
        let absent = best(Some(&times(cuda::NOT_OFFERED_US, cuda::NOT_OFFERED_US)));
        assert_eq!(absent.0, cheapest, "without any time, the estimate decides");
    }

    #[test]
    fn a_kernel_follows_the_gradient_of_a_convolution_whose_plan_with_a_derivative_is_not_compiled() {
        let gpu = Target::h200().as_cuda().unwrap();
        let image = ConvGeometry { n: 256, h: 32, w: 32, c: 64, f: 64, ho: 32, wo: 32, ..ConvGeometry::UNIT };
        let geometry = ConvGeometry { kernel: [3, 3], padding: [1, 1], ..image };
        let best = |act_grad, is_quick: bool| {
            let epilogue = Epilogue { act_grad, ..Epilogue::default() };
            let kind = OpKind::Conv2dBwdX(ops::Conv2dBwdX { geometry, epilogue });
            let all = cuda::offers(&kind, cuda::Real::Bf16, &gpu);
            let mut offers = Offers { stem: kind.stem(), all, known: None };
            if is_quick {
                offers.keep_quick_ones();
            }
            let route = offers.best(None).unwrap().0.route;
            (route, offers.all.iter().filter(|o| o.slow_start.is_some()).count())
        };
        assert_eq!(best(Some(Activation::Relu), true), (cuda::Route::DnnPlain, 2));
        assert_eq!(best(Some(Activation::Relu), false), (cuda::Route::Dnn(0), 2));
        // cuDNN does not compute the derivatives of other functions.
        assert_eq!(best(Some(Activation::Silu), true), (cuda::Route::Dnn(0), 0));
        assert_eq!(best(None, true), (cuda::Route::Dnn(0), 0));
    }

    #[test]
    fn attention_by_cudnn_is_chosen_only_after_its_results_were_compared() {
        let geometry = AttentionGeometry::gpt2();
        let gpu = Target::h200().as_cuda().unwrap();
        for kind in
            [OpKind::Attention(ops::Attention { geometry }), OpKind::AttentionBwd(ops::AttentionBwd { geometry })]
        {
            let best = |known: Option<&BTreeMap<String, f64>>| {
                let all = cuda::offers(&kind, cuda::Real::Bf16, &gpu);
                let mut offers = Offers { stem: kind.stem(), all, known };
                offers.keep_compared_ones(&kind);
                let (offer, us) = offers.best(None).unwrap();
                (offers.kernel(offer), offers.candidates(offer, us))
            };
            let (untimed, why) = best(None);
            let of_cudnn = why.iter().find(|c| c.kernel.contains("cudnn")).unwrap();
            assert!(untimed.contains("_wgmma") && of_cudnn.lost.contains("compared"), "{of_cudnn:?}");
            let times = |us: f64| BTreeMap::from([(untimed.clone(), 100.0), (of_cudnn.kernel.clone(), us)]);
            assert_eq!(best(Some(&times(80.0))).0, of_cudnn.kernel);
            let (kept, why) = best(Some(&times(cuda::WRONG_US)));
            let reason = why.iter().find(|c| c.kernel == of_cudnn.kernel).unwrap();
            assert!(kept == untimed && reason.lost.contains("differ"), "{reason:?}");
        }
    }

    /// `tests/data/gpu_times.txt` has the times of kernels and of libraries that `train::gpu_times` measured on an
    /// H200, in microseconds by kernel, after the type and the operation. General kernels are chosen without such
    /// times.
    #[test]
    fn operations_that_were_not_timed_have_kernels_that_are_nearly_the_fastest() {
        let gpu = Target::h200().as_cuda().unwrap();
        let text = include_str!("../../tests/data/gpu_times.txt");
        let mut sums: BTreeMap<(String, &str), [f64; 2]> = BTreeMap::new();
        let (mut timed, mut untimed) = (0, 0);
        for line in text.lines() {
            let [real, kind, times] = line.splitn(3, ' ').collect::<Vec<_>>().try_into().unwrap();
            let known: BTreeMap<&str, f64> = times
                .split_whitespace()
                .map(|pair| pair.split_once('=').map(|(kernel, us)| (kernel, us.parse().unwrap())).unwrap())
                .collect();
            let mut types = [cuda::Real::F32, cuda::Real::Tf32, cuda::Real::Bf16].into_iter();
            let of = types.find(|of| of.name() == real).unwrap();
            let kind: OpKind = serde_json::from_str(kind).unwrap();
            let mut offers = Offers { stem: kind.stem(), all: cuda::offers(&kind, of, &gpu), known: None };
            offers.keep_quick_ones();
            let time = |offer: &cuda::Offer| known.get(&offer.tail[real.len() + 1..]).copied();
            let usable = offers.all.iter().filter(|offer| offer.cost.is_ok());
            let Some(best) = usable.filter_map(time).min_by(f64::total_cmp) else { continue };
            let chosen = offers.best(None).unwrap().0;
            // Not timed: an earlier estimate was more than twice the best one.
            let Some(us) = time(chosen) else {
                untimed += 1;
                continue;
            };
            timed += 1;
            let sum = sums.entry((kind.name().to_owned(), real)).or_default();
            *sum = [sum[0] + us, sum[1] + best];
            assert!(us <= 2.5 * best, "{us} us instead of {best}: {} for {line}", chosen.tail);
        }
        let all = sums.values().fold([0.0; 2], |all, sum| [all[0] + sum[0], all[1] + sum[1]]);
        assert!(all[0] <= 1.1 * all[1], "{all:?} us");
        assert!(timed > 580 && untimed < 40 && sums.len() > 15, "{timed} with a time, {untimed} without");
        for (which, [chosen, best]) in sums {
            assert!(chosen <= 1.4 * best, "{which:?}: {chosen} us instead of {best}");
        }
    }
}
