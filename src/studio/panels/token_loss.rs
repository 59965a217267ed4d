//! The tokens of a sample, each on the colour of its loss, with a bar below it whose height is the loss.

use crate::studio::theme;
use crate::studio::view_models::sequences::tokens::{TokenLoss, TokenLosses};
use crate::studio::widgets::classes::{ink_on, mix};
use egui::{Align2, EventFilter, FontId, Key, Label, Rect, RichText, ScrollArea, Sense, Stroke, StrokeKind, Ui, Vec2};

/// The state of the page.
#[derive(Default)]
pub struct TokensPage {
    /// The token that was clicked.
    chosen: Option<usize>,
}

/// The height of a line of tokens, that of the bars in it, and that of the input above them if it differs from the
/// tokens, in points.
const LINE: f32 = 32.0;
const BAR: f32 = 8.0;
const READ: f32 = 20.0;
/// The font size.
const SIZE: f32 = 15.0;

/// The positions of tokens in lines of this width: a line ends if a token does not fit, and after a line break.
fn places(view: &TokenLosses, width: f32, letter: f32) -> Vec<Rect> {
    let height = if view.goes_on { LINE } else { LINE + READ };
    let mut at = egui::Pos2::ZERO;
    let mut out = Vec::with_capacity(view.tokens.len());
    for token in &view.tokens {
        let read = if view.goes_on { 0 } else { token.read.chars().count() };
        let own = token.text.chars().count().max(read).max(1) as f32 * letter + 4.0;
        if at.x > 0.0 && at.x + own > width {
            at = egui::pos2(0.0, at.y + height);
        }
        out.push(Rect::from_min_size(at, Vec2::new(own, height)));
        at.x += own;
        if token.text == "\\n" {
            at = egui::pos2(0.0, at.y + height);
        }
    }
    out
}

/// Draws a token on the colour of its loss, with its bar; above it the input, if it differs.
fn token_ui(ui: &Ui, token: &TokenLoss, mut cell: Rect, goes_on: bool, is_chosen: bool) {
    let (c, font) = (theme::colors(ui), FontId::monospace(SIZE));
    if !goes_on {
        ui.painter().text(cell.center_top(), Align2::CENTER_TOP, &token.read, font.clone(), c.weak);
        cell.min.y += READ;
    }
    let fill = mix(c.well, c.error, token.hardness() * 0.8);
    let ground = cell.with_max_y(cell.max.y - BAR - 2.0);
    ui.painter().rect_filled(ground, 2, fill);
    ui.painter().text(ground.center(), Align2::CENTER_CENTER, &token.text, font, ink_on(fill));
    let bar = cell.with_min_y(cell.max.y - (BAR * token.hardness()).max(1.0));
    ui.painter().rect_filled(bar, 0, if token.hardness() > 0.5 { c.error } else { c.weak });
    if is_chosen {
        ui.painter().rect_stroke(cell, 2, Stroke::new(1.5, c.accent), StrokeKind::Outside);
    }
}

/// Shows the tokens.
pub fn tokens_ui(ui: &mut Ui, view: &TokenLosses, page: &mut TokensPage) {
    let font = FontId::monospace(SIZE);
    let letter = ui.ctx().fonts_mut(|fonts| fonts.glyph_width(&font, '0'));
    page.chosen = page.chosen.filter(|at| *at < view.tokens.len());
    let read = if view.goes_on { "" } else { " The upper line is what the network reads, the lower one its targets." };
    let about = "The stronger the colour and the higher the bar, the larger a token's loss; both are full from 4 on. A \
                 dot is a blank.";
    ui.add(Label::new(RichText::new(format!("{about}{read}")).size(12.0).color(theme::colors(ui).weak)).wrap());
    let below = 48.0;
    let room = (ui.available_height() - below).max(LINE * 2.0);
    let mut hovered = None;
    ScrollArea::vertical().id_salt("tokens").max_height(room).auto_shrink([false, true]).show(ui, |ui| {
        let places = places(view, ui.available_width() - 12.0, letter);
        let height = places.last().map_or(LINE, |last| last.max.y);
        let (all, response) = ui.allocate_exact_size(Vec2::new(ui.available_width(), height), Sense::click());
        let offset = all.min.to_vec2();
        hovered = response.hover_pos().and_then(|at| places.iter().position(|p| p.contains(at - offset)));
        if response.clicked() {
            response.request_focus();
            page.chosen = hovered;
        }
        if response.has_focus() {
            let filter = EventFilter { horizontal_arrows: true, ..EventFilter::default() };
            ui.memory_mut(|m| m.set_focus_lock_filter(response.id, filter));
            let by = ui.input(|i| i.num_presses(Key::ArrowRight) as i64 - i.num_presses(Key::ArrowLeft) as i64);
            let at = page.chosen.unwrap_or(view.hardest) as i64 + by;
            page.chosen = Some(at.clamp(0, view.tokens.len() as i64 - 1) as usize);
        }
        for (at, (token, place)) in view.tokens.iter().zip(&places).enumerate() {
            let cell = place.translate(offset).shrink2(Vec2::new(0.5, 1.0));
            if ui.is_rect_visible(cell) {
                let is_chosen = page.chosen == Some(at) || hovered == Some(at);
                token_ui(ui, token, cell, view.goes_on, is_chosen);
            }
        }
        let at = hovered.or(page.chosen).unwrap_or(view.hardest);
        let message = view.tokens[at].about(at);
        let label = format!("Loss of each token: {}; {message}", view.figures());
        response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Image, true, &label));
        if hovered.is_some() {
            response.on_hover_text_at_pointer(message);
        }
    });
    let at = hovered.or(page.chosen);
    let what = if at.is_none() { "the hardest: " } else { "" };
    let at = at.unwrap_or(view.hardest);
    ui.add(Label::new(RichText::new(format!("{what}{}", view.tokens[at].about(at))).size(12.0)).wrap());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_if_a_token_does_not_fit_and_after_line_breaks() {
        let token = |text: &str| TokenLoss { read: String::new(), text: text.into(), loss: 1.0, likely: Vec::new() };
        let tokens = ["a", "b", "\\n", "long token", "c"].map(token).to_vec();
        let view = TokenLosses { tokens, loss: 1.0, perplexity: None, hardest: 0, goes_on: true };
        let found = places(&view, 60.0, 8.0);
        let tops: Vec<f32> = found.iter().map(|place| place.min.y / LINE).collect();
        // A token that is wider than a line gets a separate line.
        assert_eq!(tops, [0.0, 0.0, 0.0, 1.0, 2.0]);
        assert_eq!((found[1].min.x, found[3].min.x), (12.0, 0.0));
    }
}
