//! Faults for testing the ledger: each changes something that a check reads. No graph is launched while a fault exists,
//! unless a check missed it.

use super::captured_graph::{CapturedGraph, Displaced};
use super::device_block::allocate;
use super::error::CudaError;
use super::library_nodes::{WordPlace, can_read, set_word};
use super::step::Step;
use crate::exec::backend::Fault;
use crate::exec::error::ExecError;
use crate::exec::store::StepArena;
use std::sync::Arc;

/// The distance by which an address is moved.
const MOVED_BYTES: u64 = 64;

/// The original value, before a fault.
pub(super) enum Change {
    Word(WordPlace, u64),
    Arena(Arc<StepArena>),
    Instance(usize, Displaced),
    LiveConstant(usize, u64),
}

// SAFETY: the handles are used by one thread at a time: whoever owns the step takes the fault back.
unsafe impl Send for Change {}

/// Changes nodes, memory, a graph or the ledger. Returns `None` if there is no such place, or the driver is too old to
/// change it.
///
/// # Errors
/// If the driver reports an error.
pub(super) fn inject(step: &mut Step, fault: Fault) -> Result<Option<Change>, ExecError> {
    step.ops.gpu.enter()?;
    Ok(match fault {
        Fault::Argument { graph, op, slot } => argument(step, graph, op, slot).map(move_word).transpose()?,
        Fault::Feed { graph } => feed_argument(step, graph).map(move_word).transpose()?,
        Fault::Arena => {
            let arena = &mut step.ops.env.memory.arena;
            let other = allocate(&[arena.bytes().min(256)], &step.ops.gpu)?.into_iter().next();
            other.map(|other| Change::Arena(std::mem::replace(arena, StepArena::new(other))))
        }
        Fault::Instance { graph } => {
            let displaced = step.graphs.numbered_mut(graph).map(CapturedGraph::instantiate_again).transpose()?;
            displaced.map(|displaced| Change::Instance(graph, displaced))
        }
        Fault::LiveConstant(index) => step.graphs.ledger.live.get_mut(index).map(|live| {
            let address = live.address;
            live.address += MOVED_BYTES;
            Change::LiveConstant(index, address)
        }),
    })
}

/// Undoes a fault.
///
/// # Errors
/// If the driver reports an error.
pub(super) fn undo(step: &mut Step, change: Change) -> Result<(), CudaError> {
    match change {
        // SAFETY: the graph that the node belongs to is alive, as it was when the word was changed.
        Change::Word(place, value) => unsafe { set_word(place, value) }?,
        Change::Arena(arena) => step.ops.env.memory.arena = arena,
        Change::Instance(graph, displaced) => {
            if let Some(graph) = step.graphs.numbered_mut(graph) {
                graph.put_back(displaced);
            }
        }
        Change::LiveConstant(index, address) => step.graphs.ledger.live[index].address = address,
    }
    Ok(())
}

/// The last word of a graph's nodes that contains an argument, and its value.
fn argument(step: &Step, graph: usize, op: usize, slot: usize) -> Option<(WordPlace, u64)> {
    let (role, graph) = step.graphs.numbered(graph).filter(|_| can_read())?;
    let address = Some(step.ops.row(op)[slot]).filter(|address| *address != 0)?;
    let planned = step.planned_of(role);
    let mut own = planned.iter().zip(&graph.own).rev();
    let own = own.find_map(|(launch, node)| Some((launch.word_of(op, slot, address)?, *node)));
    let library = graph.library_words.iter().rev().find(|word| (word.op, word.slot) == (op, slot));
    match (own, library) {
        (Some((word, node)), _) => Some((WordPlace { node, param: 0, word }, address)),
        (None, library) => library.map(|word| (word.place, word.address)),
    }
}

/// The first argument of the data feed after the last step of a graph, and its value.
fn feed_argument(step: &Step, graph: usize) -> Option<(WordPlace, u64)> {
    let (role, graph) = step.graphs.numbered(graph).filter(|_| can_read())?;
    let planned = step.planned_of(role);
    let mut feeds = planned.iter().zip(&graph.own).filter(|(launch, _)| launch.owner(0).0.is_none());
    feeds.next_back().map(|(launch, node)| (WordPlace { node: *node, param: 0, word: 0 }, launch.args[0]))
}

/// Moves the address in a word of a node.
fn move_word((place, value): (WordPlace, u64)) -> Result<Change, CudaError> {
    // SAFETY: the node belongs to a graph that is alive, and what was instantiated from that graph keeps the address.
    unsafe { set_word(place, value + MOVED_BYTES) }?;
    Ok(Change::Word(place, value))
}
