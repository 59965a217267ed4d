//! Shortcuts: how they read, and which commands were asked for by key.

use super::commands::{CTRL, Command, NONE};
use super::runs::RunsCommand;
use super::widgets::keys::runs_id;
use egui::{Key, KeyboardShortcut};

/// A shortcut as a person reads it: signs as they stand on their keys.
pub(super) fn keys_text(ctx: &egui::Context, keys: &KeyboardShortcut) -> String {
    ctx.format_shortcut(keys).replace("OpenBracket", "[").replace("CloseBracket", "]")
}

impl Command {
    /// The tooltip with the shortcut.
    #[must_use]
    pub fn tooltip(&self, ctx: &egui::Context) -> String {
        let info = self.info();
        match info.shortcut {
            Some(keys) => format!("{} ({})", info.about, keys_text(ctx, &keys)),
            None => info.about.to_owned(),
        }
    }

    /// The name with the shortcut: `Continue (Ctrl+F5)`.
    #[must_use]
    pub fn name_with_keys(&self, ctx: &egui::Context) -> String {
        let info = self.info();
        info.shortcut.map_or_else(String::new, |k| format!("{} ({})", info.label, keys_text(ctx, &k)))
    }

    /// The commands whose shortcut was pressed, longer shortcuts first, so that one does not hide another. An open dialog has the keyboard
    /// for itself.
    #[must_use]
    pub fn pressed(ctx: &egui::Context) -> Vec<Self> {
        if ctx.memory(|m| m.top_modal_layer().is_some()) {
            return Vec::new();
        }
        let mut with_keys: Vec<(KeyboardShortcut, Self)> =
            Self::listed().into_iter().filter_map(|c| c.info().shortcut.map(|s| (s, c))).collect();
        with_keys.push((KeyboardShortcut::new(CTRL, Key::K), Self::Palette));
        with_keys.push((KeyboardShortcut::new(CTRL, Key::Y), Self::Redo));
        // In a field, the key is for its text.
        if !ctx.text_edit_focused() {
            let on_runs = ctx.memory(|m| m.has_focus(runs_id()));
            let remove = if on_runs { Self::Runs(RunsCommand::Delete) } else { Self::Remove };
            with_keys.push((KeyboardShortcut::new(NONE, Key::Delete), remove));
        }
        with_keys.sort_by_key(|(s, _)| !(s.modifiers.shift));
        ctx.input_mut(|input| {
            with_keys.into_iter().filter(|(s, _)| input.consume_shortcut(s)).map(|(_, c)| c).collect()
        })
    }
}
