//! Samples of tokens as text, with what the network is to answer and the numbers of the tokens beside.

use crate::model::DataSource;
use crate::studio::theme;
use crate::studio::view_models::data::DataView;
use crate::studio::view_models::text_samples::TextSample;
use crate::studio::widgets::button::weak_ui;
use egui::text::{LayoutJob, TextFormat, TextWrapping};
use egui::{Label, RichText, ScrollArea, Sense, Ui, UiBuilder, Vec2};
use std::collections::HashMap;

/// What the page remembers: the samples that were in view.
#[derive(Default)]
pub struct TextSamples {
    read: HashMap<u32, TextSample>,
    made_for: u64,
}

/// Samples that are kept; beyond that those in view are read anew.
const KEPT: usize = 512;
/// The height of a sample, in points.
const ROW: f32 = 76.0;

impl TextSamples {
    fn sample(&mut self, data: &DataView, source: Option<&DataSource>, index: u32) -> &TextSample {
        if self.read.len() > KEPT {
            self.read.clear();
        }
        self.read.entry(index).or_insert_with(|| TextSample::of(&data.set, source, index).unwrap_or_default())
    }
}

/// Shows the samples of a list; `generation` is another number where the data are others.
pub fn text_samples_ui(
    ui: &mut Ui,
    data: &DataView,
    source: Option<&DataSource>,
    list: &[u32],
    generation: u64,
    page: &mut TextSamples,
) {
    if page.made_for != generation {
        *page = TextSamples { made_for: generation, ..TextSamples::default() };
    }
    ui.spacing_mut().item_spacing.y = 8.0;
    let area = ScrollArea::vertical().id_salt("text samples").auto_shrink([false, false]);
    area.show_rows(ui, ROW, list.len(), |ui, range| {
        for index in list[range].iter().copied() {
            let size = Vec2::new(ui.available_width() - 8.0, ROW);
            let (rect, response) = ui.allocate_exact_size(size, Sense::hover());
            let side = if data.is_held_out(index) { "held out" } else { "training" };
            let sample = page.sample(data, source, index);
            let about = format!("sample {index}, {side}: {}, target {}", sample.text, sample.target);
            response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Label, true, &about));
            let mut ui = ui.new_child(UiBuilder::new().max_rect(rect).id_salt(index));
            sample_ui(&mut ui, sample, index, side);
        }
    });
}

/// A sample: its text and its target at the left, its numbers at the right.
fn sample_ui(ui: &mut Ui, sample: &TextSample, index: u32, side: &str) {
    let c = theme::colors(ui);
    theme::card(ui, false).show(ui, |ui| {
        ui.set_min_size(Vec2::new(ui.available_width(), ROW - 16.0));
        ui.spacing_mut().item_spacing.y = 2.0;
        ui.horizontal_top(|ui| {
            let left = (ui.available_width() * 0.62).floor();
            ui.allocate_ui(Vec2::new(left, ROW - 16.0), |ui| {
                ui.set_width(left - 12.0);
                ui.vertical(|ui| {
                    weak_ui(ui, format!("sample {index} · {side}"));
                    if sample.is_sum {
                        let mut job = line(&sample.text, c.text);
                        job.append(&sample.target, 0.0, TextFormat::simple(theme::mono(), c.accent));
                        ui.add(Label::new(job)).on_hover_text("The question, and the answer that is learnt");
                        return;
                    }
                    for (name, text) in [("reads", &sample.text), ("answers", &sample.target)] {
                        ui.horizontal(|ui| {
                            ui.add_sized(
                                Vec2::new(48.0, 16.0),
                                Label::new(RichText::new(name).size(12.0).color(c.weak)),
                            );
                            ui.add(Label::new(line(text, c.text))).on_hover_text(text);
                        });
                    }
                });
            });
            let numbers = sample.numbers();
            let mut job = line(&numbers, c.weak);
            job.wrap = TextWrapping { max_width: ui.available_width(), max_rows: 4, ..TextWrapping::default() };
            ui.add(Label::new(job).wrap()).on_hover_text(format!("The numbers of the tokens: {numbers}"));
        });
    });
}

/// Text in one line, cut at its end where it has no room.
fn line(text: &str, color: egui::Color32) -> LayoutJob {
    let mut job = LayoutJob::single_section(text.to_owned(), TextFormat::simple(theme::mono(), color));
    job.wrap = TextWrapping::truncate_at_width(f32::INFINITY);
    job
}
