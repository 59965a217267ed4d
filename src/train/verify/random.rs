//! The checks of random networks: what failed, how near to their bounds the errors came, and the smallest network of
//! each failure.

use super::divergence::diverges;
use super::replay::{ENDURANCE, NOT_FINITE};
use super::{Check, Progress, Proof, VerifyOptions, price, verify_some};
use crate::compile::CpuOnly;
use crate::model::random::{Size, random_preset, random_preset_where, shrink};
use crate::model::{Precision, Preset};
use crate::train::TrainError;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The share of networks with layers that choose: the checks of one take several times as long, for each of its paths.
const CHOOSING: f64 = 0.1;

/// Which networks are drawn, and how they are verified.
#[derive(Clone, Debug)]
pub struct RandomRun {
    /// The number of networks.
    pub count: u64,
    /// The seed of the first; those of the others follow. A network's seed is that of its weights and batch too.
    pub first: u64,
    /// The time of one network, in seconds: those that would take longer are left out, and one that does take longer is
    /// ended. Making a failure smaller takes at most ten times as long.
    pub seconds: f64,
    /// With what; the seed in it is not used.
    pub options: VerifyOptions,
}

/// One failure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Failure {
    pub network: String,
    pub seed: u64,
    pub precision: Precision,
    /// The name of the check that failed.
    pub check: String,
    /// What failed, in one line.
    pub line: String,
    /// The smallest network of which the same check fails.
    #[serde(skip)]
    pub smallest: Preset,
    /// Layers of the network, and of the smallest.
    pub layers: [usize; 2],
    /// False where the time for making the network smaller was over.
    pub is_smallest: bool,
}

/// What came of one check of all networks of a precision.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tally {
    #[serde(rename = "name")]
    pub check: String,
    pub precision: Precision,
    pub passed: u64,
    pub failed: u64,
    pub skipped: u64,
    /// Why it was skipped, and how often for that.
    pub reasons: BTreeMap<String, u64>,
    /// The largest error as a share of its bound, of checks that have bounds.
    pub worst_ratio: Option<f64>,
    /// The seed of the network in which it was.
    pub worst_seed: Option<u64>,
}

/// What came of all networks.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RandomReport {
    /// The seed of the first network.
    #[serde(rename = "seed")]
    pub first: u64,
    /// Networks on which every check was run to its end, or a check failed. The checks of these are counted.
    pub networks: u64,
    pub failed_networks: u64,
    /// Networks that would have taken too long, or did.
    pub skipped_networks: u64,
    pub seconds: f64,
    pub checks: Vec<Tally>,
    /// Written by those who know where the smallest networks are kept.
    #[serde(skip)]
    pub failures: Vec<Failure>,
    /// Whether it was ended before the last network.
    pub cancelled: bool,
    pub passed: bool,
}

/// What happens while networks are verified.
#[derive(Clone, Copy, Debug)]
pub enum RandomEvent<'a> {
    /// The checks of this network begin.
    Begins {
        seed: u64,
    },
    /// A check begins, of the network or of a smaller one.
    Check,
    /// A check failed; the network will be made smaller.
    Shrinks {
        seed: u64,
        check: &'a str,
    },
    Failed(&'a Failure),
    /// The network is done with.
    Done {
        seed: u64,
    },
    /// It was left out, or ended before its last check, for this reason.
    Skipped {
        seed: u64,
        why: &'a str,
    },
}

/// Verifies random networks one after another; `listen` sees what happens, and ends it where it gives false.
pub fn verify_random(run: &RandomRun, mut listen: impl FnMut(RandomEvent<'_>) -> bool) -> RandomReport {
    let started = Instant::now();
    let mut report = RandomReport { first: run.first, ..RandomReport::default() };
    for seed in (0..run.count).map(|index| run.first.wrapping_add(index)) {
        if !listen(RandomEvent::Begins { seed }) || !run.one(seed, &mut report, &mut listen) {
            // A run that is ended after its last network is complete.
            report.cancelled |= report.networks + report.skipped_networks < run.count;
            break;
        }
    }
    report.checks.sort_by_key(|tally| tally.precision.name());
    report.seconds = started.elapsed().as_secs_f64();
    report.passed = report.failures.is_empty();
    report
}

/// How the checks of a network ended.
enum Ended {
    /// At the last check that was asked for.
    Done,
    /// By who listens.
    Asked,
    TooLong,
    Failed(TrainError),
}

/// Where the checks themselves cannot be run, this is the check's name.
const ERROR: &str = "the checks can be run";

/// A check that failed: its proof, its name, and what failed.
type Failed = (Proof, String, String);

/// Listens to what happens; false ends it.
type Listener<'a> = &'a mut dyn FnMut(RandomEvent<'_>) -> bool;

impl RandomRun {
    /// The network of a seed as it is verified here: a CPU computes in `f32` whatever the precision is, and for a GPU
    /// it is one of what has kernels there.
    #[must_use]
    pub fn network(&self, seed: u64) -> Preset {
        // Every sixteenth has operations that threads share.
        let size = Size { choosing: CHOOSING, ..if seed % 16 == 15 { Size::LARGE } else { Size::SMALL } };
        if self.options.machine().as_cpu().is_some() {
            return Preset { precision: Precision::F32, ..random_preset(seed, size) };
        }
        random_preset_where(seed, size, &|model| CpuOnly::of(model).is_none())
    }

    fn options(&self, seed: u64) -> VerifyOptions {
        VerifyOptions { seed, ..self.options.clone() }
    }

    /// Verifies the network of a seed; false where it was asked to end.
    fn one(&self, seed: u64, report: &mut RandomReport, listen: Listener<'_>) -> bool {
        let preset = self.network(seed);
        // What cannot even be compiled is found again by the checks.
        if let Ok(price) = price(&preset, &self.options(seed))
            && price.seconds > self.seconds
        {
            return report.leave_out(seed, &format!("its checks take about {:.0} s", price.seconds), listen);
        }
        let mut checks = Vec::new();
        let time = Duration::from_secs_f64(self.seconds);
        let ended = prove(&preset, &self.options(seed), time, &Proof::ALL, listen, &mut |proof, check| {
            checks.push((proof, check.clone()));
            true
        });
        let verdicts: Vec<Option<bool>> = checks.iter().map(|(_, check)| self.verdict(&preset, seed, check)).collect();
        let mut failed: Vec<Failed> = Vec::new();
        for ((proof, check), _) in checks.iter().zip(&verdicts).filter(|(_, verdict)| **verdict == Some(false)) {
            let line = check.detail.first().unwrap_or(&check.figures);
            failed.push((*proof, check.name.clone(), line.clone()));
        }
        // Of a network that was not checked to its end, only a failure counts.
        match ended {
            Ended::Asked => {
                report.cancelled = true;
                if failed.is_empty() {
                    return false;
                }
            }
            Ended::TooLong if failed.is_empty() => return report.leave_out(seed, "its checks took too long", listen),
            Ended::Failed(error) => failed.push((Proof::Plan, ERROR.into(), error.to_string())),
            Ended::TooLong | Ended::Done => {}
        }
        for ((_, check), verdict) in checks.iter().zip(verdicts) {
            report.count(check, verdict, preset.precision, seed);
        }
        report.networks += 1;
        report.failed_networks += u64::from(!failed.is_empty());
        self.shrinks(&preset, seed, failed, report, listen) && listen(RandomEvent::Done { seed })
    }

    /// Makes a network smaller for each check that failed, and reports it; false where it was asked to end.
    fn shrinks(
        &self,
        preset: &Preset,
        seed: u64,
        failed: Vec<Failed>,
        report: &mut RandomReport,
        listen: Listener<'_>,
    ) -> bool {
        for (proof, check, line) in failed {
            listen(RandomEvent::Shrinks { seed, check: &check });
            let (smallest, is_smallest) = self.smallest(preset, seed, (proof, &check, &line), listen);
            let layers = [preset, &smallest].map(|p| count(&p.layers));
            let (network, precision) = (preset.name.clone(), preset.precision);
            let failure = Failure { network, seed, precision, check, line, smallest, layers, is_smallest };
            let goes_on = listen(RandomEvent::Failed(&failure));
            report.failures.push(failure);
            if !goes_on {
                return false;
            }
        }
        true
    }

    /// What a check says of the program: nothing where training is right to leave the numbers of `f32`.
    fn verdict(&self, preset: &Preset, seed: u64, check: &Check) -> Option<bool> {
        let leaves = check.name == ENDURANCE && check.passed == Some(false) && check.detail == [NOT_FINITE];
        if !leaves {
            return check.passed;
        }
        let steps = self.options.replays.unwrap_or(0);
        if matches!(diverges(preset, &self.options(seed), steps), Ok(true)) { None } else { check.passed }
    }

    /// The smallest network of which the check fails, and whether there was time to find it.
    fn smallest(
        &self,
        preset: &Preset,
        seed: u64,
        (proof, name, line): (Proof, &str, &str),
        listen: Listener<'_>,
    ) -> (Preset, bool) {
        let (options, until) = (self.options(seed), Instant::now() + Duration::from_secs_f64(10.0 * self.seconds));
        let mut is_over = false;
        // An error may come from any check.
        let proofs: &[Proof] = if name == ERROR { &Proof::ALL } else { &[proof] };
        let smallest = shrink(preset, |smaller| {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || is_over {
                is_over = true;
                return false;
            }
            let mut fails = false;
            let ended = prove(smaller, &options, left, proofs, listen, &mut |_, check| {
                let is_it = check.name == name;
                fails |= is_it && self.verdict(smaller, seed, check) == Some(false);
                !is_it
            });
            is_over |= matches!(ended, Ended::Asked);
            fails || (name == ERROR && matches!(ended, Ended::Failed(error) if is_alike(line, &error.to_string())))
        });
        (smallest, !is_over)
    }
}

/// Runs proofs until they are done, who listens ends them, `time` is over, or `done` gives false after a check.
fn prove(
    preset: &Preset,
    options: &VerifyOptions,
    time: Duration,
    proofs: &[Proof],
    listen: Listener<'_>,
    done: &mut dyn FnMut(Proof, &Check) -> bool,
) -> Ended {
    let until = Instant::now() + time;
    let cancel = Arc::new(AtomicBool::new(false));
    let (flag, mut why) = (Arc::clone(&cancel), None);
    let outcome = verify_some(preset, options, proofs, &cancel, |progress| {
        let ended = match progress {
            Progress::Done(proof, check) if !done(proof, check) => Some(Ended::Done),
            Progress::Done(..) if Instant::now() > until => Some(Ended::TooLong),
            Progress::Done(..) => None,
            Progress::Begins(..) => (!listen(RandomEvent::Check)).then_some(Ended::Asked),
        };
        if let Some(ended) = ended {
            flag.store(true, Ordering::Relaxed);
            why.get_or_insert(ended);
        }
    });
    match outcome {
        Err(TrainError::Cancelled) => why.unwrap_or(Ended::Done),
        Err(error) => Ended::Failed(error),
        Ok(_) => Ended::Done,
    }
}

/// Whether two errors are of one kind: what they say before the first colon, which does not depend on the network.
fn is_alike(a: &str, b: &str) -> bool {
    let kinds = a.split_once(": ").zip(b.split_once(": "));
    a == b || kinds.is_some_and(|((of_a, _), (of_b, _))| of_a == of_b)
}

/// Why a check was skipped, without what belongs to one network alone.
fn reason(check: &Check) -> String {
    let why = check.figures.strip_prefix("skipped: ").unwrap_or("training leaves the numbers of f32");
    why.split_once(": ").map_or(why, |(reason, _)| reason).to_owned()
}

fn count<'a>(layers: impl IntoIterator<Item = &'a crate::model::LayerSpec>) -> usize {
    let inside = |l: &crate::model::LayerSpec| l.lists().into_iter().map(|(_, list)| count(list)).sum::<usize>();
    layers.into_iter().map(|l| 1 + inside(l)).sum()
}

impl RandomReport {
    /// Counts a network that would have taken too long, or did; false where it was asked to end.
    fn leave_out(&mut self, seed: u64, why: &str, listen: Listener<'_>) -> bool {
        self.skipped_networks += 1;
        listen(RandomEvent::Skipped { seed, why }) && listen(RandomEvent::Done { seed })
    }

    fn count(&mut self, check: &Check, verdict: Option<bool>, precision: Precision, seed: u64) {
        let is_it = |tally: &Tally| tally.check == check.name && tally.precision == precision;
        let at = self.checks.iter().position(is_it).unwrap_or_else(|| {
            let name = check.name.clone();
            let (passed, failed, skipped, reasons) = (0, 0, 0, BTreeMap::new());
            let (worst_ratio, worst_seed) = (None, None);
            self.checks.push(Tally {
                check: name,
                precision,
                passed,
                failed,
                skipped,
                reasons,
                worst_ratio,
                worst_seed,
            });
            self.checks.len() - 1
        });
        let tally = &mut self.checks[at];
        match verdict {
            Some(true) => tally.passed += 1,
            Some(false) => tally.failed += 1,
            None => {
                tally.skipped += 1;
                *tally.reasons.entry(reason(check)).or_default() += 1;
            }
        }
        if let Some(ratio) = check.ratio.filter(|ratio| tally.worst_ratio.is_none_or(|worst| *ratio > worst)) {
            (tally.worst_ratio, tally.worst_seed) = (Some(ratio), Some(seed));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(count: u64) -> RandomRun {
        let options = VerifyOptions { replays: Some(10), threads: 1, ..VerifyOptions::default() };
        RandomRun { count, first: 40, seconds: 60.0, options }
    }

    #[test]
    fn networks_are_counted_by_check_and_the_worst_ratio_is_kept() {
        let report = verify_random(&run(3), |_| true);
        assert!(report.passed && report.networks == 3 && !report.cancelled, "{:?}", report.failures);
        let of = |name: &str| report.checks.iter().find(|t| t.check.starts_with(name)).unwrap();
        let kernels = of("each kernel");
        assert_eq!((kernels.passed, kernels.failed, kernels.precision), (3, 0, Precision::F32));
        assert!(kernels.worst_ratio.is_some_and(|r| r > 0.0 && r <= 1.0), "{kernels:?}");
        assert!(kernels.worst_seed.is_some_and(|s| (40..43).contains(&s)));
        assert_eq!(of("threads do not").skipped, 3);
        assert_eq!(of("threads do not").reasons, BTreeMap::from([("only one thread".to_owned(), 3)]));
        assert_eq!(of("warm-up").worst_ratio, None);
    }

    #[test]
    fn a_run_ends_when_it_is_asked_and_leaves_out_what_takes_too_long() {
        let mut begun = 0;
        let report = verify_random(&run(1_000), |event| {
            begun += u64::from(matches!(event, RandomEvent::Begins { .. }));
            begun < 2
        });
        assert!(report.cancelled && report.networks == 1, "{report:?}");
        // Its checks are those of whole networks: one that is interrupted is not counted.
        let mut checks = 0;
        let report = verify_random(&run(1_000), |event| {
            checks += u64::from(matches!(event, RandomEvent::Check));
            checks < 25
        });
        assert!(report.cancelled && report.networks == 1, "{report:?}");
        let of_each = |tally: &Tally| tally.passed + tally.failed + tally.skipped;
        assert!(!report.checks.is_empty() && report.checks.iter().all(|tally| of_each(tally) == 1), "{report:?}");
        let complete = verify_random(&run(1), |event| !matches!(event, RandomEvent::Done { .. }));
        assert!(!complete.cancelled && complete.networks == 1, "{complete:?}");
        let mut skipped = Vec::new();
        let report = verify_random(&RandomRun { seconds: 1e-9, ..run(2) }, |event| {
            if let RandomEvent::Skipped { seed, .. } = event {
                skipped.push(seed);
            }
            true
        });
        assert_eq!((report.networks, report.skipped_networks, skipped), (0, 2, vec![40, 41]));
        assert!(report.checks.is_empty() && report.passed);
    }

    #[test]
    fn a_network_that_diverges_is_no_failure_of_the_program() {
        let text = r#"{"version": 1, "name": "wild", "input": {"shape": [4], "batch": 4},
            "layers": [{"type": "dense", "units": 8}, {"type": "dense", "units": 8}, {"type": "dense", "units": 4}],
            "loss": {"type": "mse"}, "optimizer": {"type": "sgd", "lr": 1000}}"#;
        let wild = crate::model::read_preset(text).unwrap();
        let tame = Preset { optimizer: crate::model::OptimizerSpec::sgd(0.01), ..wild.clone() };
        let run = RandomRun { options: VerifyOptions { replays: Some(30), ..run(1).options }, ..run(1) };
        let found = Check::new(ENDURANCE, false, String::new()).detail(vec![(NOT_FINITE.into(), None)]);
        assert_eq!((run.verdict(&wild, 1, &found), run.verdict(&tame, 1, &found)), (None, Some(false)));
        // Two runs that differ are a failure, whatever else there is.
        let both = vec![("two runs differ".into(), None), (NOT_FINITE.into(), None)];
        assert_eq!(run.verdict(&wild, 1, &Check::new(ENDURANCE, false, String::new()).detail(both)), Some(false));
    }

    #[test]
    fn errors_of_one_kind_differ_in_what_follows_the_first_colon() {
        let plan = |op: u32| format!("memory plan: the plan's referee: op {op} reads a value");
        assert!(is_alike(&plan(3), &plan(7)));
        assert!(!is_alike(&plan(3), "source, sample 0 does not fit the network: found the token 47"));
        assert!(is_alike("no data", "no data") && !is_alike("no data", "no memory"));
    }

    #[test]
    fn a_failure_is_made_as_small_as_its_check_allows() {
        // Checks that cannot be run, because a file is missing, fail for every network.
        let wanted = |preset: &Preset| preset.layers.iter().any(|l| l.kind().type_name == "dense");
        let seed = (0..).find(|seed| wanted(&run(1).network(*seed))).unwrap();
        let preset = run(1).network(seed);
        let missing = VerifyOptions { batches: Some("none.safetensors".into()), ..run(1).options };
        let run = RandomRun { options: missing, first: seed, ..run(1) };
        let mut reported = Vec::new();
        let report = verify_random(&run, |event| {
            if let RandomEvent::Failed(failure) = event {
                reported.push(failure.clone());
            }
            true
        });
        assert!(!report.passed && report.failed_networks == 1 && report.failures == reported);
        let failure = &reported[0];
        assert_eq!((failure.check.as_str(), failure.is_smallest), (ERROR, true));
        assert!(failure.line.contains("none.safetensors"), "{}", failure.line);
        assert_eq!(failure.layers, [count(&preset.layers), 1]);
        assert!(crate::model::check(&failure.smallest).model.is_some());
    }
}
