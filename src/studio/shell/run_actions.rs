//! Performs the commands about kept runs, and processes the answers of their thread.

use crate::studio::commands::{DialogPurpose, RunsCommand, Tab, UiCommand};
use crate::studio::panels::modals::Question;
use crate::studio::run::kept::MOST_COMPARED;
use crate::studio::run::kept::service::{CapsuleEvent, ExportOrder, RunJob, RunService, RunServiceEvent};
use crate::studio::shell::app::StudioApp;
use crate::studio::view_models::format::plain_count;
use crate::tensor::Bytes;
use crate::train::SessionSpec;
use crate::train::export::{Across, Format, PlotOptions};
use crate::train::runs::{Label, RunEntry};
use std::path::PathBuf;

impl StudioApp {
    /// Performs commands about kept runs: which are selected, and how they are shown.
    pub(super) fn perform_on_runs(&mut self, ctx: &egui::Context, command: RunsCommand) {
        let runs = &mut self.studio.runs;
        match command {
            RunsCommand::Select(id) => runs.select(id),
            RunsCommand::Show(id) => {
                runs.select(id);
                self.perform(ctx, UiCommand::ShowTab(Tab::Runs));
            }
            RunsCommand::Toggle(id) => {
                if !runs.toggle(id) {
                    let text = format!("At most {MOST_COMPARED} runs are compared at once. Remove one first.");
                    self.studio.complain(text);
                }
            }
            RunsCommand::ClearSelection => runs.clear_selection(),
            RunsCommand::SortBy(column) => runs.sort_by(column),
            RunsCommand::ShowHidden => {
                runs.order.shows_hidden ^= true;
                runs.make_view();
            }
            RunsCommand::ByTime(by_time) => runs.by_time = by_time,
            RunsCommand::Pin => {
                if let Some(id) = runs.selected.first().cloned() {
                    self.pin(id);
                }
            }
            RunsCommand::PinRun(id) => self.pin(id),
            RunsCommand::Unpin => runs.set_baseline(None),
            RunsCommand::DismissReplay => runs.replayed = None,
            RunsCommand::CancelCapsule => runs.service.iter().for_each(RunService::cancel),
            RunsCommand::ShowTrash => {
                runs.trash.is_shown ^= true;
                let is_asked = runs.read_trash();
                self.perform(ctx, UiCommand::ShowTab(Tab::Runs));
                self.report_given(is_asked);
            }
            other => self.change_runs(ctx, other),
        }
    }

    /// Performs commands that change kept runs on the disk, open and continue them, or write files from them.
    fn change_runs(&mut self, ctx: &egui::Context, command: RunsCommand) {
        let runs = &mut self.studio.runs;
        match command {
            RunsCommand::Rename(id, name) => {
                let name = (!name.trim().is_empty()).then(|| name.trim().to_owned());
                let label = runs.entry(&id).map(|e| Label { name, ..e.label.clone() });
                self.give_to_runs(label.map(|label| RunJob::SetLabel(id, label)));
            }
            RunsCommand::Hide => self.hide_selected(true),
            RunsCommand::Unhide => self.hide_selected(false),
            RunsCommand::Delete => self.panels.modals.ask(Question::DeleteRuns(runs.selected.clone())),
            RunsCommand::Restore => {
                let ids = std::mem::take(&mut runs.trash.last);
                self.give_to_runs((!ids.is_empty()).then_some(RunJob::Restore(ids)));
            }
            RunsCommand::RestoreRun(id) => self.give_to_runs([RunJob::Restore(vec![id])]),
            RunsCommand::Remove(ids) => self.panels.modals.ask(Question::RemoveRuns(ids)),
            RunsCommand::OpenPreset => self.open_run_preset(),
            RunsCommand::Continue => self.ask_to_continue(ctx),
            RunsCommand::ContinueRun(id) => self.continue_run(ctx, id),
            RunsCommand::CopyFolder => {
                if let Some(path) = self.run_folder() {
                    ctx.copy_text(path.display().to_string());
                    self.studio.say(format!("Copied {}", path.display()));
                }
            }
            RunsCommand::Export(format) => self.ask(DialogPurpose::Export(format)),
            RunsCommand::MakeCapsule => self.ask(DialogPurpose::Capsule),
            RunsCommand::ReplayCapsule => self.ask(DialogPurpose::Replay),
            _ => {}
        }
    }

    /// Hides the selected runs, or shows them in lists again.
    fn hide_selected(&mut self, hidden: bool) {
        let runs = &mut self.studio.runs;
        let change = |e: &RunEntry| RunJob::SetLabel(e.id.clone(), Label { hidden, ..e.label.clone() });
        let jobs: Vec<RunJob> = runs.selected.iter().filter_map(|id| runs.entry(id)).map(change).collect();
        if hidden && !runs.order.shows_hidden {
            runs.clear_selection();
        }
        self.give_to_runs(jobs);
    }

    /// Moves runs to the trash. One of them may have started to train since the question.
    pub(super) fn delete_runs(&mut self, ids: Vec<String>) {
        if let Some(why) = self.studio.why_not_deleted(&ids) {
            return self.studio.complain(why);
        }
        // The run on the Train tab is being written while it exists.
        if self.studio.training.writer.id().is_some_and(|own| ids.iter().any(|id| id == own)) {
            self.studio.training.reset();
        }
        self.give_to_runs([RunJob::Delete(ids)]);
    }

    /// Passes these jobs to the thread of kept runs; the first one that does not fit is reported, and the rest is
    /// dropped.
    pub(super) fn give_to_runs(&mut self, jobs: impl IntoIterator<Item = RunJob>) {
        let is_given = jobs.into_iter().all(|job| self.studio.runs.give(job));
        self.report_given(is_given);
    }

    fn report_given(&mut self, is_given: bool) {
        if !is_given {
            self.studio.complain("Too many actions on runs are waiting. Try again in a moment.");
        }
    }

    /// Requests the lists again. If too many jobs are waiting, the next change does it.
    pub(super) fn list_runs(&self) {
        self.studio.runs.give(RunJob::List);
        let _ = self.studio.runs.read_trash();
    }

    /// Draws this run's curves behind those of the Train tab.
    fn pin(&mut self, id: String) {
        let name = self.studio.runs.name(&id).to_owned();
        self.studio.runs.set_baseline(Some(id));
        self.studio.say(format!("{name} is drawn behind the curves of the Train tab."));
    }

    /// The folder of the first selected run.
    fn run_folder(&self) -> Option<PathBuf> {
        let runs = &self.studio.runs;
        Some(runs.store.as_ref()?.path(&runs.first()?.id))
    }

    fn open_run_preset(&mut self) {
        let Some(entry) = self.studio.runs.first() else { return };
        match entry.record.read_preset() {
            Some(preset) => {
                let preset = preset.with_whole_paths(&entry.record.base);
                self.open_document(preset, None);
            }
            None => {
                let text = "The preset of this run is of another version and cannot be opened; `stepgraph runs preset` \
                            prints it.";
                self.studio.complain(text);
            }
        }
    }

    /// A file name for the first selected run, or for the document.
    pub(super) fn export_name(&self, what: DialogPurpose) -> String {
        let of_run = || self.studio.runs.first().map_or("run", RunEntry::name).replace(['/', '\\', ':'], "-");
        let document = || self.studio.document.preset().name.clone();
        match what {
            DialogPurpose::Export(Format::TensorBoard) => format!("{}-events", of_run()),
            DialogPurpose::Export(format) => format!("{}.{}", of_run(), format.extension()),
            DialogPurpose::Replay => String::new(),
            _ => format!("{}.capsule", document()),
        }
    }

    pub(super) fn export_runs(&mut self, format: Format, path: PathBuf, replace: bool) {
        // A name without an extension gets that of the format.
        let path = if path.extension().is_none() { path.with_extension(format.extension()) } else { path };
        let runs = &self.studio.runs;
        let across = if runs.by_time { Across::Time } else { Across::Step };
        let options = PlotOptions { across, log: self.studio.settings.log_axis, ..PlotOptions::default() };
        let order = ExportOrder { ids: runs.selected.clone(), format, path, options, replace };
        if !runs.give(RunJob::Export(order)) {
            self.studio.complain("Too many actions on runs are waiting. Try again in a moment.");
        }
    }

    pub(super) fn make_capsule(&mut self, path: PathBuf, replace: bool) {
        let path = if path.extension().is_none() { path.with_extension("capsule") } else { path };
        let preset = (**self.studio.document.preset()).clone();
        let steps = preset.train.map_or(1000, |t| t.steps as u64);
        let machine = self.studio.devices.here();
        let (target, tuning) = (Some(machine.target.clone()), machine.tuning.clone());
        let spec = SessionSpec { machine: target, tuning, ..SessionSpec::new(preset, self.studio.document.base()) };
        let service = self.studio.runs.service.as_ref();
        if service.is_none_or(|d| !d.make_capsule(spec, steps, path, replace)) {
            self.studio.complain("Another capsule is being made or replayed. Wait for it, or cancel it.");
        }
    }

    pub(super) fn replay_capsule(&mut self, path: PathBuf) {
        let tuning = self.studio.devices.list().first().and_then(|m| m.tuning.clone());
        self.studio.runs.replayed = None;
        let service = self.studio.runs.service.as_ref();
        if service.is_none_or(|d| !d.replay_capsule(path, tuning)) {
            self.studio.complain("Another capsule is being made or replayed. Wait for it, or cancel it.");
        }
    }

    /// Receives results from the thread of kept runs.
    pub(super) fn take_run_events(&mut self, ctx: &egui::Context) {
        while let Some(event) = self.studio.runs.service.as_ref().and_then(RunService::poll) {
            match event {
                RunServiceEvent::Listed(list) => self.take_run_list(list),
                RunServiceEvent::Loaded(run) => self.studio.runs.take_curves(run),
                RunServiceEvent::Continuable(from) => self.continue_from(ctx, *from),
                RunServiceEvent::Gone => self.run_is_gone(),
                RunServiceEvent::Deleted(ids) => {
                    let text = format!("{} moved to the trash.", plain_count(ids.len(), "run"));
                    let ways = [RunsCommand::Restore, RunsCommand::ShowTrash].map(UiCommand::Runs);
                    self.studio.offer(text, ways.into());
                    self.studio.runs.trash.last = ids;
                    self.list_runs();
                }
                RunServiceEvent::Restored(ids) => self.runs_left_trash(&ids, "brought back"),
                RunServiceEvent::TrashListed(list) => self.studio.runs.take_trash(list),
                RunServiceEvent::Removed(ids) => self.runs_left_trash(&ids, "deleted permanently"),
                RunServiceEvent::Exported(files) => {
                    let others = if files.len() > 1 {
                        format!(" and {} beside it", plain_count(files.len() - 1, "file"))
                    } else {
                        String::new()
                    };
                    let first = files.first().map(|f| f.display().to_string()).unwrap_or_default();
                    self.studio.say(format!("Exported {first}{others}"));
                }
                RunServiceEvent::Exists(order) => {
                    self.panels.modals.ask(Question::Replace(DialogPurpose::Export(order.format), order.path));
                }
                RunServiceEvent::Capsule(event) => self.take_capsule_event(event),
                RunServiceEvent::Failed(text) => {
                    self.studio.runs.job_failed();
                    self.studio.complain(text);
                }
            }
        }
    }

    /// Receives the list of kept runs. The run that a notice offers to continue may not exist any more.
    fn take_run_list(&mut self, list: Result<Vec<RunEntry>, String>) {
        let offered = self.studio.offered_run();
        self.studio.runs.take_list(list);
        if let Some((id, name)) = offered
            && self.studio.runs.problem.is_none()
            && self.studio.runs.entry(&id).is_none()
        {
            self.studio.say(format!("The run {name} was deleted and cannot be continued."));
        }
        self.studio.report_interrupted();
    }

    fn runs_left_trash(&mut self, ids: &[String], what: &str) {
        self.studio.say(format!("{} {what}.", plain_count(ids.len(), "run")));
        self.studio.runs.trash.last.retain(|id| !ids.contains(id));
        self.list_runs();
    }

    fn take_capsule_event(&mut self, event: CapsuleEvent) {
        match event {
            CapsuleEvent::Exists(path) => self.panels.modals.ask(Question::Replace(DialogPurpose::Capsule, path)),
            CapsuleEvent::Made(path, bytes) => {
                self.studio.say(format!("Capsule of {} written to {}", Bytes(bytes), path.display()));
            }
            CapsuleEvent::Cancelled(path) => {
                self.studio.say(format!("Cancelled. No capsule was written to {}", path.display()));
            }
            CapsuleEvent::Replayed(path, report) => {
                let verdict = report.to_string().lines().next().unwrap_or_default().to_owned();
                if report.bits.is_bit_equal {
                    self.studio.say(verdict)
                } else {
                    self.studio.complain(verdict)
                }
                self.studio.runs.replayed = Some((path, report));
            }
        }
    }
}
