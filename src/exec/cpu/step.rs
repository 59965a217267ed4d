//! A compiled step in memory: run op by op, or recorded and replayed.

use super::call::{Call, KernelImpl, Part};
use super::kernels;
use super::ledger::Ledger;
use super::plant::{plant_in, plant_in_plan};
use crate::compile::Compiled;
use crate::exec::cpu::pool::Pool;
use crate::exec::env::SealedEnv;
use crate::exec::error::ExecError;
use crate::exec::ready_times::{ReadyStage, ReadyTimes};
use crate::exec::store::StepMemory;
use crate::ops::OpKind;
use crate::select::Variant;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

/// A compiled step with its memory.
pub struct Step {
    pub(super) compiled: Arc<Compiled>,
    pub(super) env: SealedEnv,
    calls: Vec<Call>,
    /// Whether any call is shared among threads.
    parallel: bool,
    ledger: Ledger,
    eager: HashMap<(OpKind, Variant), KernelImpl>,
    /// Operations run since tracing began, if it is on.
    trace: Option<Vec<u32>>,
    threads: usize,
    ready_times: ReadyTimes,
}

impl Step {
    /// Seals the memory of a compiled step, and records the calls: every operation is bound to its kernel and
    /// addresses. `threads` is the number of threads of the pools that will run it.
    ///
    /// # Errors
    /// If the memory is not what the step needs.
    pub fn new(compiled: Arc<Compiled>, memory: StepMemory, threads: usize) -> Result<Self, ExecError> {
        let started = Instant::now();
        let compiled = plant_in_plan(compiled);
        // From here on only addresses are requested from the environment.
        let env = SealedEnv::new(memory, &compiled.plan)?;
        let ledger = Ledger::new(&compiled, &env);
        let mut calls = Vec::with_capacity(compiled.plan.program.ops.len());
        for (index, (op, choice)) in compiled.plan.program.ops.iter().zip(&compiled.selection.choices).enumerate() {
            let found = kernels::resolve(&op.kind, choice.variant, threads);
            let found = found.ok_or_else(|| ExecError::MissingKernel { op: index, kernel: choice.kernel.clone() })?;
            let mut call = Call {
                run: found.run,
                op: op.kind.clone(),
                ptr: ledger.row(index).map(|a| a as *mut u8),
                table: found.table,
                phases: found.phases,
                parallel: found.parallel && choice.shared && threads > 1,
                around: None,
            };
            plant_in(&mut call, &compiled, index, true);
            calls.push(call);
        }
        let parallel = calls.iter().any(|c| c.parallel);
        let mut ready_times = ReadyTimes::default();
        ready_times.add(ReadyStage::Bind, started.elapsed());
        Ok(Self { compiled, env, calls, parallel, ledger, eager: HashMap::new(), trace: None, threads, ready_times })
    }

    /// The time that its recording took.
    pub(super) const fn ready_times(&self) -> &ReadyTimes {
        &self.ready_times
    }

    /// Calls of a replay.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.calls.len()
    }

    /// Recorded arguments that every replay compares with the plan's.
    #[must_use]
    pub fn held_arguments(&self) -> usize {
        self.calls.iter().flat_map(|c| c.ptr).filter(|p| !p.is_null()).count()
    }

    /// The results of the compiler that it was made from.
    #[must_use]
    pub fn compiled(&self) -> &Arc<Compiled> {
        &self.compiled
    }

    /// Replays the recording once. Allocates nothing.
    ///
    /// # Errors
    /// If the ledger finds a recorded address that is not that of the plan; then nothing was run.
    pub fn replay(&mut self, pool: &mut Pool) -> Result<(), ExecError> {
        self.ledger.check(&self.calls, &self.env, &self.compiled)?;
        if self.parallel {
            pool.wake();
        }
        for call in &self.calls {
            // SAFETY: the ledger holds, the environment is exclusively ours, and each call is done before the next
            // begins.
            unsafe { run_call(call, pool) };
        }
        if let Some(trace) = &mut self.trace {
            trace.extend(0..self.calls.len() as u32);
        }
        Ok(())
    }

    /// Runs operations `from..to` eagerly: each is looked up, bound and run separately.
    ///
    /// # Errors
    /// If a kernel is missing.
    pub fn run_ops(&mut self, from: usize, to: usize, pool: &mut Pool) -> Result<(), ExecError> {
        for index in from..to.min(self.calls.len()) {
            self.run_op(index, pool)?;
        }
        Ok(())
    }

    fn run_op(&mut self, index: usize, pool: &mut Pool) -> Result<(), ExecError> {
        let compiled = Arc::clone(&self.compiled);
        let (op, choice) = (&compiled.plan.program.ops[index], &compiled.selection.choices[index]);
        let key = (op.kind.clone(), choice.variant);
        let threads = self.threads;
        if !self.eager.contains_key(&key) {
            let found = kernels::resolve(&op.kind, choice.variant, threads);
            let found = found.ok_or_else(|| ExecError::MissingKernel { op: index, kernel: choice.kernel.clone() })?;
            self.eager.insert(key.clone(), found);
        }
        let Some(found) = self.eager.get(&key) else { return Ok(()) };
        let addresses = Ledger::new_row(&compiled, &self.env, index);
        let mut call = Call {
            run: found.run,
            op: key.0,
            ptr: addresses.map(|a| a as *mut u8),
            table: found.table.clone(),
            phases: found.phases,
            parallel: found.parallel && choice.shared && threads > 1,
            around: None,
        };
        plant_in(&mut call, &compiled, index, false);
        if call.parallel {
            pool.wake();
        }
        // SAFETY: the addresses are the plan's.
        unsafe { run_call(&call, pool) };
        if let Some(trace) = &mut self.trace {
            trace.push(index as u32);
        }
        Ok(())
    }

    /// The arena's bytes, to compare.
    #[must_use]
    pub fn arena(&self) -> &[u8] {
        // SAFETY: no step runs while `self` is borrowed by the thread whose turn it is.
        unsafe { self.env.arena() }
    }

    /// Starts or stops recording the ids of executed kernels.
    pub fn set_trace(&mut self, on: bool) {
        self.trace = on.then(|| Vec::with_capacity(self.calls.len() * 4));
    }

    /// The ids of the kernels executed since tracing began.
    #[must_use]
    pub fn trace(&self) -> Vec<String> {
        let ids = self.trace.iter().flatten();
        ids.map(|&op| self.compiled.selection.choices[op as usize].kernel.clone()).collect()
    }

    /// Moves one recorded address by 64 bytes, so that a test can check that the ledger finds it.
    pub fn inject_fault(&mut self, op: usize, slot: usize) {
        let pointer = &mut self.calls[op].ptr[slot];
        *pointer = (*pointer as usize).wrapping_add(64) as *mut u8;
    }

    /// Undoes [`Self::inject_fault`].
    pub fn undo_fault(&mut self, op: usize, slot: usize) {
        self.calls[op].ptr[slot] = self.ledger.row(op)[slot] as *mut u8;
    }

    /// Times each recorded call separately, `rounds` times over the whole list in order; the median of each, in
    /// microseconds.
    ///
    /// # Errors
    /// As [`Self::replay`].
    pub fn time_calls(&mut self, rounds: usize, pool: &mut Pool) -> Result<Vec<f64>, ExecError> {
        self.ledger.check(&self.calls, &self.env, &self.compiled)?;
        let mut samples = vec![vec![0.0; rounds]; self.calls.len()];
        for round in 0..rounds {
            for (call, sample) in self.calls.iter().zip(&mut samples) {
                let started = std::time::Instant::now();
                // SAFETY: the ledger holds.
                unsafe { run_call(call, pool) };
                sample[round] = started.elapsed().as_secs_f64() * 1e6;
            }
        }
        Ok(samples
            .into_iter()
            .map(|mut s| {
                s.sort_by(f64::total_cmp);
                s[s.len() / 2]
            })
            .collect())
    }

    /// The overhead of a replay in addition to its kernels, in microseconds: first the ledger and the calls themselves,
    /// then the same with the synchronisation of the threads at shared calls. Timed over `rounds` replays in which
    /// every kernel is an empty function. Changes no values.
    ///
    /// # Errors
    /// As [`Self::replay`].
    pub fn time_bookkeeping(&mut self, rounds: usize, pool: &mut Pool) -> Result<[f64; 2], ExecError> {
        let shared: Vec<bool> = self.calls.iter_mut().map(|c| std::mem::replace(&mut c.parallel, false)).collect();
        let parallel = std::mem::replace(&mut self.parallel, false);
        let alone = self.time_empty(rounds, pool);
        self.parallel = parallel;
        for (call, shared) in self.calls.iter_mut().zip(shared) {
            call.parallel = shared;
        }
        Ok([alone?, self.time_empty(rounds, pool)?])
    }

    /// The mean time of a replay in which every kernel is an empty function, in microseconds.
    fn time_empty(&mut self, rounds: usize, pool: &mut Pool) -> Result<f64, ExecError> {
        let kernels: Vec<_> = self.calls.iter_mut().map(|c| std::mem::replace(&mut c.run, idle)).collect();
        let started = std::time::Instant::now();
        let outcome = (0..rounds).try_for_each(|_| self.replay(pool));
        let us = started.elapsed().as_secs_f64() * 1e6 / rounds.max(1) as f64;
        for (call, run) in self.calls.iter_mut().zip(kernels) {
            call.run = run;
        }
        outcome.map(|()| us)
    }
}

/// Does nothing; it replaces kernels while the overhead is timed.
///
/// # Safety
/// Always sound; the type is that of kernels.
unsafe fn idle(_: &Call, _: Part) {}

/// Runs a whole call: on this thread alone, or phase by phase on all threads.
///
/// # Safety
/// As [`super::call::KernelFn`].
#[inline]
unsafe fn run_call(call: &Call, pool: &mut Pool) {
    for phase in 0..call.phases {
        if call.parallel {
            // SAFETY: the caller's promise; all parts are done when `share` returns.
            pool.share(phase, &|part| unsafe { (call.run)(call, part) });
        } else {
            // SAFETY: the caller's promise; one part is the whole.
            unsafe { (call.run)(call, Part { index: 0, count: 1, phase }) };
        }
    }
}
