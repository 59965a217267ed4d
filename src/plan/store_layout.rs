//! The addresses of everything that survives the steps of a network, the same for all steps over the same parameters.
//!
//! A [`StoreLayout`] is made once for a model and its optimizer, from the plan of its training step. Every other step
//! over these parameters (an evaluation, another batch size) finds its parameters and state in it by key and size.

use super::state::{StateKey, StateKind};
use super::{ALIGN, BindingPlan};
use crate::tensor::Bytes;
use std::collections::HashMap;
use thiserror::Error;

/// Why a step cannot use a store.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum LayoutError {
    #[error("the step needs {key}, which is not among the state of this network")]
    Missing { key: StateKey },
    #[error("the step has {found} of {key}, and the state of this network has {expected}")]
    Size { key: StateKey, expected: Bytes, found: Bytes },
}

/// The place of something that survives a step in its store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreSlot {
    pub key: StateKey,
    /// First byte.
    pub start: u64,
    /// Bytes taken, padding included.
    pub bytes: u64,
}

/// The places of everything that survives the steps of a network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreLayout {
    slots: Vec<StoreSlot>,
    by_key: HashMap<StateKey, usize>,
    /// The first byte of each counter that no plan has requested yet.
    spare_tickets: Vec<u64>,
    bytes: u64,
}

/// The place of a buffer of a plan once the step has memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// The first byte in the store.
    Store(u64),
    /// The first byte in the arena.
    Arena(u64),
}

/// The places of the buffers of one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Homes {
    by_buffer: Vec<Home>,
    /// Bytes that the step uses of its arena.
    pub arena_bytes: u64,
}

impl Homes {
    /// The place of each buffer, by its number.
    #[must_use]
    pub fn all(&self) -> &[Home] {
        &self.by_buffer
    }
}

impl StoreLayout {
    /// The layout of the first of these plans, followed by what only the others need.
    #[must_use]
    pub fn of(plans: &[&BindingPlan]) -> Self {
        let mut layout = Self::default();
        for (number, plan) in plans.iter().enumerate() {
            for buffer in &plan.buffers {
                let Some(key) = &buffer.key else { continue };
                if layout.by_key.contains_key(key) || (number > 0 && key.kind.may_be_own()) {
                    continue;
                }
                layout.by_key.insert(key.clone(), layout.slots.len());
                layout.slots.push(StoreSlot { key: key.clone(), start: layout.bytes, bytes: buffer.bytes });
                layout.bytes += buffer.bytes;
            }
        }
        layout
    }

    /// Adds `count` counters of finished blocks for later plans: which kernels count blocks, and how many of them there
    /// are, depends on the path and the size of a step.
    #[must_use]
    pub fn with_spare_tickets(mut self, count: usize) -> Self {
        for _ in 0..count {
            self.spare_tickets.push(self.bytes);
            self.bytes += ALIGN;
        }
        self
    }

    /// Everything in it that has a key, in order of addresses.
    #[must_use]
    pub fn slots(&self) -> &[StoreSlot] {
        &self.slots
    }

    /// Bytes of the whole store.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The place of the entry with this key.
    #[must_use]
    pub fn slot(&self, key: &StateKey) -> Option<&StoreSlot> {
        self.by_key.get(key).map(|at| &self.slots[*at])
    }

    /// The places of the buffers of a plan: in the store if it contains them, otherwise in the arena, where those that
    /// exist before the step or are read after it come first.
    ///
    /// # Errors
    /// The first key that the store lacks, or has with another size.
    pub fn homes(&self, plan: &BindingPlan) -> Result<Homes, LayoutError> {
        let mut by_buffer = Vec::with_capacity(plan.buffers.len());
        let mut own_bytes = 0;
        let mut spare_tickets = self.spare_tickets.iter();
        for buffer in &plan.buffers {
            let home = match &buffer.key {
                // A counter is zero between two steps, so that it does not matter which one is used.
                Some(key) if self.slot(key).is_none() && key.kind == StateKind::Ticket && buffer.bytes <= ALIGN => {
                    let spare = spare_tickets.next().ok_or_else(|| LayoutError::Missing { key: key.clone() })?;
                    Some(Home::Store(*spare))
                }
                Some(key) => self.found(key, buffer.bytes)?.map(Home::Store),
                // Its place is set once the places before it are known.
                None if !buffer.persistent => Some(Home::Arena(0)),
                None => None,
            };
            by_buffer.push(home.unwrap_or_else(|| {
                own_bytes += buffer.bytes;
                Home::Arena(own_bytes - buffer.bytes)
            }));
        }
        for (home, buffer) in by_buffer.iter_mut().zip(&plan.buffers).filter(|(_, b)| !b.persistent) {
            *home = Home::Arena(own_bytes + (buffer.offset - plan.persistent_bytes));
        }
        let transient_bytes = plan.arena_bytes - plan.persistent_bytes;
        Ok(Homes { by_buffer, arena_bytes: own_bytes + transient_bytes })
    }

    /// The first byte of the entry with this key; `None` if the step has its own.
    fn found(&self, key: &StateKey, bytes: u64) -> Result<Option<u64>, LayoutError> {
        match self.slot(key) {
            Some(slot) if slot.bytes == bytes => Ok(Some(slot.start)),
            _ if key.kind.may_be_own() => Ok(None),
            None => Err(LayoutError::Missing { key: key.clone() }),
            Some(slot) => {
                let (expected, found) = (Bytes(slot.bytes), Bytes(bytes));
                Err(LayoutError::Size { key: key.clone(), expected, found })
            }
        }
    }
}
