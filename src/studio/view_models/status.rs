//! The status line: the plan, its changes by the last edit, and the run.

use crate::exec::Recording;
use crate::exec::cpu::Ceilings;
use crate::studio::view_models::format;
use crate::studio::view_models::format::plain_count;
use crate::studio::view_models::plan::PlanView;
use crate::studio::view_models::readiness::Readiness;
use crate::tensor::Bytes;
use crate::train::RunState;

/// The numbers of a plan that an edit changes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlanNumbers {
    pub arena_bytes: u64,
    pub ops: usize,
    /// Distinct kernels.
    pub kernels: usize,
    pub cost_us: f64,
    /// The least time of the step, in microseconds, if the machine was measured.
    pub floor_us: Option<f64>,
}

impl PlanNumbers {
    #[must_use]
    pub fn of(plan: &PlanView, ceilings: Option<&Ceilings>) -> Self {
        let kernels: std::collections::HashSet<&str> = plan.ops.iter().map(|o| o.kernel.as_str()).collect();
        Self {
            arena_bytes: plan.compiled.plan.arena_bytes,
            ops: plan.ops.len(),
            kernels: kernels.len(),
            cost_us: plan.whole.us,
            floor_us: ceilings.map(|c| plan.compiled.selection.floor_us(|flops, bytes| c.floor(flops, bytes).us)),
        }
    }

    /// The changes since `before`: `arena +1.2 MiB, 3 ops more, step +4.0 µs`; `None` if there are none.
    #[must_use]
    pub fn difference(&self, before: &Self) -> Option<String> {
        let mut parts = Vec::new();
        if self.arena_bytes != before.arena_bytes {
            let sign = if self.arena_bytes > before.arena_bytes { '+' } else { '−' };
            parts.push(format!("arena {sign}{}", Bytes(self.arena_bytes.abs_diff(before.arena_bytes))));
        }
        if self.ops != before.ops {
            let n = self.ops.abs_diff(before.ops);
            let ops = if n == 1 { "op" } else { "ops" };
            parts.push(format!("{n} {ops} {}", if self.ops > before.ops { "more" } else { "fewer" }));
        }
        if self.kernels != before.kernels {
            let n = self.kernels.abs_diff(before.kernels);
            let kernels = if n == 1 { "kernel" } else { "kernels" };
            parts.push(format!("{n} {kernels} {}", if self.kernels > before.kernels { "more" } else { "fewer" }));
        }
        let mut time = |name: &str, us: f64| {
            if us.abs() >= 0.05 {
                parts.push(format!("{name} {}{}", if us > 0.0 { '+' } else { '−' }, format::micros(us.abs())));
            }
        };
        time("step", self.cost_us - before.cost_us);
        if let (Some(now), Some(then)) = (self.floor_us, before.floor_us) {
            time("least time", now - then);
        }
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

/// The run's state in a word.
#[must_use]
pub const fn state_name(state: Option<&RunState>) -> &'static str {
    match state {
        None => "No run",
        Some(RunState::Preparing) => "Preparing",
        Some(RunState::Ready) => "Ready",
        Some(RunState::Running) => "Training",
        Some(RunState::Paused) => "Paused",
        Some(RunState::Finished) => "Finished",
        Some(RunState::Stopped) => "Stopped",
        Some(RunState::Failed(_)) => "Failed",
    }
}

/// The status line's text about the plan.
#[must_use]
pub fn plan_text(plan: &PlanView) -> String {
    format!(
        "arena {} · {} · step about {}",
        Bytes(plan.compiled.plan.arena_bytes),
        plain_count(plan.ops.len(), "op"),
        format::micros(plan.whole.us)
    )
}

/// Whether the step is recorded, and how long it took until it was ready; otherwise the reason. `trains` says whether
/// the chosen device exists here.
#[must_use]
pub fn recorded_text(
    recording: Option<&Recording>,
    ready_us: Option<f64>,
    state: Option<&RunState>,
    trains: bool,
    readiness: Readiness,
) -> String {
    let ready = ready_us.map_or_else(String::new, |us| format!(", ready in {}", format::micros(us)));
    if !trains {
        return "plan only: choose a device that is here to train on it".into();
    }
    match (recording, state) {
        (Some(Recording { why_eager: Some(why), .. }), _) => format!("runs op by op: {why}"),
        (Some(r), _) if r.nodes > 0 => format!("captured, {}{ready}", plain_count(r.nodes, "node")),
        (Some(r), _) => format!("recorded, {}{ready}", plain_count(r.calls, "call")),
        (None, Some(RunState::Preparing)) => "recording".into(),
        (None, Some(RunState::Failed(_))) => "not recorded: the run could not be prepared".into(),
        (None, _) if readiness == Readiness::HasProblems => "not recorded: fix the network first".into(),
        (None, _) if readiness == Readiness::Empty => "not recorded: add a layer first".into(),
        (None, _) => "not recorded: press Train or Step".into(),
    }
}

/// What a recording contains, as text; empty if there is none.
#[must_use]
pub fn recording_text(recording: Option<&Recording>) -> String {
    let Some(r) = recording else { return String::new() };
    let count = format::exact(r.held_arguments as u64);
    let held = match (r.nodes, &r.why_eager) {
        (_, Some(_)) => "no recorded arguments".to_owned(),
        (0, None) => format!("{count} recorded arguments compared with the plan's at every replay"),
        (_, None) => format!(
            "{count} arguments read from the graph's nodes at capture; a replay checks the base address of the memory, \
             the graph's identity and the addresses of {} scalars that it reads",
            r.live_constants
        ),
    };
    let launch = match r.steps_a_launch {
        0 => String::new(),
        1 => ", each step gathers its own batch".into(),
        steps => format!(", up to {steps} steps in one launch, each gathers its own batch"),
    };
    format!("{}, {held}{launch}", plain_count(r.calls, "call"))
}

/// The progress of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RunProgress {
    pub is_running: bool,
    /// Steps made, and those of the whole run.
    pub done: u64,
    pub total: u64,
    pub steps_per_s: f64,
    /// Samples of a step.
    pub batch: usize,
}

impl RunProgress {
    /// The status line's text about the run.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = format!("step {} of {}", format::exact(self.done), format::exact(self.total));
        if self.is_running && self.steps_per_s > 0.0 {
            let left = self.total.saturating_sub(self.done) as f64 / self.steps_per_s;
            out += &format!(
                " · {} samples/s · {} left",
                format::count(self.steps_per_s * self.batch as f64),
                format::duration(left)
            );
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edit_says_what_it_changed() {
        let before = PlanNumbers { arena_bytes: 1 << 20, ops: 20, kernels: 5, cost_us: 10.0, floor_us: Some(4.0) };
        let after = PlanNumbers { arena_bytes: 3 << 20, ops: 21, kernels: 7, cost_us: 14.0, floor_us: Some(5.0) };
        assert_eq!(
            after.difference(&before).unwrap(),
            "arena +2.0 MiB, 1 op more, 2 kernels more, step +4.0 µs, least time +1.0 µs"
        );
        assert_eq!(
            before.difference(&after).unwrap(),
            "arena −2.0 MiB, 1 op fewer, 2 kernels fewer, step −4.0 µs, least time −1.0 µs"
        );
        assert_eq!(before.difference(&before), None);
    }

    #[test]
    fn the_text_of_a_recording_says_what_is_compared_and_when() {
        let text = |recording: Recording| recording_text(Some(&recording));
        let calls = Recording { calls: 7, held_arguments: 1234, ..Recording::default() };
        let on_cpu = text(calls.clone());
        assert_eq!(on_cpu, "7 calls, 1\u{2009}234 recorded arguments compared with the plan's at every replay");
        let graph = text(Recording { nodes: 9, live_constants: 2, ..calls.clone() });
        assert!(graph.contains("1\u{2009}234 arguments read from the graph's nodes at capture;"), "{graph}");
        assert!(graph.contains("the graph's identity and the addresses of 2 scalars that it reads"), "{graph}");
        let eager = text(Recording { why_eager: Some("why".into()), ..calls });
        assert!(!eager.contains("replay"), "{eager}");
    }

    #[test]
    fn without_a_run_the_line_says_what_to_do() {
        assert_eq!(recording_text(None), "");
        assert_eq!(recorded_text(None, None, None, true, Readiness::Ready), "not recorded: press Train or Step");
        let text = recorded_text(None, None, None, true, Readiness::HasProblems);
        assert_eq!(text, "not recorded: fix the network first");
        assert!(recorded_text(None, None, None, false, Readiness::Ready).starts_with("plan only"));
        let calls = Recording { calls: 23, ..Recording::default() };
        let text = |recording: Recording| recorded_text(Some(&recording), Some(8_123.4), None, true, Readiness::Ready);
        assert_eq!(text(calls.clone()), "recorded, 23 calls, ready in 8.12 ms");
        assert_eq!(text(Recording { nodes: 3, ..calls }), "captured, 3 nodes, ready in 8.12 ms");
        assert_eq!(state_name(None), "No run");
    }
}
