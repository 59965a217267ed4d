//! The report of a pool of recordings: counts, keys, reasons and events, all of it plain data.

use super::graph_key::GraphKey;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// The results of the look-ups in a pool, and its content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolCounts {
    /// Look-ups that found a recording.
    pub hits: u64,
    /// Look-ups that caused a recording to be made, or tried to.
    pub misses: u64,
    /// How many of these were made before a step needed them.
    pub made_ahead: u64,
    /// Recordings that were dropped to make room.
    pub evictions: u64,
    /// Recordings that could not be made.
    pub failures: u64,
    /// Steps that ran op by op because their recording did not exist.
    pub eager_steps: u64,
    /// Steps that waited for their recording.
    pub waits: u64,
    /// The time that making recordings took, planning included, in microseconds.
    pub capture_us: u64,
    /// The number of existing recordings.
    pub recordings: usize,
    /// Bytes of these recordings and of the arena that they share.
    pub bytes: u64,
    /// The largest value of those bytes so far.
    pub peak_bytes: u64,
    /// Bytes of the arena only.
    pub arena_bytes: u64,
    /// Times that the arena had to grow.
    pub arena_growths: u64,
    /// The limit of those bytes, above which the least recently used recordings are dropped.
    pub budget_bytes: u64,
    /// Events so far.
    pub events: u64,
}

/// Steps of one key that ran op by op for the same reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EagerSteps {
    pub key: GraphKey,
    pub why: String,
    pub steps: u64,
    pub first_step: u64,
    pub last_step: u64,
}

/// Information about the recordings of one key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordingFacts {
    /// Whether there is a recording.
    pub is_there: bool,
    pub is_pinned: bool,
    /// The number of batches, of steps and of evaluations, that ran with this recording.
    pub hits: u64,
    /// The last step that used it; 0 if none did.
    pub last_step: u64,
    /// Times that it was recorded.
    pub captures: u64,
    /// The time that recording took the last time, including planning, in microseconds.
    pub capture_us: u64,
    /// The number of nodes of its graph on a GPU.
    pub nodes: usize,
    /// Calls of kernels and libraries.
    pub calls: usize,
    /// Bytes of the recording without the arena; 0 if it does not exist.
    pub bytes: u64,
    /// Why it was recorded.
    pub why: Cow<'static, str>,
    /// Why a replay of it runs op by op, if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why_eager: Option<String>,
}

/// A key, and the information about its recordings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KnownKey {
    pub key: GraphKey,
    /// The short name by which logs refer to it.
    pub id: String,
    #[serde(flatten)]
    pub facts: RecordingFacts,
}

/// What kind of event it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PoolEventKind {
    Made,
    /// It was recorded again with other kernels.
    Renewed,
    Missed,
    Evicted,
    Failed,
    /// The arena was allocated again.
    Grew,
}

/// Something that happened in a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PoolEvent {
    /// From 1.
    pub number: u64,
    pub kind: PoolEventKind,
    pub key: GraphKey,
    pub about: String,
}

/// The complete report of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PoolReport {
    #[serde(flatten)]
    pub counts: PoolCounts,
    /// Why steps ran op by op.
    pub eager: Vec<EagerSteps>,
    pub keys: Vec<KnownKey>,
    /// The newest events, in order.
    #[serde(skip)]
    pub events: Vec<PoolEvent>,
}
