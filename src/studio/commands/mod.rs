//! Commands: menus, shortcuts, tooltips and the command palette are made from [`UiCommand`]. A [`Request`] comes from
//! the program itself.

pub mod choices;
mod descriptions;
pub mod fold;
pub mod info;
pub mod predictions;
pub mod request;
pub mod runs;
pub mod selection;
pub mod shortcut_text;
pub mod side;
pub mod tab;
pub mod ui_command;

pub use crate::studio::document::dialog::{DataField, DialogPurpose};
pub use crate::studio::document::edit::Edit;
pub use choices::{DeviceChoice, JobKind, TourMove, Weights};
pub use fold::{Fold, FoldCommand};
pub use predictions::{AnswersPage, PredictionsCommand};
pub use request::{Action, Request};
pub use runs::RunsCommand;
pub use selection::Selection;
pub use side::Side;
pub use tab::Tab;
pub use ui_command::{CommandQueue, UiCommand};
