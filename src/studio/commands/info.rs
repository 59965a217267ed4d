//! The appearance of a command in menus, tooltips and the palette, and the keys of shortcuts.

use egui::{Key, KeyboardShortcut, Modifiers};

/// The appearance of a command.
#[derive(Clone, Copy, Debug)]
pub struct Info {
    /// What it does, as in a menu; with an ellipsis if a dialog follows.
    pub label: &'static str,
    pub icon: &'static str,
    pub shortcut: Option<KeyboardShortcut>,
    /// The tooltip.
    pub about: &'static str,
}

impl Info {
    /// A command with the keys of its shortcut, if it has one.
    #[must_use]
    pub const fn new(
        label: &'static str,
        icon: &'static str,
        shortcut: Option<KeyboardShortcut>,
        about: &'static str,
    ) -> Self {
        Self { label, icon, shortcut, about }
    }
}

/// A shortcut.
#[must_use]
pub const fn keys(modifiers: Modifiers, key: Key) -> Option<KeyboardShortcut> {
    Some(KeyboardShortcut::new(modifiers, key))
}

pub const CTRL: Modifiers = Modifiers::COMMAND;
pub const CTRL_SHIFT: Modifiers = Modifiers { shift: true, ..Modifiers::COMMAND };
pub const NONE: Modifiers = Modifiers::NONE;
pub const ALT: Modifiers = Modifiers::ALT;
