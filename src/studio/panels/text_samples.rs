//! Samples of tokens as text, with the targets and the numbers of the tokens beside it.

use crate::model::DataSource;
use crate::studio::theme;
use crate::studio::view_models::data::DataView;
use crate::studio::view_models::text_samples::TextSample;
use crate::studio::widgets::button::weak_ui;
use egui::text::{LayoutJob, TextFormat, TextWrapping};
use egui::{Label, Rect, RichText, ScrollArea, Sense, Stroke, StrokeKind, Ui, UiBuilder, Vec2};
use std::collections::HashMap;

/// The state of the page: the samples that were visible.
#[derive(Default)]
pub struct TextSamples {
    read: HashMap<u32, TextSample>,
    made_for: u64,
}

/// The number of samples that are kept; beyond it, visible ones are read again.
const KEPT: usize = 512;
/// The height of a sample, in points.
const ROW: f32 = 76.0;
/// The height of an addition, whose answer is in the line of its question, and of a line of numbers, in points.
const SUM: f32 = 52.0;
const LINE: f32 = 16.0;
/// The width of a sample, in points, above which the numbers of its tokens are beside its text.
const WITH_NUMBERS: f32 = 560.0;

impl TextSamples {
    fn sample(&mut self, data: &DataView, source: Option<&DataSource>, index: u32) -> &TextSample {
        if self.read.len() > KEPT {
            self.read.clear();
        }
        self.read.entry(index).or_insert_with(|| TextSample::of(&data.set, source, index).unwrap_or_default())
    }
}

/// Shows the samples of a list; `generation` changes with the data.
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
    let is_sum = list.first().is_some_and(|index| page.sample(data, source, *index).is_sum);
    let row = if is_sum { SUM } else { ROW };
    area.show_rows(ui, row, list.len(), |ui, range| {
        for index in list[range].iter().copied() {
            let size = Vec2::new(ui.available_width() - 8.0, row);
            let (rect, response) = ui.allocate_exact_size(size, Sense::hover());
            let side = if data.is_held_out(index) { "held out" } else { "training" };
            let sample = page.sample(data, source, index);
            let about = format!("sample {index}, {side}: {}, target {}", sample.read.text, sample.target.text);
            response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Label, true, &about));
            sample_ui(ui, rect, sample, index, side);
        }
    });
}

/// A sample: its text and its target at the left, its token numbers at the right.
fn sample_ui(ui: &mut Ui, rect: Rect, sample: &TextSample, index: u32, side: &str) {
    let c = theme::colors(ui);
    ui.painter().rect(rect, 4, c.card, Stroke::new(1.0, c.hairline), StrokeKind::Inside);
    let inner = rect.shrink2(Vec2::new(8.0, 6.0));
    let numbers = sample.numbers();
    let is_wide = inner.width() >= WITH_NUMBERS;
    let (left, right) = inner.split_left_right_at_fraction(if is_wide { 0.62 } else { 1.0 });
    let child = |rect, name| UiBuilder::new().max_rect(rect).id_salt((index, name));
    let mut ui_left = ui.new_child(child(left.with_max_x(left.max.x - 12.0), "text"));
    ui_left.spacing_mut().item_spacing.y = 2.0;
    weak_ui(&mut ui_left, format!("sample {index} · {side}"));
    let mono = |text: &str| RichText::new(text).font(theme::mono());
    if sample.is_sum {
        ui_left.horizontal(|ui| {
            ui.spacing_mut().item_spacing.x = 0.0;
            ui.label(mono(&sample.read.text));
            ui.label(mono(&sample.target.text).color(c.accent)).on_hover_text("The answer, which the network learns");
        });
    } else {
        for (name, text) in [("reads", &sample.read.text), ("answers", &sample.target.text)] {
            ui_left.horizontal(|ui| {
                ui.add_sized(Vec2::new(48.0, 16.0), Label::new(RichText::new(name).size(12.0).color(c.weak)));
                let label = Label::new(mono(text)).truncate().show_tooltip_when_elided(false);
                let whole = if is_wide { text.clone() } else { format!("{text}\n\n{}", about_numbers(&numbers)) };
                ui.add(label).on_hover_text(whole);
            });
        }
    }
    if !is_wide {
        return;
    }
    let mut job = LayoutJob::single_section(numbers.clone(), TextFormat::simple(theme::mono(), c.weak));
    job.wrap = TextWrapping {
        max_width: right.width(),
        max_rows: (inner.height() / LINE) as usize,
        ..TextWrapping::default()
    };
    let galley = ui.painter().layout_job(job);
    let response = ui.new_child(child(right, "numbers")).label(galley);
    response.on_hover_text(about_numbers(&numbers));
}

fn about_numbers(numbers: &str) -> String {
    format!("The numbers of the tokens: {numbers}")
}
