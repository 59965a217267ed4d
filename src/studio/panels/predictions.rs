//! The network's predictions: confusion matrix, samples with probabilities, the decision boundary, predicted against
//! true values, filters.

use crate::studio::commands::{AnswersPage, CommandQueue, PredictionsCommand, UiCommand};
use crate::studio::panels::forecast::{ForecastPage, forecast_ui};
use crate::studio::panels::inside::{InsidePages, inside_ui};
use crate::studio::panels::plan_state::unready_ui;
use crate::studio::panels::writing::{WritingPage, writing_ui};
use crate::studio::theme;
use crate::studio::theme::icons;
use crate::studio::view_models::data::spread;
use crate::studio::view_models::format;
use crate::studio::view_models::panels::predictions::PredictionsPanelView;
use crate::studio::view_models::predictions::filters::Filters;
use crate::studio::view_models::predictions::{Fit, Plane, PredictionsView};
use crate::studio::view_models::readiness::Readiness;
use crate::studio::view_models::status::state_name;
use crate::studio::widgets::axis::hovered;
use crate::studio::widgets::button::{command_ui, empty_ui, weak_ui};
use crate::studio::widgets::classes::{HIGH, LOW, signed};
use crate::studio::widgets::confusion::{confusion_ui, matrix_width};
use crate::studio::widgets::pictures::{Strips, picture_ui};
use crate::studio::widgets::plane::{PlaneTexture, plane_ui};
use crate::studio::widgets::segments::segments_ui;
use egui::text::{LayoutJob, TextFormat, TextWrapping};
use egui::{
    Align, Align2, ColorImage, FontId, Layout, Rect, RichText, ScrollArea, Sense, TextureHandle, TextureOptions, Ui,
    Vec2,
};
use egui_plot::{Line, Plot, PlotPoints, Points};

/// The state of the panel.
#[derive(Default)]
pub struct PredictionsPanel {
    /// The cell of the confusion matrix whose samples are shown.
    cell: Option<(usize, usize)>,
    /// The indices of the samples that are shown, and what the list depends on.
    list: Vec<u32>,
    made_for: Option<(u64, Option<(usize, usize)>)>,
    generation: u64,
    strips: Strips,
    plane: PlaneTexture,
    filters: Option<((u64, bool), TextureHandle)>,
    /// Samples drawn over the plane, and what the list depends on.
    over: (u64, Vec<u32>),
    inside: InsidePages,
    writing: WritingPage,
    forecast: ForecastPage,
}

impl PredictionsPanel {
    fn refresh(&mut self, answers: &PredictionsView, generation: u64) {
        let classes = answers.quality.confusion.len();
        self.cell = self.cell.filter(|(a, b)| *a < classes && *b < classes);
        if self.made_for != Some((generation, self.cell)) {
            self.made_for = Some((generation, self.cell));
            self.list = answers.of_cell(self.cell);
            self.generation += 1;
        }
    }
}

/// The largest number of samples drawn over the plane.
const OVER: usize = 1500;

/// Shows the panel.
pub fn predictions_ui(
    ui: &mut Ui,
    view: &PredictionsPanelView<'_>,
    panel: &mut PredictionsPanel,
    commands: &mut CommandQueue,
) {
    let Some(page) = view.page else { return nothing_ui(ui, view, commands) };
    let offered = AnswersPage::ALL.into_iter().filter(|page| view.facts.offers(*page));
    let choices: Vec<_> = offered.map(|page| (page, page.title(), page.about())).collect();
    if choices.is_empty() {
        return nothing_ui(ui, view, commands);
    }
    let mut shown = page;
    ui.horizontal_wrapped(|ui| {
        if segments_ui(ui, &mut shown, &choices) {
            commands.push(UiCommand::Predictions(PredictionsCommand::Show(shown)));
        }
    });
    if !view.facts.offers(page) {
        let (what, next) = missing(page);
        return empty_ui(ui, what, next);
    }
    match page {
        AnswersPage::Writing => return writing_ui(ui, view, &mut panel.writing, commands),
        page if page.looks_inside() => return inside_ui(ui, view, page, &mut panel.inside, commands),
        _ => {}
    }
    let Some(answers) = view.answers else { return nothing_ui(ui, view, commands) };
    figures_ui(ui, view, answers);
    ui.add_space(4.0);
    panel.refresh(answers, view.generation);
    answers_ui(ui, view, answers, page, panel);
}

/// A page with predictions for many samples.
fn answers_ui(
    ui: &mut Ui,
    view: &PredictionsPanelView<'_>,
    answers: &PredictionsView,
    page: AnswersPage,
    panel: &mut PredictionsPanel,
) {
    match page {
        AnswersPage::Confusion => matrix_ui(ui, answers, panel),
        AnswersPage::Plane => {
            if let Some(plane) = &answers.pages.plane {
                boundary_ui(ui, answers, plane, panel, view.generation);
            }
        }
        AnswersPage::Fit => {
            if let Some(fit) = &answers.pages.fit {
                fit_ui(ui, fit);
            }
        }
        AnswersPage::Filters => {
            if let Some(filters) = &answers.pages.filters {
                filters_ui(ui, filters, panel, view.generation);
            }
        }
        AnswersPage::Forecasts => match &answers.pages.forecast {
            Some(forecast) => forecast_ui(ui, forecast, &answers.set, view.part, &mut panel.forecast),
            None => empty_ui(ui, "No forecast", "No window of the series is left to forecast; give a longer series."),
        },
        _ => {
            panel.cell = None;
            cards_ui(ui, answers, panel);
        }
    }
}

/// Why a network has nothing to show on a page, and what to do about it.
const fn missing(page: AnswersPage) -> (&'static str, &'static str) {
    match page {
        AnswersPage::Tokens => (
            "This network does not predict a class at each position",
            "It has one loss for each sample. Choose another page above, or train a preset such as gpt-sums.",
        ),
        AnswersPage::Writing => (
            "This network predicts no tokens",
            "It cannot write a text. Choose another page above, or train a preset such as gpt-source.",
        ),
        AnswersPage::Attention => (
            "This network has no attention",
            "Choose another page above, add a layer of attention, or train a preset such as gpt-sums.",
        ),
        AnswersPage::States => (
            "This network has no recurrent layer",
            "Choose another page above, add an rnn, gru or lstm, or train a preset such as gru-digits.",
        ),
        AnswersPage::Forecasts => {
            ("This network forecasts no series", "Choose another page above, or train a preset such as lstm-waves.")
        }
        _ => ("This network has nothing to show here", "Choose another page above."),
    }
}

fn nothing_ui(ui: &mut Ui, view: &PredictionsPanelView<'_>, commands: &mut CommandQueue) {
    match view.state {
        None if view.readiness != Readiness::Ready => unready_ui(ui, view.readiness, "train it", commands),
        None => {
            empty_ui(
                ui,
                "No run yet",
                "Train the network, or make a single step: its answers appear here and follow the training.",
            );
            ui.vertical_centered(|ui| {
                ui.add_space(8.0);
                command_ui(ui, UiCommand::Step, view.can_step, commands);
            });
        }
        Some(crate::train::RunState::Failed(_)) => {
            empty_ui(
                ui,
                "The run failed",
                "The Train tab says why, and what to do; predictions appear with the next run.",
            );
        }
        Some(_) if !view.has_data => empty_ui(ui, "No data", "Choose data in the Data tab and train again."),
        Some(state) => empty_ui(ui, state_name(Some(state)), "The first answers will be shown in a moment."),
    }
}

fn figures_ui(ui: &mut Ui, view: &PredictionsPanelView<'_>, answers: &PredictionsView) {
    ui.horizontal_wrapped(|ui| {
        let mut text = format!("loss {}", format::number(answers.quality.loss));
        if let Some(accuracy) = answers.quality.accuracy {
            let wrong = answers.rows.answered.iter().take_while(|a| a.truth != a.guess).count();
            text = format!("{:.2}% right, {wrong} wrong · {text}", accuracy * 100.0);
        }
        if let Some((whole, samples)) = answers.quality.exact {
            let [whole, samples] = [whole, samples].map(|n| format::exact(n as u64));
            text = format!("{whole} of {samples} samples right as a whole · {text}");
        }
        if let Some(fit) = answers.pages.fit.as_ref().filter(|_| view.page != Some(AnswersPage::Forecasts)) {
            let number = format::number;
            text = format!("RMSE {} · MAE {} · R² {:.4}", number(fit.rmse), number(fit.mae), fit.r2);
        }
        ui.label(RichText::new(text).font(theme::strong(13.0)));
        let about = format!("{}, at step {}", answers.what, format::exact(answers.step));
        weak_ui(ui, about).on_hover_text(format!("Answered in {}", format::micros(answers.took_us)));
        if view.is_running {
            weak_ui(ui, "follows the training")
                .on_hover_text("Updated a few times a second, in at most 3% of the run's time");
        }
        if view.is_stale {
            let c = theme::colors(ui);
            ui.label(RichText::new(format!("{}  edited since", icons::INFO)).size(12.0).color(c.warning))
                .on_hover_text("These are answers of the trained network");
        }
    });
}

fn matrix_ui(ui: &mut Ui, answers: &PredictionsView, panel: &mut PredictionsPanel) {
    let (width, height) = (ui.available_width(), ui.available_height());
    let side = (width * 0.4).clamp(216.0, 460.0);
    ui.horizontal_top(|ui| {
        // The matrix is as large as its cells; the samples beside it have the rest of the space.
        let left = (width - side - 16.0).min(matrix_width(answers.quality.confusion.len()));
        let side = width - left - 16.0;
        ui.allocate_ui_with_layout(Vec2::new(left, height), Layout::top_down(Align::Min), |ui| {
            ui.set_width(left);
            confusion_ui(ui, answers, &mut panel.cell);
        });
        ui.add_space(8.0);
        ui.allocate_ui_with_layout(Vec2::new(side, height), Layout::top_down(Align::Min), |ui| {
            ui.set_width(side);
            let title = match panel.cell {
                Some((truth, guess)) => format!("is {}, taken for {}", answers.name(truth), answers.name(guess)),
                None if answers.rows.positions > 1 => "all positions, wrong ones first".to_owned(),
                None => "all samples, wrong ones first".to_owned(),
            };
            ui.horizontal(|ui| {
                ui.add(egui::Label::new(RichText::new(title).font(theme::strong(12.0))).truncate());
                weak_ui(ui, format::exact(panel.list.len() as u64));
            });
            cards_ui(ui, answers, panel);
        });
    });
}

/// A sample as a card: its picture, its target, and the prediction.
fn cards_ui(ui: &mut Ui, answers: &PredictionsView, panel: &mut PredictionsPanel) {
    const CARD: Vec2 = Vec2::new(200.0, 76.0);
    const GAP: f32 = 8.0;
    if panel.list.is_empty() {
        return empty_ui(ui, "No such sample", "Choose another cell, or click the cell again for all samples.");
    }
    let columns = (((ui.available_width() - 4.0) / (CARD.x + GAP)).floor() as usize).max(1);
    let width = ((ui.available_width() - 8.0) / columns as f32 - GAP).min(320.0);
    panel.strips.begin(panel.generation, columns);
    ui.spacing_mut().item_spacing.y = GAP;
    let area = ScrollArea::vertical().id_salt("answered").auto_shrink([false, false]);
    area.show_rows(ui, CARD.y, panel.list.len().div_ceil(columns), |ui, range| {
        for row in range {
            let size = Vec2::new(columns as f32 * (width + GAP), CARD.y);
            let (rect, _) = ui.allocate_exact_size(size, Sense::hover());
            let own = &panel.list[row * columns..((row + 1) * columns).min(panel.list.len())];
            let index = |at: &u32| answers.rows.answered.get(*at as usize).map_or(0, |a| a.index);
            let texture = answers.picture.as_ref().map(|picture| {
                let texture = panel.strips.row(ui.ctx(), row, &answers.set, picture, own.iter().map(index));
                (picture, texture.clone())
            });
            for (column, at) in own.iter().enumerate() {
                let min = rect.min + Vec2::new(column as f32 * (width + GAP), 0.0);
                let card = Rect::from_min_size(min, Vec2::new(width, CARD.y));
                let mut text = card;
                if let Some((picture, texture)) = &texture {
                    let square = Rect::from_min_size(min, Vec2::splat(CARD.y - 16.0));
                    picture_ui(ui, texture, picture, square, column, columns);
                    text.min.x += CARD.y - 8.0;
                }
                card_ui(ui, answers, *at as usize, card, text);
            }
        }
    });
}

fn card_ui(ui: &Ui, answers: &PredictionsView, at: usize, card: Rect, text: Rect) {
    let Some(answered) = answers.rows.answered.get(at) else { return };
    let c = theme::colors(ui);
    let painter = ui.painter().with_clip_rect(card.intersect(ui.clip_rect()));
    let font = FontId::proportional(12.0);
    let truth = answers.truth_text(at);
    let is_class = answers.pages.fit.is_none();
    let wrong = is_class && answered.truth != answered.guess;
    let head = match (is_class, wrong) {
        (true, true) => format!("{}  is {truth}", icons::CLOSE),
        (true, false) => format!("{}  is {truth}", icons::CHECK),
        (false, _) => format!("sample {}", answered.index),
    };
    painter.text(text.min, Align2::LEFT_TOP, head, font.clone(), if wrong { c.error } else { c.text });
    let mut about = format!("sample {}: is {truth}", answered.index);
    if is_class {
        for (line, (class, share)) in answers.top(at, 3).into_iter().enumerate() {
            let y = text.min.y + 18.0 + 18.0 * line as f32;
            let bar = Rect::from_min_size(egui::pos2(text.min.x, y), Vec2::new(text.width() - 4.0, 15.0));
            painter.rect_filled(bar, 2, c.card);
            // A probability that is NaN has no bar.
            let part = Vec2::new(bar.width() * share.max(0.0), bar.height());
            let fill = if class == answered.truth { c.accent } else { c.error };
            painter.rect_filled(Rect::from_min_size(bar.min, part), 2, fill.gamma_multiply(0.45));
            painter.text(
                bar.left_center() + Vec2::new(4.0, 0.0),
                Align2::LEFT_CENTER,
                answers.name(class),
                font.clone(),
                c.text,
            );
            let percent = format!("{:.1}%", share * 100.0);
            painter.text(
                bar.right_center() - Vec2::new(4.0, 0.0),
                Align2::RIGHT_CENTER,
                &percent,
                font.clone(),
                c.text,
            );
            about += &format!("\n{} {percent}", answers.name(class));
        }
    } else {
        let found: Vec<String> = answers.row(at).iter().take(4).map(|v| format::number(f64::from(*v))).collect();
        let lines = [
            format!("is {truth}"),
            format!("answer {}", found.join(", ")),
            format!("off by {}", format::number(f64::from(answered.confidence))),
        ];
        for (line, words) in lines.iter().enumerate() {
            let place = text.min + Vec2::new(0.0, 18.0 + 18.0 * line as f32);
            let mut job = LayoutJob::single_section(words.clone(), TextFormat::simple(font.clone(), c.weak));
            job.wrap = TextWrapping::truncate_at_width(text.width() - 4.0);
            painter.galley(place, painter.layout_job(job), c.weak);
        }
        about = format!("sample {}: {}", answered.index, lines.join(", "));
    }
    let response = ui.interact(card, ui.scope_id().with(("card", at)), Sense::hover());
    response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Image, true, &about));
    response.on_hover_text(about);
}

fn boundary_ui(ui: &mut Ui, answers: &PredictionsView, plane: &Plane, panel: &mut PredictionsPanel, generation: u64) {
    let len = answers.set.len();
    if panel.over.0 != len as u64 || panel.over.1.is_empty() {
        panel.over = (len as u64, spread(len, OVER));
    }
    let bounds = plane.bounds;
    if plane.classes.is_empty() {
        let [low, high] = plane.range.map(|v| format::number(f64::from(v)));
        weak_ui(ui, format!("the first output, from {low} (blue) to {high} (orange)"));
    } else {
        weak_ui(ui, "each point has the colour of the class that the network gives it, stronger where it is surer");
    }
    let texture = panel.plane.of(ui, plane, generation).cloned();
    plane_ui(ui, "Decision boundary", &answers.set, &panel.over.1, texture.as_ref().map(|t| (t, bounds)));
}

fn fit_ui(ui: &mut Ui, fit: &Fit) {
    let c = theme::colors(ui);
    let stride = fit.pairs.len().div_ceil(4000).max(1);
    let points: PlotPoints<'_> = fit.pairs.iter().step_by(stride).copied().collect();
    let ends = fit.pairs.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), p| (a.min(p[0]), b.max(p[0])));
    let plot = Plot::new("predicted against true")
        .height((ui.available_height() - 8.0).max(160.0))
        .data_aspect(1.0)
        .allow_scroll(false)
        .grid_color(c.hairline)
        .x_axis_label("true")
        .y_axis_label("predicted")
        .label_formatter(|at| {
            let position = hovered(at);
            Some(format!("true {}\npredicted {}", format::number(position.x), format::number(position.y)))
        });
    let response = plot.show(ui, |plot| {
        let line = PlotPoints::from(vec![[ends.0, ends.0], [ends.1, ends.1]]);
        plot.line(Line::new("as true", line).color(c.weak).width(1.0).allow_hover(false));
        plot.points(Points::new("samples", points).color(c.accent.gamma_multiply(0.7)).radius(2.0));
    });
    response.response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Image, true, "Predicted against true"));
}

fn filters_ui(ui: &mut Ui, filters: &Filters, panel: &mut PredictionsPanel, generation: u64) {
    let key = (generation, ui.visuals().dark_mode);
    let (w, h, n) = (filters.width, filters.height, filters.pictures.len());
    if panel.filters.as_ref().is_none_or(|(k, _)| *k != key) {
        let ground = theme::colors(ui).well;
        let mut image = ColorImage::filled([w * n.max(1), h], ground);
        for (at, values) in filters.pictures.iter().enumerate() {
            for (i, v) in values.iter().enumerate() {
                image.pixels[i / w * w * n + at * w + i % w] = signed(ground, v / filters.scale);
            }
        }
        panel.filters = Some((key, ui.ctx().load_texture("filters", image, TextureOptions::NEAREST)));
    }
    let Some((_, texture)) = &panel.filters else { return };
    let c = theme::colors(ui);
    ui.horizontal_wrapped(|ui| {
        ui.label(RichText::new(&filters.title).font(theme::mono()));
        if n < filters.total {
            weak_ui(ui, format!("the first {n} of {}", filters.total));
        }
        for (share, name) in [(-1.0f32, "−"), (1.0, "+")] {
            let (rect, _) = ui.allocate_exact_size(Vec2::splat(10.0), Sense::hover());
            ui.painter().rect_filled(rect, 2, if share < 0.0 { LOW } else { HIGH });
            weak_ui(ui, format!("{name}{}", format::number(f64::from(filters.scale))));
        }
    });
    let cell = if w.max(h) > 12 { 72.0 } else { 56.0 };
    ScrollArea::vertical().id_salt("filters").auto_shrink([false, false]).show(ui, |ui| {
        ui.horizontal_wrapped(|ui| {
            ui.spacing_mut().item_spacing = Vec2::splat(8.0);
            for at in 0..n {
                let size = Vec2::new(w as f32, h as f32) * (cell / w.max(h) as f32);
                let (rect, response) = ui.allocate_exact_size(size, Sense::hover());
                let uv = crate::studio::widgets::pictures::column_uv(at, n);
                ui.painter().image(texture.id(), rect, uv, egui::Color32::WHITE);
                ui.painter().rect_stroke(rect, 0, egui::Stroke::new(1.0, c.hairline), egui::StrokeKind::Outside);
                response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Image, true, format!("filter {at}")));
                response.on_hover_text(format!("filter {at}"));
            }
        });
    });
}
