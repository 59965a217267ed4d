//! What each command about kept runs does, and what becomes of the desk's answers.

use super::{DeskEvent, ExportOrder, Job, MOST_COMPARED, RunsCommand, size};
use crate::studio::app::StudioApp;
use crate::studio::commands::{Command, Tab};
use crate::studio::fields::counted;
use crate::studio::files::Asked;
use crate::studio::panels::modals::Question;
use crate::train::SessionSpec;
use crate::train::export::{Across, Format, PlotOptions};
use crate::train::runs::{Label, RunEntry};
use std::path::PathBuf;

impl StudioApp {
    /// Carries out a command about kept runs.
    pub(in crate::studio) fn perform_on_runs(&mut self, ctx: &egui::Context, command: RunsCommand) {
        let runs = &mut self.studio.runs;
        let sent = match command {
            RunsCommand::Select(id) => {
                runs.select(id);
                true
            }
            RunsCommand::Show(id) => {
                runs.select(id);
                return self.perform(ctx, Command::ShowTab(Tab::Runs));
            }
            RunsCommand::Toggle(id) => {
                if let Some(at) = runs.selected.iter().position(|s| *s == id) {
                    runs.selected.remove(at);
                } else if runs.selected.len() < MOST_COMPARED {
                    runs.forget(&id);
                    runs.selected.push(id);
                } else {
                    let text = format!("At most {MOST_COMPARED} runs are compared at once. Take one out first.");
                    return self.studio.complain(text);
                }
                runs.selection_changed();
                true
            }
            RunsCommand::ClearSelection => {
                runs.selected.clear();
                runs.selection_changed();
                true
            }
            RunsCommand::SortBy(column) => {
                runs.is_reversed = runs.column == column && !runs.is_reversed;
                runs.column = column;
                runs.make_view();
                true
            }
            RunsCommand::ShowHidden => {
                runs.shows_hidden ^= true;
                runs.make_view();
                true
            }
            RunsCommand::ByTime(by_time) => {
                runs.by_time = by_time;
                true
            }
            RunsCommand::Rename(id, name) => {
                let name = (!name.trim().is_empty()).then(|| name.trim().to_owned());
                let label = runs.entry(&id).map(|e| Label { name, ..e.label.clone() });
                label.is_none_or(|label| runs.give(Job::SetLabel(id, label)))
            }
            RunsCommand::Hide | RunsCommand::Unhide => {
                let hidden = command == RunsCommand::Hide;
                let change = |e: &RunEntry| Job::SetLabel(e.id.clone(), Label { hidden, ..e.label.clone() });
                let jobs: Vec<Job> = runs.selected.iter().filter_map(|id| runs.entry(id)).map(change).collect();
                if hidden && !runs.shows_hidden {
                    runs.selected.clear();
                    runs.selection_changed();
                }
                jobs.into_iter().all(|job| runs.give(job))
            }
            RunsCommand::Delete => {
                let question = Question::DeleteRuns(runs.selected.clone());
                return self.panels.modals.ask(question);
            }
            RunsCommand::DeleteNow(ids) => {
                // It may have begun to train since the question.
                if let Some(why) = self.studio.why_not_deleted(&ids) {
                    return self.studio.complain(why);
                }
                // The run on the Train tab is written as long as it is there.
                if self.studio.training.keeping.id().is_some_and(|own| ids.iter().any(|id| id == own)) {
                    self.studio.training.reset();
                }
                self.studio.runs.give(Job::Delete(ids))
            }
            RunsCommand::Restore => {
                let ids = std::mem::take(&mut runs.deleted);
                ids.is_empty() || runs.give(Job::Restore(ids))
            }
            RunsCommand::Pin => {
                let Some(id) = runs.selected.first().cloned() else { return };
                return self.pin(id);
            }
            RunsCommand::PinRun(id) => return self.pin(id),
            RunsCommand::ShowTrash => {
                runs.shows_trash ^= true;
                let asked = runs.read_trash();
                self.perform(ctx, Command::ShowTab(Tab::Runs));
                asked
            }
            RunsCommand::RestoreRun(id) => runs.give(Job::Restore(vec![id])),
            RunsCommand::Remove(ids) => return self.panels.modals.ask(Question::RemoveRuns(ids)),
            RunsCommand::RemoveNow(ids) => runs.give(Job::Remove(ids)),
            RunsCommand::Unpin => {
                runs.set_baseline(None);
                true
            }
            RunsCommand::OpenPreset => return self.open_run_preset(),
            RunsCommand::Continue => return self.ask_to_continue(ctx),
            RunsCommand::ContinueRun(id) => return self.continue_run(ctx, id),
            RunsCommand::ContinueOwn(id) => return self.continue_own(id),
            RunsCommand::CopyFolder => {
                if let Some(path) = self.run_folder() {
                    ctx.copy_text(path.display().to_string());
                    self.studio.say(format!("Copied {}", path.display()));
                }
                true
            }
            RunsCommand::Export(format) => return self.ask(Asked::Export(format)),
            RunsCommand::ExportTo(format, path) => return self.export_runs(format, path, false),
            RunsCommand::MakeCapsule => return self.ask(Asked::Capsule),
            RunsCommand::MakeCapsuleTo(path) => return self.make_capsule(path, false),
            RunsCommand::ReplayCapsule => return self.ask(Asked::Replay),
            RunsCommand::ReplayCapsuleFile(path) => return self.replay_capsule(path),
            RunsCommand::CancelCapsule => {
                runs.desk.iter().for_each(super::Desk::cancel);
                true
            }
            RunsCommand::DismissReplay => {
                runs.replayed = None;
                true
            }
        };
        if !sent {
            self.studio.complain("Too much is being done with runs at once. Try again.");
        }
    }

    /// Has the lists read again. Where too much is waiting, the next change does it.
    pub(super) fn list_runs(&self) {
        self.studio.runs.give(Job::List);
        let _ = self.studio.runs.read_trash();
    }

    /// Draws this run's curves behind those of the Train tab.
    fn pin(&mut self, id: String) {
        let name = self.studio.runs.name(&id).to_owned();
        self.studio.runs.set_baseline(Some(id));
        self.studio.say(format!("{name} is drawn behind the curves of the Train tab."));
    }

    /// The folder of the first selected run.
    pub(in crate::studio) fn run_folder(&self) -> Option<PathBuf> {
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
                let text = "The preset of this run is of another version and cannot be opened; `stepgraph runs preset` prints it.";
                self.studio.complain(text);
            }
        }
    }

    /// A name for a file that is made of the first selected run, or of the document.
    pub(in crate::studio) fn export_name(&self, what: Asked) -> String {
        let of_run = || self.studio.runs.first().map_or("run", RunEntry::name).replace(['/', '\\', ':'], "-");
        let document = || self.studio.document.preset().name.clone();
        match what {
            Asked::Export(Format::TensorBoard) => format!("{}-events", of_run()),
            Asked::Export(format) => format!("{}.{}", of_run(), format.extension()),
            Asked::Replay => String::new(),
            _ => format!("{}.capsule", document()),
        }
    }

    pub(in crate::studio) fn export_runs(&mut self, format: Format, path: PathBuf, replace: bool) {
        // A name without an extension is meant as one of the format.
        let path = if path.extension().is_none() { path.with_extension(format.extension()) } else { path };
        let runs = &self.studio.runs;
        let across = if runs.by_time { Across::Time } else { Across::Step };
        let options = PlotOptions { across, log: self.studio.settings.log_axis, ..PlotOptions::default() };
        let order = ExportOrder { ids: runs.selected.clone(), format, path, options, replace };
        if !runs.give(Job::Export(order)) {
            self.studio.complain("Too much is being done with runs at once. Try again.");
        }
    }

    pub(in crate::studio) fn make_capsule(&mut self, path: PathBuf, replace: bool) {
        let path = if path.extension().is_none() { path.with_extension("capsule") } else { path };
        let preset = (**self.studio.document.preset()).clone();
        let steps = preset.train.map_or(1000, |t| t.steps as u64);
        let machine = self.studio.devices.here();
        let (target, tuning) = (Some(machine.target.clone()), machine.tuning.clone());
        let spec = SessionSpec { machine: target, tuning, ..SessionSpec::new(preset, self.studio.document.base()) };
        let desk = self.studio.runs.desk.as_ref();
        if desk.is_none_or(|d| !d.make_capsule(spec, steps, path, replace)) {
            self.studio.complain("Another capsule is under way. Wait for it, or cancel it.");
        }
    }

    pub(in crate::studio) fn replay_capsule(&mut self, path: PathBuf) {
        let tuning = self.studio.devices.list().first().and_then(|m| m.tuning.clone());
        self.studio.runs.replayed = None;
        let desk = self.studio.runs.desk.as_ref();
        if desk.is_none_or(|d| !d.replay_capsule(path, tuning)) {
            self.studio.complain("Another capsule is under way. Wait for it, or cancel it.");
        }
    }

    /// Takes in what the desk has to report.
    pub(in crate::studio) fn take_desk_events(&mut self, ctx: &egui::Context) {
        while let Some(event) = self.studio.runs.desk.as_ref().and_then(super::Desk::poll) {
            match event {
                DeskEvent::Listed(list) => {
                    let offered = self.studio.offered_run();
                    self.studio.runs.take_list(list);
                    if let Some((id, name)) = offered
                        && self.studio.runs.problem.is_none()
                        && self.studio.runs.entry(&id).is_none()
                    {
                        self.studio.say(format!("The run {name} was deleted and cannot be continued."));
                    }
                    self.studio.tell_interrupted();
                }
                DeskEvent::Loaded(run) => self.studio.runs.take_curves(run),
                DeskEvent::Continuable(from) => self.go_on(ctx, *from),
                DeskEvent::Gone => self.run_is_gone(),
                DeskEvent::Deleted(ids) => {
                    let text = format!("{} moved to the trash.", counted(ids.len(), "run"));
                    self.studio.offer(text, [RunsCommand::Restore, RunsCommand::ShowTrash].map(Command::Runs).into());
                    self.studio.runs.deleted = ids;
                    self.list_runs();
                }
                DeskEvent::Restored(ids) => {
                    self.studio.say(format!("{} brought back.", counted(ids.len(), "run")));
                    self.studio.runs.deleted.retain(|id| !ids.contains(id));
                    self.list_runs();
                }
                DeskEvent::TrashListed(list) => self.studio.runs.take_trash(list),
                DeskEvent::Removed(ids) => {
                    self.studio.say(format!("{} removed for good.", counted(ids.len(), "run")));
                    self.studio.runs.deleted.retain(|id| !ids.contains(id));
                    self.list_runs();
                }
                DeskEvent::Exported(files) => {
                    let others = if files.len() > 1 {
                        format!(" and {} beside it", counted(files.len() - 1, "file"))
                    } else {
                        String::new()
                    };
                    let first = files.first().map(|f| f.display().to_string()).unwrap_or_default();
                    self.studio.say(format!("Exported {first}{others}"));
                }
                DeskEvent::Exists(order) => {
                    self.panels.modals.ask(Question::Replace(Asked::Export(order.format), order.path));
                }
                DeskEvent::CapsuleExists(path) => self.panels.modals.ask(Question::Replace(Asked::Capsule, path)),
                DeskEvent::CapsuleMade(path, bytes) => {
                    self.studio.say(format!("Capsule of {} written to {}", size(bytes), path.display()));
                }
                DeskEvent::CapsuleCancelled(path) => {
                    self.studio.say(format!("Cancelled. No capsule was written to {}", path.display()));
                }
                DeskEvent::Replayed(path, report) => {
                    let verdict = report.to_string().lines().next().unwrap_or_default().to_owned();
                    if report.is_bit_equal {
                        self.studio.say(verdict)
                    } else {
                        self.studio.complain(verdict)
                    }
                    self.studio.runs.replayed = Some((path, report));
                }
                DeskEvent::Failed(text) => {
                    self.studio.runs.job_failed();
                    self.studio.complain(text);
                }
            }
        }
    }
}
