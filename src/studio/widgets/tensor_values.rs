//! Draws a tensor's values: a histogram, and two of its axes as a heat map.

use crate::studio::theme;
use crate::studio::view_models::format;
use crate::train::{Histogram, Picture};
use egui::{Color32, ColorImage, Rect, Sense, Stroke, TextureHandle, TextureOptions, Ui, Vec2};

/// The colours of the scale: blue for the smallest, orange for the largest, which also differ in lightness.
const LOW: [f32; 3] = [0.0, 114.0, 178.0];
const HIGH: [f32; 3] = [230.0, 159.0, 0.0];

/// The colour of a value on a scale. If the scale crosses zero, zero is neutral; otherwise it is from dark to light.
#[must_use]
pub fn color(value: f32, from: f32, to: f32, dark: bool) -> Color32 {
    if !value.is_finite() {
        return Color32::from_rgb(213, 0, 140);
    }
    let mix = |a: [f32; 3], b: [f32; 3], t: f32| {
        let part = |i: usize| (a[i] + (b[i] - a[i]) * t.clamp(0.0, 1.0)).round() as u8;
        Color32::from_rgb(part(0), part(1), part(2))
    };
    let neutral = if dark { [32.0, 33.0, 36.0] } else { [247.0, 247.0, 245.0] };
    if from < 0.0 && to > 0.0 {
        let reach = from.abs().max(to);
        if value < 0.0 { mix(neutral, LOW, -value / reach) } else { mix(neutral, HIGH, value / reach) }
    } else if to <= 0.0 && from < 0.0 {
        mix(LOW, neutral, (value - from) / (to - from).max(f32::MIN_POSITIVE))
    } else {
        mix(neutral, HIGH, (value - from) / (to - from).max(f32::MIN_POSITIVE))
    }
}

/// The smallest and the largest finite cell.
#[must_use]
pub fn extent(cells: &[f32]) -> (f32, f32) {
    let finite = || cells.iter().copied().filter(|c| c.is_finite());
    let (from, to) = (finite().fold(f32::INFINITY, f32::min), finite().fold(f32::NEG_INFINITY, f32::max));
    if from <= to { (from, to) } else { (0.0, 0.0) }
}

/// Bars over the values' range. Heights are proportional to the root of the counts, because an activation has many
/// zeros.
pub fn histogram_ui(ui: &mut Ui, histogram: &Histogram, height: f32) {
    let width = ui.available_width();
    let (rect, response) = ui.allocate_exact_size(Vec2::new(width, height), Sense::hover());
    let c = theme::colors(ui);
    ui.painter().rect_filled(rect, 2, c.well);
    let bars = histogram.counts.len();
    let most = histogram.counts.iter().copied().max().unwrap_or(0);
    if bars == 0 || most == 0 {
        return;
    }
    let bar = rect.width() / bars as f32;
    for (i, &count) in histogram.counts.iter().enumerate().filter(|(_, n)| **n > 0) {
        // A single value among a million still has a bar of one point.
        let tall = (rect.height() - 2.0) * (f64::from(count) / f64::from(most)).sqrt() as f32;
        let x = rect.left() + bar * i as f32;
        let from = egui::Pos2::new(x, rect.bottom() - tall.max(1.0));
        let to = egui::Pos2::new(x + (bar - 0.5).max(0.5), rect.bottom());
        ui.painter().rect_filled(Rect::from_min_max(from, to), 0, c.accent);
    }
    if histogram.from < 0.0 && histogram.to > 0.0 {
        let share = (-histogram.from / (histogram.to - histogram.from)) as f32;
        ui.painter().vline(rect.left() + rect.width() * share, rect.y_range(), Stroke::new(1.0, c.weak));
    }
    let hovered = response.hover_pos().map(|p| (((p.x - rect.left()) / bar).max(0.0) as usize).min(bars - 1));
    response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Image, true, format!("Histogram of {bars} bars")));
    if let Some(i) = hovered {
        let step = (histogram.to - histogram.from) / bars as f64;
        let (a, b) = (histogram.from + step * i as f64, histogram.from + step * (i + 1) as f64);
        let n = format::counted(u64::from(histogram.counts[i]), "value");
        response.on_hover_text(format!("{n} from {} to {}", format::number(a), format::number(b)));
    }
}

/// The picture as an image, kept until the values change.
#[must_use]
pub fn texture(ctx: &egui::Context, picture: &Picture, dark: bool) -> Option<TextureHandle> {
    if picture.cells.is_empty() || picture.cells.len() != picture.rows * picture.cols {
        return None;
    }
    let (from, to) = extent(&picture.cells);
    let pixels: Vec<Color32> = picture.cells.iter().map(|v| color(*v, from, to, dark)).collect();
    let image = ColorImage::new([picture.cols, picture.rows], pixels);
    Some(ctx.load_texture("values", image, TextureOptions::NEAREST))
}

/// Shows the picture with its scale; the cell under the pointer is described.
pub fn picture_ui(ui: &mut Ui, picture: &Picture, texture: &TextureHandle) {
    let width = ui.available_width();
    let (rows, cols) = (picture.rows as f32, picture.cols as f32);
    // Cells are square if there is space; a vector is a band of readable height.
    let cell = (width / cols).min(220.0 / rows).min(24.0);
    let size = if picture.rows == 1 { Vec2::new(width, 20.0) } else { Vec2::new(cell * cols, cell * rows) };
    let (rect, response) = ui.allocate_exact_size(size, Sense::hover());
    let whole = Rect::from_min_max(egui::Pos2::ZERO, egui::Pos2::new(1.0, 1.0));
    ui.painter().image(texture.id(), rect, whole, Color32::WHITE);
    ui.painter().rect_stroke(rect, 0, Stroke::new(1.0, theme::colors(ui).hairline), egui::StrokeKind::Outside);
    let [h, w] = picture.elements;
    response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Image, true, format!("Values, {h} by {w}")));
    let Some(pos) = response.hover_pos() else { return };
    let part = |at: f32, from: f32, room: f32, n: usize| (((at - from) / room * n as f32) as usize).min(n - 1);
    let row = part(pos.y, rect.top(), rect.height(), picture.rows);
    let col = part(pos.x, rect.left(), rect.width(), picture.cols);
    let value = picture.cells[row * picture.cols + col];
    let first = |i: usize, n: usize, of: usize| i * of / n;
    let (y, x) = (first(row, picture.rows, h), first(col, picture.cols, w));
    let averaged = if picture.rows < h || picture.cols < w { ", the mean of its neighbourhood" } else { "" };
    let value_text = if value.is_finite() { format::number(f64::from(value)) } else { "not finite".into() };
    response.on_hover_text(format!("[{y}, {x}] {value_text}{averaged}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_is_neutral_and_the_ends_differ() {
        for dark in [true, false] {
            let zero = color(0.0, -2.0, 1.0, dark);
            assert_eq!(zero, color(0.0, -1.0, 5.0, dark));
            assert_ne!(color(-2.0, -2.0, 1.0, dark), color(1.0, -2.0, 1.0, dark));
            assert_ne!(color(f32::NAN, -2.0, 1.0, dark), zero);
            assert_eq!(color(0.0, 0.0, 1.0, dark), zero);
        }
    }

    #[test]
    fn the_extent_leaves_out_what_is_not_finite() {
        assert_eq!(extent(&[1.0, f32::NAN, -3.0]), (-3.0, 1.0));
        assert_eq!(extent(&[f32::NAN]), (0.0, 0.0));
    }
}
