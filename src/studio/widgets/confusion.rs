//! A confusion matrix: true classes down, predicted ones across; the colour is the share of the row, and the count is
//! in the cell.

use crate::studio::theme;
use crate::studio::view_models::format;
use crate::studio::view_models::predictions::PredictionsView;
use crate::studio::widgets::classes::{ink_on, mix};
use egui::{Align2, FontId, Rect, Sense, Stroke, StrokeKind, Ui, Vec2};

/// The space for the names of the classes, and for recall beside the rows, in points.
const NAMES: f32 = 56.0;
const SCORE: f32 = 48.0;

/// The smallest and the largest side of a cell.
const LEAST: f32 = 18.0;
const MOST: f32 = 52.0;
/// The font size in a cell, and the smallest readable one, in points; and the width of a digit relative to it.
const LETTERS: f32 = 12.0;
const SMALLEST: f32 = 7.5;
const DIGIT: f32 = 0.64;

/// The largest width of a matrix of this many classes, in points.
#[must_use]
pub fn matrix_width(classes: usize) -> f32 {
    (MOST * classes as f32).max(160.0) + NAMES + SCORE + 16.0
}

fn short(name: &str, letters: usize) -> String {
    if name.chars().count() <= letters {
        return name.to_owned();
    }
    name.chars().take(letters.saturating_sub(1)).chain(['…']).collect()
}

/// A cell of the matrix.
struct Cell {
    truth: usize,
    guess: usize,
    count: u32,
    /// Samples of the true class.
    total: u32,
}

/// The text of a count in a cell of this width, with its font size; `None` if it does not fit.
fn count_text(count: u32, width: f32) -> Option<(String, f32)> {
    let size = |text: &str| ((width - 2.0) / (DIGIT * text.chars().count() as f32)).min(LETTERS);
    let exact = if count >= 10_000 { format::count(f64::from(count)) } else { count.to_string() };
    let thousands = (count >= 1000).then(|| format!("{} k", (f64::from(count) / 1e3).round()));
    let found = [Some(exact), thousands].into_iter().flatten().map(|text| (size(&text), text));
    found.filter(|(size, _)| *size >= SMALLEST).map(|(size, text)| (text, size)).next()
}

/// Shows a cell; a click selects it, and a second click selects all.
fn cell_ui(ui: &Ui, rect: Rect, view: &PredictionsView, cell: &Cell, chosen: &mut Option<(usize, usize)>) {
    let c = theme::colors(ui);
    let Cell { truth, guess, count, total } = *cell;
    let share = if total > 0 { count as f32 / total as f32 } else { 0.0 };
    // The root, so that a few mistakes among many correct predictions are visible.
    let fill = mix(c.card, if truth == guess { c.accent } else { c.error }, share.sqrt());
    let response = ui.interact(rect, ui.scope_id().with((truth, guess)), Sense::click());
    ui.painter().rect_filled(rect, 2, fill);
    if count > 0
        && let Some((text, size)) = count_text(count, rect.width())
    {
        let font = FontId::proportional(size);
        ui.painter().text(rect.center(), Align2::CENTER_CENTER, text, font, ink_on(fill));
    }
    if response.has_focus() || response.hovered() || *chosen == Some((truth, guess)) {
        let line = Stroke::new(2.0, if *chosen == Some((truth, guess)) { c.text } else { c.weak });
        ui.painter().rect_stroke(rect, 2, line, StrokeKind::Inside);
    }
    let about = format!(
        "true {}, predicted {}: {count} of {total}, {:.1}% of the true ones",
        view.name(truth),
        view.name(guess),
        share * 100.0
    );
    response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Button, true, &about));
    if response.on_hover_text(format!("{about}\nClick to see these samples")).clicked() {
        *chosen = if *chosen == Some((truth, guess)) { None } else { Some((truth, guess)) };
    }
}

/// Shows the matrix; clicking a cell selects it, clicking it again selects all. Returns true if the selection changed.
pub fn confusion_ui(ui: &mut Ui, view: &PredictionsView, chosen: &mut Option<(usize, usize)>) -> bool {
    let classes = view.quality.confusion.len();
    if classes == 0 {
        return false;
    }
    let c = theme::colors(ui);
    let room = (ui.available_width() - NAMES - SCORE).min(ui.available_height() - 64.0);
    let cell = (room / classes as f32).clamp(LEAST, MOST).floor();
    let before = *chosen;
    egui::ScrollArea::both().id_salt("confusion").auto_shrink([false, false]).show(ui, |ui| {
        let side = cell * classes as f32;
        let (all, _) = ui.allocate_exact_size(Vec2::new(NAMES + side + SCORE, 20.0 + side + 24.0), Sense::hover());
        let origin = all.min + Vec2::new(NAMES, 20.0);
        let font = |size| FontId::proportional(size);
        ui.painter().text(all.min + Vec2::new(NAMES, 2.0), Align2::LEFT_TOP, "predicted →", font(12.0), c.weak);
        ui.painter().text(all.min + Vec2::new(0.0, 2.0), Align2::LEFT_TOP, "true ↓", font(12.0), c.weak);
        let right = origin.x + side;
        ui.painter().text(egui::pos2(right + 6.0, all.min.y + 2.0), Align2::LEFT_TOP, "recall", font(12.0), c.weak);
        let letters = (cell / 7.0).max(1.0) as usize;
        for (truth, row) in view.quality.confusion.iter().enumerate() {
            let y = origin.y + cell * truth as f32;
            let line = Rect::from_min_size(egui::pos2(all.min.x, y), Vec2::new(all.width(), cell));
            if !ui.is_rect_visible(line) {
                continue;
            }
            let name = short(view.name(truth), 7);
            let at = egui::pos2(origin.x - 6.0, y + cell / 2.0);
            ui.painter().text(at, Align2::RIGHT_CENTER, name, font(12.0), c.text);
            let total: u32 = row.iter().sum();
            for (guess, &count) in row.iter().enumerate() {
                let min = egui::pos2(origin.x + cell * guess as f32, y);
                let rect = Rect::from_min_size(min, Vec2::splat(cell)).shrink(0.5);
                if ui.is_rect_visible(rect) {
                    cell_ui(ui, rect, view, &Cell { truth, guess, count, total }, chosen);
                }
            }
            let recall = view.quality.scores[truth].rates.recall;
            let recall = recall.map_or_else(|| "–".into(), |r| format!("{:.0}%", r * 100.0));
            let at = egui::pos2(right + 6.0, y + cell / 2.0);
            ui.painter().text(at, Align2::LEFT_CENTER, recall, font(12.0), c.text);
        }
        let y = origin.y + side + 4.0;
        ui.painter().text(egui::pos2(origin.x - 6.0, y), Align2::RIGHT_TOP, "precision", font(12.0), c.weak);
        // Three-digit numbers of neighbours do not touch, even in small cells.
        let small = ((cell - 4.0) * 0.58).clamp(7.5, 12.0);
        for (guess, score) in view.quality.scores.iter().enumerate() {
            let number = score.rates.precision.map_or_else(|| "–".into(), |p| format!("{:.0}", p * 100.0));
            let x = origin.x + cell * (guess as f32 + 0.5);
            let text = short(&number, letters.max(3));
            ui.painter().text(egui::pos2(x, y), Align2::CENTER_TOP, text, font(small), c.text);
        }
        ui.painter().text(egui::pos2(right + 6.0, y), Align2::LEFT_TOP, "%", font(12.0), c.weak);
    });
    before != *chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_fits_its_cell() {
        assert_eq!(count_text(221, 51.0), Some(("221".to_owned(), LETTERS)));
        let (text, size) = count_text(221, 17.0).unwrap();
        assert_eq!(text, "221");
        assert!((SMALLEST..9.0).contains(&size), "{size}");
        assert_eq!(count_text(8044, 51.0).unwrap().0, "8044");
        assert_eq!(count_text(8044, 17.0).unwrap().0, "8 k");
        assert_eq!(count_text(123_456, 17.0), None);
    }
}
