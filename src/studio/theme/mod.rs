//! Fonts, colours and spacing of the whole window.
//!
//! Spaces are multiples of four points. Controls are grey and data is coloured; one accent colour marks active controls
//! and the selection.

pub mod icons;

use crate::ir::{Phase, Role};
use crate::plan::RoleColor;
use egui::Ui;
use egui::{
    Color32, CornerRadius, FontData, FontDefinitions, FontFamily, FontId, Margin, Stroke, Style, TextStyle, Theme, Vec2,
};
use std::sync::Arc;

/// The semibold font, for names and headings.
const STRONG: &str = "strong";

/// Text in the semibold font.
#[must_use]
pub fn strong(size: f32) -> FontId {
    FontId::new(size, FontFamily::Name(STRONG.into()))
}

/// The width of this many monospaced characters in a cell, in points.
#[must_use]
pub fn mono_width(ui: &Ui, letters: usize) -> f32 {
    const AROUND: f32 = 8.0;
    ui.ctx().fonts_mut(|fonts| fonts.glyph_width(&mono(), '0')) * letters as f32 + AROUND
}

/// Text in the monospaced font: ids, shapes, kernels.
#[must_use]
pub const fn mono() -> FontId {
    FontId::new(12.0, FontFamily::Monospace)
}

/// The colours of one theme.
#[derive(Clone, Copy, Debug)]
pub struct Colors {
    /// The background of panels.
    pub panel: Color32,
    /// The background of cards and fields on a panel.
    pub card: Color32,
    /// The background of plots, tables and maps.
    pub well: Color32,
    pub hairline: Color32,
    pub hover: Color32,
    pub text: Color32,
    pub weak: Color32,
    pub accent: Color32,
    /// Text on the accent.
    pub on_accent: Color32,
    /// The background of the selection.
    pub selected: Color32,
    pub error: Color32,
    pub warning: Color32,
    /// The lightness ramp of the phases, in their order.
    phases: [Color32; 5],
}

const fn grey(v: u8) -> Color32 {
    Color32::from_rgb(v, v, v)
}

const DARK: Colors = Colors {
    panel: Color32::from_rgb(0x1B, 0x1C, 0x1F),
    card: Color32::from_rgb(0x24, 0x26, 0x29),
    well: Color32::from_rgb(0x14, 0x15, 0x17),
    hairline: Color32::from_rgb(0x37, 0x3A, 0x3F),
    hover: Color32::from_rgb(0x2E, 0x31, 0x35),
    text: Color32::from_rgb(0xE3, 0xE5, 0xE8),
    weak: Color32::from_rgb(0x9C, 0xA2, 0xAA),
    accent: Color32::from_rgb(0x96, 0x8F, 0xFF),
    on_accent: Color32::from_rgb(0x14, 0x12, 0x2E),
    selected: Color32::from_rgb(0x2F, 0x2D, 0x50),
    error: Color32::from_rgb(0xFF, 0x8A, 0x7A),
    warning: Color32::from_rgb(0xF2, 0xB8, 0x4B),
    phases: [grey(0xE6), grey(0xBC), grey(0x94), grey(0x6E), grey(0x4C)],
};

const LIGHT: Colors = Colors {
    panel: Color32::from_rgb(0xF5, 0xF5, 0xF4),
    card: Color32::from_rgb(0xFF, 0xFF, 0xFF),
    well: Color32::from_rgb(0xFF, 0xFF, 0xFF),
    hairline: Color32::from_rgb(0xD9, 0xDA, 0xD8),
    hover: Color32::from_rgb(0xE8, 0xE9, 0xE7),
    text: Color32::from_rgb(0x1D, 0x1F, 0x22),
    weak: Color32::from_rgb(0x5C, 0x61, 0x68),
    accent: Color32::from_rgb(0x53, 0x46, 0xD6),
    on_accent: Color32::from_rgb(0xFF, 0xFF, 0xFF),
    selected: Color32::from_rgb(0xE4, 0xE1, 0xFC),
    error: Color32::from_rgb(0xB3, 0x26, 0x1E),
    warning: Color32::from_rgb(0x8A, 0x5A, 0x00),
    phases: [grey(0xD6), grey(0xB2), grey(0x8C), grey(0x62), grey(0x3A)],
};

/// The current colours.
#[must_use]
pub fn colors(ui: &egui::Ui) -> &'static Colors {
    of(ui.visuals().dark_mode)
}

/// The colours of a theme.
#[must_use]
pub const fn of(dark: bool) -> &'static Colors {
    if dark { &DARK } else { &LIGHT }
}

/// The colour of a role, the same in every view and in both themes.
#[must_use]
pub const fn role(role: Role) -> Color32 {
    let [r, g, b] = RoleColor::rgb(role);
    Color32::from_rgb(r, g, b)
}

impl Colors {
    /// A phase's step of the ramp, and the colour of its letter on it.
    #[must_use]
    pub fn phase(&self, phase: Phase) -> (Color32, Color32) {
        let fill = self.phases[phase as usize];
        (fill, if fill.r() > 0x80 { Color32::BLACK } else { Color32::WHITE })
    }
}

/// The fonts: Inter with tabular figures, JetBrains Mono, and Lucide for icons; missing characters come from the
/// built-in fonts.
fn fonts() -> FontDefinitions {
    let mut fonts = FontDefinitions::default();
    let mut add = |name: &str, bytes: &'static [u8]| {
        fonts.font_data.insert(name.to_owned(), Arc::new(FontData::from_static(bytes)));
    };
    add("inter", include_bytes!("../../../assets/fonts/Inter-Regular.otf"));
    add("inter-strong", include_bytes!("../../../assets/fonts/Inter-SemiBold.otf"));
    add("jetbrains-mono", include_bytes!("../../../assets/fonts/JetBrainsMono-Regular.ttf"));
    add("lucide", include_bytes!("../../../assets/fonts/Lucide-subset.ttf"));
    let mut chain = |family: FontFamily, first: &str, fallback: FontFamily| {
        let mut list = vec![first.to_owned(), "lucide".to_owned()];
        list.extend(fonts.families.get(&fallback).cloned().unwrap_or_default());
        fonts.families.insert(family, list);
    };
    chain(FontFamily::Name(STRONG.into()), "inter-strong", FontFamily::Proportional);
    chain(FontFamily::Monospace, "jetbrains-mono", FontFamily::Monospace);
    chain(FontFamily::Proportional, "inter", FontFamily::Proportional);
    fonts
}

/// Sets fonts and both themes.
pub fn install(ctx: &egui::Context) {
    ctx.set_fonts(fonts());
    for theme in [Theme::Dark, Theme::Light] {
        ctx.style_mut_of(theme, |style| dress(style, of(theme == Theme::Dark)));
    }
}

/// The duration of opening and closing, in seconds. It is short, because motion only shows what opens.
const ANIMATION_S: f32 = 0.08;

/// Switches motion on or off, if it is not already.
pub fn set_motion(ctx: &egui::Context, on: bool) {
    let wanted = if on { ANIMATION_S } else { 0.0 };
    if ctx.global_style().animation_time != wanted {
        ctx.all_styles_mut(|style| {
            style.animation_time = wanted;
            let scroll =
                if on { egui::style::ScrollAnimation::default() } else { egui::style::ScrollAnimation::none() };
            style.scroll_animation = scroll;
        });
    }
}

fn dress(style: &mut Style, c: &Colors) {
    style.text_styles = [
        (TextStyle::Small, FontId::proportional(12.0)),
        (TextStyle::Body, FontId::proportional(13.0)),
        (TextStyle::Button, FontId::proportional(13.0)),
        (TextStyle::Heading, strong(15.0)),
        (TextStyle::Monospace, mono()),
    ]
    .into();
    let s = &mut style.spacing;
    s.item_spacing = Vec2::new(8.0, 4.0);
    s.button_padding = Vec2::new(8.0, 3.0);
    s.interact_size = Vec2::new(24.0, 24.0);
    s.menu_margin = Margin::same(4);
    s.window_margin = Margin::same(16);
    s.combo_width = 64.0;
    s.icon_width = 16.0;
    s.icon_width_inner = 10.0;
    s.indent = 16.0;
    s.scroll = egui::style::ScrollStyle::thin();
    s.scroll.foreground_color = true;
    s.scroll.dormant_background_opacity = 0.0;
    s.scroll.dormant_handle_opacity = 0.12;
    s.scroll.active_handle_opacity = 0.3;
    s.scroll.interact_handle_opacity = 0.45;
    s.scroll.active_background_opacity = 0.0;
    style.interaction.tooltip_delay = 0.35;
    style.animation_time = ANIMATION_S;
    dress_visuals(&mut style.visuals, c);
}

fn dress_visuals(v: &mut egui::Visuals, c: &Colors) {
    v.override_text_color = Some(c.text);
    v.weak_text_color = Some(c.weak);
    v.panel_fill = c.panel;
    v.window_fill = c.panel;
    v.window_stroke = Stroke::new(1.0, c.hairline);
    v.window_corner_radius = CornerRadius::same(8);
    v.menu_corner_radius = CornerRadius::same(4);
    v.extreme_bg_color = c.well;
    v.text_edit_bg_color = Some(c.well);
    v.faint_bg_color = c.card;
    v.code_bg_color = c.card;
    v.hyperlink_color = c.accent;
    v.error_fg_color = c.error;
    v.warn_fg_color = c.warning;
    v.selection.bg_fill = c.selected;
    v.selection.stroke = Stroke::new(1.0, c.accent);
    v.striped = false;
    let corner_radius = CornerRadius::same(4);
    let dress = |w: &mut egui::style::WidgetVisuals, fill: Color32, line: Color32| {
        w.bg_fill = fill;
        w.weak_bg_fill = fill;
        w.bg_stroke = Stroke::new(1.0, line);
        w.fg_stroke = Stroke::new(1.0, c.text);
        w.corner_radius = corner_radius;
        w.expansion = 0.0;
    };
    dress(&mut v.widgets.noninteractive, c.panel, c.hairline);
    dress(&mut v.widgets.inactive, c.card, c.hairline);
    dress(&mut v.widgets.hovered, c.hover, c.weak);
    dress(&mut v.widgets.active, c.hover, c.accent);
    dress(&mut v.widgets.open, c.hover, c.hairline);
}

/// A dialog in front of everything else; Escape and a click outside close it.
#[must_use]
pub fn dialog(ui: &egui::Ui, id: &'static str) -> egui::Modal {
    let frame = egui::Frame::popup(ui.style()).inner_margin(Margin::same(16)).corner_radius(8);
    egui::Modal::new(egui::Id::unique(id)).frame(frame)
}

/// A card that is on a panel.
pub fn card(ui: &egui::Ui, selected: bool) -> egui::Frame {
    let c = colors(ui);
    let line = if selected { c.accent } else { c.hairline };
    egui::Frame::new()
        .fill(c.card)
        .stroke(Stroke::new(1.0, line))
        .corner_radius(4)
        .inner_margin(Margin::symmetric(8, 6))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The contrast of two colours by WCAG 2.
    fn contrast(a: Color32, b: Color32) -> f64 {
        let linear = |v: u8| {
            let v = f64::from(v) / 255.0;
            if v <= 0.03928 { v / 12.92 } else { ((v + 0.055) / 1.055).powf(2.4) }
        };
        let light = |c: Color32| 0.2126 * linear(c.r()) + 0.7152 * linear(c.g()) + 0.0722 * linear(c.b());
        let (a, b) = (light(a), light(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    #[test]
    fn text_is_legible_in_both_themes() {
        for (name, c) in [("dark", &DARK), ("light", &LIGHT)] {
            for ground in [c.panel, c.card, c.well, c.selected, c.hover] {
                for text in [c.text, c.weak, c.accent, c.error, c.warning] {
                    let found = contrast(text, ground);
                    assert!(found >= 4.5, "{name}: {text:?} on {ground:?} is {found:.2} to 1");
                }
            }
            assert!(contrast(c.on_accent, c.accent) >= 4.5, "{name}");
            for phase in Phase::ALL {
                let (fill, letter) = c.phase(phase);
                assert!(contrast(letter, fill) >= 4.5, "{name} {phase:?}");
            }
        }
    }
}
