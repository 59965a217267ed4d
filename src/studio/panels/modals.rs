//! Modal dialogs: questions before something is lost, and the path to type if the system has no file dialog.

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

/// The open dialog, if any.
#[derive(Default)]
pub struct Modals {
    path: Option<(DialogPurpose, String, bool)>,
    question: Option<Question>,
    /// A message with its whole text.
    message: Option<Notice>,
    /// True until the first answer of a newly opened dialog has the keyboard focus, so that Enter chooses it.
    fresh: bool,
    /// The control that had the keyboard focus before a dialog, and gets it back afterwards.
    back: Back,
}

/// A decision of the user before something is lost.
#[derive(Clone, Debug, PartialEq)]
pub enum Question {
    /// This would discard unsaved edits.
    Unsaved(Action),
    /// This would discard trained weights that were not saved.
    Weights(Action),
    /// There is another file at the path for a preset or weights.
    Replace(DialogPurpose, PathBuf),
    /// Another program has changed the document's file.
    Changed(PathBuf),
    /// Kept runs would be deleted.
    DeleteRuns(Vec<String>),
    /// Runs in the trash would be deleted permanently.
    RemoveRuns(Vec<String>),
    /// A run would be continued while another network is open: `change` says what differs.
    Continue { id: String, change: String },
}

/// The answer to a question.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    SaveThen(Action),
    DiscardThen(Action),
    SaveWeightsThen(Action),
    LoseWeightsThen(Action),
    /// Yes: performs this.
    Perform(Request),
    /// Cancels this and the action that waited for it.
    Cancel,
}

impl Modals {
    /// Asks for a path.
    pub fn ask_path(&mut self, what: DialogPurpose, start: String) {
        self.path = Some((what, start, true));
    }

    /// Asks a question, which replaces an open one.
    pub fn ask(&mut self, question: Question) {
        (self.question, self.fresh) = (Some(question), true);
    }

    /// Shows a message with its whole text.
    pub fn report(&mut self, message: Notice) {
        (self.message, self.fresh) = (Some(message), true);
    }
}

/// Shows the open dialog; returns its answer.
pub fn modals_ui(ui: &Ui, view: &ModalsView<'_>, modals: &mut Modals) -> Option<Answer> {
    let typed = path_ui(ui, modals);
    message_ui(ui, modals);
    if modals.question.is_none() {
        modals.back.give(ui);
    }
    question_ui(ui, view, modals).or(typed)
}

/// The title of the field for a path, the text of its button, and the hint.
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

/// Shows the field for a path; returns the action for it, or that it was closed without one.
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
            // The text is a proposal: typing replaces it.
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

/// The text of a question: its title, what may be lost, and the answers from right to left, the safe one first.
struct Wording {
    title: String,
    about: String,
    answers: Vec<(&'static str, Answer)>,
}

impl Question {
    /// True if the first answer destroys something that cannot be restored.
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
                    "Another network ends this run; its weights after {} are not saved.",
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
                about: format!("The current contents of {} are lost.", path.display()),
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

/// The question whether kept runs should be deleted.
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
            format!("The run goes to the trash with its curves and weights, and can be restored from there.{open}")
        },
        answers: vec![("Delete", Answer::Perform(Request::DeleteRuns(ids.to_vec()))), cancel],
    }
}

/// The question whether runs in the trash should be deleted permanently.
fn remove_wording(ids: &[String], view: &ModalsView<'_>) -> Wording {
    let cancel = ("Cancel", Answer::Cancel);
    Wording {
        title: match ids {
            [id] => format!("Delete {} permanently?", view.trashed_name(id)),
            _ => format!("Delete {} permanently?", plain_count(ids.len(), "run")),
        },
        about: "The run is removed from the disk with its curves and weights, and cannot be restored.".into(),
        answers: vec![("Delete permanently", Answer::Perform(Request::RemoveRuns(ids.to_vec()))), cancel],
    }
}

/// The question whether a run should be continued with its own network.
fn continue_wording(id: &str, change: &str, view: &ModalsView<'_>) -> Wording {
    let cancel = ("Cancel", Answer::Cancel);
    Wording {
        title: format!("Open the network of {} to continue it?", view.run_name(id).unwrap_or_default()),
        about: format!(
            "The network that is open is another one ({change}), and a run continues with the one \
                     it began with. To train the open one, press Train: that starts a separate run."
        ),
        answers: vec![("Open and continue", Answer::Perform(Request::ContinueInOwnNetwork(id.to_owned()))), cancel],
    }
}

/// Shows a whole message, which can be copied.
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
    // The first answer is at the right end, and the Tab key moves from left to right.
    words.answers.reverse();
    if modals.fresh {
        modals.back.remember(ui);
    }
    let modal = theme::dialog(ui, "question").show(ui.ctx(), |ui| {
        ui.set_width(400.0);
        ui.add(egui::Label::new(RichText::new(words.title).font(theme::strong(15.0))).wrap());
        weak_ui(ui, words.about);
        ui.add_space(8.0);
        // Enter chooses the first answer, unless its effect cannot be undone.
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
