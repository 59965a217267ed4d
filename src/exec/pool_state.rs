//! The entries of a pool of recordings, protected by its lock.

use super::graph_key::GraphKey;
use super::pool_report::{EagerSteps, KnownKey, PoolCounts, PoolEvent, PoolEventKind, RecordingFacts};
use super::step::Step;
use super::store::StepArena;
use crate::tensor::Bytes;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

/// The number of keys without a recording that are remembered.
const MOST_KNOWN: usize = 1024;
/// The number of events that are kept for reports.
const MOST_EVENTS: usize = 1024;
/// The number of different reasons for eager steps that are kept.
pub(super) const MOST_REASONS: usize = 256;

/// The entry of a key in one pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RecordingId {
    pub(super) slot: u32,
    /// Counts the keys that have used this slot.
    stamp: u32,
}

/// Why there is no recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Absence {
    New,
    Evicted,
    Outgrown,
    Unfit(u64),
    Failed(String),
}

/// The state of a recording.
pub(super) enum Held {
    Absent(Absence),
    /// A thread is making it.
    Making(ThreadId),
    /// It is in use.
    Lent,
    Idle(Step),
}

pub(super) struct Entry {
    pub(super) key: GraphKey,
    pub(super) stamp: u32,
    pub(super) held: Held,
    /// The number of the look-up at which it was last lent.
    pub(super) used: u64,
    pub(super) facts: RecordingFacts,
    /// The recording that replaces this one, which is lent, and the time that making it took.
    pub(super) renewal: Option<(Step, Duration)>,
}

impl Entry {
    /// Its entry in a report.
    pub(super) fn known(&self) -> KnownKey {
        let is_there = matches!(self.held, Held::Lent | Held::Idle(_));
        let facts = RecordingFacts { is_there, ..self.facts.clone() };
        KnownKey { id: self.key.id(), key: self.key.clone(), facts }
    }
}

/// Who may run in the same transient memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    Common,
    /// Evaluations on a device that works ahead of the host.
    Evaluation,
}

pub(super) struct State {
    pub(super) entries: Vec<Entry>,
    pub(super) by_key: HashMap<GraphKey, u32>,
    pub(super) arenas: Vec<(Room, Arc<StepArena>)>,
    /// Smaller blocks, which recordings that are in use or pinned may still run in.
    pub(super) outgrown: Vec<Weak<StepArena>>,
    pub(super) lookups: u64,
    /// Bytes of all recordings.
    pub(super) recorded: u64,
    pub(super) counts: PoolCounts,
    pub(super) eager: Vec<EagerSteps>,
    /// The last step that ran op by op.
    pub(super) last_eager: u64,
    pub(super) events: VecDeque<PoolEvent>,
}

/// The uses of a recording since it was lent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Use {
    /// Steps that found it, and the number of the last one.
    pub(super) hits: u64,
    pub(super) last_step: u64,
    /// It was made in advance and never lent.
    pub(super) is_new: bool,
}

impl Use {
    /// No uses yet.
    pub(super) const NONE: Self = Self { hits: 0, last_step: 0, is_new: false };
}

impl State {
    pub(super) fn entry(&mut self, slot: u32) -> &mut Entry {
        &mut self.entries[slot as usize]
    }

    pub(super) fn known(&self, id: RecordingId) -> Option<&Entry> {
        self.entries.get(id.slot as usize).filter(|entry| entry.stamp == id.stamp)
    }

    pub(super) fn known_mut(&mut self, id: RecordingId) -> Option<&mut Entry> {
        self.entries.get_mut(id.slot as usize).filter(|entry| entry.stamp == id.stamp)
    }

    /// Counts a look-up, and returns its number.
    pub(super) const fn look_up(&mut self) -> u64 {
        self.lookups += 1;
        self.lookups
    }

    pub(super) fn id_of(&mut self, key: &GraphKey) -> RecordingId {
        if let Some(&slot) = self.by_key.get(key) {
            return RecordingId { slot, stamp: self.entries[slot as usize].stamp };
        }
        let used = self.lookups;
        let held = Held::Absent(Absence::New);
        let facts = RecordingFacts::default();
        let forgotten = (self.entries.len() >= MOST_KNOWN).then(|| self.least_used(false)).flatten();
        let (slot, stamp) = match forgotten {
            Some(slot) => {
                let old = &self.entries[slot as usize];
                let stamp = old.stamp.wrapping_add(1);
                self.by_key.remove(&old.key);
                self.entries[slot as usize] = Entry { key: key.clone(), stamp, held, used, facts, renewal: None };
                (slot, stamp)
            }
            None => {
                self.entries.push(Entry { key: key.clone(), stamp: 0, held, used, facts, renewal: None });
                (self.entries.len() as u32 - 1, 0)
            }
        };
        self.by_key.insert(key.clone(), slot);
        RecordingId { slot, stamp }
    }

    /// The least recently used one among the idle recordings that may be dropped, otherwise among the keys without a
    /// recording.
    fn least_used(&self, is_idle: bool) -> Option<u32> {
        let may_go = |entry: &&Entry| match &entry.held {
            Held::Idle(_) => is_idle && !entry.facts.is_pinned,
            Held::Absent(_) => !is_idle,
            Held::Making(_) | Held::Lent => false,
        };
        let numbered = self.entries.iter().enumerate().filter(|(_, entry)| may_go(entry));
        numbered.min_by_key(|(_, entry)| entry.used).map(|(slot, _)| slot as u32)
    }

    pub(super) fn arena(&self, room: Room) -> Option<Arc<StepArena>> {
        self.arenas.iter().find(|(of, _)| *of == room).map(|(_, arena)| Arc::clone(arena))
    }

    /// Bytes of the arena of all recordings.
    fn arena_bytes(&self) -> u64 {
        let outgrown = self.outgrown.iter().filter_map(Weak::upgrade).map(|arena| arena.bytes()).sum::<u64>();
        self.arenas.iter().map(|(_, arena)| arena.bytes()).sum::<u64>() + outgrown
    }

    /// Bytes of all recordings and of their transient memory.
    pub(super) fn bytes(&self) -> u64 {
        self.arena_bytes() + self.recorded
    }

    pub(super) fn counted(&self) -> PoolCounts {
        PoolCounts { arena_bytes: self.arena_bytes(), bytes: self.bytes(), ..self.counts }
    }

    pub(super) fn event(&mut self, kind: PoolEventKind, key: &GraphKey, about: String) {
        if self.events.len() == MOST_EVENTS {
            self.events.pop_front();
        }
        self.counts.events += 1;
        self.events.push_back(PoolEvent { number: self.counts.events, kind, key: key.clone(), about });
    }

    /// Records the size of a recording that was made, and why it was made.
    pub(super) fn is_made(&mut self, slot: u32, step: &Step, started: Instant, why: &'static str) {
        let us = started.elapsed().as_micros() as u64;
        let (recording, bytes) = (step.recording(), step.recording_bytes());
        let entry = self.entry(slot);
        let facts = &mut entry.facts;
        (facts.bytes, facts.nodes, facts.calls) = (bytes, recording.nodes, recording.calls);
        (facts.capture_us, facts.why, facts.captures) = (us, why.into(), facts.captures + 1);
        facts.why_eager = recording.why_eager;
        let key = entry.key.clone();
        self.recorded += bytes;
        self.counts.recordings += 1;
        self.counts.capture_us += us;
        self.counts.peak_bytes = self.counts.peak_bytes.max(self.bytes());
        self.event(PoolEventKind::Made, &key, format!("recorded in {us} us, {}: {why}", Bytes(bytes)));
    }

    /// Replaces an idle recording, and keeps the new one for the user of a lent one; returns what is no longer needed.
    ///
    /// # Errors
    /// The new recording, if there is none to be replaced, or the transient memory has grown since it was made.
    pub(super) fn renew(&mut self, id: RecordingId, step: Step, took: Duration) -> Result<Option<Step>, Step> {
        let is_current = self.arenas.iter().any(|(_, arena)| Arc::ptr_eq(arena, step.lent_arena()));
        let Some(entry) = self.known_mut(id).filter(|_| is_current) else { return Err(step) };
        match std::mem::replace(&mut entry.held, Held::Lent) {
            Held::Lent => Ok(entry.renewal.replace((step, took)).map(|(earlier, _)| earlier)),
            Held::Idle(replaced) => {
                self.is_renewed(id.slot, &step, took);
                self.entry(id.slot).held = Held::Idle(step);
                self.evict(None);
                Ok(Some(replaced))
            }
            other => {
                entry.held = other;
                Err(step)
            }
        }
    }

    /// The recording that replaces a lent one.
    pub(super) fn take_renewal(&mut self, id: RecordingId) -> Option<Step> {
        let (step, took) = self.known_mut(id)?.renewal.take()?;
        self.is_renewed(id.slot, &step, took);
        Some(step)
    }

    /// Records the size of a recording that replaces another one.
    fn is_renewed(&mut self, slot: u32, step: &Step, took: Duration) {
        let (us, bytes, recording) = (took.as_micros() as u64, step.recording_bytes(), step.recording());
        let entry = self.entry(slot);
        let facts = &mut entry.facts;
        let before = std::mem::replace(&mut facts.bytes, bytes);
        (facts.nodes, facts.calls, facts.capture_us) = (recording.nodes, recording.calls, us);
        (facts.captures, facts.why_eager) = (facts.captures + 1, recording.why_eager);
        let key = entry.key.clone();
        self.recorded = self.recorded + bytes - before;
        self.counts.capture_us += us;
        self.counts.peak_bytes = self.counts.peak_bytes.max(self.bytes());
        let about = format!("recorded again in {us} us with kernels for its sizes, {}", Bytes(bytes));
        self.event(PoolEventKind::Renewed, &key, about);
    }

    /// Drops an idle recording.
    pub(super) fn drop_recording(&mut self, slot: u32, why: Absence) {
        let entry = self.entry(slot);
        let (bytes, key) = (std::mem::take(&mut entry.facts.bytes), entry.key.clone());
        let about = match &why {
            Absence::Outgrown => "dropped, because the transient arena grew",
            Absence::Unfit(_) => "dropped, because the budget has no room for it",
            _ => "dropped to keep the budget",
        };
        entry.held = Held::Absent(why);
        self.recorded -= bytes;
        self.counts.recordings -= 1;
        self.counts.evictions += 1;
        self.event(PoolEventKind::Evicted, &key, about.to_owned());
    }

    /// Drops recordings that are not in use, the least recently used ones first, until their size is within the budget.
    /// The newest one comes last.
    pub(super) fn evict(&mut self, made: Option<u32>) {
        while self.bytes() > self.counts.budget_bytes {
            let Some(slot) = self.least_used(true) else { return };
            let why = if made == Some(slot) { Absence::Unfit(self.entry(slot).facts.bytes) } else { Absence::Evicted };
            self.drop_recording(slot, why);
        }
    }

    /// Drops every recording that is idle and not pinned.
    pub(super) fn drop_idle(&mut self) {
        while let Some(slot) = self.least_used(true) {
            self.drop_recording(slot, Absence::Evicted);
        }
    }

    pub(super) fn take_back(&mut self, id: RecordingId, step: Step, made_of_it: Use) {
        let Use { hits, last_step, is_new } = made_of_it;
        let step = self.take_renewal(id).unwrap_or(step);
        let is_current = self.arenas.iter().any(|(_, arena)| Arc::ptr_eq(arena, step.lent_arena()));
        self.counts.hits += hits;
        let now = self.lookups;
        let Some(entry) = self.known_mut(id) else { return };
        entry.facts.hits += hits;
        entry.used = now;
        entry.facts.last_step = entry.facts.last_step.max(last_step);
        entry.held = Held::Idle(step);
        if !is_current && !entry.facts.is_pinned {
            // It runs in memory that has become too small for others.
            self.drop_recording(id.slot, Absence::Outgrown);
        }
        self.evict(is_new.then_some(id.slot));
    }
}
