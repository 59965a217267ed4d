//! What the window has measured, checked and read: of which network, which buffer, after which operation.

use crate::ops::Dir;
use crate::studio::commands::UiCommand;
use crate::studio::commands::selection::Selection;
use crate::studio::commands::tab::Tab;
use crate::studio::jobs::planned_network::PlannedNetwork;
use crate::studio::shell::state::Studio;
use crate::studio::view_models::values::{Place, ShownValues};
use crate::train::{Proof, VerifyOptions};
use std::sync::Arc;

impl Studio {
    /// True if the device of the plan exists here.
    pub(super) fn is_here(&self) -> bool {
        self.devices.current().trains()
    }

    /// True if the plan belongs to the document on screen.
    pub(super) const fn is_planned(&self) -> bool {
        self.plan.is_some() && !self.is_plan_stale()
    }

    /// The network on screen with the shown plan, for measurements; `None` if it has no plan.
    #[must_use]
    pub fn planned_network(&self) -> Option<PlannedNetwork> {
        let plan = self.plan_shown().filter(|_| self.is_planned())?;
        Some(PlannedNetwork {
            revision: self.revision_shown(),
            preset: Arc::clone(self.document.preset()),
            base: self.document.base(),
            machine: Arc::clone(self.devices.current()),
            plan: Arc::clone(plan),
        })
    }

    /// How the step on screen is checked.
    fn verify_options(&self) -> VerifyOptions {
        let machine = self.devices.here();
        VerifyOptions {
            replays: self.settings.replays,
            threads: machine.target.as_cpu().map_or(1, |cpu| cpu.threads),
            machine: Some(machine.target.clone()),
            tuning: machine.tuning.clone(),
            base: self.document.base(),
            seed: self.document.preset().train.map_or(0, |t| t.seed),
            ..VerifyOptions::default()
        }
    }

    /// Requests the estimated cost of the checks that could be run now.
    pub(super) fn ask_price(&mut self) {
        if self.shown.contains(&Tab::Verify) && self.is_ready() && !self.proofs.is_running() {
            let options = self.verify_options();
            self.proofs.want_price(self.document.revision(), self.document.preset(), options, &self.wake);
        }
    }

    /// The buffer whose values are shown: the selected one, or the first one that the selected operation writes.
    #[must_use]
    pub fn looked_at(&self) -> Option<crate::plan::BufferId> {
        self.place_looked_at().map(|p| p.buffer)
    }

    /// The place of the shown values, and the number of operations that are run before.
    #[must_use]
    pub fn place_looked_at(&self) -> Option<Place> {
        let plan = &self.plan_shown()?.compiled.plan;
        let (buffer, part) = match self.selection.current() {
            Selection::Buffer(id) => (*id, 0),
            Selection::Part(id, part) => (*id, *part),
            Selection::Op(op) | Selection::Call(op) => {
                let value = plan.program.ops.get(*op)?.writes().next()?;
                let (buffer, parts) = plan.parts_of(value)?;
                (buffer, parts.start)
            }
            _ => return None,
        };
        Some(Place { buffer, part, ops: self.ops_done() })
    }

    /// The shown values, if they are known.
    #[must_use]
    pub fn values_shown(&self) -> Option<&ShownValues> {
        let (values, buffer) = (&self.measurements.values, self.looked_at()?);
        let shown = values.shown.as_deref()?;
        let is_it =
            (shown.revision, shown.place.buffer, shown.place.part) == (self.revision_shown(), buffer, values.cut.part);
        is_it.then_some(shown)
    }

    /// The number of operations that are run before values are read: up to the scrubber, up to the selected operation,
    /// or up to the last one that writes the selected buffer.
    fn ops_done(&self) -> usize {
        let Some(plan) = self.plan_shown() else { return 0 };
        let after = |op: usize| (op + 1).min(plan.ops.len());
        match (self.measurements.scrub, self.selection.current()) {
            (Some(op), _) => after(op),
            (None, Selection::Op(op) | Selection::Call(op)) => after(*op),
            (None, Selection::Buffer(id)) => {
                let buffer = plan.compiled.plan.buffers.get(id.0 as usize);
                buffer.and_then(|b| b.writers.last()).map_or(0, |w| w + 1)
            }
            (None, Selection::Part(id, part)) => {
                plan.compiled.plan.ops_of_part(*id, *part, Dir::Out).last().map_or(0, |w| w + 1)
            }
            _ => plan.ops.len(),
        }
    }

    /// Makes the run copy its weights if they are shown: for a resting run the current ones, for a running one those at
    /// the time of the request.
    fn take_snapshot(&mut self) {
        let (run, done) = (self.training.run, self.training.done());
        self.measurements.values.has_run = done > 0 && !self.is_stale();
        let known =
            self.measurements.snapshot_of.is_some_and(|(r, d)| r == run && (d == done || self.training.is_running()));
        if known
            || self.measurements.values.wanted() != crate::studio::commands::choices::Weights::Run
            || !self.training.has_weights()
        {
            return;
        }
        self.measurements.snapshot_of = Some((run, done));
        self.training.send(crate::train::Command::TakeSnapshot);
    }

    pub(super) fn ask_measurements(&mut self) {
        if let Some(problem) = self.measurements.poll() {
            self.complain(problem);
        }
        if !self.measurements.values.on || self.shows_recording() {
            return;
        }
        if !self.is_here() {
            let why = "This plan is for a device that is not here. Choose another one at the top to look at values.";
            self.measurements.values.problem = Some(why.into());
            return;
        }
        self.take_snapshot();
        let Some(network) = self.planned_network() else { return };
        let (place, revision) = (self.place_looked_at(), self.revision_shown());
        if let Err(error) = self.measurements.follow(|| network, revision, place, self.training.snapshot.as_ref()) {
            self.measurements.values.problem = Some(format!("Values cannot be shown: {error}"));
        }
    }

    /// Performs commands about measurements, values and checks.
    pub(super) fn measure(&mut self, command: UiCommand) {
        let values = &mut self.measurements.values;
        match command {
            UiCommand::MeasureOps | UiCommand::ComparePlans | UiCommand::FindFirstBad => {
                self.begin_measurement(&command)
            }
            UiCommand::Prove(proof) => self.prove(proof),
            UiCommand::CancelProofs => self.proofs.cancel(),
            UiCommand::SetReplays(replays) => self.settings.replays = replays,
            UiCommand::CancelJob(kind) => self.cancel_job(kind),
            UiCommand::MeasurePrices => {
                let (preset, base) = (Arc::clone(self.document.preset()), self.document.base());
                self.prices.measure(preset, base, self.devices.here(), self.document.revision());
            }
            UiCommand::Scrub(op) => self.measurements.scrub = op,
            UiCommand::ShowValues => values.on ^= true,
            UiCommand::ShowSlice(slice) => values.cut.slice = slice,
            UiCommand::ShowPart(part) => values.cut.part = part,
            UiCommand::UseWeights(weights) => {
                values.weights = Some(weights);
                // Those of a resumed run are read again.
                self.measurements.snapshot_of = None;
            }
            UiCommand::SelectLargestBuffer => {
                if let Some(id) = self.plan_shown().and_then(|p| p.arena.largest.first().copied()) {
                    self.selection.select(Selection::Buffer(id));
                }
            }
            _ => {}
        }
    }

    /// Starts work on a separate thread.
    fn begin_measurement(&mut self, command: &UiCommand) {
        let Some(network) = self.planned_network() else { return };
        let begun = match command {
            UiCommand::MeasureOps => self.measurements.measure(network),
            UiCommand::ComparePlans => self.measurements.compare(network),
            _ => self.measurements.find_first_bad(network, self.training.snapshot.as_ref()),
        };
        if let Err(error) = begun {
            self.complain(format!("No thread could be started for this: {error}. Close other programs and try again."));
        }
    }

    /// Runs one check of the document's step, or all checks.
    fn prove(&mut self, proof: Option<Proof>) {
        let (preset, options) = (Arc::clone(self.document.preset()), self.verify_options());
        let proofs = proof.map_or_else(|| Proof::ALL.to_vec(), |p| vec![p]);
        let (revision, wake) = (self.document.revision(), Arc::clone(&self.wake));
        if let Err(error) = self.proofs.start(preset, options, proofs, revision, wake) {
            self.complain(format!("The checks cannot be run: {error}. Close other programs and try again."));
        }
    }
}
