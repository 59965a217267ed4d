//! The ledger: what a captured graph holds, read back from its nodes, against what was planned, at every replay.

use super::bind::{MAX_ARGS, Row, Work};
use super::gpu::Kernel;
use super::graph::Graph;
use super::group::Launch;
use super::overlap::{FLAGS, extent, is_ours};
use super::step::Step;
use crate::exec::ExecError;
use crate::lower::Slot;
use cudarc::driver::sys;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

impl Step {
    /// Reads the arguments that a graph holds, so that every replay can be held against the plan. `launches` are those of its steps in order, `feeds` the kernels
    /// before each step and the one behind the last, with their arguments; none where the batch lies there already.
    pub(super) fn held(
        &self,
        graph: &Graph,
        launches: &[&Launch],
        feeds: &[(&Arc<Kernel>, &[u64])],
    ) -> Result<Vec<Option<Row>>, String> {
        let mut words: HashMap<sys::CUfunction, usize> = HashMap::new();
        words.extend(feeds.iter().flat_map(|(k, args)| k.phases.iter().map(|p| (p.function, args.len()))));
        for launch in launches {
            match launch {
                Launch::Single { op, .. } => {
                    for work in &self.calls[*op] {
                        if let Work::Kernel { kernel, .. } = work {
                            words.extend(kernel.phases.iter().map(|p| (p.function, MAX_ARGS)));
                        }
                    }
                }
                Launch::Group { kernel, args, .. } => {
                    words.extend(kernel.phases.iter().map(|p| (p.function, args.len())))
                }
            }
        }
        let mut found: HashMap<sys::CUfunction, VecDeque<Vec<u64>>> = HashMap::new();
        for (function, args) in graph.arguments(|f| words.get(&f).copied().unwrap_or(0))? {
            found.entry(function).or_default().push_back(args);
        }
        let mut take = |function: sys::CUfunction| {
            found.get_mut(&function).and_then(VecDeque::pop_front).ok_or("a launch is missing in the captured graph")
        };
        for (kernel, args) in feeds {
            if take(kernel.phases[0].function)?[..] != **args {
                return Err("the captured arguments of the batch's gathering are not those that were recorded".into());
            }
        }
        let mut captured = vec![None; self.calls.len()];
        for launch in launches {
            self.held_launch(launch, &mut take, &mut captured)?;
        }
        let foreign = launches.iter().filter(|launch| self.asks_library(launch)).zip(graph.foreign.iter().flatten());
        for (launch, addresses) in foreign {
            let op = launch.ops()[0];
            let mut row = [0; MAX_ARGS];
            for address in addresses {
                match self.slot_of(op, *address) {
                    Some(slot) => row[slot] = self.planned[op][slot],
                    // Two short numbers side by side may look like an address.
                    None => {
                        log::debug!("op {op}: {address:#x} in a library's node is none of the operation's addresses")
                    }
                }
            }
            captured[op] = Some(row);
        }
        Ok(captured)
    }

    /// The arguments of one launch among those of a graph.
    fn held_launch(
        &self,
        launch: &Launch,
        take: &mut impl FnMut(sys::CUfunction) -> Result<Vec<u64>, &'static str>,
        captured: &mut [Option<Row>],
    ) -> Result<(), String> {
        match launch {
            Launch::Single { op, flags } => {
                for work in &self.calls[*op] {
                    let Work::Kernel { kernel, args } = work else { continue };
                    let mut recorded = **args;
                    recorded[FLAGS] = *flags;
                    for phase in &kernel.phases {
                        let found = take(phase.function)?;
                        if found[..] != recorded[..] {
                            return Err(format!("op {op}: the captured arguments are not those that were recorded"));
                        }
                    }
                    // Passes behind a library's product have slots of their own; the plan's row is that of the operation.
                    if self.calls[*op].len() == 1 {
                        captured[*op] = Some(**args);
                    }
                }
            }
            Launch::Group { ops, kernel, args } => {
                let found = take(kernel.phases[0].function)?;
                if found[..] != args[..] {
                    return Err(format!("op {}: the captured arguments are not those that were recorded", ops[0]));
                }
                for (op, row) in ops.iter().zip(found.chunks_exact(MAX_ARGS)) {
                    let mut copy = [0; MAX_ARGS];
                    copy.copy_from_slice(row);
                    // What it tells about its neighbours is no address.
                    copy[FLAGS] = 0;
                    captured[*op] = Some(copy);
                }
            }
        }
        Ok(())
    }

    /// The slot of an operation in whose bytes an address lies, or right behind which.
    fn slot_of(&self, op: usize, address: u64) -> Option<usize> {
        let slots = self.compiled.plan.program.ops[op].kind.slots().iter().enumerate();
        let lies_in = |(slot, kind): (usize, &Slot)| {
            let (from, to) = extent(&self.compiled, op, slot, kind.dir)?;
            let start = self.planned[op][slot];
            (start..=start + (to - from)).contains(&address).then_some((start, slot))
        };
        // An address on a border is the beginning of what follows.
        slots.filter_map(lies_in).max().map(|(_, slot)| slot)
    }

    /// Recorded arguments that every replay is held against.
    #[must_use]
    pub fn held_arguments(&self) -> usize {
        self.captured.iter().flatten().flatten().filter(|a| **a != 0).count()
    }

    /// The ledger: the captured addresses against the planned ones.
    pub(super) fn check(&self) -> Result<(), ExecError> {
        if self.base != self.env.memory.base() {
            return Err(ExecError::ArenaMoved { recorded: self.base as usize, found: self.env.memory.base() as usize });
        }
        for (index, (captured, planned)) in self.captured.iter().zip(&self.planned).enumerate() {
            if let Some(captured) = captured
                && captured != planned
                && let Some(slot) = self.stray(index, captured)
            {
                return Err(self.mismatch(index, slot, captured));
            }
        }
        Ok(())
    }

    /// The first captured address that is not the planned one. Of a library's nodes only what was found there is held.
    fn stray(&self, index: usize, captured: &Row) -> Option<usize> {
        let planned = &self.planned[index];
        let held = |slot: usize| captured[slot] != 0 || is_ours(&self.calls, index);
        (0..MAX_ARGS).find(|&slot| captured[slot] != planned[slot] && held(slot))
    }

    #[cold]
    fn mismatch(&self, index: usize, slot: usize, captured: &Row) -> ExecError {
        let planned = &self.planned[index];
        let (expected, found) = (planned[slot] as usize, captured[slot] as usize);
        ExecError::ledger(&self.compiled, index, slot, expected, found)
    }

    /// Moves one captured address by 64 bytes, so that a test can see the ledger catch it.
    pub fn inject_fault(&mut self, op: usize, slot: usize) {
        let row = self.captured[op].get_or_insert(self.planned[op]);
        row[slot] = row[slot].wrapping_add(64);
    }

    /// Takes back [`Self::inject_fault`].
    pub fn mend_fault(&mut self, op: usize, slot: usize) {
        if let Some(row) = &mut self.captured[op] {
            row[slot] = self.planned[op][slot];
        }
    }
}
