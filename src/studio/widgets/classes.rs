//! Classes as colours that colour-blind eyes tell apart, each with a marker of its own besides.

use egui::Color32;
use egui_plot::MarkerShape;

/// Okabe and Ito's colours in an order whose neighbours differ most.
const COLORS: [Color32; 8] = [
    Color32::from_rgb(0xE6, 0x9F, 0x00),
    Color32::from_rgb(0x00, 0x72, 0xB2),
    Color32::from_rgb(0x00, 0x9E, 0x73),
    Color32::from_rgb(0xCC, 0x79, 0xA7),
    Color32::from_rgb(0xD5, 0x5E, 0x00),
    Color32::from_rgb(0x56, 0xB4, 0xE9),
    Color32::from_rgb(0xF0, 0xE4, 0x42),
    Color32::from_rgb(0x99, 0x99, 0x99),
];

/// Markers; their number has no divisor in common with that of the colours, so that pairs repeat late.
const MARKERS: [MarkerShape; 5] =
    [MarkerShape::Circle, MarkerShape::Square, MarkerShape::Diamond, MarkerShape::Up, MarkerShape::Down];

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

/// Part `t` of the way from one colour to another.
#[must_use]
pub fn mix(from: Color32, to: Color32, t: f32) -> Color32 {
    let t = t.clamp(0.0, 1.0);
    let channel = |a: u8, b: u8| (f32::from(a) + (f32::from(b) - f32::from(a)) * t).round() as u8;
    Color32::from_rgb(channel(from.r(), to.r()), channel(from.g(), to.g()), channel(from.b(), to.b()))
}

/// Black or white, whichever is easier to read on a colour.
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

/// The colour of a signed value: blue below 0, orange above, the ground at 0. `share` goes from -1 to 1.
#[must_use]
pub fn signed(ground: Color32, share: f32) -> Color32 {
    mix(ground, if share < 0.0 { COLORS[1] } else { COLORS[0] }, share.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_forty_classes_differ_in_colour_or_marker() {
        let pairs: std::collections::HashSet<_> = (0..40).map(|c| (color(c), marker(c) as u8)).collect();
        assert_eq!(pairs.len(), 40);
        assert_eq!((mix(Color32::BLACK, Color32::WHITE, 0.5).r(), ink_on(Color32::WHITE)), (128, Color32::BLACK));
        assert_eq!(signed(Color32::BLACK, 0.0), Color32::BLACK);
    }
}
