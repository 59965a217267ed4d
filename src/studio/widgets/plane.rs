//! Samples of two values in the plane, and the network's prediction for every point of it.

use crate::data::Dataset;
use crate::studio::theme;
use crate::studio::view_models::data::{class_name, class_of};
use crate::studio::view_models::format;
use crate::studio::view_models::predictions::{GRID, Plane};
use crate::studio::widgets::axis::hovered;
use crate::studio::widgets::button::weak_ui;
use crate::studio::widgets::classes::{DISTINCT, HIGH, LOW, class_ui, color, marker, mix};
use egui::{Color32, ColorImage, RichText, TextureHandle, TextureOptions, Ui};
use egui_plot::{Plot, PlotImage, PlotPoint, PlotPoints, Points};

/// The picture of a plane, and the state that it depends on.
#[derive(Default)]
pub struct PlaneTexture {
    made_for: Option<(u64, bool)>,
    texture: Option<TextureHandle>,
}

impl PlaneTexture {
    /// The texture of this plane, made again if `generation` or the theme has changed.
    pub fn of(&mut self, ui: &Ui, plane: &Plane, generation: u64) -> Option<&TextureHandle> {
        let key = (generation, ui.visuals().dark_mode);
        if self.made_for != Some(key) {
            let ground = theme::colors(ui).well;
            let pixel = |i: usize| {
                let shade = plane.shades.get(i).copied().unwrap_or(0.0);
                match plane.classes.get(i) {
                    // An even prediction between classes has hardly any colour, a certain one half of it.
                    Some(class) => {
                        mix(ground, color(usize::from(*class)), 0.08 + 0.5 * ((shade - 0.34) / 0.66).max(0.0))
                    }
                    None => mix(LOW, HIGH, shade),
                }
            };
            let mut image = ColorImage::filled([GRID, GRID], ground);
            image.pixels.iter_mut().enumerate().for_each(|(i, p)| *p = pixel(i));
            let options = TextureOptions::LINEAR;
            match &mut self.texture {
                Some(texture) => texture.set(image, options),
                None => self.texture = Some(ui.ctx().load_texture("plane", image, options)),
            }
            self.made_for = Some(key);
        }
        self.texture.as_ref()
    }
}

/// Shows samples in the plane, over `ground` if there is one: its texture, its rectangle, and its name for assistive
/// tools.
pub fn plane_ui(ui: &mut Ui, name: &str, set: &Dataset, samples: &[u32], ground: Option<(&TextureHandle, [f64; 4])>) {
    let c = theme::colors(ui);
    let classes = set.classes().unwrap_or(0);
    if classes > 0 {
        ui.horizontal_wrapped(|ui| {
            ui.spacing_mut().item_spacing.x = 4.0;
            for class in 0..classes.min(40) {
                class_ui(ui, class);
                ui.label(RichText::new(class_name(set, class)).size(12.0));
                ui.add_space(8.0);
            }
            if classes > DISTINCT {
                weak_ui(ui, format!("colours repeat after {DISTINCT} classes, with another marker"));
            }
        });
    }
    let axis = |i: usize| set.feature_names.get(i).cloned().unwrap_or_else(|| format!("x{i}"));
    let (x_name, y_name) = (axis(0), axis(1));
    let height = (ui.available_height() - 8.0).max(160.0);
    let (x_shown, y_shown) = (x_name.clone(), y_name.clone());
    let plot = Plot::new(("plane", name))
        .height(height)
        .width(ui.available_width())
        .data_aspect(1.0)
        .allow_scroll(false)
        .grid_color(c.hairline)
        .x_axis_label(x_name)
        .y_axis_label(y_name)
        .label_formatter(move |at| {
            let position = hovered(at);
            Some(format!("{x_shown} {}\n{y_shown} {}", format::number(position.x), format::number(position.y)))
        });
    let response = plot.show(ui, |plot| {
        if let Some((texture, [x0, x1, y0, y1])) = ground {
            let center = PlotPoint::new(f64::midpoint(x0, x1), f64::midpoint(y0, y1));
            let size = egui::Vec2::new((x1 - x0) as f32, (y1 - y0) as f32);
            plot.image(PlotImage::new("plane", texture.id(), center, size).allow_hover(false));
        }
        let of = |class: Option<usize>| -> Vec<[f64; 2]> {
            let own = samples.iter().filter(|i| class.is_none() || class_of(set, **i) == class);
            own.map(|i| set.sample_slice(*i as usize)).map(|p| [f64::from(p[0]), f64::from(p[1])]).collect()
        };
        let mut draw = |points: Vec<[f64; 2]>, fill: Color32, class: usize, name: String| {
            // A rim in the background colour separates points from a region of the same class.
            let rim = PlotPoints::from(points.clone());
            plot.points(Points::new("rim", rim).color(c.well).radius(3.6).shape(marker(class)).allow_hover(false));
            plot.points(Points::new(name, PlotPoints::from(points)).color(fill).radius(2.6).shape(marker(class)));
        };
        if classes == 0 {
            draw(of(None), c.accent, 0, "samples".into());
        }
        for class in 0..classes {
            draw(of(Some(class)), color(class), class, class_name(set, class));
        }
    });
    response.response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Image, true, name));
}
