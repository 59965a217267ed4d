//! The pool of the recordings of one network's steps: found by their keys, recorded on a miss, lent on a hit, and
//! dropped if they take more memory than allowed.
//!
//! - Every key has an entry, which remains when its recording is dropped, so that hits and reasons are not lost. A user
//!   keeps the small [`RecordingId`] of an entry, and need not look up the key at every step.
//! - A recording is `Idle`, `Lent` to one user for any length of time, `Making` while a thread makes it, or `Absent`
//!   for a reason. A request never waits for a lent recording, because it might never be returned. A lent recording
//!   counts its own hits; changing from one to another takes the lock once and moves two pointers.
//! - Parameters, moments and counters are in one [`ParamStore`] for all recordings. Transient memory is one
//!   [`StepArena`] as large as the largest expected step; if a larger one is needed, the arena is allocated again, an
//!   event reports it, and recordings over the smaller one are dropped.
//! - One budget in bytes covers arenas and recordings. Above it, idle recordings that are not pinned are dropped, the
//!   least recently used ones first. A recording that does not fit even then is marked, and is not made again.
//! - Recordings are made outside the lock, on the requesting thread: that of a run, or one that makes recordings in
//!   advance. A failure or panic leaves the pool unchanged, with the reason in the entry.
//! - The pool remembers the 1,024 most recently used keys without a recording, so that it does not grow in a run whose
//!   steps are always new. The id of a forgotten key is invalid and must be requested again.

use super::backend::{MemoryOf, Ways};
use super::error::ExecError;
use super::graph_key::{GraphKey, StepVariant};
use super::pool_report::{PoolCounts, PoolEventKind};
use super::pool_state::{Absence, Entry, Held, RecordingId, Room, State, Use};
use super::step::Step;
use super::store::{ParamStore, StepArena};
use crate::compile::Compiled;
use crate::tensor::Bytes;
use std::collections::{HashMap, VecDeque};
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

/// The limit of the size of recordings and their memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowance {
    /// This many bytes in total.
    Total(u64),
    /// This many bytes in addition to the first recording and its memory.
    Beside(u64),
}

/// Whether a recording is available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It is idle or lent.
    There,
    Making,
    Absent,
    /// It does not fit the budget, or could not be made, and must not be made again.
    Refused,
}

/// Recordings of the steps over one store, for several threads.
pub struct RecordingPool {
    store: Arc<ParamStore>,
    threads: usize,
    /// Whether evaluations have a separate arena.
    works_ahead: bool,
    state: Mutex<State>,
    /// Notified when a recording was made, or could not be made.
    made: Condvar,
}

impl RecordingPool {
    /// A pool with the first step of a network, which trains all of it; store and arena are allocated for it. Both are
    /// large enough for `others`, which will be requested later.
    ///
    /// # Errors
    /// If there is too little memory, or the device cannot be used.
    pub fn begin(
        compiled: &Arc<Compiled>,
        others: &[Arc<Compiled>],
        threads: usize,
        allowance: Allowance,
    ) -> Result<LentStep, ExecError> {
        let started = Instant::now();
        let step = Step::with_room(Arc::clone(compiled), others, threads)?;
        let arena = Arc::clone(step.lent_arena());
        let beside = step.recording_bytes() + arena.bytes();
        let budget_bytes = match allowance {
            Allowance::Total(bytes) => bytes,
            Allowance::Beside(bytes) => beside.saturating_add(bytes),
        };
        let mut state = State {
            entries: Vec::new(),
            by_key: HashMap::new(),
            arenas: vec![(Room::Common, arena)],
            outgrown: Vec::new(),
            lookups: 1,
            recorded: 0,
            counts: PoolCounts { misses: 1, budget_bytes, ..PoolCounts::default() },
            eager: Vec::new(),
            last_eager: 0,
            events: VecDeque::new(),
        };
        let id = state.id_of(&GraphKey::of(compiled));
        state.is_made(id.slot, &step, started, "the first step of the network");
        let entry = state.entry(id.slot);
        (entry.held, entry.used, entry.facts.is_pinned) = (Held::Lent, 1, true);
        let pool = Arc::new(Self {
            store: Arc::clone(step.store()),
            threads,
            works_ahead: step.capabilities().memory == MemoryOf::Device,
            state: Mutex::new(state),
            made: Condvar::new(),
        });
        Ok(LentStep::of(step, pool, id))
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The id of a key, which is new if it was not requested before.
    pub fn id_of(&self, key: &GraphKey) -> RecordingId {
        self.state().id_of(key)
    }

    /// Whether the recording is available; `None` for an id whose key was forgotten.
    #[must_use]
    pub fn presence(&self, id: RecordingId) -> Option<Presence> {
        let state = self.state();
        let entry = state.known(id)?;
        Some(match &entry.held {
            Held::Lent | Held::Idle(_) => Presence::There,
            Held::Making(_) => Presence::Making,
            Held::Absent(Absence::Unfit(_) | Absence::Failed(_)) => Presence::Refused,
            Held::Absent(_) => Presence::Absent,
        })
    }

    /// The recording with this key, made from the result of `compile` if it does not exist. It is returned to the pool
    /// when the result is dropped. Waits while another thread makes it, unless this thread is making a recording
    /// itself, so that no two threads wait for each other.
    ///
    /// # Errors
    /// If it cannot be compiled or recorded, there is too little memory (then the pool is unchanged), or it is in use.
    pub fn lend<E: From<ExecError> + ToString>(
        self: &Arc<Self>,
        key: &GraphKey,
        compile: impl FnOnce() -> Result<Arc<Compiled>, E>,
    ) -> Result<LentStep, E> {
        let id = self.id_of(key);
        if let Some(step) = self.found_idle(id)? {
            return Ok(LentStep::of(step, Arc::clone(self), id));
        }
        let step = self.made(id, "it was asked for", compile)?;
        Ok(LentStep::of(step, Arc::clone(self), id))
    }

    /// Makes a recording that will be requested later, unless it exists or another thread is making it; returns whether
    /// it made one.
    ///
    /// # Errors
    /// As [`Self::lend`].
    pub fn make<E: From<ExecError> + ToString>(
        &self,
        id: RecordingId,
        why: &'static str,
        compile: impl FnOnce() -> Result<Arc<Compiled>, E>,
    ) -> Result<bool, E> {
        {
            let mut state = self.state();
            let now = state.look_up();
            let Some(entry) = state.known_mut(id) else { return Ok(false) };
            let Held::Absent(_) = entry.held else { return Ok(false) };
            entry.used = now;
            entry.held = Held::Making(thread::current().id());
            state.counts.misses += 1;
            state.counts.made_ahead += 1;
        }
        let step = self.made(id, why, compile)?;
        self.state().take_back(id, step, Use { is_new: true, ..Use::default() });
        Ok(true)
    }

    /// Makes the recording that this thread has marked with `Making`.
    fn made<E: From<ExecError> + ToString>(
        &self,
        id: RecordingId,
        why: &'static str,
        compile: impl FnOnce() -> Result<Arc<Compiled>, E>,
    ) -> Result<Step, E> {
        let mut making = Making { pool: self, id, failure: "making it was cancelled".into() };
        let started = Instant::now();
        let record = |compiled: Arc<Compiled>| {
            let arena = self.arena_for(&GraphKey::of(&compiled), &compiled)?;
            Step::over(compiled, &self.store, &arena, self.threads)
        };
        let outcome = compile().and_then(|compiled| Ok(record(compiled)?));
        match outcome {
            Ok(step) => {
                let mut state = self.state();
                state.is_made(id.slot, &step, started, why);
                state.entry(id.slot).held = Held::Lent;
                state.evict(None);
                drop(state);
                self.made.notify_all();
                Ok(step)
            }
            Err(error) => {
                making.failure = error.to_string();
                Err(error)
            }
        }
    }

    /// A step over the store and the arena that is not a recording of the pool, to be run in these ways.
    ///
    /// # Errors
    /// If the arena is too small for it, or the store lacks a value that it needs.
    pub fn apart(&self, compiled: Arc<Compiled>, ways: Ways) -> Result<LentStep, ExecError> {
        Ok(LentStep::alone(self.step_over(compiled, ways)?))
    }

    fn step_over(&self, compiled: Arc<Compiled>, ways: Ways) -> Result<Step, ExecError> {
        let arena = self.state().arena(Room::Common).ok_or(ExecError::AllocationRefused(Bytes(0)))?;
        Step::over_for(compiled, &self.store, &arena, self.threads, ways)
    }

    /// Makes a recording that replaces the one with this id: the same step with other kernels, which `prepare` gets
    /// ready. An idle recording is replaced now, and a lent one when its user takes over the new one or returns it.
    /// Returns false if there is no recording to be replaced.
    ///
    /// # Errors
    /// If it cannot be made, or `prepare` fails; then the recording stays as it is.
    pub fn renew<E: From<ExecError>>(
        &self,
        id: RecordingId,
        compiled: Arc<Compiled>,
        prepare: impl FnOnce(&mut Step) -> Result<(), E>,
    ) -> Result<bool, E> {
        let started = Instant::now();
        let mut step = self.step_over(compiled, Ways::All)?;
        prepare(&mut step)?;
        let replaced = self.state().renew(id, step, started.elapsed());
        Ok(replaced.is_ok())
    }

    /// Takes an idle recording out of the pool; `None` if there is none and this thread must make it.
    fn found_idle(&self, id: RecordingId) -> Result<Option<Step>, ExecError> {
        let me = thread::current().id();
        let mut state = self.state();
        let now = state.look_up();
        let is_maker = state.entries.iter().any(|entry| matches!(entry.held, Held::Making(by) if by == me));
        loop {
            let entry = state.entry(id.slot);
            match std::mem::replace(&mut entry.held, Held::Lent) {
                Held::Idle(step) => {
                    entry.used = now;
                    entry.facts.hits += 1;
                    state.counts.hits += 1;
                    return Ok(Some(step));
                }
                Held::Absent(_) => {
                    (entry.held, entry.used) = (Held::Making(me), now);
                    state.counts.misses += 1;
                    return Ok(None);
                }
                held @ Held::Making(_) if !is_maker => entry.held = held,
                held => {
                    entry.held = held;
                    return Err(ExecError::StepLent(entry.key.to_string()));
                }
            }
            state = self.made.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits while another thread makes the recording.
    pub fn wait(&self, id: RecordingId) {
        let mut state = self.state();
        while matches!(state.known(id), Some(Entry { held: Held::Making(_), .. })) {
            state = self.made.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Pins the recording with this key, so that it is kept even if memory is short; or unpins it.
    pub fn pin(&self, key: &GraphKey, is_pinned: bool) {
        let mut state = self.state();
        if let Some(slot) = state.by_key.get(key).copied() {
            state.entry(slot).facts.is_pinned = is_pinned;
        }
        state.evict(None);
    }

    /// Drops every recording that is idle and not pinned, as if the budget were used up.
    pub fn drop_idle(&self) {
        self.state().drop_idle();
    }

    /// Transient memory for a step, allocated again if the largest one so far is too small. Recordings over the smaller
    /// one are dropped, so that it can be freed.
    fn arena_for(&self, key: &GraphKey, compiled: &Compiled) -> Result<Arc<StepArena>, ExecError> {
        let is_evaluation = matches!(key.variant(), StepVariant::Evaluation | StepVariant::Inference);
        let room = if is_evaluation && self.works_ahead { Room::Evaluation } else { Room::Common };
        let needed = self.store.layout().homes(&compiled.plan)?.arena_bytes;
        if let Some(arena) = self.state().arena(room).filter(|arena| arena.bytes() >= needed) {
            return Ok(arena);
        }
        let larger = Step::new_arena(compiled, needed)?;
        let mut state = self.state();
        if let Some(arena) = state.arena(room).filter(|arena| arena.bytes() >= needed) {
            return Ok(arena);
        }
        if let Some(smaller) = state.arena(room) {
            let (was, is) = (Bytes(smaller.bytes()), Bytes(needed));
            state.counts.arena_growths += 1;
            state.event(PoolEventKind::Grew, key, format!("the transient arena grew from {was} to {is} for it"));
            for slot in 0..state.entries.len() as u32 {
                let Entry { held: Held::Idle(step), facts, .. } = state.entry(slot) else { continue };
                if !facts.is_pinned && Arc::ptr_eq(step.lent_arena(), &smaller) {
                    state.drop_recording(slot, Absence::Outgrown);
                }
            }
            state.outgrown.push(Arc::downgrade(&smaller));
        }
        state.arenas.retain(|(of, _)| *of != room);
        state.arenas.push((room, Arc::clone(&larger)));
        Ok(larger)
    }
}

/// A recording that is being made; it becomes absent again if that fails.
struct Making<'a> {
    pool: &'a RecordingPool,
    id: RecordingId,
    failure: String,
}

impl Drop for Making<'_> {
    fn drop(&mut self) {
        let mut state = self.pool.state();
        let me = thread::current().id();
        let entry = state.entry(self.id.slot);
        if !matches!(entry.held, Held::Making(by) if by == me) {
            return;
        }
        let (why, key) = (std::mem::take(&mut self.failure), entry.key.clone());
        entry.held = Held::Absent(Absence::Failed(why.clone()));
        state.counts.failures += 1;
        state.event(PoolEventKind::Failed, &key, why);
        drop(state);
        self.pool.made.notify_all();
    }
}

/// A step that a pool lent: it is returned when this value is dropped.
pub struct LentStep {
    /// `Some` until it is dropped.
    step: Option<Step>,
    home: Option<(Arc<RecordingPool>, RecordingId)>,
    /// Uses that were not reported to the pool yet.
    made_of_it: Use,
}

impl LentStep {
    pub(super) const fn of(step: Step, pool: Arc<RecordingPool>, id: RecordingId) -> Self {
        Self { step: Some(step), home: Some((pool, id)), made_of_it: Use::NONE }
    }

    /// A step that belongs to no pool.
    #[must_use]
    pub const fn alone(step: Step) -> Self {
        Self { step: Some(step), home: None, made_of_it: Use::NONE }
    }

    /// The pool that it comes from; `None` if it belongs to none.
    #[must_use]
    pub fn pool(&self) -> Option<&Arc<RecordingPool>> {
        self.home.as_ref().map(|(pool, _)| pool)
    }

    /// Its entry in that pool.
    #[must_use]
    pub fn id(&self) -> Option<RecordingId> {
        self.home.as_ref().map(|(_, id)| *id)
    }

    /// Records that step `number` of a run used it.
    pub const fn is_hit(&mut self, number: u64) {
        self.made_of_it.hits += 1;
        self.made_of_it.last_step = number;
    }

    /// Discards the uses that were not reported to the pool yet, because they belong to no step.
    pub const fn forget_uses(&mut self) {
        self.made_of_it = Use::NONE;
    }

    /// Uses that were not reported to the pool yet, and the step of the last one.
    #[must_use]
    pub const fn new_hits(&self) -> (u64, u64) {
        (self.made_of_it.hits, self.made_of_it.last_step)
    }

    /// Takes over the recording that was made to replace this one, if there is one, between two steps; returns whether
    /// it did.
    pub fn take_renewal(&mut self) -> bool {
        let Some((pool, own)) = &self.home else { return false };
        let mut state = pool.state();
        let renewed = state.take_renewal(*own);
        state.evict(None);
        drop(state);
        // What it replaces is freed after the pool's lock is released.
        renewed.map(|renewed| self.step.replace(renewed)).is_some()
    }

    /// Exchanges this recording for another one of the same pool, if that is idle. Counts the hit of step `number`.
    #[must_use]
    pub fn change_to(&mut self, id: RecordingId, number: u64) -> bool {
        let Some((pool, own)) = &mut self.home else { return false };
        if *own == id {
            self.is_hit(number);
            return true;
        }
        let mut state = pool.state();
        let now = state.look_up();
        let Some(entry) = state.known_mut(id) else { return false };
        let Held::Idle(_) = entry.held else { return false };
        let Held::Idle(step) = std::mem::replace(&mut entry.held, Held::Lent) else { return false };
        entry.used = now;
        if let Some(before) = self.step.replace(step) {
            state.take_back(*own, before, self.made_of_it);
        }
        drop(state);
        *own = id;
        self.made_of_it = Use { hits: 1, last_step: number, is_new: false };
        true
    }

    /// Lends the recording with this id if it is idle, and counts the hit of step `number`.
    #[must_use]
    pub fn find(pool: &Arc<RecordingPool>, id: RecordingId, number: u64) -> Option<Self> {
        let mut state = pool.state();
        let now = state.look_up();
        let entry = state.known_mut(id)?;
        let Held::Idle(_) = entry.held else { return None };
        let Held::Idle(step) = std::mem::replace(&mut entry.held, Held::Lent) else { return None };
        entry.used = now;
        drop(state);
        let mut found = Self::of(step, Arc::clone(pool), id);
        found.is_hit(number);
        Some(found)
    }
}

impl Deref for LentStep {
    type Target = Step;

    fn deref(&self) -> &Step {
        match &self.step {
            Some(step) => step,
            None => unreachable!("it is taken when this is dropped"),
        }
    }
}

impl DerefMut for LentStep {
    fn deref_mut(&mut self) -> &mut Step {
        match &mut self.step {
            Some(step) => step,
            None => unreachable!("it is taken when this is dropped"),
        }
    }
}

impl Drop for LentStep {
    fn drop(&mut self) {
        if let (Some(step), Some((pool, id))) = (self.step.take(), self.home.take()) {
            pool.state().take_back(id, step, self.made_of_it);
        }
    }
}
