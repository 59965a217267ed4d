//! Faults that show that the ledger finds them: each changes what the check reads. No graph is launched while one is
//! there, unless a check missed it.

use super::graph::{Displaced, Graph};
use super::library_nodes::{WordPlace, can_read, set_word};
use super::memory::DeviceMemory;
use super::step::{Step, gpu_error};
use crate::exec::{ExecError, Fault};
use std::sync::Arc;

/// How far an address is moved.
const MOVED_BYTES: u64 = 64;

/// How a fault is taken back.
pub struct Undo(Change);

/// What was there before.
enum Change {
    Word(WordPlace, u64),
    Arena(Arc<DeviceMemory>),
    Instance(usize, Displaced),
    LiveConstant(usize, u64),
}

impl Step {
    /// Changes nodes, memory, a graph or the ledger. Nothing where there is no such place, or the driver is too old to
    /// change it.
    ///
    /// # Errors
    /// What the driver says.
    pub fn inject(&mut self, fault: Fault) -> Result<Option<Undo>, ExecError> {
        self.gpu.enter().map_err(gpu_error)?;
        let change = match fault {
            Fault::Argument { graph, op, slot } => self.argument(graph, op, slot).map(move_word).transpose()?,
            Fault::Feed { graph } => self.feed_argument(graph).map(move_word).transpose()?,
            Fault::Arena => {
                let other = DeviceMemory::zeroed(self.env.memory.bytes().min(256), self.gpu.stream());
                let other = Arc::new(other.map_err(gpu_error)?);
                Some(Change::Arena(std::mem::replace(&mut self.env.memory, other)))
            }
            Fault::Instance { graph } => {
                let displaced = self.numbered_mut(graph).map(Graph::instantiate_again).transpose();
                displaced.map_err(gpu_error)?.map(|displaced| Change::Instance(graph, displaced))
            }
            Fault::LiveConstant(index) => self.ledger.live.get_mut(index).map(|live| {
                let address = live.address;
                live.address += MOVED_BYTES;
                Change::LiveConstant(index, address)
            }),
        };
        Ok(change.map(Undo))
    }

    /// Takes back a fault.
    ///
    /// # Errors
    /// What the driver says.
    pub fn undo(&mut self, undo: Undo) -> Result<(), ExecError> {
        match undo.0 {
            // SAFETY: the graph that the node belongs to is alive, as it was when the word was changed.
            Change::Word(place, value) => unsafe { set_word(place, value) }.map_err(gpu_error)?,
            Change::Arena(memory) => self.env.memory = memory,
            Change::Instance(graph, displaced) => {
                if let Some(graph) = self.numbered_mut(graph) {
                    graph.put_back(displaced);
                }
            }
            Change::LiveConstant(index, address) => self.ledger.live[index].address = address,
        }
        Ok(())
    }

    /// The last word of a graph's nodes that holds an argument, and its value.
    fn argument(&self, graph: usize, op: usize, slot: usize) -> Option<(WordPlace, u64)> {
        let (role, graph) = self.numbered(graph).filter(|_| can_read())?;
        let address = Some(self.row(op)[slot]).filter(|address| *address != 0)?;
        let planned = self.planned_of(role);
        let mut own = planned.iter().zip(&graph.own).rev();
        let own = own.find_map(|(launch, node)| Some((launch.word_of(op, slot, address)?, *node)));
        let library = graph.library_words.iter().rev().find(|word| (word.op, word.slot) == (op, slot));
        match (own, library) {
            (Some((word, node)), _) => Some((WordPlace { node, param: 0, word }, address)),
            (None, library) => library.map(|word| (word.place, word.address)),
        }
    }

    /// The first argument of the data feed behind the last step of a graph, and its value.
    fn feed_argument(&self, graph: usize) -> Option<(WordPlace, u64)> {
        let (role, graph) = self.numbered(graph).filter(|_| can_read())?;
        let planned = self.planned_of(role);
        let mut feeds = planned.iter().zip(&graph.own).filter(|(launch, _)| launch.owner(0).0.is_none());
        feeds.next_back().map(|(launch, node)| (WordPlace { node: *node, param: 0, word: 0 }, launch.args[0]))
    }
}

/// Moves the address in a word of a node.
fn move_word((place, value): (WordPlace, u64)) -> Result<Change, ExecError> {
    // SAFETY: the node belongs to a graph that is alive, and what was instantiated from that graph keeps the address.
    unsafe { set_word(place, value + MOVED_BYTES) }.map_err(gpu_error)?;
    Ok(Change::Word(place, value))
}
