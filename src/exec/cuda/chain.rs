//! Steps one after the other in one graph.
//!
//! By itself, a step begins without knowing what the stream did before, and ends with a small launch that brings its metrics together, for which the whole
//! machine waits. In a chain, the first launch knows what is in front of it and fetches what that does not write, and the metrics of the step before come
//! together beside the first product, or beside the gathering of the next batch.

use super::bind::{Row, Work};
use super::gpu::Gpu;
use super::group::{Launch, member, share};
use super::overlap::{Range, ends_small, fetch_ahead, is_ours, meet, reads, writes, writes_last};
use crate::compile::Compiled;
use crate::exec::step::located;
use crate::lower::OpKind;

/// What differs where it is known what runs before a step and behind it.
#[derive(Default)]
pub(super) struct Chain {
    /// The first launch behind another step.
    behind_step: Option<Launch>,
    /// Whether that takes the metrics of the step in front along.
    takes_metrics: bool,
    /// The first launch behind the kernel that gathers the batch.
    behind_feed: Option<Launch>,
    /// The operation that brings the metrics together, where it is the last launch, alone, and only reads what was written for it.
    pub(super) metrics: Option<usize>,
    /// Whether the launch in front of a feed leaves the step counter alone, so that the next batch may be looked up meanwhile.
    pub(super) feed_early: bool,
}

impl Chain {
    /// Decides it for a step whose launches have their flags; the last one gets another where the next may start early.
    pub(super) fn new(gpu: &Gpu, compiled: &Compiled, calls: &[Vec<Work>], launches: &mut [Launch]) -> Self {
        let overlaps = compiled.selection.target.as_cuda().is_some_and(|gpu| gpu.capability.0 >= 9);
        if !overlaps || launches.len() < 3 {
            return Self::default();
        }
        let program = &compiled.plan.program;
        let metrics = match launches.last() {
            Some(Launch::Single { op, .. }) if matches!(program.ops[*op].kind, OpKind::StepMetrics { .. }) => Some(*op),
            _ => None,
        };
        let mut chain = Self { metrics, ..Self::default() };
        // The first launch with the metrics of the step in front.
        let first = launches[0].ops().to_vec();
        // The plan knows one step: what its first launch writes may lie where the metrics are read from.
        let written: Vec<Range> = first.iter().flat_map(|op| writes(compiled, *op)).collect();
        let free = |op: &usize| !reads(compiled, *op).iter().any(|r| written.iter().any(|w| meet(*w, *r)));
        let both = metrics.filter(free).map(|op| first.iter().copied().chain([op]).collect::<Vec<_>>());
        if let Some(both) = both {
            match share(gpu, compiled, calls, &both) {
                Ok(mut launch) => {
                    if launches[0].starts_next_early() {
                        launch.start_next_early();
                    }
                    (chain.behind_step, chain.takes_metrics) = (Some(launch), true);
                }
                Err(why) => log::debug!("the metrics stay a launch of their own: {why}"),
            }
        }
        let batch: Vec<Range> = [Some(program.samples()), program.targets()]
            .into_iter()
            .flatten()
            .filter_map(|id| located(compiled, id).ok())
            .map(|(place, value)| (place.offset, place.offset + value.bytes()))
            .collect();
        let mut behind_feed = launches[0].clone();
        if fetch_ahead(compiled, calls, &mut behind_feed, &batch) {
            chain.behind_feed = Some(behind_feed);
        }
        // In front of the next step, or of its feed.
        let end = launches.len() - 1;
        let known =
            |launch: &Launch| launch.ops().iter().all(|op| is_ours(calls, *op) && ends_small(compiled, calls, *op));
        let written = |launch: &Launch| -> Vec<Range> {
            launch.ops().iter().flat_map(|op| writes_last(compiled, calls, *op)).collect()
        };
        let before_feed = if metrics.is_some() { end - 1 } else { end };
        if known(&launches[before_feed]) {
            let written = written(&launches[before_feed]);
            let counter = program.find("counter").and_then(|id| located(compiled, id).ok());
            chain.feed_early =
                counter.is_some_and(|(place, _)| !written.iter().any(|w| w.0 <= place.offset && place.offset < w.1));
            if chain.feed_early {
                launches[before_feed].start_next_early();
            }
        }
        let before_step = if chain.takes_metrics { end - 1 } else { end };
        if known(&launches[before_step]) {
            let written = written(&launches[before_step]);
            let mut first = chain.behind_step.take().unwrap_or_else(|| launches[0].clone());
            let overlaps = fetch_ahead(compiled, calls, &mut first, &written);
            if overlaps {
                launches[before_step].start_next_early();
            }
            chain.behind_step = (overlaps || chain.takes_metrics).then_some(first);
        }
        chain
    }

    /// The launches of `count` steps, one after the other.
    pub(super) fn steps<'a>(&'a self, launches: &'a [Launch], count: usize) -> Vec<&'a Launch> {
        let mut out = Vec::with_capacity(count * launches.len());
        for number in 0..count {
            let first = self.behind_step.as_ref().filter(|_| number > 0);
            let all = first.or(launches.first()).into_iter().chain(launches.iter().skip(1));
            let left = usize::from(self.takes_metrics && number + 1 < count);
            out.extend(all.take(launches.len() - left));
        }
        out
    }

    /// The launches of a step behind its feed. Metrics are left to the next feed.
    pub(super) fn fed<'a>(&'a self, launches: &'a [Launch]) -> Vec<&'a Launch> {
        let all = self.behind_feed.as_ref().or(launches.first()).into_iter().chain(launches.iter().skip(1));
        all.take(launches.len() - usize::from(self.metrics.is_some())).collect()
    }

    /// The kernel that brings a step's metrics together beside a feed and adds them to the record of that step: its file and type, and its arguments by slot. `records`
    /// is where the ring of as many records begins, `counter` the step counter, `words` where in a record the largest change and the gradient's norm belong.
    pub(super) fn closing(
        &self,
        compiled: &Compiled,
        calls: &[Vec<Work>],
        (records, ring): (u64, usize),
        counter: u64,
        words: [Option<usize>; 2],
    ) -> Option<((&'static str, String), Row)> {
        let op = self.metrics?;
        let (_, (_, (file, ty), mut row)) = member(compiled, calls, op)?;
        let (declared, ty) = ty.split_once("\n//---\n").unwrap_or(("", &ty));
        let [max, norm] = words.map(|word| word.map_or(-1, |word| word as i64));
        let ty = format!("{declared}\n//---\nClosingMetrics<{ty}, {ring}, {max}, {norm}>");
        let free = compiled.plan.program.ops[op].kind.slots().len();
        (row[free], row[free + 1]) = (counter, records);
        Some(((file, ty), row))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn single(op: usize) -> Launch {
        Launch::Single { op, flags: 0 }
    }

    fn ops(launches: &[&Launch]) -> Vec<usize> {
        launches.iter().flat_map(|l| l.ops().to_vec()).collect()
    }

    #[test]
    fn every_step_of_a_chain_has_its_metrics_once() {
        let launches = [single(0), single(1), single(2), single(3)];
        let plain = Chain::default();
        assert_eq!(ops(&plain.steps(&launches, 2)), [0, 1, 2, 3, 0, 1, 2, 3]);
        assert_eq!(ops(&plain.fed(&launches)), [0, 1, 2, 3]);
        // Number 9 stands for the first launch with the metrics of the step in front.
        let chain = Chain {
            behind_step: Some(single(9)),
            takes_metrics: true,
            behind_feed: Some(single(8)),
            metrics: Some(3),
            feed_early: true,
        };
        assert_eq!(ops(&chain.steps(&launches, 3)), [0, 1, 2, 9, 1, 2, 9, 1, 2, 3]);
        assert_eq!(ops(&chain.steps(&launches, 1)), [0, 1, 2, 3]);
        assert_eq!(ops(&chain.fed(&launches)), [8, 1, 2]);
    }
}
