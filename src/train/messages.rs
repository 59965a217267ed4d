//! The messages between a window and the worker that trains for it: plain data, which can be sent as it is.
//!
//! A prepared run's step and data are not in a message. [`Event::Prepared`] contains their [`RunKey`], and a listener
//! in the same process gets them from [`super::Worker::artefacts`].

use super::{
    BothWays, Evaluation, Generation, KernelChange, Query, QueryResult, RecordingsSeen, RunKey, Snapshot, Spans,
    StepDifference, StepReport, WritingEvent,
};
use crate::exec::{ReadyTimes, Recording};
use crate::model::Diagnostic;
use crate::select::Kernels;
use crate::tensor::{number_text, path_text};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Commands of the user for a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// Trains, from the start or from a pause.
    Start,
    /// Stops after the current step and keeps everything.
    Pause,
    /// Makes this many steps, then pauses.
    Step(u64),
    /// Ends the run; its result is kept, and it can be continued from there.
    Stop,
    SetLr(#[serde(with = "number_text")] f32),
    /// The run's length in steps.
    SetTotal(u64),
    Evaluate,
    /// The network's outputs for these samples of the data set.
    Predict(Vec<u32>),
    /// Compares the steps of two recordings, by the numbers that reports of steps name them by.
    CompareRecordings([u32; 2]),
    /// A query about the current network. While the run trains it is answered when time allows; it replaces an older
    /// one that is still waiting.
    Query(Query),
    /// Writes a text, which replaces one that is being written. While the run trains, tokens are drawn when time
    /// allows, each with the newest parameters.
    Write(Generation),
    /// Ends the text that is being written.
    StopWriting,
    /// Times this many steps eagerly and as many replayed, and restores the state.
    TimeBothWays(usize),
    SaveWeights(#[serde(with = "path_text")] PathBuf),
    SaveCheckpoint(#[serde(with = "path_text")] PathBuf),
    LoadCheckpoint(#[serde(with = "path_text")] PathBuf),
    /// A copy of everything that the next step depends on.
    TakeSnapshot,
}

/// The state of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// Data is being loaded, and the step compiled and recorded.
    Preparing,
    /// Nothing has been trained yet.
    Ready,
    Running,
    Paused,
    /// All steps have been made.
    Finished,
    /// Ended by the user.
    Stopped,
    /// Ended by an error, with its message.
    Failed(String),
}

/// Reports of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    State(RunState),
    /// The run is ready for its first step.
    Prepared {
        run: RunKey,
        recording: Recording,
        /// How long preparation took.
        ready_times: ReadyTimes,
        /// Steps of the whole run.
        total: u64,
        notes: Vec<String>,
        /// What differs from the checkpoint that the run was resumed from.
        resumed: Vec<String>,
        /// Whether the held-out samples may have been trained on before.
        maybe_trained: bool,
        /// The learning rate of the first step.
        #[serde(with = "number_text")]
        lr: f32,
    },
    /// How far the change to kernels for its sizes is, whenever that is something else.
    Kernels(KernelChange),
    /// Steps made since the last report, in order.
    Steps(#[serde(with = "step_reports")] Vec<StepReport>),
    /// The largest change of each trained parameter in step `step`, and its extremes since the last report of them, in
    /// stretches of steps.
    LayerUpdates {
        step: u64,
        #[serde(with = "number_text")]
        values: Vec<f32>,
        spans: Vec<Spans>,
    },
    Evaluated {
        step: u64,
        #[serde(with = "SentEvaluation")]
        result: Evaluation,
    },
    /// Steps between evaluations, chosen once.
    EvaluatedEvery(u64),
    Predicted {
        step: u64,
        indices: Vec<u32>,
        #[serde(with = "number_text")]
        outputs: Vec<f32>,
    },
    /// The recordings of the run, if they were requested.
    Recordings(Box<RecordingsSeen>),
    /// The difference between the steps of these two recordings.
    RecordingsCompared([u32; 2], Box<StepDifference>),
    QueryResult(Box<QueryResult>),
    Writing(WritingEvent),
    TimedBothWays(BothWays),
    Saved(#[serde(with = "path_text")] PathBuf),
    /// Weights or a checkpoint that could not be written, and why.
    NotSaved(#[serde(with = "path_text")] PathBuf, String),
    /// What is wrong with the preset of a run that cannot be prepared; may be empty.
    Mistakes(Vec<Diagnostic>),
    /// A copy of everything that the next step depends on; sent without a request before a run fails at that step.
    Snapshot(Box<Snapshot>),
    /// A command that failed; the run continues.
    Problem(String),
}

/// [`StepReport`] with every field, finite or not, because its own serialisation is that of a run's log, which omits
/// some.
#[derive(Serialize, Deserialize)]
#[serde(remote = "StepReport")]
struct SentReport {
    step: u64,
    #[serde(with = "number_text")]
    loss: f32,
    #[serde(with = "number_text")]
    update_max: f32,
    #[serde(with = "number_text")]
    grad_norm: f32,
    #[serde(with = "number_text")]
    accuracy: f32,
    #[serde(with = "number_text")]
    lr: f32,
    #[serde(with = "number_text")]
    loss_scale: f32,
    #[serde(with = "number_text")]
    step_us: f32,
    #[serde(with = "number_text")]
    feed_us: f32,
    #[serde(default)]
    rows: u32,
    #[serde(default)]
    length: u32,
    #[serde(default)]
    path: u32,
    #[serde(default)]
    eager: u32,
    #[serde(default)]
    kind: u32,
    #[serde(default)]
    kernels: Option<Kernels>,
}

/// [`Evaluation`] with numbers that need not be finite.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Evaluation")]
struct SentEvaluation {
    samples: usize,
    #[serde(with = "number_text")]
    loss: f64,
    #[serde(with = "number_text")]
    accuracy: Option<f64>,
    #[serde(with = "number_text")]
    exact: Option<f64>,
    confusion: Vec<Vec<u32>>,
}

/// Lists of [`SentReport`].
mod step_reports {
    use super::{Deserialize, SentReport, Serialize, StepReport};
    use serde::{Deserializer, Serializer};

    #[derive(Serialize)]
    struct Lent<'a>(#[serde(with = "SentReport")] &'a StepReport);

    #[derive(Deserialize)]
    struct Owned(#[serde(with = "SentReport")] StepReport);

    pub(super) fn serialize<S: Serializer>(reports: &[StepReport], writer: S) -> Result<S::Ok, S::Error> {
        writer.collect_seq(reports.iter().map(Lent))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(reader: D) -> Result<Vec<StepReport>, D::Error> {
        Ok(Vec::<Owned>::deserialize(reader)?.into_iter().map(|Owned(report)| report).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::RecordingFacts;
    use crate::model::{BUNDLED, LayerPath, ParamId, read_preset};
    use crate::train::{
        AttentionMap, GenerationEnd, HiddenStates, Inside, Insight, OperationsApart, PositionAnswer, RecordingSeen,
        SeenStep, Session, SessionSpec, StepFigures,
    };
    use serde::de::DeserializeOwned;
    use std::fmt::Debug;
    use std::path::Path;

    /// Texts are compared, because NaN is not equal to itself.
    fn round_trip<T: Serialize + DeserializeOwned + Debug>(message: &T) {
        let json = serde_json::to_string(message).unwrap();
        let back: T = serde_json::from_str(&json).unwrap();
        assert_eq!(format!("{back:?}"), format!("{message:?}"), "{json}");
    }

    #[cfg(unix)]
    fn odd_path() -> PathBuf {
        use std::os::unix::ffi::OsStrExt;
        Path::new(std::ffi::OsStr::from_bytes(b"weights-\xe9")).to_owned()
    }

    #[cfg(not(unix))]
    fn odd_path() -> PathBuf {
        Path::new("weights").to_owned()
    }

    fn session() -> Session {
        let bundled = BUNDLED.iter().find(|b| b.name == "spirals").unwrap();
        let preset = read_preset(bundled.text).unwrap();
        Session::prepare(&SessionSpec { threads: 1, ..SessionSpec::new(preset, ".".into()) }).unwrap()
    }

    fn query() -> Query {
        let inside = Some(Inside { sample: 3, layer: Some(LayerPath::from([1, 0])), head: 2 });
        Query { samples: vec![3, 5], points: vec![0.1, f32::NEG_INFINITY], weight: Some(ParamId(0)), inside }
    }

    fn recordings() -> RecordingsSeen {
        let facts =
            RecordingFacts { is_there: true, hits: 3, why: "a step needed it".into(), ..RecordingFacts::default() };
        let eager = RecordingFacts { why_eager: Some("no room".into()), ..facts.clone() };
        let seen = [facts, eager].into_iter().zip(1..).map(|(facts, kind)| RecordingSeen {
            key: "key".into(),
            kind,
            of: SeenStep::Answers,
            facts,
        });
        RecordingsSeen { step: 9, recordings: seen.collect(), ..RecordingsSeen::default() }
    }

    fn difference() -> StepDifference {
        let apart = OperationsApart { owner: "L1".into(), kernel: "k".into(), dims: "n=1".into(), count: 2 };
        let figures = StepFigures { operations: 4, estimated_us: 0.1, ..StepFigures::default() };
        StepDifference {
            figures: [figures, StepFigures::default()],
            operations: [vec![apart], Vec::new()],
            kernels: [vec!["k".into()], Vec::new()],
        }
    }

    #[test]
    fn every_command_is_the_same_after_json() {
        let commands = [
            Command::Start,
            Command::Pause,
            Command::Step(u64::MAX),
            Command::Stop,
            Command::SetLr(0.1),
            Command::SetTotal(7),
            Command::Evaluate,
            Command::Predict(vec![0, u32::MAX]),
            Command::CompareRecordings([1, u32::MAX]),
            Command::Query(query()),
            Command::Write(Generation { prompt: "1+1=".into(), tokens: Some(3), ..Generation::default() }),
            Command::StopWriting,
            Command::TimeBothWays(9),
            Command::SaveWeights(odd_path()),
            Command::SaveCheckpoint(odd_path()),
            Command::LoadCheckpoint("run.ckpt".into()),
            Command::TakeSnapshot,
        ];
        commands.iter().for_each(round_trip);
    }

    #[test]
    fn every_state_is_the_same_after_json() {
        use RunState::{Failed, Finished, Paused, Preparing, Ready, Running, Stopped};
        for state in [Preparing, Ready, Running, Paused, Finished, Stopped, Failed("no data".into())] {
            round_trip(&Event::State(state));
        }
    }

    #[test]
    fn reports_of_a_run_are_the_same_after_json() {
        let mut session = session();
        let snapshot = session.snapshot().unwrap();
        let report = session.step().unwrap().unwrap();
        let odd = StepReport { grad_norm: f32::INFINITY, accuracy: f32::NAN, loss_scale: f32::NAN, ..report };
        let points = query().points.iter().map(|v| v.max(-1.0)).collect();
        let events = [
            Event::Prepared {
                run: RunKey::new(session.plan_key()),
                recording: session.recording(),
                ready_times: session.ready_times().clone(),
                total: session.total(),
                notes: session.notes().to_vec(),
                resumed: vec!["lr".into()],
                maybe_trained: true,
                lr: f32::NAN,
            },
            Event::Kernels(KernelChange::Compiles),
            Event::Steps(vec![report, odd]),
            Event::Evaluated { step: 1, result: session.evaluate().unwrap().unwrap() },
            Event::QueryResult(Box::new(session.query(Query { points, ..query() }).unwrap())),
            Event::TimedBothWays(session.time_both_ways(2, std::time::Duration::from_secs(5)).unwrap()),
            Event::Snapshot(Box::new(snapshot)),
        ];
        events.iter().for_each(round_trip);
    }

    #[test]
    fn the_inside_of_a_network_is_the_same_after_json() {
        let answer = PositionAnswer { truth: 4, loss: f64::INFINITY, likely: vec![(1, 0.5)] };
        let found = [
            Insight::Positions(vec![answer]),
            Insight::Attention(AttentionMap { positions: 1, causal: true, weights: vec![f32::NAN] }),
            Insight::States(HiddenStates { positions: 1, units: 2, directions: 2, values: vec![0.1, f32::INFINITY] }),
            Insight::Nothing,
        ];
        found.iter().for_each(round_trip);
    }

    #[test]
    fn every_other_event_is_the_same_after_json() {
        let spans = Spans { steps: Some([1, 4]), low: vec![-1.5, f32::NAN], high: vec![0.1, f32::INFINITY] };
        let mistake = Diagnostic {
            layer: Some(LayerPath::from([1, 0])),
            path: "layers[1].layers[0].units".into(),
            message: "0 units".into(),
            help: "at least 1".into(),
        };
        let infinite =
            Evaluation { samples: 2, loss: f64::INFINITY, accuracy: None, exact: None, confusion: vec![vec![1, 1]] };
        let events = [
            Event::LayerUpdates { step: 4, values: vec![1.0, f32::NAN], spans: vec![spans, Spans::default()] },
            Event::Evaluated { step: 4, result: infinite },
            Event::EvaluatedEvery(50),
            Event::Recordings(Box::new(recordings())),
            Event::RecordingsCompared([1, 2], Box::new(difference())),
            Event::Predicted { step: 4, indices: vec![8], outputs: vec![f32::MAX, f32::NEG_INFINITY] },
            Event::Writing(WritingEvent::Began { prompt: "a".into(), notes: vec!["b".into()], most: 9 }),
            Event::Writing(WritingEvent::Wrote { text: "\u{e4}".into(), tokens: 1, step: 7 }),
            Event::Writing(WritingEvent::Ended(GenerationEnd::Stop)),
            Event::Writing(WritingEvent::Failed("no".into())),
            Event::Saved(odd_path()),
            Event::NotSaved(odd_path(), "the disk is full".into()),
            Event::Mistakes(vec![mistake]),
            Event::Problem("no such file".into()),
        ];
        events.iter().for_each(round_trip);
    }
}
