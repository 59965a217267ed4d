//! Steps one after the other in one graph.
//!
//! A single step starts without knowing what the stream did before, and ends with a small launch that combines its
//! metrics, for which the whole machine waits. In a multi-step graph, the first launch of a step knows the preceding
//! launch and loads what that does not write, and the metrics of the preceding step are combined beside the first
//! product, or beside the gathering of the next batch.

use super::arguments::{ArgRow, Range, meet};
use super::bound_ops::BoundOps;
use super::extents::{reads, writes};
use super::horizontal_fusion::{own_sizes_member, share};
use super::launch::Launch;
use super::pdl::{ends_small, fetch_ahead, writes_last};
use crate::exec::location::located;
use crate::ops::OpKind;
use crate::select::cuda::KernelSpec;

/// What changes if the launches before and after a step are known.
#[derive(Default)]
pub(super) struct MultiStep {
    /// The first launch after another step.
    behind_step: Option<Launch>,
    /// Whether that launch includes the metrics of the preceding step.
    takes_metrics: bool,
    /// The first launch after the kernel that gathers the batch.
    behind_feed: Option<Launch>,
    /// The operation that combines the metrics, if it is the last launch, alone, and only reads what was written for
    /// it.
    pub(super) metrics: Option<usize>,
    /// Whether the launch before a feed does not change the step counter, so that the next batch may be determined
    /// while that launch runs.
    pub(super) feed_early: bool,
}

impl MultiStep {
    /// Decides this for a step whose launches have their flags; the last launch gets another flag if the next one may
    /// start early.
    pub(super) fn new(ops: &BoundOps, launches: &mut [Launch]) -> Self {
        let has_pdl = ops.compiled.selection.target.as_cuda().is_some_and(|gpu| gpu.capability.0 >= 9);
        if !has_pdl || launches.len() < 3 {
            return Self::default();
        }
        let program = &ops.compiled.plan.program;
        let metrics = match launches.last() {
            Some(Launch::Single { op, .. }) if matches!(program.ops[*op].kind, OpKind::StepMetrics { .. }) => {
                // The metrics of a general member stay after each step.
                own_sizes_member(ops, *op).map(|_| *op)
            }
            _ => None,
        };
        let with_metrics = metrics.and_then(|op| share_metrics(ops, &launches[0], op));
        let takes_metrics = with_metrics.is_some();
        let behind_feed = behind_feed(ops, &launches[0]);
        let end = launches.len() - 1;
        let before_feed = if metrics.is_some() { end - 1 } else { end };
        let feed_early = start_feed_early(ops, &mut launches[before_feed]);
        let before_step = if takes_metrics { end - 1 } else { end };
        let behind_step = behind_step(ops, launches, before_step, with_metrics);
        Self { behind_step, takes_metrics, behind_feed, metrics, feed_early }
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

    /// The launches of a step after its feed. The next feed computes the metrics.
    pub(super) fn fed<'a>(&'a self, launches: &'a [Launch]) -> Vec<&'a Launch> {
        let all = self.behind_feed.as_ref().or(launches.first()).into_iter().chain(launches.iter().skip(1));
        all.take(launches.len() - usize::from(self.metrics.is_some())).collect()
    }

    /// The kernel that combines a step's metrics beside a feed and adds them to the record of that step, and its
    /// arguments by slot.
    pub(super) fn closing(&self, ops: &BoundOps, records: &RecordRing) -> Option<(KernelSpec, ArgRow)> {
        let op = self.metrics?;
        let member = own_sizes_member(ops, op)?;
        let [max, norm] = records.words.map(|word| word.map_or(-1, |word| word as i64));
        let arguments = format!("{}, {}, {max}, {norm}", member.spec.ty(), records.len);
        let spec = KernelSpec { template: "ClosingMetrics", arguments, ..KernelSpec::clone(&member.spec) };
        let mut row = member.args;
        let free = ops.compiled.plan.program.ops[op].kind.slots().len();
        (row[free], row[free + 1]) = (records.counter, records.address);
        Some((spec, row))
    }
}

/// Where steps write their records.
pub(super) struct RecordRing {
    /// The start of the ring, and the number of its records.
    pub(super) address: u64,
    pub(super) len: usize,
    /// The address of the step counter.
    pub(super) counter: u64,
    /// The words of a record for the largest change and the gradient's norm, if they are watched.
    pub(super) words: [Option<usize>; 2],
}

/// The first launch with the metrics of the preceding step, if they may share one.
fn share_metrics(ops: &BoundOps, first: &Launch, metrics: usize) -> Option<Launch> {
    // The plan covers one step: the first launch of the next one may write to the memory that the metrics are read
    // from.
    let written: Vec<Range> = first.ops().iter().flat_map(|op| writes(&ops.compiled, *op)).collect();
    if reads(&ops.compiled, metrics).iter().any(|r| written.iter().any(|w| meet(*w, *r))) {
        return None;
    }
    let both: Vec<usize> = first.ops().iter().copied().chain([metrics]).collect();
    match share(ops, &both) {
        Ok(mut launch) => {
            if first.starts_next_early() {
                launch.start_next_early();
            }
            Some(launch)
        }
        Err(why) => {
            log::debug!("the metrics stay in a separate launch: {why}");
            None
        }
    }
}

/// The first launch after a feed, if it can load anything except the batch.
fn behind_feed(ops: &BoundOps, first: &Launch) -> Option<Launch> {
    let program = &ops.compiled.plan.program;
    let batch: Vec<Range> = [Some(program.samples()), program.targets()]
        .into_iter()
        .flatten()
        .filter_map(|id| located(&ops.compiled, id).ok())
        .map(|(place, value)| (place.offset, place.offset + value.bytes()))
        .collect();
    let mut launch = first.clone();
    fetch_ahead(ops, &mut launch, &batch).then_some(launch)
}

/// What the last phases of a launch write, if all of them allow the next launch to start early.
fn written_at_end(ops: &BoundOps, launch: &Launch) -> Option<Vec<Range>> {
    let known = launch.ops().iter().all(|op| ends_small(ops, *op));
    known.then(|| launch.ops().iter().flat_map(|op| writes_last(ops, *op)).collect())
}

/// Lets the feed start before the preceding launch ends, if that does not change the step counter.
fn start_feed_early(ops: &BoundOps, before: &mut Launch) -> bool {
    let Some(written) = written_at_end(ops, before) else { return false };
    let counter = ops.compiled.plan.program.find("counter").and_then(|id| located(&ops.compiled, id).ok());
    let is_early = counter.is_some_and(|(place, _)| !written.iter().any(|w| w.0 <= place.offset && place.offset < w.1));
    if is_early {
        before.start_next_early();
    }
    is_early
}

/// The first launch behind another step, whose last launch is `launches[before]`.
fn behind_step(ops: &BoundOps, launches: &mut [Launch], before: usize, with_metrics: Option<Launch>) -> Option<Launch> {
    let Some(written) = written_at_end(ops, &launches[before]) else { return with_metrics };
    let takes_metrics = with_metrics.is_some();
    let mut first = with_metrics.unwrap_or_else(|| launches[0].clone());
    let overlaps = fetch_ahead(ops, &mut first, &written);
    if overlaps {
        launches[before].start_next_early();
    }
    (overlaps || takes_metrics).then_some(first)
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
    fn the_metrics_of_every_step_of_a_graph_are_computed_once() {
        let launches = [single(0), single(1), single(2), single(3)];
        let plain = MultiStep::default();
        assert_eq!(ops(&plain.steps(&launches, 2)), [0, 1, 2, 3, 0, 1, 2, 3]);
        assert_eq!(ops(&plain.fed(&launches)), [0, 1, 2, 3]);
        // Number 9 is the first launch with the metrics of the preceding step.
        let multi = MultiStep {
            behind_step: Some(single(9)),
            takes_metrics: true,
            behind_feed: Some(single(8)),
            metrics: Some(3),
            feed_early: true,
        };
        assert_eq!(ops(&multi.steps(&launches, 3)), [0, 1, 2, 9, 1, 2, 9, 1, 2, 3]);
        assert_eq!(ops(&multi.steps(&launches, 1)), [0, 1, 2, 3]);
        assert_eq!(ops(&multi.fed(&launches)), [8, 1, 2]);
    }
}
