//! Classes as colours that colour-blind users can distinguish, each also with a marker.

use egui::{Color32, Pos2, Response, Sense, Ui, Vec2};
use egui_plot::MarkerShape;

/// Ten colours that can be distinguished with every kind of colour blindness (M. A. Petroff, "Accessible color
/// sequences for data visualization", 2021).
const COLORS: [Color32; 10] = [
    Color32::from_rgb(0x3F, 0x90, 0xDA),
    Color32::from_rgb(0xFF, 0xA9, 0x0E),
    Color32::from_rgb(0xBD, 0x1F, 0x01),
    Color32::from_rgb(0x94, 0xA4, 0xA2),
    Color32::from_rgb(0x83, 0x2D, 0xB6),
    Color32::from_rgb(0xA9, 0x6B, 0x59),
    Color32::from_rgb(0xE7, 0x63, 0x00),
    Color32::from_rgb(0xB9, 0xAC, 0x70),
    Color32::from_rgb(0x71, 0x75, 0x81),
    Color32::from_rgb(0x92, 0xDA, 0xDD),
];

/// The number of classes with different colours.
pub const DISTINCT: usize = COLORS.len();

/// The ends of a scale of values: Okabe and Ito's blue and orange.
pub const LOW: Color32 = Color32::from_rgb(0x00, 0x72, 0xB2);
pub const HIGH: Color32 = Color32::from_rgb(0xE6, 0x9F, 0x00);

/// Markers; their number has no divisor in common with that of the colours, so that combinations repeat late.
const MARKERS: [MarkerShape; 7] = [
    MarkerShape::Circle,
    MarkerShape::Square,
    MarkerShape::Diamond,
    MarkerShape::Up,
    MarkerShape::Down,
    MarkerShape::Left,
    MarkerShape::Right,
];

/// The colour of a class.
#[must_use]
pub const fn color(class: usize) -> Color32 {
    COLORS[class % COLORS.len()]
}

/// The marker of a class.
#[must_use]
pub const fn marker(class: usize) -> MarkerShape {
    MARKERS[class % MARKERS.len()]
}

/// A class as it is drawn: its marker in its colour.
pub fn class_ui(ui: &mut Ui, class: usize) -> Response {
    let (rect, response) = ui.allocate_exact_size(Vec2::splat(10.0), Sense::hover());
    let (at, r, fill) = (rect.center(), 5.0, color(class));
    let turned = |sides: f32, first: f32| -> Vec<Pos2> {
        (0..sides as usize).map(|i| at + r * Vec2::angled(std::f32::consts::TAU * (first + i as f32 / sides))).collect()
    };
    let corners = match marker(class) {
        MarkerShape::Circle => {
            ui.painter().circle_filled(at, r - 0.5, fill);
            return response;
        }
        MarkerShape::Square => {
            ui.painter().rect_filled(rect.shrink(0.5), 0, fill);
            return response;
        }
        MarkerShape::Up => turned(3.0, 0.75),
        MarkerShape::Down => turned(3.0, 0.25),
        MarkerShape::Left => turned(3.0, 0.5),
        MarkerShape::Right => turned(3.0, 0.0),
        _ => turned(4.0, 0.0),
    };
    ui.painter().add(egui::Shape::convex_polygon(corners, fill, egui::Stroke::NONE));
    response
}

/// Part `t` of the way from one colour to another.
#[must_use]
pub fn mix(from: Color32, to: Color32, t: f32) -> Color32 {
    let t = t.clamp(0.0, 1.0);
    let channel = |a: u8, b: u8| (f32::from(a) + (f32::from(b) - f32::from(a)) * t).round() as u8;
    Color32::from_rgb(channel(from.r(), to.r()), channel(from.g(), to.g()), channel(from.b(), to.b()))
}

/// Black or white, whichever contrasts more with a colour.
#[must_use]
pub fn ink_on(ground: Color32) -> Color32 {
    let linear = |v: u8| {
        let v = f32::from(v) / 255.0;
        if v <= 0.03928 { v / 12.92 } else { ((v + 0.055) / 1.055).powf(2.4) }
    };
    let light = 0.2126 * linear(ground.r()) + 0.7152 * linear(ground.g()) + 0.0722 * linear(ground.b());
    // At this luminance both have the same contrast.
    if light > 0.179 { Color32::BLACK } else { Color32::WHITE }
}

/// The colour of a signed value: blue below 0, orange above, the background at 0. `share` is from -1 to 1.
#[must_use]
pub fn signed(ground: Color32, share: f32) -> Color32 {
    mix(ground, if share < 0.0 { LOW } else { HIGH }, share.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_differ_in_colour_and_later_in_marker() {
        let colors: std::collections::HashSet<_> = (0..DISTINCT).map(color).collect();
        let pairs: std::collections::HashSet<_> = (0..70).map(|c| (color(c), marker(c) as u8)).collect();
        assert_eq!((colors.len(), pairs.len()), (10, 70));
        assert_eq!((mix(Color32::BLACK, Color32::WHITE, 0.5).r(), ink_on(Color32::WHITE)), (128, Color32::BLACK));
        assert_eq!(signed(Color32::BLACK, 0.0), Color32::BLACK);
    }
}
