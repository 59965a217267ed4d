//! The command palette: finds any command, or a layer to add, by a few letters.

use crate::model::LayerKind;
use crate::studio::commands::shortcut_text::keys_text;
use crate::studio::commands::{CommandQueue, UiCommand};
use crate::studio::theme;
use crate::studio::view_models::readiness::EnabledCommands;
use crate::studio::widgets::button::{named, weak_ui};
use crate::studio::widgets::keyboard::{Back, layers_id};
use egui::{Button, Key, RichText, ScrollArea, TextEdit, Ui, Vec2};

/// An entry of the palette.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    Commands,
    Layers,
}

/// The palette, closed unless entries are offered.
#[derive(Default)]
pub struct Palette {
    offer: Option<Offer>,
    query: String,
    chosen: usize,
    fresh: bool,
    back: Back,
}

/// How well a command matches the query, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// The query is its own name, such as `Residual` for `Add layer: Residual`.
    Name,
    NameBegins,
    /// A word of the command's name starts with the query.
    WordBegins,
    NameHolds,
    TitleHolds,
    /// Every word of the query is the start of a word in the title or the description.
    Words,
    /// The letters of the query occur in the title in order.
    Letters,
}

/// The letters and digits of a text, word by word.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric()).filter(|w| !w.is_empty())
}

/// How well a command with this name, title and description matches a query; `None` if it does not. Case is ignored.
fn rank(name: &str, title: &str, about: &str, query: &str) -> Option<Rank> {
    let [name, title, about, query] = [name, title, about, query.trim()].map(str::to_lowercase);
    let begins = |word: &str| words(&title).chain(words(&about)).any(|w| w.starts_with(word));
    let mut rest = title.chars();
    Some(match () {
        () if name == query => Rank::Name,
        () if name.starts_with(&query) => Rank::NameBegins,
        () if words(&name).any(|w| w.starts_with(&query)) => Rank::WordBegins,
        () if name.contains(&query) => Rank::NameHolds,
        () if title.contains(&query) => Rank::TitleHolds,
        () if words(&query).all(begins) => Rank::Words,
        () if query.chars().filter(|c| !c.is_whitespace()).all(|c| rest.any(|t| t == c)) => Rank::Letters,
        () => return None,
    })
}

impl Palette {
    /// Opens it with an empty search.
    pub fn open(&mut self, offer: Offer) {
        let back = std::mem::take(&mut self.back);
        *self = Self { offer: Some(offer), query: String::new(), chosen: 0, fresh: true, back };
    }

    fn matches(&self, offer: Offer, enabled: &EnabledCommands) -> Vec<UiCommand> {
        let all = match offer {
            Offer::Commands => UiCommand::listed(),
            Offer::Layers => LayerKind::ALL.map(UiCommand::AddKind).into(),
        };
        let ranked = |c: UiCommand| {
            let (_, own) = c.kind_and_name();
            rank(&own, &name(&c, offer), c.info().about, &self.query).map(|r| (r, c))
        };
        let mut found: Vec<(Rank, UiCommand)> = all.into_iter().filter(|c| enabled.has(c)).filter_map(ranked).collect();
        found.sort_by_key(|(r, _)| *r);
        // Matches of scattered letters are offered only if there are no better ones.
        if found.first().is_some_and(|(best, _)| *best < Rank::Letters) {
            found.retain(|(r, _)| *r < Rank::Letters);
        }
        found.into_iter().map(|(_, c)| c).collect()
    }
}

/// The name for assistive tools.
fn name(command: &UiCommand, offer: Offer) -> String {
    if offer == Offer::Layers { command.kind_and_name().1 } else { command.title() }
}

/// Shows the palette if it is open.
pub fn palette_ui(ui: &Ui, enabled: &EnabledCommands, palette: &mut Palette, commands: &mut CommandQueue) {
    let Some(offer) = palette.offer else { return palette.back.give(ui) };
    let modal = theme::dialog(ui, "palette").show(ui.ctx(), |ui| {
        ui.set_width(440.0);
        let hint = if offer == Offer::Layers { "Add a layer" } else { "Type a command" };
        let keys = ui.input_mut(|i| {
            let none = egui::Modifiers::NONE;
            [Key::ArrowDown, Key::ArrowUp, Key::Enter].map(|k| i.consume_key(none, k))
        });
        let edit = TextEdit::singleline(&mut palette.query)
            .hint_text(hint)
            .desired_width(f32::INFINITY)
            .id_salt("palette query");
        let response = ui.name_inputs(hint, |ui| ui.add(edit));
        if std::mem::take(&mut palette.fresh) {
            palette.back.remember(ui);
            response.request_focus();
        }
        if response.changed() {
            palette.chosen = 0;
        }
        let found = palette.matches(offer, enabled);
        if found.is_empty() {
            ui.add_space(4.0);
            weak_ui(ui, "No command has this name. Try fewer letters.");
            return None;
        }
        let last = found.len() - 1;
        let [down, up, enter] = keys;
        palette.chosen = (palette.chosen + usize::from(down)).saturating_sub(usize::from(up)).min(last);
        list_ui(ui, &found, offer, palette.chosen, down || up)
            .or(enter.then_some(palette.chosen))
            .map(|i| found[i].clone())
    });
    if let Some(command) = modal.inner.clone() {
        palette.offer = None;
        if matches!(command, UiCommand::AddKind(_)) {
            palette.back.lead_to(layers_id());
        }
        commands.push(command);
    } else if modal.should_close() {
        palette.offer = None;
        ui.ctx().request_repaint();
    }
}

/// Shows the matches; returns the entry that was clicked.
fn list_ui(ui: &mut Ui, found: &[UiCommand], offer: Offer, chosen: usize, moved: bool) -> Option<usize> {
    let mut clicked = None;
    ui.add_space(4.0);
    ScrollArea::vertical().max_height(360.0).auto_shrink([false, true]).show(ui, |ui| {
        ui.spacing_mut().item_spacing.y = 0.0;
        for (index, command) in found.iter().enumerate() {
            let info = command.info();
            let (kind, own) = command.kind_and_name();
            // Commands for an object come after the object's own name.
            let kind = if offer == Offer::Layers { "" } else { kind };
            let kind = RichText::new(kind).color(theme::colors(ui).weak);
            let mut button = Button::selectable(index == chosen, (RichText::new(info.icon), kind, own))
                .min_size(Vec2::new(ui.available_width(), 24.0));
            button = match info.shortcut {
                Some(keys) => button
                    .right_text(RichText::new(keys_text(ui.ctx(), &keys)).size(12.0).color(theme::colors(ui).weak)),
                None => button.right_text(""),
            };
            let response = ui.add(button).on_hover_text(info.about);
            named(&response, &name(command, offer), true);
            if index == chosen && moved {
                response.scroll_to_me(None);
            }
            if response.clicked() {
                clicked = Some(index);
            }
        }
    });
    if offer == Offer::Layers {
        let about = found.get(chosen).map_or("", |c| c.info().about);
        ui.separator();
        weak_ui(ui, about);
    }
    clicked
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The titles that are offered for a query, among all commands.
    fn found(query: &str) -> Vec<String> {
        let all = UiCommand::listed().into_iter();
        let mut found: Vec<(Rank, String)> = all
            .filter_map(|c| Some((rank(&c.kind_and_name().1, &c.title(), c.info().about, query)?, c.title())))
            .collect();
        found.sort_by_key(|(r, _)| *r);
        found.into_iter().map(|(_, title)| title).collect()
    }

    #[test]
    fn matches_of_an_objects_own_name_come_first() {
        assert_eq!(found("residual")[..2], ["Add layer: Residual", "New from preset: digits-residual"]);
        assert_eq!(found("Dense")[0], "Add layer: Dense");
        assert_eq!(found("arena")[0], "Show Arena");
        assert_eq!(found("step")[0], "Step");
        assert_eq!(found("csv")[0], "Export run: Curves as CSV…");
    }

    #[test]
    fn a_command_is_found_by_what_it_does() {
        for query in ["theme", "light", "dark", "switch theme", "theme light"] {
            assert_eq!(found(query)[0], "Switch theme", "{query}");
        }
        assert_eq!(found("add residual")[0], "Add layer: Residual");
        assert!(found("xyzzy").is_empty());
        assert_eq!(rank("Step graph", "Show Step graph", "", "sgr"), Some(Rank::Letters));
        assert_eq!(rank("Save", "Save", "", ""), Some(Rank::NameBegins));
    }
}
