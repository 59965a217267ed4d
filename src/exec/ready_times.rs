//! How long it takes until a step is ready for its first batch, stage by stage.

use crate::compile::StageTimes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The stages between a preset and its first step, in order of their dependencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReadyStage {
    /// Kernels of a GPU that were not timed before are timed.
    Time,
    /// The model becomes a graph.
    Graph,
    /// The graph becomes operations.
    Lower,
    /// The operations are rewritten, and their kernels are chosen.
    Select,
    /// Buffers get their offsets.
    Plan,
    /// The memory that the run will need on this machine is estimated.
    Count,
    /// Memory is allocated and zeroed.
    Memory,
    /// Libraries choose how they run their operations.
    Libraries,
    /// Kernels are compiled if necessary, and loaded.
    Kernels,
    /// Operations get their addresses.
    Bind,
    /// Operations are combined into launches.
    Launches,
    /// The step runs once on fresh memory of a GPU.
    FirstRun,
    /// The launches become a graph, whose nodes are read.
    Capture,
    /// The graph is uploaded to the device.
    Upload,
    /// The first parameters are drawn.
    Parameters,
    /// The data set is loaded at the same time as the preceding stages; this is the time that was spent waiting for it.
    Data,
    /// A first snapshot is made.
    Snapshot,
    /// The recording for the first batch is chosen, if steps differ.
    FirstRecording,
    /// The evaluation is recorded.
    Evaluation,
    /// Steps that gather their own batches are recorded.
    DataFeed,
}

impl ReadyStage {
    /// All of them, in order.
    pub const ALL: [Self; 20] = [
        Self::Time,
        Self::Graph,
        Self::Lower,
        Self::Select,
        Self::Plan,
        Self::Count,
        Self::Memory,
        Self::Libraries,
        Self::Kernels,
        Self::Bind,
        Self::Launches,
        Self::FirstRun,
        Self::Capture,
        Self::Upload,
        Self::Parameters,
        Self::Data,
        Self::Snapshot,
        Self::FirstRecording,
        Self::Evaluation,
        Self::DataFeed,
    ];

    /// Its name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Time => "time kernels",
            Self::Graph => "graph",
            Self::Lower => "lower",
            Self::Select => "rewrite and select",
            Self::Plan => "plan",
            Self::Count => "count memory",
            Self::Memory => "take memory",
            Self::Libraries => "ask libraries",
            Self::Kernels => "compile and load kernels",
            Self::Bind => "bind",
            Self::Launches => "put launches together",
            Self::FirstRun => "first run",
            Self::Capture => "capture",
            Self::Upload => "upload",
            Self::Parameters => "parameters",
            Self::Data => "data",
            Self::Snapshot => "snapshot",
            Self::FirstRecording => "first recording",
            Self::Evaluation => "evaluation",
            Self::DataFeed => "data feed",
        }
    }
}

/// The time that it took until a step was ready.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReadyTimes {
    /// From the preset to the first step, in microseconds; 0 until it is ready.
    pub total_us: f64,
    /// Microseconds of each stage that ran. Their sum is less than the total, because some time belongs to no stage.
    pub stages: BTreeMap<ReadyStage, f64>,
}

impl ReadyTimes {
    /// Adds the time of a stage.
    pub fn add(&mut self, stage: ReadyStage, took: Duration) {
        *self.stages.entry(stage).or_default() += took.as_secs_f64() * 1e6;
    }

    /// Adds the stages of a compilation.
    pub fn add_compilation(&mut self, times: &StageTimes) {
        let StageTimes { ir, lower, select, plan } = *times;
        self.add(ReadyStage::Graph, ir);
        self.add(ReadyStage::Lower, lower);
        self.add(ReadyStage::Select, select);
        self.add(ReadyStage::Plan, plan);
    }

    /// Adds the stages of a part of this preparation.
    pub fn add_part(&mut self, part: &Self) {
        for (stage, us) in &part.stages {
            *self.stages.entry(*stage).or_default() += us;
        }
    }

    /// The result of `work`, whose time is added to a stage.
    pub fn of<T>(&mut self, stage: ReadyStage, work: impl FnOnce() -> T) -> T {
        let started = Instant::now();
        let made = work();
        self.add(stage, started.elapsed());
        made
    }

    /// Microseconds of a stage; 0 if it did not run.
    #[must_use]
    pub fn us(&self, stage: ReadyStage) -> f64 {
        self.stages.get(&stage).copied().unwrap_or_default()
    }

    /// The stages, the longest first, with their microseconds.
    #[must_use]
    pub fn longest(&self) -> Vec<(ReadyStage, f64)> {
        let mut stages: Vec<_> = self.stages.iter().map(|(stage, us)| (*stage, *us)).collect();
        stages.sort_by(|a, b| b.1.total_cmp(&a.1));
        stages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_add_up_and_are_in_their_order() {
        let mut times = ReadyTimes::default();
        times.add(ReadyStage::Bind, Duration::from_micros(3));
        times.add_compilation(&StageTimes { plan: Duration::from_micros(5), ..StageTimes::default() });
        let part = times.clone();
        times.add_part(&part);
        assert_eq!(
            (times.us(ReadyStage::Bind), times.us(ReadyStage::Plan), times.us(ReadyStage::Upload)),
            (6.0, 10.0, 0.0)
        );
        assert_eq!(times.longest()[..2], [(ReadyStage::Plan, 10.0), (ReadyStage::Bind, 6.0)]);
        assert!(ReadyStage::ALL.is_sorted());
        let json = serde_json::to_string(&times).unwrap();
        assert!(json.contains(r#""plan":10.0,"bind":6.0"#), "{json}");
        assert_eq!(serde_json::from_str::<ReadyTimes>(&json).unwrap(), times);
    }
}
