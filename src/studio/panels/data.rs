//! The data: its source, the held-out part, and views of its samples, classes and features.

use crate::data::tokenized_share;
use crate::model::DataSource;
use crate::studio::commands::{CommandQueue, DataField, UiCommand};
use crate::studio::panels::feature_table::features_ui;
use crate::studio::panels::network::section_ui;
use crate::studio::panels::text_samples::{TextSamples, text_samples_ui};
use crate::studio::panels::whole_series::{SeriesPage, whole_series_ui};
use crate::studio::theme;
use crate::studio::view_models::data::{DataView, TableColumn, sample_text, shapes_text, table_columns};
use crate::studio::view_models::format;
use crate::studio::view_models::format::plain_count;
use crate::studio::view_models::panels::data::DataPanelView;
use crate::studio::view_models::text_samples::text_input;
use crate::studio::widgets::button::{empty_ui, weak_ui};
use crate::studio::widgets::classes::{class_ui, color};
use crate::studio::widgets::field::{Editing, problem_ui};
use crate::studio::widgets::frozen_columns::{Frozen, Ground};
use crate::studio::widgets::pictures::{Strips, picture_ui};
use crate::studio::widgets::plane::plane_ui;
use crate::studio::widgets::segments::segments_ui;
use egui::{Align, ComboBox, Layout, Rect, RichText, ScrollArea, Sense, Ui, Vec2};
use egui_extras::{Column, TableBuilder};
use std::time::Duration;

/// Time between two updates of the progress of a text.
const DRAW_EVERY: Duration = Duration::from_millis(100);

/// The page of the samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Shown {
    #[default]
    Samples,
    Series,
    Text,
    Table,
    Features,
    Plane,
}

impl Shown {
    /// Whether it shows all samples, regardless of the filter.
    const fn is_of_all(self) -> bool {
        matches!(self, Self::Features | Self::Series)
    }
}

/// The state of the panel.
#[derive(Default)]
pub struct DataPanel {
    shown: Shown,
    class: Option<usize>,
    held_out: Option<bool>,
    /// The samples that pass the filter, and what the list depends on.
    list: Vec<u32>,
    made_for: Option<(u64, Option<usize>, Option<bool>)>,
    /// Increases with every list.
    generation: u64,
    strips: Strips,
    texts: TextSamples,
    series: SeriesPage,
}

impl DataPanel {
    fn refresh(&mut self, data: &DataView, generation: u64) {
        self.class = self.class.filter(|c| *c < data.classes.len());
        let key = (generation, self.class, self.held_out);
        if self.made_for != Some(key) {
            self.made_for = Some(key);
            self.list = data.filtered(self.class, self.held_out);
            self.generation += 1;
        }
    }
}

/// The width of the column of statistics, in points.
const SIDE: f32 = 232.0;
/// The opacity of samples that are not those of the document.
const FAINT: f32 = 0.45;
/// The name of samples that neither train nor are held out.
const ABOUT_NEITHER: &str =
    "Samples between the two parts: they share values with held-out samples, so they are not used for training";
/// The largest number of columns of values in a table.
const COLUMNS: usize = 12;
/// The columns of a table before the values of a sample.
const FACTS: [&str; 3] = ["sample", "split", "target"];

/// Shows the panel.
pub fn data_ui(ui: &mut Ui, view: &DataPanelView<'_>, panel: &mut DataPanel, editing: &mut Editing<'_>) {
    let height = ui.available_height();
    ui.horizontal_top(|ui| {
        ui.allocate_ui_with_layout(Vec2::new(SIDE, height), Layout::top_down(Align::Min), |ui| {
            ui.set_width(SIDE);
            ScrollArea::vertical().id_salt("data facts").auto_shrink([false, false]).show(ui, |ui| {
                ui.set_max_width(SIDE - 8.0);
                // The same fields as in the network's panel; both change the document.
                if let Some(section) = view.section {
                    section_ui(ui, section, true, editing);
                }
                choose_ui(ui, view, editing.commands);
                facts_ui(ui, view);
            });
        });
        ui.add_space(8.0);
        let width = ui.available_width();
        ui.allocate_ui_with_layout(Vec2::new(width, height), Layout::top_down(Align::Min), |ui| {
            ui.set_width(width);
            match view.loaded {
                Some(data) => samples_ui(ui, data, view, panel),
                None => nothing_ui(ui, view),
            }
            if view.has_problem && view.loaded.is_some() {
                // A plot has its own colours, so the background is drawn over it.
                let ground = ui.visuals().panel_fill.gamma_multiply(1.0 - FAINT);
                ui.painter().rect_filled(ui.min_rect(), 0, ground);
            }
        });
    });
}

/// A button for every file that the data names.
fn choose_ui(ui: &mut Ui, view: &DataPanelView<'_>, commands: &mut CommandQueue) {
    match view.source {
        Some(DataSource::Joined { inputs, .. }) => {
            for (at, (name, source)) in inputs.iter().enumerate() {
                files_ui(ui, source, Some((at, name)), commands);
            }
        }
        Some(source) => files_ui(ui, source, None, commands),
        None => {}
    }
}

/// A button for every file that a source names; `input` is the input that it belongs to, if several are joined.
fn files_ui(ui: &mut Ui, source: &DataSource, input: Option<(usize, &String)>, commands: &mut CommandQueue) {
    let files: &[(&str, &'static str)] = match source {
        DataSource::Csv { .. } | DataSource::Npz { .. } | DataSource::Series { .. } => &[("Choose file…", "data.path")],
        DataSource::Text { .. } => &[("Choose file…", "data.path"), ("Choose tokenizer…", "data.tokens")],
        DataSource::Npy { .. } => &[("Choose samples…", "data.x"), ("Choose targets…", "data.y")],
        DataSource::Idx { .. } => &[("Choose images…", "data.images"), ("Choose labels…", "data.labels")],
        DataSource::Cifar10 { .. } => &[("Choose batch…", "data.paths")],
        DataSource::Images { .. } => &[("Choose folder…", "data.path")],
        _ => return,
    };
    ui.horizontal_wrapped(|ui| {
        for (label, name) in files {
            let field = DataField { input: input.map(|(at, _)| at), name };
            let label = input.map_or_else(|| (*label).to_owned(), |(_, input)| format!("{input}: {label}"));
            let is_folder = matches!(source, DataSource::Images { .. });
            let command = if is_folder { UiCommand::ChooseDataFolder(field) } else { UiCommand::ChooseData(field) };
            if ui.button(label).on_hover_text(command.info().about).clicked() {
                commands.push(command);
            }
        }
    });
}

fn nothing_ui(ui: &mut Ui, view: &DataPanelView<'_>) {
    if view.source.is_none() {
        empty_ui(ui, "No data yet", "Choose where samples come from in the field data at the left.");
    } else if view.has_problem {
        empty_ui(ui, "The data cannot be loaded", "The problem is described at the left, with what to do about it.");
    } else {
        loading_ui(ui);
    }
}

fn loading_ui(ui: &mut Ui) {
    match tokenized_share() {
        Some(share) => {
            let done = format!("{:.0} % of the text is tokenized. The tokens are kept for later runs.", 100.0 * share);
            empty_ui(ui, "Making the tokens of the text", &done);
            ui.ctx().request_repaint_after(DRAW_EVERY);
        }
        None => empty_ui(ui, "Loading the data", "It appears here as soon as it is read."),
    }
}

fn line_ui(ui: &mut Ui, label: &str, value: &str) -> egui::Response {
    let line = ui.horizontal(|ui| {
        weak_ui(ui, label);
        ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
            ui.add(egui::Label::new(RichText::new(value).size(12.0)).truncate());
        });
    });
    line.response
}

fn title_ui(ui: &mut Ui, title: &str) {
    ui.add_space(8.0);
    ui.label(RichText::new(title).font(theme::strong(12.0)).color(theme::colors(ui).weak));
}

const FIELDS_ARE_MARKED: &str = "The fields to change are marked in the network at the left.";

fn facts_ui(ui: &mut Ui, view: &DataPanelView<'_>) {
    ui.spacing_mut().item_spacing.y = 2.0;
    ui.spacing_mut().interact_size.y = 18.0;
    let has_problem = view.has_problem;
    if has_problem {
        // The files are checked again, so that the message disappears once they are corrected.
        ui.ctx().request_repaint_after(view.retry_after);
    }
    let Some(data) = view.loaded else { return };
    title_ui(ui, "Loaded");
    if !view.is_current {
        let what = if has_problem { "These are the samples from before the change." } else { "loading…" };
        weak_ui(ui, what);
    }
    if has_problem {
        ui.set_opacity(FAINT);
    } else if view.is_current && data.misfit.is_some() {
        problem_ui(ui, "This data does not fit the network.", FIELDS_ARE_MARKED);
    }
    let count = |n: usize| format::exact(n as u64);
    line_ui(ui, "samples", &count(data.set.len()));
    line_ui(ui, "sample shape", &shapes_text(&data.set));
    line_ui(ui, "training", &count(data.split.train.len()));
    line_ui(ui, "held out", &count(data.split.held_out.len()));
    if data.in_neither() > 0 {
        line_ui(ui, "in neither", &count(data.in_neither())).on_hover_text(ABOUT_NEITHER);
    }
    split_bar_ui(ui, data);
    if !data.classes.is_empty() {
        title_ui(ui, "Classes");
        let most = data.classes.iter().map(|c| c.train + c.held_out).max().unwrap_or(1).max(1);
        for (i, class) in data.classes.iter().enumerate().take(100) {
            let text = format!("{} + {}", count(class.train), count(class.held_out));
            ui.horizontal(|ui| {
                ui.spacing_mut().item_spacing.x = 6.0;
                class_ui(ui, i);
                ui.add(egui::Label::new(RichText::new(&class.name).size(12.0)).truncate());
                ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
                    ui.label(RichText::new(text).size(12.0)).on_hover_text("Training + held-out samples");
                });
            });
            let (rect, _) = ui.allocate_exact_size(Vec2::new(ui.available_width(), 3.0), Sense::hover());
            let part = rect.width() * (class.train + class.held_out) as f32 / most as f32;
            ui.painter().rect_filled(rect, 1, theme::colors(ui).hairline);
            ui.painter().rect_filled(Rect::from_min_size(rect.min, Vec2::new(part, 3.0)), 1, color(i));
        }
        if data.classes.len() > 100 {
            weak_ui(ui, format!("and {} more", data.classes.len() - 100));
        }
    }
    if !data.set.notes.is_empty() {
        title_ui(ui, "The loader's notes");
        for note in &data.set.notes {
            ui.add(egui::Label::new(RichText::new(note).size(12.0)).wrap());
        }
    }
}

fn split_bar_ui(ui: &mut Ui, data: &DataView) {
    let c = theme::colors(ui);
    let (rect, response) = ui.allocate_exact_size(Vec2::new(ui.available_width(), 6.0), Sense::hover());
    let share = |part: usize| part as f32 / data.set.len().max(1) as f32;
    let [train, held_out] = [&data.split.train, &data.split.held_out].map(|part| share(part.len()));
    ui.painter().rect_filled(rect, 2, c.hairline);
    for (from, width, color) in [(0.0, train, c.accent), (1.0 - held_out, held_out, c.warning)] {
        let left = rect.min + Vec2::new(rect.width() * from, 0.0);
        let part = Vec2::new(rect.width() * width, rect.height());
        ui.painter().rect_filled(Rect::from_min_size(left, part), 2, color);
    }
    let percent = |share: f32| format::percent(f64::from(share));
    response.on_hover_text(format!("{} train, {} held out", percent(train), percent(held_out)));
}

fn samples_ui(ui: &mut Ui, data: &DataView, view: &DataPanelView<'_>, panel: &mut DataPanel) {
    let mut choices = Vec::new();
    if text_input(&data.set).is_some() {
        choices.push((Shown::Text, "Text", "Samples as text, with the targets"));
    }
    if data.series.is_some() {
        choices.push((Shown::Series, "Series", "The whole series, with the input and the target of one sample"));
    }
    if data.picture.is_some() {
        choices.push((Shown::Samples, "Samples", "Samples as pictures"));
    }
    if !data.scatter.is_empty() {
        choices.push((Shown::Plane, "Plane", "Samples in the plane of their two values"));
    }
    choices.push((Shown::Table, "Table", "Samples as numbers"));
    if !data.features.is_empty() {
        choices.push((Shown::Features, "Features", "Range, mean and standard deviation of each feature"));
    }
    if !choices.iter().any(|(s, ..)| *s == panel.shown) {
        panel.shown = choices[0].0;
    }
    ui.horizontal_wrapped(|ui| {
        segments_ui(ui, &mut panel.shown, &choices);
        if !panel.shown.is_of_all() {
            filter_ui(ui, data, panel);
        }
    });
    panel.refresh(data, view.generation);
    ui.add_space(4.0);
    if panel.list.is_empty() && !panel.shown.is_of_all() {
        return empty_ui(ui, "No sample passes the filter", "Choose another class, or both sides of the split.");
    }
    match panel.shown {
        Shown::Samples => grid_ui(ui, data, panel),
        Shown::Text => {
            let DataPanel { list, texts, .. } = panel;
            text_samples_ui(ui, data, view.source, list, view.generation, texts);
        }
        Shown::Table => table_ui(ui, data, &panel.list),
        Shown::Features => features_ui(ui, data),
        Shown::Series => {
            if let Some(series) = &data.series {
                whole_series_ui(ui, series, &mut panel.series);
            }
        }
        Shown::Plane => {
            let wanted = |i: &&u32| {
                panel.class.is_none_or(|c| data.class(**i) == Some(c))
                    && panel.held_out.is_none_or(|h| data.is_held_out(**i) == h)
            };
            let samples: Vec<u32> = data.scatter.iter().filter(wanted).copied().collect();
            if samples.len() < panel.list.len() {
                weak_ui(ui, format!("{} of {}, spread evenly", samples.len(), plain_count(panel.list.len(), "sample")));
            }
            plane_ui(ui, "Samples in the plane", &data.set, &samples, None);
        }
    }
}

fn filter_ui(ui: &mut Ui, data: &DataView, panel: &mut DataPanel) {
    if !data.classes.is_empty() {
        let name = |c: Option<usize>| c.and_then(|c| data.classes.get(c)).map_or("all classes", |c| c.name.as_str());
        let combo = ComboBox::from_id_salt("class filter").width(96.0).truncate().selected_text(name(panel.class));
        let response = combo.show_ui(ui, |ui| {
            ui.selectable_value(&mut panel.class, None, "all classes");
            for (i, class) in data.classes.iter().enumerate() {
                ui.selectable_value(&mut panel.class, Some(i), &class.name);
            }
        });
        response.response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::ComboBox, true, "Class of the samples"));
    }
    let side = |h: Option<bool>| h.map_or("both sides", |h| if h { "held out" } else { "training" });
    let combo = ComboBox::from_id_salt("split filter").width(88.0).selected_text(side(panel.held_out));
    let response = combo.show_ui(ui, |ui| {
        for choice in [None, Some(false), Some(true)] {
            ui.selectable_value(&mut panel.held_out, choice, side(choice));
        }
    });
    response.response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::ComboBox, true, "Side of the split"));
    let noun = if panel.list.len() == 1 { "sample" } else { "samples" };
    let text = format!("{} {noun}", format::exact(panel.list.len() as u64));
    let text = RichText::new(text).size(12.0).color(theme::colors(ui).weak);
    // A number is not wrapped at its thousands separators.
    ui.add(egui::Label::new(text).extend());
}

/// Samples as pictures, as many in a row as fit; only visible rows are drawn.
fn grid_ui(ui: &mut Ui, data: &DataView, panel: &mut DataPanel) {
    const CELL: f32 = 56.0;
    const CAPTION: f32 = 16.0;
    const GAP: f32 = 8.0;
    let Some(picture) = data.picture else { return };
    let c = theme::colors(ui);
    let columns = (((ui.available_width() - 8.0) / (CELL + GAP)).floor() as usize).max(1);
    panel.strips.begin(panel.generation, columns);
    let rows = panel.list.len().div_ceil(columns);
    let area = ScrollArea::vertical().id_salt("sample grid").auto_shrink([false, false]);
    ui.spacing_mut().item_spacing.y = GAP;
    area.show_rows(ui, CELL + CAPTION, rows, |ui, range| {
        for row in range {
            let size = Vec2::new(columns as f32 * (CELL + GAP), CELL + CAPTION);
            let (rect, _) = ui.allocate_exact_size(size, Sense::hover());
            let own = &panel.list[row * columns..((row + 1) * columns).min(panel.list.len())];
            let texture = panel.strips.row(ui.ctx(), row, &data.set, &picture, own.iter().copied()).clone();
            for (column, &index) in own.iter().enumerate() {
                let min = rect.min + Vec2::new(column as f32 * (CELL + GAP), 0.0);
                let square = Rect::from_min_size(min, Vec2::splat(CELL));
                picture_ui(ui, &texture, &picture, square, column, columns);
                let held = data.is_held_out(index);
                let target = data.target_text(index);
                let mark = if held { "held out" } else { "training" };
                let response = ui.interact(square, ui.scope_id().with(index), Sense::hover());
                let about = format!("sample {index}, {target}, {mark}");
                response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Image, true, &about));
                response.on_hover_text(about);
                let at = square.left_bottom() + Vec2::new(0.0, 2.0);
                let font = egui::FontId::proportional(12.0);
                let clip = Rect::from_min_size(at, Vec2::new(CELL, CAPTION));
                ui.painter().with_clip_rect(clip.intersect(ui.clip_rect())).text(
                    at,
                    egui::Align2::LEFT_TOP,
                    &target,
                    font.clone(),
                    c.text,
                );
                if held {
                    // Shown by a letter and a position, not only by colour.
                    ui.painter().text(
                        square.right_bottom() + Vec2::new(0.0, 2.0),
                        egui::Align2::RIGHT_TOP,
                        "H",
                        font,
                        c.warning,
                    );
                }
            }
        }
    });
}

/// Reports the inputs whose values are not all shown.
fn left_out_ui(ui: &mut Ui, data: &DataView, columns: &[TableColumn]) {
    for (at, input) in data.set.inputs.iter().enumerate() {
        let shown = columns.iter().filter(|column| column.input == at && column.value.is_some()).count();
        let width = input.sample.len();
        if shown > 0 && width > shown {
            let of = if data.set.inputs.len() == 1 { String::new() } else { format!(" of {}", input.name) };
            weak_ui(ui, format!("the first {shown} of {width} values{of}"));
        }
    }
}

fn table_ui(ui: &mut Ui, data: &DataView, list: &[u32]) {
    // A text has one column; the numbers of its tokens are not useful to read.
    let columns = table_columns(&data.set, COLUMNS);
    left_out_ui(ui, data, &columns);
    let shown = columns.len();
    let scroll = ScrollArea::horizontal().id_salt("sample table across").auto_shrink([false, false]);
    scroll.show_viewport(ui, |ui, viewport| {
        // The columns that identify a sample stay visible when its values are scrolled horizontally, including the
        // target if there is space.
        let frozen = Frozen::new(ui, viewport, if viewport.width() > 480.0 { FACTS.len() } else { 1 });
        let mut table = TableBuilder::new(ui)
            .id_salt("sample table")
            .auto_shrink([false, false])
            .cell_layout(Layout::left_to_right(Align::Center))
            .column(Column::exact(56.0))
            .column(Column::exact(64.0))
            .column(Column::exact(88.0).clip(true));
        let text_width = if shown == 1 { 640.0 } else { 240.0 };
        for column in &columns {
            table = table.column(Column::exact(if column.value.is_some() { 72.0 } else { text_width }).clip(true));
        }
        let table = table.header(20.0, |mut row| {
            frozen.row_ui(&mut row, FACTS.len() + shown, Ground::default(), |ui, at| {
                match at.checked_sub(FACTS.len()) {
                    None => drop(weak_ui(ui, FACTS[at])),
                    Some(i) => {
                        let Some(TableColumn { name, .. }) = columns.get(i) else { return };
                        weak_ui(ui, name).on_hover_text(name);
                    }
                }
            });
        });
        table.body(|body| {
            body.rows(20.0, list.len(), |mut row| {
                let Some(&index) = list.get(row.index()) else { return };
                let mono = |text: String| RichText::new(text).font(theme::mono());
                let side = if data.is_held_out(index) { "held out" } else { "training" };
                frozen.row_ui(&mut row, FACTS.len() + shown, Ground::default(), |ui, at| match at {
                    0 => drop(ui.label(mono(index.to_string()))),
                    1 => drop(weak_ui(ui, side)),
                    2 => drop(ui.add(egui::Label::new(data.target_text(index)).truncate())),
                    at => match columns.get(at - FACTS.len()) {
                        Some(TableColumn { input, value: Some(at), .. }) => {
                            let values = data.set.input_slice(*input, index as usize);
                            let Some(value) = values.get(*at) else { return };
                            let text = mono(format::number(f64::from(*value)));
                            ui.label(text).on_hover_text(value.to_string());
                        }
                        Some(column) => {
                            let text = sample_text(&data.set, column.input, index).unwrap_or_default();
                            ui.add(egui::Label::new(mono(text.clone())).truncate().show_tooltip_when_elided(false))
                                .on_hover_text(text);
                        }
                        None => {}
                    },
                });
            });
        });
    });
}
