//! The recordings of a run as a window shows them: plain data.

use crate::exec::{GraphKey, KnownKey, PoolCounts, PoolEvent, PoolEventKind, PoolReport, RecordingFacts};
use crate::ir::Share;
use serde::{Deserialize, Serialize};

/// The largest number of events that are reported, the newest.
const MOST_EVENTS: usize = 200;

/// Which step a recording belongs to, by which it can be planned again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SeenStep {
    /// One that the session owns: the training step of the whole network, or its evaluation.
    #[default]
    Kept,
    /// One of the batches of a training step.
    Batch {
        /// A step that uses the recording, counted from 1.
        step: u64,
        rows: usize,
        /// Positions; `None` if all steps of the run have the network's own.
        length: Option<usize>,
        share: Share,
    },
    /// The evaluation of a single sample.
    Answers,
}

/// A recording, or a key that has none now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordingSeen {
    pub key: String,
    /// The number by which reports of steps refer to it; 0 if none does.
    pub kind: u32,
    #[serde(default)]
    pub of: SeenStep,
    #[serde(flatten)]
    pub facts: RecordingFacts,
}

/// An event about recordings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordingEvent {
    pub number: u64,
    pub kind: PoolEventKind,
    pub key: String,
    pub about: String,
}

/// The recordings of a run after one of its steps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordingsSeen {
    /// The number of steps made by then.
    pub step: u64,
    pub counts: PoolCounts,
    pub recordings: Vec<RecordingSeen>,
    /// The newest last.
    pub events: Vec<RecordingEvent>,
}

impl RecordingsSeen {
    /// The report of the pool, with the number by which steps refer to each key, and its step.
    pub(super) fn of(report: PoolReport, step: u64, known: impl Fn(&GraphKey) -> (u32, SeenStep)) -> Self {
        let seen = |recording: KnownKey| {
            let (kind, of) = known(&recording.key);
            RecordingSeen { key: recording.key.to_string(), kind, of, facts: recording.facts }
        };
        let event = |event: PoolEvent| {
            let PoolEvent { number, kind, key, about } = event;
            RecordingEvent { number, kind, key: key.to_string(), about }
        };
        let old = report.events.len().saturating_sub(MOST_EVENTS);
        Self {
            step,
            counts: report.counts,
            recordings: report.keys.into_iter().map(seen).collect(),
            events: report.events.into_iter().skip(old).map(event).collect(),
        }
    }
}
