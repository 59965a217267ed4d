//! Training: a session that steps, evaluates and saves; a worker thread that runs one for a window; commands and events
//! between them.

mod answer_sums;
mod artefacts;
mod batch_file;
mod batch_shape;
pub mod capsule;
mod change_over;
mod checkpoint;
mod coming_evaluation;
mod common_kernels;
mod compared_results;
mod data_feed;
mod dispatch;
mod edits_ahead;
mod error;
mod evaluate;
pub mod export;
mod file_contents;
mod file_dtype;
mod file_header;
mod file_keys;
mod forecast;
mod gather;
mod generate;
mod gpu_times;
mod inside;
mod kept_state;
mod kernels_ahead;
mod launches;
mod loaded_data;
mod lone_samples;
mod memory_needs;
mod messages;
mod moved;
mod names;
mod nan_guard;
mod outlook;
mod pen;
#[doc(hidden)]
pub mod plant;
mod preparation;
mod prepared_step;
mod probe;
mod query;
mod recipe;
mod recording_plans;
mod recording_times;
mod recordings_seen;
mod replace;
mod run_paths;
mod run_start;
pub mod runs;
mod sampling;
mod schedule;
mod session;
mod session_evaluation;
mod session_kernels;
mod session_origin;
mod session_recordings;
mod spans;
mod spec;
mod step_cases;
mod step_difference;
mod step_maker;
mod step_report;
mod stop_text;
mod stopwatch;
mod summary;
mod tensor_reader;
mod tensor_writer;
mod threads;
mod trained_on;
mod training_step;
mod tune;
mod tuning_file;
mod used;
mod verify;
mod watched;
mod weights;
mod weights_origin;
mod worker;

pub use answer_sums::{AnswerSums, ClassRates, Evaluation, MAX_CONFUSION};
pub use artefacts::{PlanKey, RunArtefacts, RunKey};
pub use change_over::{KernelChange, KernelsOfRun};
pub use checkpoint::{Resumed, checkpoint_end, checkpoint_step};
pub use common_kernels::{CommonKernels, CompiledCommon, FIRST_RANDOM_GROUP, KERNEL_GROUPS, compile_common};
pub use data_feed::{DataFeed, FeedPosition};
pub use edits_ahead::{
    after_small_edits, ask_libraries, compile_for_edits, compile_for_shared_launches, wait_for_libraries,
};
pub use error::TrainError;
pub use evaluate::evaluated;
pub use file_contents::{Contents, Holding, Layout};
pub use file_header::check_header;
pub use forecast::{Forecast, ForecastError, ForecastWindow};
#[cfg(feature = "studio")]
pub(crate) use forecast::{SeriesUnits, columns as series_columns};
pub use generate::{GenerateError, Generated, Generation, GenerationEnd, Writing, perplexity, vocabulary_of};
pub use gpu_times::{gpu_times, known_gpu_times};
pub use inside::{AttentionMap, HiddenStates, Inside, Insight, PositionAnswer};
pub use kernels_ahead::{kernels_ahead_share, stop_kernels_ahead};
pub use memory_needs::{Need, Needs, Shortage, needs};
pub use messages::{Command, Event, RunState};
pub use names::Names;
pub use pen::WritingEvent;
pub use probe::{FirstBad, Held, OpTimes, Probe, Snapshot, held, held_part, measure_ops};
pub use query::{BothWays, Pace, Query, QueryResult};
pub use recipe::{Policy, Recipe, RecipeChange, Rule, refusal};
pub use recording_plans::RecordingPlans;
pub use recording_times::{KindTimes, RecordingTimes};
pub use recordings_seen::{RecordingEvent, RecordingSeen, RecordingsSeen, SeenStep};
pub use replace::{NotReplaced, ResultKind, name_aside, replaceable, set_aside};
pub use sampling::Sampling;
pub use session::Session;
pub use spans::{Spans, Stretches, longest_from};
pub use spec::{DataChoice, Overrides, Purpose, RecordingRules, SessionSpec, Start};
pub use step_difference::{Figure, OperationsApart, StepDifference, StepFigures};
pub use step_report::StepReport;
pub use summary::{Histogram, Picture, Statistics, Summary};
pub use tuning_file::{StepTimes, TuningFile, processor, remembered_times, tuning_is_off};
pub use weights_origin::Origin;

pub use threads::{threads_for, threads_for_step, tune_threads};
pub use training_step::TrainingStep;
pub use tune::tune;
pub use verify::{
    CHECKS, Check, Compared, Culprit, Failure, GPU_CHECKS, Price, Progress, Proof, RandomEvent, RandomReport,
    RandomRun, Report as VerifyReport, Tally, VerifyOptions, price, ratio_text, verify, verify_random, verify_some,
};
pub use weights::{TensorFile, read_tensors};
pub use worker::Worker;

// The names under which the window imports them.
pub use probe::Snapshot as Moment;
pub use query::{Query as Look, QueryResult as Looked};
