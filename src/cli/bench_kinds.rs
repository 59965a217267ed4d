//! The part of `stepgraph bench` for runs whose steps differ: every kind of step alone, alternating with the others, op
//! by op, and without a recording.

use super::output;
use super::presets::Loaded;
use crate::exec::PoolReport;
use crate::model::DataSpec;
use crate::tensor::Bytes;
use crate::train::{DataChoice, Purpose, RecordingTimes, Session, SessionSpec};
use serde::Serialize;

/// The measured times of the kinds of steps of a run, in microseconds.
#[derive(Serialize)]
pub struct Kinds {
    #[serde(flatten)]
    times: RecordingTimes,
    /// The pool that they are recorded in.
    recordings: PoolReport,
}

impl Kinds {
    /// `None` if all steps of the preset's runs are of one kind.
    ///
    /// # Errors
    /// If the data cannot be read, or the machine cannot run the steps.
    pub fn measure(found: &Loaded, spec: &SessionSpec, seconds: f64) -> anyhow::Result<Option<Self>> {
        let of_data = found.preset.data.as_ref().is_some_and(DataSpec::has_varied_steps);
        if !of_data && !found.model.chooses() {
            return Ok(None);
        }
        let data = if of_data { DataChoice::Preset } else { DataChoice::Resident };
        let mut session = Session::prepare(&SessionSpec { data, purpose: Purpose::Train, ..spec.clone() })?;
        let times = session.time_recordings(seconds)?;
        Ok(times.map(|times| Self { times, recordings: session.recordings() }))
    }

    /// As text, for people.
    #[must_use]
    pub fn text(&self) -> String {
        let RecordingTimes { kinds, cycle_us, alone_us, queued_us, same_us, eager_us, miss_us, record_us, find_ns } =
            &self.times;
        let counts = &self.recordings.counts;
        let mut out = format!(
            "  {} of steps, time of a step: alternating {}, alone {}, op by op {}{}; finding a recording takes \
             {find_ns:.0} ns\n",
            output::counted(kinds.len() as u64, "kind"),
            output::micros(*cycle_us),
            output::micros(*alone_us),
            output::micros(*eager_us),
            miss_us.map_or_else(String::new, |us| format!(", planned first {}", output::micros(us))),
        );
        out.push_str(&format!(
            "  {} take {}, including the transient memory that they share; making all of them took {}\n",
            output::counted(counts.recordings as u64, "recording"),
            Bytes(counts.bytes),
            output::micros(counts.capture_us as f64)
        ));
        if let Some([turn, alone]) = queued_us.map(|both| both.map(output::micros)) {
            out.push_str(&format!("  queued without waiting for each step: alternating {turn}, alone {alone}\n"));
        }
        out.push_str(&format!(
            "  {} a step of the first kind, alternating between two equal recordings of it\n",
            output::micros(*same_us)
        ));
        if let Some(us) = record_us {
            out.push_str(&format!("  {} to plan and record a step\n", output::micros(*us)));
        }
        for kind in kinds {
            let [miss, record] =
                [kind.miss_us, kind.record_us].map(|us| us.map_or_else(|| "-".to_owned(), output::micros));
            let [alone, turn, eager] = [kind.alone_us, kind.in_turn_us, kind.eager_us].map(output::micros);
            out.push_str(&format!(
                "    alternating {turn:>9}, alone {alone:>9}, op by op {eager:>9}, planned first {miss:>9}, \
                 record {record:>9}, {} constants baked in, {} scalars read at every replay  {}\n",
                kind.frozen_constants, kind.live_constants, kind.key
            ));
        }
        out
    }
}
