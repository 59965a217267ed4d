//! The recordings of one network's steps, found by their keys: recorded on a miss, lent on a hit, dropped where they
//! take more memory than they may.

use super::step::Step;
use super::step_key::{StepKey, StepVariant};
use super::store::{ParamStore, StepArena};
use crate::compile::Compiled;
use crate::exec::backend::MemoryOf;
use crate::exec::error::ExecError;
use serde::Serialize;
use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Instant;

/// What became of the look-ups in a cache, and what it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CacheCounts {
    /// Look-ups that found a recording.
    pub hits: u64,
    /// Look-ups that had one made, or tried to.
    pub misses: u64,
    /// Recordings that were dropped to make room.
    pub evictions: u64,
    /// Recordings that could not be made.
    pub failures: u64,
    /// The time that making recordings took, in microseconds.
    pub capture_us: u64,
    /// Recordings that are there.
    pub recordings: usize,
    /// Bytes of these and of their transient memory, roughly.
    pub bytes: u64,
    /// Bytes that they may take before those that were not used for longest are dropped.
    pub budget_bytes: u64,
}

/// Where a recording is.
enum Held {
    /// A thread makes it.
    Making(ThreadId),
    /// Somebody uses it.
    Lent,
    Idle(Step),
}

struct Entry {
    held: Held,
    bytes: u64,
    /// When it was lent last, in look-ups.
    used: u64,
    is_pinned: bool,
}

/// Who may run in the same transient memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Room {
    Common,
    /// Evaluations on a device that works ahead of the host.
    Evaluation,
}

struct State {
    entries: HashMap<StepKey, Entry>,
    arenas: Vec<(Room, Arc<StepArena>)>,
    lookups: u64,
    counts: CacheCounts,
}

/// Recordings of the steps over one store. Several threads may use it; a recording is lent to one user at a time, who
/// may keep it for as long as a run takes. Nobody waits for one that is lent, since it might never come back.
pub struct StepCache {
    store: Arc<ParamStore>,
    threads: usize,
    /// Whether evaluations have an arena of their own.
    works_ahead: bool,
    state: Mutex<State>,
    /// A recording was made, or could not be made.
    made: Condvar,
}

impl StepCache {
    /// A cache with the first step of a network, for which store and arena are taken: the step that trains all of it.
    /// The arena is large enough for `others`, which will be asked for. `room_bytes` is what further recordings and
    /// their memory may take.
    ///
    /// # Errors
    /// Where memory is short, or the device cannot be used.
    pub fn found(
        compiled: &Arc<Compiled>,
        others: &[Arc<Compiled>],
        threads: usize,
        room_bytes: u64,
    ) -> Result<CachedStep, ExecError> {
        let started = Instant::now();
        let step = Step::with_room(Arc::clone(compiled), others, threads)?;
        let key = StepKey::of(compiled, WHOLE);
        let arena = Arc::clone(step.lent_arena());
        let bytes = step.recording_bytes();
        let counts = CacheCounts {
            misses: 1,
            capture_us: started.elapsed().as_micros() as u64,
            budget_bytes: (bytes + arena.bytes()).saturating_add(room_bytes),
            ..CacheCounts::default()
        };
        let entry = Entry { held: Held::Lent, bytes, used: 1, is_pinned: true };
        let (entries, arenas) = (HashMap::from([(key.clone(), entry)]), vec![(Room::Common, arena)]);
        let cache = Arc::new(Self {
            store: Arc::clone(step.store()),
            threads,
            works_ahead: step.capabilities().memory == MemoryOf::Device,
            state: Mutex::new(State { entries, arenas, lookups: 1, counts }),
            made: Condvar::new(),
        });
        Ok(CachedStep { step: Some(step), home: Some((cache, key)) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The recording with this key, made from what `compile` gives where there is none. It comes back when the result
    /// is dropped. Waits while another thread makes it, unless this thread itself is making one, so that no two threads
    /// wait for each other.
    ///
    /// # Errors
    /// Where it cannot be compiled or recorded, where memory is short (the cache is as it was then), or where it is in
    /// use.
    pub fn lend<E: From<ExecError>>(
        self: &Arc<Self>,
        key: &StepKey,
        compile: impl FnOnce() -> Result<Arc<Compiled>, E>,
    ) -> Result<CachedStep, E> {
        let lent = |step| CachedStep { step: Some(step), home: Some((Arc::clone(self), key.clone())) };
        if let Some(step) = self.found_idle(key)? {
            return Ok(lent(step));
        }
        let making = Making { cache: self, key };
        let compiled = compile()?;
        let started = Instant::now();
        let arena = self.arena_for(key.variant(), &compiled)?;
        let step = Step::over(compiled, &self.store, &arena, self.threads)?;
        making.is_made(&step, started);
        Ok(lent(step))
    }

    /// Takes out an idle recording; nothing where there is none, which this thread is then to make.
    fn found_idle(&self, key: &StepKey) -> Result<Option<Step>, ExecError> {
        let me = thread::current().id();
        let mut state = self.state();
        state.lookups += 1;
        let now = state.lookups;
        let is_maker = state.entries.values().any(|entry| matches!(entry.held, Held::Making(by) if by == me));
        loop {
            let State { entries, counts, .. } = &mut *state;
            let Some(entry) = entries.get_mut(key) else {
                counts.misses += 1;
                entries.insert(key.clone(), Entry { held: Held::Making(me), bytes: 0, used: now, is_pinned: false });
                return Ok(None);
            };
            match std::mem::replace(&mut entry.held, Held::Lent) {
                Held::Idle(step) => {
                    counts.hits += 1;
                    entry.used = now;
                    return Ok(Some(step));
                }
                held @ Held::Making(_) if !is_maker => entry.held = held,
                held => {
                    entry.held = held;
                    return Err(ExecError::StepLent(key.to_string()));
                }
            }
            state = self.made.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Keeps the recording with this key, however little memory there is; or no longer.
    pub fn pin(&self, key: &StepKey, is_pinned: bool) {
        let mut state = self.state();
        if let Some(entry) = state.entries.get_mut(key) {
            entry.is_pinned = is_pinned;
        }
        state.evict();
    }

    /// What became of the look-ups so far, and what is there now.
    #[must_use]
    pub fn counts(&self) -> CacheCounts {
        let state = self.state();
        let recordings = state.entries.values().filter(|e| !matches!(e.held, Held::Making(_))).count();
        CacheCounts { recordings, bytes: state.bytes(), ..state.counts }
    }

    /// Transient memory for a step, taken anew where the largest so far is too small. Recordings over the smaller one
    /// are dropped, so that it can be freed.
    fn arena_for(&self, variant: StepVariant, compiled: &Compiled) -> Result<Arc<StepArena>, ExecError> {
        let is_evaluation = matches!(variant, StepVariant::Evaluation);
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
            let before = state.entries.len();
            state.entries.retain(|_, entry| {
                let Held::Idle(step) = &entry.held else { return true };
                entry.is_pinned || !Arc::ptr_eq(step.lent_arena(), &smaller)
            });
            state.counts.evictions += (before - state.entries.len()) as u64;
        }
        state.arenas.retain(|(of, _)| *of != room);
        state.arenas.push((room, Arc::clone(&larger)));
        Ok(larger)
    }

    /// Takes back a recording.
    fn take_back(&self, key: &StepKey, step: Step) {
        let mut state = self.state();
        let is_current = state.arenas.iter().any(|(_, arena)| Arc::ptr_eq(arena, step.lent_arena()));
        let is_pinned = state.entries.get(key).is_some_and(|entry| entry.is_pinned);
        if is_current || is_pinned {
            if let Some(entry) = state.entries.get_mut(key) {
                entry.held = Held::Idle(step);
            }
        } else {
            // It runs in memory that became too small for others.
            state.entries.remove(key);
            state.counts.evictions += 1;
        }
        state.evict();
    }
}

/// The path that is all of a network.
pub const WHOLE: &str = "whole";

impl State {
    fn arena(&self, room: Room) -> Option<Arc<StepArena>> {
        self.arenas.iter().find(|(of, _)| *of == room).map(|(_, arena)| Arc::clone(arena))
    }

    /// Bytes of all recordings and of their transient memory.
    fn bytes(&self) -> u64 {
        let arenas: u64 = self.arenas.iter().map(|(_, arena)| arena.bytes()).sum();
        arenas + self.entries.values().map(|entry| entry.bytes).sum::<u64>()
    }

    /// Drops recordings that nobody uses, those that were not used for longest first, until the budget is kept.
    fn evict(&mut self) {
        while self.bytes() > self.counts.budget_bytes {
            let idle = self.entries.iter().filter(|(_, e)| matches!(e.held, Held::Idle(_)) && !e.is_pinned);
            let Some(oldest) = idle.min_by_key(|(_, e)| e.used).map(|(key, _)| key.clone()) else { return };
            self.entries.remove(&oldest);
            self.counts.evictions += 1;
        }
    }
}

/// A recording that is being made: gone from the cache again where that fails.
struct Making<'a> {
    cache: &'a StepCache,
    key: &'a StepKey,
}

impl Making<'_> {
    /// Notes that the recording is there, and lent to the thread that made it.
    fn is_made(&self, step: &Step, started: Instant) {
        let mut state = self.cache.state();
        state.counts.capture_us += started.elapsed().as_micros() as u64;
        if let Some(entry) = state.entries.get_mut(self.key) {
            entry.held = Held::Lent;
            entry.bytes = step.recording_bytes();
        }
        state.evict();
        self.cache.made.notify_all();
    }
}

impl Drop for Making<'_> {
    fn drop(&mut self) {
        let mut state = self.cache.state();
        let is_unfinished = |entry: &Entry| matches!(entry.held, Held::Making(by) if by == thread::current().id());
        if state.entries.get(self.key).is_some_and(is_unfinished) {
            state.entries.remove(self.key);
            state.counts.failures += 1;
            self.cache.made.notify_all();
        }
    }
}

/// A step that a cache lent: it goes back when this is dropped.
pub struct CachedStep {
    /// There until it is dropped.
    step: Option<Step>,
    home: Option<(Arc<StepCache>, StepKey)>,
}

impl CachedStep {
    /// A step that belongs to no cache.
    #[must_use]
    pub const fn alone(step: Step) -> Self {
        Self { step: Some(step), home: None }
    }

    /// The cache that it comes from, and its key there; nothing for a step that belongs to none.
    #[must_use]
    pub fn home(&self) -> Option<(&Arc<StepCache>, &StepKey)> {
        self.home.as_ref().map(|(cache, key)| (cache, key))
    }
}

impl Deref for CachedStep {
    type Target = Step;

    fn deref(&self) -> &Step {
        match &self.step {
            Some(step) => step,
            None => unreachable!("it is taken when this is dropped"),
        }
    }
}

impl DerefMut for CachedStep {
    fn deref_mut(&mut self) -> &mut Step {
        match &mut self.step {
            Some(step) => step,
            None => unreachable!("it is taken when this is dropped"),
        }
    }
}

impl Drop for CachedStep {
    fn drop(&mut self) {
        if let (Some(step), Some((cache, key))) = (self.step.take(), self.home.take()) {
            cache.take_back(&key, step);
        }
    }
}
