//! The commands whose shortcuts were pressed.

use crate::studio::commands::UiCommand;
use crate::studio::commands::info::{CTRL, NONE};
use crate::studio::commands::runs::RunsCommand;
use crate::studio::widgets::keyboard::runs_id;
use egui::{Key, KeyboardShortcut};

/// The commands whose shortcut was pressed, longer shortcuts first, so that one does not hide another. An open dialog
/// receives all keys.
#[must_use]
pub fn pressed(ctx: &egui::Context) -> Vec<UiCommand> {
    if ctx.memory(|m| m.top_modal_layer().is_some()) {
        return Vec::new();
    }
    let mut with_keys: Vec<(KeyboardShortcut, UiCommand)> =
        UiCommand::listed().into_iter().filter_map(|c| c.info().shortcut.map(|s| (s, c))).collect();
    with_keys.push((KeyboardShortcut::new(CTRL, Key::K), UiCommand::Palette));
    with_keys.push((KeyboardShortcut::new(CTRL, Key::Y), UiCommand::Redo));
    // In a text field, the key edits the text.
    if !ctx.text_edit_focused() {
        let on_runs = ctx.memory(|m| m.has_focus(runs_id()));
        let remove = if on_runs { UiCommand::Runs(RunsCommand::Delete) } else { UiCommand::Remove };
        with_keys.push((KeyboardShortcut::new(NONE, Key::Delete), remove));
    }
    with_keys.sort_by_key(|(s, _)| !(s.modifiers.shift));
    ctx.input_mut(|input| with_keys.into_iter().filter(|(s, _)| input.consume_shortcut(s)).map(|(_, c)| c).collect())
}
