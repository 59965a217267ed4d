//! The recordings of a run as a window shows them: plain data.

use crate::exec::{GraphKey, KnownKey, PoolCounts, PoolEvent, PoolEventKind, PoolReport, RecordingFacts};
use crate::ir::Share;
use serde::{Deserialize, Serialize};

/// Events that are reported at most, the newest.
const MOST_EVENTS: usize = 200;

/// Which step a recording is of, by which it can be planned anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SeenStep {
    /// One that the session keeps for itself: the training step of the whole network, or its evaluation.
    #[default]
    Kept,
    /// One of the batches of a training step.
    Batch {
        /// A step that uses the recording, counted from 1.
        step: u64,
        rows: usize,
        /// Positions; nothing where all steps of the run have the network's own.
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
    /// The number by which reports of steps name it; 0 where none does.
    pub kind: u32,
    #[serde(default)]
    pub of: SeenStep,
    #[serde(flatten)]
    pub facts: RecordingFacts,
}

/// Something that happened to recordings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordingEvent {
    pub number: u64,
    pub kind: PoolEventKind,
    pub key: String,
    pub about: String,
}

/// The recordings of a run after a step of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordingsSeen {
    /// Steps made by then.
    pub step: u64,
    pub counts: PoolCounts,
    pub recordings: Vec<RecordingSeen>,
    /// The newest last.
    pub events: Vec<RecordingEvent>,
}

impl RecordingsSeen {
    /// What a report says, with the number by which steps name each key, and the step that it is of.
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
