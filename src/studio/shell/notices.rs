//! Messages for the user, with actions for them.

use crate::studio::commands::UiCommand;
use crate::studio::commands::runs::RunsCommand;
use crate::studio::commands::tab::Tab;
use crate::studio::shell::state::Studio;
use crate::studio::view_models::format;
use crate::studio::view_models::notice::Notice;
use crate::train::runs::RunEnd;
use std::sync::Arc;

impl Studio {
    /// Shows a message.
    pub fn say(&mut self, text: impl Into<String>) {
        self.offer(text, Vec::new());
    }

    /// Appends to the shown message, unless that is an error; otherwise shows a new one.
    pub fn say_more(&mut self, text: &str) {
        match &mut self.notice {
            Some(notice) if !notice.is_error => notice.text.push_str(text),
            _ => self.say(text.trim()),
        }
    }

    /// Shows a message with an action.
    pub fn offer(&mut self, text: impl Into<String>, actions: Vec<UiCommand>) {
        self.notice = Some(Notice { text: text.into(), is_error: false, actions, is_of_run: false });
    }

    /// Shows an error.
    pub fn complain(&mut self, text: impl Into<String>) {
        self.complain_with(text, Vec::new());
    }

    /// Shows an error with an action.
    fn complain_with(&mut self, text: impl Into<String>, actions: Vec<UiCommand>) {
        self.notice = Some(Notice { text: text.into(), is_error: true, actions, is_of_run: false });
    }

    /// Shows an error of the run, until it no longer applies.
    fn complain_of_run(&mut self, text: impl Into<String>, actions: Vec<UiCommand>) {
        self.notice = Some(Notice { text: text.into(), is_error: true, actions, is_of_run: true });
    }

    /// Reports errors of the run, and removes those that no longer apply.
    pub(super) fn take_news(&mut self) {
        let preset = Arc::clone(self.document.preset());
        let is_of_preset = !self.training.mistakes_of(&preset).is_empty();
        if let Some(why) = self.training.take_news() {
            if is_of_preset {
                self.samples.reload();
            }
            if !self.shown.contains(&Tab::Train) {
                // If Train was pressed elsewhere, the user sees why it had no effect.
                self.complain_of_run(why, vec![UiCommand::ShowTab(Tab::Train)]);
            }
        }
        // The data was loaded again since, and nothing is wrong with it.
        if is_of_preset && self.samples.is_current && self.is_answered() && self.network.problems == 0 {
            self.training.end_failure();
            if self.training.done() == 0 {
                self.training.reset();
            }
        }
        if self.notice.as_ref().is_some_and(|n| n.is_of_run) && !self.training.failure_applies(&preset) {
            self.notice = None;
        }
    }

    /// Ends the run on the Train tab. If it is kept, that is reported, with a button that shows it once it has a
    /// folder.
    pub(super) fn end_run(&mut self) {
        let run = &self.training;
        let is_kept = run.writer.is_recording() && run.done() > 0;
        let (id, preset) = (run.writer.id().map(str::to_owned), run.preset.clone());
        let stopped_at = run.is_alive().then(|| run.done());
        self.training.reset();
        if !is_kept {
            return;
        }
        let listed = id.as_deref().map(|id| self.runs.name(id)).filter(|name| !name.is_empty());
        let name = listed.map_or_else(|| preset.map_or_else(String::new, |p| p.name.clone()), str::to_owned);
        let (text, last): (_, fn(String) -> RunsCommand) = match stopped_at {
            Some(step) => {
                let step = format::exact(step);
                (format!("Training of {name} was stopped at step {step}; the run is kept."), RunsCommand::ContinueRun)
            }
            None => (format!("The run {name} is kept."), RunsCommand::PinRun),
        };
        let ways = id.map(|id| [RunsCommand::Show(id.clone()), last(id)].map(UiCommand::Runs));
        self.offer(text, ways.into_iter().flatten().collect());
    }

    /// Reports at the start, with the first list of kept runs, that the newest run was interrupted, unless the user has
    /// dismissed that before.
    pub(super) fn report_interrupted(&mut self) {
        if std::mem::replace(&mut self.runs.is_known, self.runs.problem.is_none()) {
            return;
        }
        let Some(run) = self.runs.entries.first() else { return };
        let is_known = run.label.hidden || self.settings.passed_over.as_ref() == Some(&run.id);
        if run.record.state != RunEnd::Interrupted || is_known || self.training.state.is_some() {
            return;
        }
        let way = run.how_to_continue(format::exact).map_or_else(String::new, |way| format!("; {way}"));
        let text = format!("{} was interrupted at step {}{way}.", run.name(), format::exact(run.record.steps));
        let go_on = run.can_continue.then(|| RunsCommand::ContinueRun(run.id.clone()));
        let actions = go_on.into_iter().chain([RunsCommand::Show(run.id.clone())]).map(UiCommand::Runs).collect();
        // Edits that a crash left are reported at the same time.
        let other = self.notice.take().map_or_else(String::new, |n| format!(" {}", n.text));
        self.offer(text + &other, actions);
    }

    /// Dismisses the notice. An interrupted run is not reported again.
    pub(super) fn dismiss_notice(&mut self) {
        let shown = self.notice.take();
        let run = shown.and_then(|n| n.actions.iter().find_map(|a| self.interrupted_run(a)));
        self.settings.passed_over = run.or_else(|| self.settings.passed_over.take());
    }

    /// Another network is open: messages about the previous one are removed, those about the last start are not.
    pub(super) fn forget_notice(&mut self) {
        let shown = self.notice.take();
        self.notice = shown.filter(|n| n.actions.iter().any(|a| self.interrupted_run(a).is_some()));
    }

    /// Id and name of the listed run that the notice offers to continue.
    pub(super) fn offered_run(&self) -> Option<(String, String)> {
        let mut actions = self.notice.iter().flat_map(|n| &n.actions);
        let run = actions.find_map(|a| match a {
            UiCommand::Runs(RunsCommand::ContinueRun(id)) => self.runs.entry(id),
            _ => None,
        })?;
        Some((run.id.clone(), run.name().to_owned()))
    }

    /// The run that a notice about the last start offers to continue.
    fn interrupted_run(&self, action: &UiCommand) -> Option<String> {
        let UiCommand::Runs(RunsCommand::ContinueRun(id)) = action else { return None };
        self.runs.entry(id).filter(|run| run.record.state == RunEnd::Interrupted).map(|run| run.id.clone())
    }
}
