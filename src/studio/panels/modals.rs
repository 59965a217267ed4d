//! Questions over everything else: what would be lost, and a path to type where the system has no file
//! dialog.

use crate::studio::commands::{Action, DialogPurpose, Request};
use crate::studio::theme;
use crate::studio::view_models::format::plain_count;
use crate::studio::view_models::notice::Notice;
use crate::studio::view_models::panels::modals::ModalsView;
use crate::studio::widgets::button::{answers_ui, weak_ui};
use crate::studio::widgets::keyboard::Back;
use crate::train::export::Format;
use egui::text::{CCursor, CCursorRange};
use egui::{Key, RichText, ScrollArea, TextEdit, Ui};
use std::path::{Path, PathBuf};

/// The question that is open, if any.
#[derive(Default)]
pub struct Modals {
    path: Option<(DialogPurpose, String, bool)>,
    question: Option<Question>,
    /// A message with its whole text.
    message: Option<Notice>,
    /// True until the first answer of what was just opened has the keyboard: Enter gives it.
    fresh: bool,
    /// What had the keyboard before a question, and has it again behind it.
    back: Back,
}

/// What the user must decide before anything is lost.
#[derive(Clone, Debug, PartialEq)]
pub enum Question {
    /// This would lose edits that were not saved.
    Unsaved(Action),
    /// This would lose trained weights that were not saved.
    Weights(Action),
    /// Another file is where a preset or weights are to be written.
    Replace(DialogPurpose, PathBuf),
    /// The document's file was changed by others.
    Changed(PathBuf),
    /// Kept runs are to be deleted.
    DeleteRuns(Vec<String>),
    /// Runs in the trash are to be removed for good.
    RemoveRuns(Vec<String>),
    /// A run is to be continued, and another network is open: `change` says what is different in it.
    Continue { id: String, change: String },
}

/// The answer to a question.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    SaveThen(Action),
    DiscardThen(Action),
    SaveWeightsThen(Action),
    LoseWeightsThen(Action),
    /// Yes: this is to happen.
    Perform(Request),
    /// Nothing is to happen, nor what waited for it.
    Cancel,
}

impl Modals {
    /// Asks for a path.
    pub fn ask_path(&mut self, what: DialogPurpose, start: String) {
        self.path = Some((what, start, true));
    }

    /// Asks a question, in place of one that is open.
    pub fn ask(&mut self, question: Question) {
        (self.question, self.fresh) = (Some(question), true);
    }

    /// Shows a message with its whole text.
    pub fn report(&mut self, message: Notice) {
        (self.message, self.fresh) = (Some(message), true);
    }
}

/// Shows the open question; gives its answer.
pub fn modals_ui(ui: &Ui, view: &ModalsView<'_>, modals: &mut Modals) -> Option<Answer> {
    let typed = path_ui(ui, modals);
    message_ui(ui, modals);
    if modals.question.is_none() {
        modals.back.give(ui);
    }
    question_ui(ui, view, modals).or(typed)
}

/// The title of the field for a path, its button, and what to type.
const fn path_words(what: DialogPurpose) -> (&'static str, &'static str, &'static str) {
    match what {
        DialogPurpose::Open => ("Open a preset by its path", "Open", "Type the path of a .json file."),
        DialogPurpose::SaveAs => ("Save the preset by its path", "Save", "Type the path of a .json file."),
        DialogPurpose::Data(_) => ("Choose a file of data by its path", "Use", "Type the path of the file."),
        DialogPurpose::DataFolder(_) => (
            "Choose a folder of pictures by its path",
            "Use",
            "Type the path of a folder with a subfolder for each class.",
        ),
        DialogPurpose::Weights => ("Save the weights by their path", "Save", "Type the path of a .safetensors file."),
        DialogPurpose::Export(Format::TensorBoard) => {
            ("Export the run by path", "Export", "Type the path of a folder for TensorBoard.")
        }
        DialogPurpose::Export(_) => ("Export the run by path", "Export", "Type the path of the file to write."),
        DialogPurpose::Capsule => ("Make a capsule by its path", "Make", "Type the path of a .capsule file."),
        DialogPurpose::Replay => ("Replay a capsule by its path", "Replay", "Type the path of a .capsule file."),
    }
}

/// Shows the field for a path; gives what is to be done with it, or that it was closed without one.
fn path_ui(ui: &Ui, modals: &mut Modals) -> Option<Answer> {
    let (what, text, fresh) = modals.path.as_mut()?;
    let (title, action, hint) = path_words(*what);
    let modal = theme::dialog(ui, "path").show(ui.ctx(), |ui| {
        ui.set_width(480.0);
        ui.label(RichText::new(title).font(theme::strong(15.0)));
        weak_ui(ui, hint);
        ui.add_space(8.0);
        let edit = TextEdit::singleline(text).desired_width(f32::INFINITY).font(theme::mono()).id_salt("typed path");
        let mut shown = ui.name_inputs("Path", |ui| edit.show(ui));
        let response = shown.response.response;
        if std::mem::take(fresh) {
            response.request_focus();
            // What is there is a proposal: the first letter takes its place.
            let all = CCursorRange::two(CCursor::default(), CCursor::new(text.chars().count()));
            shown.state.cursor.set_char_range(Some(all));
            shown.state.store(ui.ctx(), response.id);
        }
        let entered = response.lost_focus() && ui.input(|i| i.key_pressed(Key::Enter));
        ui.add_space(8.0);
        let sound = !text.trim().is_empty();
        let given = answers_ui(ui, &["Cancel", action], |button, _| button.clicked());
        ((given == Some(1) || entered) && sound, given == Some(0))
    });
    let (go, cancel) = modal.inner;
    let closed = cancel || modal.should_close();
    let answer = match (go, closed) {
        (true, _) => Some(Answer::Perform(what.request(PathBuf::from(text.trim()), false))),
        (false, true) => Some(Answer::Cancel),
        (false, false) => None,
    };
    if answer.is_some() {
        modals.path = None;
    }
    answer
}

/// A question in words: its title, what is at stake, and the answers from right to left, the safe way on first.
struct Wording {
    title: String,
    about: String,
    answers: Vec<(&'static str, Answer)>,
}

impl Question {
    /// True where the first answer destroys what cannot be had back.
    const fn is_final(&self) -> bool {
        matches!(self, Self::RemoveRuns(_))
    }

    fn wording(&self, view: &ModalsView<'_>) -> Wording {
        let name = |path: &Path| path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        let cancel = ("Cancel", Answer::Cancel);
        match self {
            Self::Unsaved(then) => Wording {
                title: format!("Save the changes to {}?", view.document),
                about: "Without saving, the edits since the last save are lost.".into(),
                answers: vec![
                    ("Save changes", Answer::SaveThen(then.clone())),
                    cancel,
                    ("Discard changes", Answer::DiscardThen(then.clone())),
                ],
            },
            Self::Weights(then) => Wording {
                title: "Save the trained weights first?".into(),
                about: format!(
                    "Another network ends this run; its weights after {} are saved nowhere.",
                    plain_count(usize::try_from(view.steps_done).unwrap_or(usize::MAX), "step")
                ),
                answers: vec![
                    ("Save weights first", Answer::SaveWeightsThen(then.clone())),
                    cancel,
                    ("Continue without", Answer::LoseWeightsThen(then.clone())),
                ],
            },
            Self::DeleteRuns(ids) => delete_wording(ids, view),
            Self::RemoveRuns(ids) => remove_wording(ids, view),
            Self::Continue { id, change } => continue_wording(id, change, view),
            Self::Replace(what, path) => Wording {
                title: format!("{} exists. Replace it?", name(path)),
                about: format!("What is in {} now is lost.", path.display()),
                answers: vec![("Replace", Answer::Perform(what.request(path.clone(), true))), cancel],
            },
            Self::Changed(path) => Wording {
                title: format!("{} changed on disk. Save anyway?", name(path)),
                about: "Another program wrote it since it was opened or saved here; saving replaces what it wrote."
                    .into(),
                answers: vec![
                    ("Save anyway", Answer::Perform(Request::Save { path: path.clone(), replace: true })),
                    cancel,
                ],
            },
        }
    }
}

/// Whether kept runs are to be deleted.
fn delete_wording(ids: &[String], view: &ModalsView<'_>) -> Wording {
    let cancel = ("Cancel", Answer::Cancel);
    Wording {
        title: match ids {
            [id] => format!("Delete {}?", view.run_name(id).unwrap_or(id)),
            _ => format!("Delete {}?", plain_count(ids.len(), "run")),
        },
        about: {
            let is_open = view.trained_run.is_some_and(|own| ids.iter().any(|id| id == own));
            let open = if is_open { " The Train tab, which shows this run, is reset." } else { "" };
            format!("Curves, weights and all go to the trash, from which they can be brought back.{open}")
        },
        answers: vec![("Delete", Answer::Perform(Request::DeleteRuns(ids.to_vec()))), cancel],
    }
}

/// Whether runs in the trash are to be removed for good.
fn remove_wording(ids: &[String], view: &ModalsView<'_>) -> Wording {
    let cancel = ("Cancel", Answer::Cancel);
    Wording {
        title: match ids {
            [id] => format!("Delete {} for good?", view.trashed_name(id)),
            _ => format!("Delete {} for good?", plain_count(ids.len(), "run")),
        },
        about: "Curves, weights and all are removed from the disk and cannot be brought back.".into(),
        answers: vec![("Delete for good", Answer::Perform(Request::RemoveRuns(ids.to_vec()))), cancel],
    }
}

/// Whether a run is to be continued in its own network.
fn continue_wording(id: &str, change: &str, view: &ModalsView<'_>) -> Wording {
    let cancel = ("Cancel", Answer::Cancel);
    Wording {
        title: format!("Open the network of {} to continue it?", view.run_name(id).unwrap_or_default()),
        about: format!(
            "The network that is open is another one ({change}), and a run continues with the one \
                     it began with. To train the open one, press Train: that begins a run of its own."
        ),
        answers: vec![("Open and continue", Answer::Perform(Request::ContinueInOwnNetwork(id.to_owned()))), cancel],
    }
}

/// Shows a message whole, to read and to copy.
fn message_ui(ui: &Ui, modals: &mut Modals) {
    let Some(message) = &modals.message else { return };
    let modal = theme::dialog(ui, "message").show(ui.ctx(), |ui| {
        ui.set_width(520.0_f32.min(ui.ctx().content_rect().width() - 64.0));
        let title = if message.is_error { "What went wrong" } else { "Message" };
        ui.label(RichText::new(title).font(theme::strong(15.0)));
        ui.add_space(4.0);
        let most = (ui.ctx().content_rect().height() - 200.0).max(80.0);
        ScrollArea::vertical().max_height(most).auto_shrink([false, true]).show(ui, |ui| {
            ui.add(egui::Label::new(&message.text).wrap().selectable(true));
        });
        ui.add_space(8.0);
        let given = answers_ui(ui, &["Copy text", "Close"], |button, n| {
            if n == 1 && std::mem::take(&mut modals.fresh) {
                button.request_focus();
            }
            button.clicked()
        });
        if given == Some(0) {
            ui.ctx().copy_text(message.text.clone());
        }
        given == Some(1)
    });
    if modal.inner || modal.should_close() {
        modals.message = None;
    }
}

fn question_ui(ui: &Ui, view: &ModalsView<'_>, modals: &mut Modals) -> Option<Answer> {
    let question = modals.question.as_ref()?;
    let (mut words, is_final) = (question.wording(view), question.is_final());
    // The first answer is at the right end, and the keyboard goes from left to right.
    words.answers.reverse();
    if modals.fresh {
        modals.back.remember(ui);
    }
    let modal = theme::dialog(ui, "question").show(ui.ctx(), |ui| {
        ui.set_width(400.0);
        ui.add(egui::Label::new(RichText::new(words.title).font(theme::strong(15.0))).wrap());
        weak_ui(ui, words.about);
        ui.add_space(8.0);
        // Enter gives the first answer, but never one that nothing brings back.
        let safe = words.answers.iter().rposition(|(_, answer)| !is_final || *answer == Answer::Cancel);
        let labels: Vec<&str> = words.answers.iter().map(|(label, _)| *label).collect();
        let given = answers_ui(ui, &labels, |button, n| {
            if safe == Some(n) && std::mem::take(&mut modals.fresh) {
                button.request_focus();
            }
            button.clicked()
        });
        given.and_then(|n| words.answers.into_iter().nth(n)).map(|(_, answer)| answer)
    });
    let closed = modal.should_close();
    let given = modal.inner.or(closed.then_some(Answer::Cancel));
    if given.is_some() {
        modals.question = None;
        ui.ctx().request_repaint();
    }
    given
}
