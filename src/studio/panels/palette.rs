//! The command palette: any command, or a layer to add, found by a few letters.

use crate::model::LayerKind;
use crate::studio::commands::{Command, Queue, keys_text};
use crate::studio::state::Studio;
use crate::studio::theme;
use crate::studio::widgets::button::{named, weak_ui};
use egui::{Align, Button, Key, Layout, RichText, ScrollArea, TextEdit, Ui, Vec2};

/// What the palette offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    Commands,
    Layers,
}

/// The palette, closed unless something is offered.
#[derive(Default)]
pub struct Palette {
    offer: Option<Offer>,
    query: String,
    chosen: usize,
    fresh: bool,
}

/// True where the letters of `query` appear in `text` in order, words in any case; the smaller the number, the better.
fn rank(text: &str, query: &str) -> Option<usize> {
    let (text, query) = (text.to_lowercase(), query.trim().to_lowercase());
    if let Some(at) = text.find(&query) {
        return Some(at);
    }
    let mut rest = text.chars();
    let found = query.chars().filter(|c| !c.is_whitespace()).all(|c| rest.any(|t| t == c));
    found.then_some(1000 + text.len())
}

impl Palette {
    /// Opens it with an empty search.
    pub fn open(&mut self, offer: Offer) {
        *self = Self { offer: Some(offer), query: String::new(), chosen: 0, fresh: true };
    }

    fn matches(&self, offer: Offer, studio: &Studio) -> Vec<Command> {
        let all = match offer {
            Offer::Commands => Command::listed(),
            Offer::Layers => LayerKind::ALL.map(Command::AddKind).into(),
        };
        let ranked = |c: Command| rank(&name(&c, offer), &self.query).map(|r| (r, c));
        let mut found: Vec<(usize, Command)> =
            all.into_iter().filter(|c| studio.is_enabled(c)).filter_map(ranked).collect();
        found.sort_by_key(|(r, _)| *r);
        found.into_iter().map(|(_, c)| c).collect()
    }
}

fn name(command: &Command, offer: Offer) -> String {
    match (command, offer) {
        (Command::AddKind(kind), Offer::Layers) => kind.class.to_owned(),
        _ => command.title(),
    }
}

/// Shows the palette where it is open.
pub fn palette_ui(ui: &Ui, studio: &Studio, palette: &mut Palette, out: &mut Queue) {
    let Some(offer) = palette.offer else { return };
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
            response.request_focus();
        }
        if response.changed() {
            palette.chosen = 0;
        }
        let found = palette.matches(offer, studio);
        if found.is_empty() {
            ui.add_space(4.0);
            weak_ui(ui, "Nothing of that name. Try fewer letters.");
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
        out.push(command);
    } else if modal.should_close() {
        palette.offer = None;
    }
}

/// Shows what was found; gives the entry that was clicked.
fn list_ui(ui: &mut Ui, found: &[Command], offer: Offer, chosen: usize, moved: bool) -> Option<usize> {
    let mut clicked = None;
    ui.add_space(4.0);
    ScrollArea::vertical().max_height(360.0).auto_shrink([false, true]).show(ui, |ui| {
        ui.spacing_mut().item_spacing.y = 0.0;
        for (index, command) in found.iter().enumerate() {
            let info = command.info();
            let title = name(command, offer);
            let text = format!("{}   {title}", info.icon);
            let mut button = Button::selectable(index == chosen, text).min_size(Vec2::new(ui.available_width(), 24.0));
            button = match info.shortcut {
                Some(keys) => button
                    .right_text(RichText::new(keys_text(ui.ctx(), &keys)).size(12.0).color(theme::colors(ui).weak)),
                None => button.right_text(""),
            };
            let response = ui.add(button).on_hover_text(info.about);
            named(&response, &title, true);
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
        ui.with_layout(Layout::left_to_right(Align::Center), |ui| weak_ui(ui, about));
    }
    clicked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_begins_with_the_query_comes_first() {
        assert!(rank("Show Arena", "arena") < rank("Fit arena view", "fav"));
        assert_eq!(rank("Save", "x"), None);
        assert!(rank("Step graph", "sgr").is_some());
    }
}
