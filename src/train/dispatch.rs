//! Which recording each batch of a run uses, if its steps differ.
//!
//! A batch's [`Case`] describes what it uses of its samples and positions, the path of its step, and its share of the
//! step. Each case has a number, found by hashing a few words, with the key of its recording in the pool and the place
//! of its metrics. A batch of the whole network uses the recording that the session owns.
//!
//! Before the first step, the recordings of the cases that the run is expected to have are made in the order of their
//! use, within the budget and for a limited time. A thread makes the others while the run trains, some steps in
//! advance. If a step's recording is still missing, the step is planned and runs op by op, and that thread records the
//! plan; each such step is counted with its reason. If another thread is already making the recording, or the transient
//! memory must grow for it, the step waits for it, which is counted, too.

mod again;

use super::batch_shape::BatchShape;
use super::outlook::{Foreseen, Outlook};
use super::step_cases::{ByCase, Case, StepPlanner};
use super::step_maker::{Job, StepMaker};
use super::watched::Reported;
use super::{DataFeed, Names, SeenStep, TrainError, plant};
use crate::compile::Compiled;
use crate::exec::{ExecError, Executor, GraphKey, LentStep, Presence, RecordingId, RecordingPool, Step, Ways};
use crate::ir::Share;
use std::sync::Arc;

/// The number of steps in advance for which recordings are made while a run trains.
const AHEAD: u64 = 32;
/// The number of cases that are remembered; beyond it all are forgotten, which costs one look-up for each.
const MOST_CASES: usize = 1 << 14;

/// How a run uses its recordings.
#[derive(Clone, Copy)]
pub(super) struct Manner {
    pub(super) executor: Executor,
    /// A step that would run op by op ends the run.
    pub(super) is_strict: bool,
}

/// A case that has occurred.
struct Known {
    case: Case,
    /// A step of the case.
    step: u64,
    id: RecordingId,
    key: GraphKey,
    /// The recording that the session owns.
    is_whole: bool,
    /// The number of its path's name, if paths differ, and of its key's name.
    path: u32,
    kind: u32,
    /// The place of its metrics, and why it replays op by op, if it does; set once it was lent.
    reported: Option<Reported>,
    why_eager: Option<String>,
}

/// What a batch runs with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Chosen {
    /// The recording of the whole network for a share of a step.
    Whole(Share),
    /// The one that was lent for a case.
    Lent(u32),
    /// A step that was planned just now, and runs op by op.
    Apart(u32),
}

/// The recordings of a run whose steps differ.
pub(super) struct Dispatch {
    pool: Arc<RecordingPool>,
    planner: Arc<StepPlanner>,
    manner: Manner,
    numbers: ByCase<u32>,
    known: Vec<Known>,
    last: Option<(Case, u32)>,
    lent: Option<LentStep>,
    /// The number of the case that it was lent for.
    lent_for: u32,
    apart: Option<LentStep>,
    /// Whether recordings can be made while the run trains.
    maker: Option<StepMaker>,
    /// Whether all expected recordings were made, so that no look-ahead is needed.
    is_complete: bool,
    /// Whether all cases of the run are known in advance.
    knows_all: bool,
    /// The last step of the look-ahead.
    seen: u64,
    /// The number of batches that used the recordings that the session owns, and the step of the last one.
    of_whole: (u64, u64),
    varies_in_rows: bool,
    /// Why the whole step replays op by op, if it does.
    whole_why: Option<String>,
    /// Paths, reasons why steps ran op by op, and recordings.
    names: Names,
    /// The numbers of the last batch's path, of the reason why it ran op by op, if it did, and of its key.
    noted: [u32; 3],
}

impl Dispatch {
    /// Makes the recordings of an outlook in the pool of `whole`.
    ///
    /// # Errors
    /// If one of them cannot be made.
    pub(super) fn new(
        whole: &LentStep,
        planner: StepPlanner,
        outlook: Outlook,
        manner: Manner,
    ) -> Result<Option<Self>, TrainError> {
        let Some(pool) = whole.pool() else { return Ok(None) };
        let (pool, planner) = (Arc::clone(pool), Arc::new(planner));
        let records_beside = whole.capabilities().records_beside;
        let maker = records_beside.then(|| StepMaker::start(Arc::clone(&pool), Arc::clone(&planner))).transpose()?;
        let mut dispatch = Self {
            pool,
            planner,
            manner,
            numbers: ByCase::default(),
            known: Vec::new(),
            last: None,
            lent: None,
            lent_for: 0,
            apart: None,
            maker,
            is_complete: outlook.is_all,
            knows_all: outlook.is_all,
            seen: 0,
            of_whole: (0, 0),
            varies_in_rows: false,
            whole_why: whole.recording().why_eager.map(|why| format!("it could not be captured: {why}")),
            names: Names::default(),
            noted: [0; 3],
        };
        dispatch.make_first(outlook)?;
        Ok(Some(dispatch))
    }

    /// Makes the recordings that were planned, and starts the thread that makes the others.
    fn make_first(&mut self, outlook: Outlook) -> Result<(), TrainError> {
        let (mut first, mut is_full) = (0, false);
        let batch = self.planner.model().batch;
        self.varies_in_rows = outlook.cases.iter().any(|foreseen| foreseen.case.shape.rows != batch);
        for Foreseen { case, step, plan } in outlook.cases {
            let number = self.number_of(case, step)?;
            let known = &self.known[number as usize];
            if known.is_whole {
                continue;
            }
            let (id, why) = (known.id, "a coming step needs it");
            match (plan, &self.maker) {
                (Some(plan), _) if !is_full => {
                    self.pool.make(id, why, || Ok::<_, TrainError>(plan))?;
                    first += 1;
                    // If there is no space, a new recording would replace those for earlier steps.
                    is_full = self.pool.counts().evictions > 0;
                }
                (plan, maker) => {
                    // It may not be ready in time, so that look-ahead is needed.
                    self.is_complete = false;
                    if let Some(maker) = maker.as_ref().filter(|_| !is_full) {
                        maker.ask(Job { id, case, step, why, plan }, false);
                    }
                }
            }
        }
        self.is_complete &= !is_full;
        log::debug!("{first} recordings were made ahead");
        Ok(())
    }

    /// The number of a case; `step` is one of its steps.
    fn number_of(&mut self, case: Case, step: u64) -> Result<u32, TrainError> {
        if let Some((last, number)) = self.last
            && last == case
        {
            return Ok(number);
        }
        let number = match self.numbers.get(&case) {
            Some(number) => *number,
            None => self.new_number(case, step)?,
        };
        self.last = Some((case, number));
        Ok(number)
    }

    #[cold]
    fn new_number(&mut self, case: Case, step: u64) -> Result<u32, TrainError> {
        if self.known.len() >= MOST_CASES {
            self.numbers.clear();
            self.known.clear();
        }
        let key = self.planner.key(case, step)?;
        let own = (self.pool.id_of(&key), self.planner.is_whole(&key));
        let first = self.known.first().filter(|_| plant::takes_other_recording());
        let (id, is_whole) = first.map_or(own, |first| (first.id, first.is_whole));
        let number = self.known.len() as u32;
        let kind = self.names.number_of_recording(&key.id());
        let path = if self.planner.paths().vary() { self.names.number_of(key.path()) } else { 0 };
        self.known.push(Known { case, step, id, key, is_whole, path, kind, reported: None, why_eager: None });
        self.numbers.insert(case, number);
        Ok(number)
    }

    /// Chooses what a batch of `step` runs with.
    ///
    /// # Errors
    /// If the step would run op by op and must not, or it cannot be planned.
    pub(super) fn choose(&mut self, step: u64, case: Case) -> Result<Chosen, TrainError> {
        self.apart = None;
        let number = self.number_of(case, step)?;
        let known = &self.known[number as usize];
        self.noted = [known.path, 0, known.kind];
        if known.is_whole {
            self.of_whole = (self.of_whole.0 + 1, step);
            if let Some(why) = self.whole_why.clone() {
                let key = known.key.clone();
                self.runs_eagerly(&key, why, step)?;
            }
            return Ok(Chosen::Whole(case.share));
        }
        let id = known.id;
        if self.lends(id, step) { self.found(number, step) } else { self.missed(number, step) }
    }

    /// Whether the recording could be lent.
    fn lends(&mut self, id: RecordingId, step: u64) -> bool {
        match &mut self.lent {
            Some(lent) => lent.change_to(id, step),
            None => {
                self.lent = LentStep::find(&self.pool, id, step);
                self.lent.is_some()
            }
        }
    }

    /// Whether the recording that is lent was replaced by one that was made for that.
    pub(super) fn takes_renewal(&mut self) -> bool {
        self.lent.as_mut().is_some_and(LentStep::take_renewal)
    }

    /// A batch runs with the recording that was lent.
    fn found(&mut self, number: u32, step: u64) -> Result<Chosen, TrainError> {
        self.lent_for = number;
        let known = &mut self.known[number as usize];
        // A recording that was made again, or separately from the run, is not registered yet.
        if let Some(lent) = self.lent.as_mut().filter(|lent| known.reported.is_none() || !lent.is_watched()) {
            let reported = Reported::of(lent);
            lent.watch(&reported.read_back())?;
            known.reported = Some(reported);
            known.why_eager = lent.recording().why_eager;
        }
        if let Some(why) = &known.why_eager {
            let (why, key) = (format!("it could not be captured: {why}"), known.key.clone());
            self.runs_eagerly(&key, why, step)?;
        }
        Ok(Chosen::Lent(number))
    }

    /// Records that a step runs op by op.
    fn runs_eagerly(&mut self, key: &GraphKey, why: String, step: u64) -> Result<(), TrainError> {
        if self.manner.executor == Executor::Eager {
            return Ok(());
        }
        if self.manner.is_strict {
            return Err(TrainError::OpByOp { step, key: key.to_string(), why });
        }
        self.pool.note_eager(key, &why, step);
        self.noted[1] = self.names.number_of(&why);
        Ok(())
    }

    /// A batch without a recording.
    #[cold]
    fn missed(&mut self, number: u32, step: u64) -> Result<Chosen, TrainError> {
        self.is_complete = false;
        let pool = Arc::clone(&self.pool);
        // A key that was not used for long may have been forgotten.
        let id = self.id_of(number);
        let known = &self.known[number as usize];
        let (case, key) = (known.case, known.key.clone());
        let why = pool.why_absent(id);
        let presence = pool.presence(id);
        if presence == Some(Presence::Making) {
            pool.note_wait(&key, &why, step);
            pool.wait(id);
            if self.lends(id, step) {
                return self.found(number, step);
            }
        }
        let Some(maker) = &self.maker else { return self.made_now(number, step, &why) };
        if self.manner.is_strict && self.manner.executor == Executor::Replay {
            return Err(TrainError::OpByOp { step, key: key.to_string(), why });
        }
        let plan = self.planner.plan(case, step)?;
        let apart = match pool.apart(Arc::clone(&plan), Ways::OpByOp) {
            Ok(apart) => apart,
            // The arena must grow for it, which only happens when a recording is made.
            Err(ExecError::SmallArena { .. }) => return self.made_now(number, step, &why),
            Err(error) => return Err(error.into()),
        };
        if presence != Some(Presence::Refused) {
            let job = Job { id, case, step, why: "a step needed it", plan: Some(plan) };
            maker.ask(job, true);
        }
        self.known[number as usize].reported = Some(Reported::of(&apart));
        self.apart = Some(apart);
        self.runs_eagerly(&key, why, step)?;
        Ok(Chosen::Apart(number))
    }

    /// Makes a recording while the step waits for it.
    fn made_now(&mut self, number: u32, step: u64, why: &str) -> Result<Chosen, TrainError> {
        let known = &mut self.known[number as usize];
        known.reported = None;
        let (key, case) = (known.key.clone(), known.case);
        self.pool.note_wait(&key, why, step);
        // The recording that is lent now may be dropped to make space.
        self.lent = None;
        let planner = Arc::clone(&self.planner);
        let mut lent = self.pool.lend(&key, || planner.plan(case, step))?;
        lent.is_hit(step);
        self.lent = Some(lent);
        self.found(number, step)
    }

    /// Requests the recordings of coming steps, if they can be made while the run trains. Batches are counted from the
    /// next one of the feed, the first of `step`.
    pub(super) fn look_ahead(&mut self, step: u64, feed: &DataFeed) -> Result<(), TrainError> {
        if self.is_complete || self.maker.is_none() {
            return Ok(());
        }
        let counts = self.pool.counts();
        let room = if counts.evictions == 0 { AHEAD } else { (counts.recordings as u64 / 2).clamp(1, AHEAD) };
        let batches = self.planner.model().accumulate;
        let whole = BatchShape::whole(self.planner.model());
        for ahead in self.seen.max(step) + 1..=step + room {
            self.seen = ahead;
            let code = self.planner.paths().code_at(ahead);
            for batch in 0..batches {
                let distance = (ahead - step) as usize * batches + batch;
                let Some(shape) = feed.shape_ahead(distance, &whole) else { continue };
                self.foresee(Case { shape, code, share: Share::of(batch, batches) }, ahead)?;
            }
        }
        Ok(())
    }

    /// Requests the recording of a coming step if it does not exist.
    fn foresee(&mut self, case: Case, step: u64) -> Result<(), TrainError> {
        let number = self.number_of(case, step)?;
        let known = &mut self.known[number as usize];
        if known.is_whole {
            return Ok(());
        }
        let presence = self.pool.presence(known.id);
        if presence.is_none() {
            known.id = self.pool.id_of(&known.key);
        }
        if let (None | Some(Presence::Absent), Some(maker)) = (presence, &self.maker) {
            maker.ask(Job { id: known.id, case, step, why: "a coming step needs it", plan: None }, false);
        }
        Ok(())
    }

    /// Whether all cases of the run already occurred.
    pub(super) const fn knows_all(&self) -> bool {
        self.knows_all
    }

    /// The cases that have occurred, each with one of its steps.
    pub(super) fn cases(&self) -> Vec<(Case, u64)> {
        self.known.iter().map(|known| (known.case, known.step)).collect()
    }

    /// The recordings that exist, without those that the session owns, each with its case and one of its steps.
    pub(super) fn lent_cases(&self) -> impl Iterator<Item = (RecordingId, Case, u64)> {
        let exists = |known: &&Known| !known.is_whole && self.pool.presence(known.id) == Some(Presence::There);
        self.known.iter().filter(exists).map(|known| (known.id, known.case, known.step))
    }

    /// The key of a case that occurred.
    pub(super) fn key(&mut self, case: Case, step: u64) -> Result<GraphKey, TrainError> {
        let number = self.number_of(case, step)?;
        Ok(self.known[number as usize].key.clone())
    }

    /// The step that a batch runs with; `None` if the session owns it.
    pub(super) fn step(&self, chosen: Chosen) -> Option<&Step> {
        match chosen {
            Chosen::Whole(_) => None,
            Chosen::Lent(_) => self.lent.as_deref(),
            Chosen::Apart(_) => self.apart.as_deref(),
        }
    }

    /// Like [`Self::step`], mutable, and how it is run.
    pub(super) fn step_mut(&mut self, chosen: Chosen) -> Option<&mut Step> {
        match chosen {
            Chosen::Whole(_) => None,
            Chosen::Lent(_) => self.lent.as_deref_mut(),
            Chosen::Apart(_) => self.apart.as_deref_mut(),
        }
    }

    /// The place of a batch's metrics; `None` if the session owns its step.
    pub(super) fn reported(&self, chosen: Chosen) -> Option<Reported> {
        match chosen {
            Chosen::Whole(_) => None,
            Chosen::Lent(number) | Chosen::Apart(number) => self.known[number as usize].reported,
        }
    }

    /// The number of batches that used the recordings that the session owns, and the step of the last one.
    pub(super) const fn of_whole(&self) -> (u64, u64) {
        self.of_whole
    }

    /// Whether batches differ in the samples that they use.
    pub(super) const fn varies_in_rows(&self) -> bool {
        self.varies_in_rows
    }

    pub(super) const fn planner(&self) -> &Arc<StepPlanner> {
        &self.planner
    }

    /// The numbers of the last batch's path, of the reason why it ran op by op, and of its key; 0 if there is none.
    pub(super) const fn noted(&self) -> [u32; 3] {
        self.noted
    }

    /// The number of a key that has occurred, and a batch that has it; 0 for any other key.
    pub(super) fn seen(&self, key: &GraphKey) -> (u32, SeenStep) {
        let Some(known) = self.known.iter().find(|known| known.key == *key) else { return (0, SeenStep::Kept) };
        let Case { shape: BatchShape { rows, length }, share, .. } = known.case;
        (known.kind, SeenStep::Batch { step: known.step, rows, length, share })
    }

    /// The step of the key with this number, planned again; `None` if no case has the key.
    pub(super) fn planned(&self, kind: u32) -> Option<Result<Arc<Compiled>, TrainError>> {
        let known = self.known.iter().find(|known| known.kind == kind && kind > 0)?;
        Some(self.planner.plan(known.case, known.step))
    }

    /// The names of these numbers.
    pub(super) const fn names(&self) -> &Names {
        &self.names
    }

    /// Discards the uses so far, which belong to no step.
    pub(super) fn forget_uses(&mut self) {
        self.of_whole = (0, 0);
        self.lent.iter_mut().for_each(LentStep::forget_uses);
    }

    /// The key of the recording that is lent, and its uses that were not reported to the pool yet, with the last step.
    pub(super) fn lent_use(&self) -> Option<(&GraphKey, u64, u64)> {
        let (hits, last_step) = self.lent.as_ref()?.new_hits();
        Some((&self.known.get(self.lent_for as usize)?.key, hits, last_step))
    }
}
