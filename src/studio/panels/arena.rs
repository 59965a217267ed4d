//! The arena: the map, the scrubber through the step, and the numbers beside it.

use crate::studio::commands::{Command, Queue};
use crate::studio::icons;
use crate::studio::selection::Selection;
use crate::studio::state::Studio;
use crate::studio::theme;
use crate::studio::view_models::arena::ArenaView;
use crate::studio::view_models::format;
use crate::studio::widgets::arena_map::{Highlight, Window, map_ui};
use crate::studio::widgets::button::{command_icon_ui, empty_ui, role_ui, slider_ui, weak_ui};
use crate::tensor::Bytes;
use egui::{Align, Layout, RichText, Slider, TextEdit, Ui, Vec2};

/// What the panel remembers.
#[derive(Default)]
pub struct ArenaPanel {
    window: Option<Window>,
    made_for: u64,
    search: String,
    /// Whether the scrubber marks an operation, and which.
    scrubbing: bool,
    op: usize,
}

impl ArenaPanel {
    /// Shows the whole arena again.
    pub fn fit(&mut self) {
        self.window = None;
    }
}

/// Shows the panel.
pub fn arena_ui(ui: &mut Ui, studio: &Studio, panel: &mut ArenaPanel, out: &mut Queue) {
    let Some(plan) = &studio.plan else {
        return empty_ui(ui, "No arena yet", "Mend the problems in the network; its memory plan appears here at once.");
    };
    let view = &plan.arena;
    if panel.made_for != studio.plan_revision {
        // Another plan has another extent; a window on the old one would show nothing of use.
        (panel.made_for, panel.window) = (studio.plan_revision, None);
        panel.op = panel.op.min(view.ops.saturating_sub(1));
    }
    let side = 232.0;
    let height = ui.available_height();
    ui.horizontal_top(|ui| {
        let width = (ui.available_width() - side - 16.0).max(200.0);
        ui.allocate_ui_with_layout(Vec2::new(width, height), Layout::top_down(Align::Min), |ui| {
            ui.set_width(width);
            tools_ui(ui, panel, out);
            let map = Vec2::new(width, (ui.available_height() - 32.0).max(120.0));
            ui.allocate_ui(map, |ui| {
                let window = panel.window.get_or_insert_with(|| Window::fit(view));
                let search = panel.search.to_lowercase();
                let op = panel.scrubbing.then_some(panel.op);
                let highlight =
                    Highlight { buffers: &studio.related.buffers, ops: &studio.related.ops, op, search: &search };
                let map = map_ui(ui, view, window, &highlight);
                if map.response.clicked() {
                    out.push(Command::Select(map.clicked.map_or(Selection::Nothing, Selection::Buffer)));
                }
            });
            scrubber_ui(ui, panel, view, studio);
        });
        ui.add_space(8.0);
        ui.allocate_ui_with_layout(Vec2::new(side, height), Layout::top_down(Align::Min), |ui| {
            ui.set_width(side);
            egui::ScrollArea::vertical()
                .id_salt("arena numbers")
                .auto_shrink([false, false])
                .show(ui, |ui| numbers_ui(ui, view));
        });
    });
}

fn tools_ui(ui: &mut Ui, panel: &mut ArenaPanel, out: &mut Queue) {
    ui.horizontal(|ui| {
        command_icon_ui(ui, Command::FitArena, true, out);
        ui.label(RichText::new(icons::SEARCH).color(theme::colors(ui).weak));
        let edit = TextEdit::singleline(&mut panel.search)
            .hint_text("Find a buffer")
            .desired_width(200.0)
            .id_salt("buffer search");
        ui.name_inputs("Find a buffer", |ui| ui.add(edit));
        let hint =
            RichText::new("wheel zooms, shift-wheel in time only, drag pans").size(12.0).color(theme::colors(ui).weak);
        ui.add(egui::Label::new(hint).truncate());
    });
}

fn scrubber_ui(ui: &mut Ui, panel: &mut ArenaPanel, view: &ArenaView, studio: &Studio) {
    ui.horizontal(|ui| {
        let response = ui.checkbox(&mut panel.scrubbing, "Live at op");
        response.on_hover_text("Marks one operation and lights the buffers that are live there");
        let last = view.ops.saturating_sub(1);
        let width = (ui.available_width() - 300.0).clamp(80.0, 600.0);
        let response = slider_ui(ui, Slider::new(&mut panel.op, 0..=last), "Operation of the scrubber", width);
        if response.changed() {
            panel.scrubbing = true;
        }
        let live = view.live_bytes.get(panel.op).copied().unwrap_or(0);
        let kernel = studio.plan.as_ref().and_then(|p| p.ops.get(panel.op)).map_or("", |o| o.kernel.as_str());
        let text = format!("{} live  {kernel}", Bytes(live));
        ui.add(egui::Label::new(RichText::new(text).size(12.0).color(theme::colors(ui).weak)).truncate());
    });
}

fn line_ui(ui: &mut Ui, label: &str, value: &str, exact: &str) {
    ui.horizontal(|ui| {
        weak_ui(ui, label);
        ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
            ui.label(RichText::new(value).size(12.0)).on_hover_text(exact);
        });
    });
}

fn bytes_ui(ui: &mut Ui, label: &str, bytes: u64) {
    line_ui(ui, label, &Bytes(bytes).to_string(), &format!("{} bytes", format::exact(bytes)));
}

fn title_ui(ui: &mut Ui, title: &str) {
    ui.add_space(12.0);
    ui.label(RichText::new(title).font(theme::strong(12.0)).color(theme::colors(ui).weak));
}

fn numbers_ui(ui: &mut Ui, view: &ArenaView) {
    ui.spacing_mut().item_spacing.y = 2.0;
    ui.spacing_mut().interact_size.y = 18.0;
    ui.label(RichText::new(Bytes(view.arena_bytes).to_string()).font(theme::strong(20.0)))
        .on_hover_text(format!("{} bytes", format::exact(view.arena_bytes)));
    let saved = 1.0 - view.arena_bytes as f64 / view.unshared_bytes.max(1) as f64;
    let verdict = if view.is_optimal { "proved the smallest possible" } else { "the best plan found" };
    weak_ui(ui, verdict);
    ui.add_space(4.0);
    bytes_ui(ui, "lower bound", view.lower_bound_bytes);
    line_ui(ui, "over the bound", &format!("{:.3}", view.ratio), "Arena over lower bound");
    bytes_ui(ui, "unshared", view.unshared_bytes);
    line_ui(ui, "saved by sharing", &format::percent(saved), "Against a buffer of its own for everything");
    bytes_ui(ui, "survives the step", view.persistent_bytes);
    bytes_ui(ui, "padding", view.padding_bytes);
    line_ui(ui, "buffers", &view.rects.len().to_string(), "Buffers in the arena");
    title_ui(ui, "By role, summed over the step");
    weak_ui(ui, "Sums, not the peak: buffers that are never live together share memory.");
    let most = view.by_role.iter().map(|(_, b)| *b).max().unwrap_or(1).max(1);
    for (role, bytes) in &view.by_role {
        ui.horizontal(|ui| {
            ui.spacing_mut().item_spacing.x = 6.0;
            role_ui(ui, *role);
            ui.label(RichText::new(role.name()).size(12.0));
            ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
                ui.label(RichText::new(Bytes(*bytes).to_string()).size(12.0))
                    .on_hover_text(format!("{} bytes", format::exact(*bytes)));
            });
        });
        let (rect, _) = ui.allocate_exact_size(Vec2::new(ui.available_width(), 3.0), egui::Sense::hover());
        let part = rect.width() * (*bytes as f32 / most as f32);
        ui.painter().rect_filled(rect, 1, theme::colors(ui).hairline);
        ui.painter().rect_filled(egui::Rect::from_min_size(rect.min, Vec2::new(part, 3.0)), 1, theme::role(*role));
    }
    title_ui(ui, "Planners tried");
    for attempt in &view.attempts {
        let name = attempt.planner.replace('_', " ");
        let time = format::micros(attempt.micros as f64);
        ui.horizontal(|ui| {
            ui.spacing_mut().item_spacing.x = 4.0;
            let text = RichText::new(name).size(12.0).color(if attempt.chosen {
                theme::colors(ui).text
            } else {
                theme::colors(ui).weak
            });
            if attempt.chosen {
                ui.label(RichText::new(icons::CHECK).size(12.0).color(theme::colors(ui).accent))
                    .on_hover_text("Chosen");
            }
            ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
                ui.label(RichText::new(Bytes(attempt.bytes).to_string()).size(12.0))
                    .on_hover_text(format!("in {time}"));
                ui.with_layout(Layout::left_to_right(Align::Center), |ui| ui.add(egui::Label::new(text).truncate()));
            });
        });
    }
}
