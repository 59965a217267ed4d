//! The text of shortcuts in tooltips and menus.

use crate::studio::commands::ui_command::UiCommand;
use egui::KeyboardShortcut;

/// The text of a shortcut, with the symbols that are on the keys.
#[must_use]
pub fn keys_text(ctx: &egui::Context, keys: &KeyboardShortcut) -> String {
    ctx.format_shortcut(keys).replace("OpenBracket", "[").replace("CloseBracket", "]")
}

impl UiCommand {
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
}
