//! Training: a session that steps, evaluates and saves; a worker thread that runs one for a window; commands and events between them.

mod bring_up;
pub mod capsule;
mod checkpoint;
mod contents;
mod error;
mod evaluate;
pub mod export;
mod feed;
mod gpu_times;
mod guard;
mod kept_state;
mod look;
mod needs;
mod open_tensors;
mod origin;
#[doc(hidden)]
pub mod plant;
mod probe;
mod recipe;
mod remembered;
mod replace;
pub mod runs;
mod schedule;
mod session;
mod spans;
mod spec;
mod stopwatch;
mod stream;
mod streams;
mod summary;
mod threads;
mod trained_on;
mod tune;
mod verify;
mod weights;
mod worker;

pub use checkpoint::{Resumed, check_header, checkpoint_end, checkpoint_step};
pub use contents::{Contents, Holding, Layout};
pub use error::TrainError;
pub use evaluate::{Evaluation, argmax};
pub use feed::{Feed, FeedPosition};
pub use gpu_times::{gpu_times, known_gpu_times};
pub use look::{BothWays, LOOK_SHARE, Look, Looked, Pace};
pub use needs::{Need, Needs, Purpose, Shortage, needs};
pub use origin::Origin;
pub use probe::{FirstBad, Held, Moment, OpTimes, Probe, held, held_part, measure_ops};
pub use recipe::{Policy, RULES, Recipe, RecipeChange, Rule, refusal};
pub use remembered::{StepTimes, TuningFile, processor, remembered_times, tuning_is_off};
pub use replace::{NotReplaced, ResultKind, name_aside, replaceable, set_aside};
pub use session::{Session, StepReport};
pub use spans::{Spans, Stretches, longest_from};
pub use spec::{DataChoice, SessionSpec};
pub use summary::{BARS, Histogram, Picture, Statistics, Summary};

pub use threads::{threads_for, time_threads, tune_threads};
pub use tune::tune;
pub use verify::{
    Check, Compared, Culprit, Failure, Price, Progress, Proof, RandomEvent, RandomReport, RandomRun,
    Report as VerifyReport, Tally, VerifyOptions, price, verify, verify_random, verify_some,
};
pub use weights::{TensorFile, read_tensors};
pub use worker::{Command, Event, RunState, Worker};
