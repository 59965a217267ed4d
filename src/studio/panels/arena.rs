//! The arena: the map, the scrubber through the step, and beside them the owners of a byte and the numbers.

use crate::plan::BufferId;
use crate::studio::commands::selection::Selection;
use crate::studio::commands::{CommandQueue, UiCommand};
use crate::studio::panels::arena_numbers::{largest_ui, numbers_ui, title_ui};
use crate::studio::panels::byte_owners::{ByteOwnersPanel, byte_owners_ui};
use crate::studio::panels::plan_state::{path_ui, plan_head_ui, unplanned_ui};
use crate::studio::panels::values::values_line_ui;
use crate::studio::theme;
use crate::studio::theme::icons;
use crate::studio::view_models::panels::arena::ArenaPanelView;
use crate::studio::view_models::plan::PlanView;
use crate::studio::view_models::related::Related;
use crate::studio::widgets::arena_map::{Axis, Fading, Highlight, LitPart, Window, map_ui};
use crate::studio::widgets::button::{command_icon_ui, icon_ui, slider_ui, text_line_ui, weak_ui};
use crate::tensor::Bytes;
use egui::containers::scroll_area::ScrollSource;
use egui::{Align, Button, Layout, RichText, Slider, Ui, Vec2};

/// The state of the panel.
#[derive(Default)]
pub struct ArenaPanel {
    window: Option<Window>,
    /// The plan's revision, and the end of the axis that the view is relative to.
    made_for: (u64, f64),
    search: String,
    /// The position of the slider while the scrubber is off.
    op: usize,
    /// Whether the horizontal axis is measured time, if that is known.
    by_time: bool,
    /// When the current plan was first shown, by the window's clock in seconds.
    shown_at: Option<f64>,
    /// The operation and the byte under the pointer.
    pointer: Option<(usize, u64)>,
    owners: ByteOwnersPanel,
}

impl ArenaPanel {
    /// Shows the whole arena again.
    pub fn fit(&mut self) {
        self.window = None;
    }
}

/// How long a new buffer fades in and a removed one out, in seconds.
const FADE_S: f64 = 0.12;

/// Shows the panel.
pub fn arena_ui(ui: &mut Ui, view: &ArenaPanelView<'_>, panel: &mut ArenaPanel, commands: &mut CommandQueue) {
    let Some(plan) = view.shown.plan else {
        return unplanned_ui(ui, view.shown.readiness, "see its arena", commands);
    };
    plan_head_ui(ui, &view.shown, commands);
    let arena = &plan.arena;
    if panel.made_for.0 != view.shown.revision {
        panel.op = panel.op.min(arena.ops.saturating_sub(1));
        panel.shown_at = Some(ui.input(|i| i.time));
    }
    let made_for = (view.shown.revision, axis_of(view, panel).edge(arena.ops));
    if panel.made_for != made_for {
        // Another plan or axis has another size; the old view would show nothing useful.
        (panel.made_for, panel.window) = (made_for, None);
    }
    let side = 248.0;
    if ui.available_width() < side + 16.0 + LEAST_MAP {
        // If both do not fit side by side, the numbers are below the map. Over the map the wheel zooms, so it must not
        // scroll as well.
        let mouse_wheel = panel.pointer.is_none();
        let source = ScrollSource { mouse_wheel, ..ScrollSource::default() };
        let scroll = egui::ScrollArea::vertical().id_salt("narrow arena").scroll_source(source);
        scroll.auto_shrink([false, false]).show(ui, |ui| {
            let map = Vec2::new(ui.available_width(), (ui.clip_rect().height() - 32.0).max(260.0));
            column_ui(ui, map, |ui| main_ui(ui, view, panel, plan, commands));
            side_ui(ui, view, panel, plan, commands);
        });
        return;
    }
    let height = ui.available_height();
    ui.horizontal_top(|ui| {
        let width = ui.available_width() - side - 16.0;
        column_ui(ui, Vec2::new(width, height), |ui| main_ui(ui, view, panel, plan, commands));
        ui.add_space(8.0);
        column_ui(ui, Vec2::new(side, height), |ui| {
            let scroll = egui::ScrollArea::vertical().id_salt("arena numbers").auto_shrink([false, false]);
            scroll.show(ui, |ui| side_ui(ui, view, panel, plan, commands));
        });
    });
}

/// The width of the map, in points, below which the numbers do not fit beside it.
const LEAST_MAP: f32 = 340.0;

/// A column of exactly this size.
fn column_ui(ui: &mut Ui, size: Vec2, content: impl FnOnce(&mut Ui)) {
    ui.allocate_ui_with_layout(size, Layout::top_down(Align::Min), |ui| {
        ui.set_width(size.x);
        ui.set_height(size.y);
        content(ui);
    });
}

/// The map with its tools above it and the scrubber below it.
fn main_ui(
    ui: &mut Ui,
    view: &ArenaPanelView<'_>,
    panel: &mut ArenaPanel,
    plan: &PlanView,
    commands: &mut CommandQueue,
) {
    tools_ui(ui, view, panel, commands);
    let foot = if view.values.is_on { 56.0 } else { 32.0 };
    let map = Vec2::new(ui.available_width(), (ui.available_height() - foot).max(120.0));
    ui.allocate_ui(map, |ui| shown_map_ui(ui, view, panel, plan, commands));
    scrubber_ui(ui, panel, plan, view, commands);
    ui.horizontal(|ui| values_line_ui(ui, &view.values));
}

/// Measured time if it is wanted and known, otherwise operations.
fn axis_of<'a>(view: &ArenaPanelView<'a>, panel: &ArenaPanel) -> Axis<'a> {
    let measured = view.shown.measured.filter(|_| panel.by_time);
    Axis { edges_us: measured.map(|m| m.edges_us.as_slice()) }
}

fn side_ui(
    ui: &mut Ui,
    view: &ArenaPanelView<'_>,
    panel: &mut ArenaPanel,
    plan: &PlanView,
    commands: &mut CommandQueue,
) {
    ui.spacing_mut().item_spacing.y = 2.0;
    ui.spacing_mut().interact_size.y = 18.0;
    ui.spacing_mut().button_padding = Vec2::new(2.0, 1.0);
    path_ui(ui, &view.shown);
    numbers_ui(ui, &plan.arena);
    largest_ui(ui, plan, view, commands);
    title_ui(ui, "Who owns a byte");
    byte_owners_ui(ui, view, plan, &mut panel.owners, panel.pointer, commands);
    crate::studio::panels::arena_numbers::by_role_ui(ui, &plan.arena);
    crate::studio::panels::arena_numbers::planners_ui(ui, view, &plan.arena, commands);
    ui.add_space(16.0);
}

fn shown_map_ui(
    ui: &mut Ui,
    view: &ArenaPanelView<'_>,
    panel: &mut ArenaPanel,
    plan: &PlanView,
    commands: &mut CommandQueue,
) {
    let arena = &plan.arena;
    let axis = axis_of(view, panel);
    let fading = view.changes.zip(fade_share(ui, view, panel)).map(|(changes, share)| Fading {
        came: &changes.buffers.came,
        went: &changes.buffers.went,
        share,
    });
    let window = panel.window.get_or_insert_with(|| Window::fit(arena, &axis));
    let search = panel.search.to_lowercase();
    let parts = lit_parts(plan, view.shown.related);
    let highlight = Highlight {
        buffers: &view.shown.related.buffers,
        parts: &parts,
        ops: &view.shown.related.ops,
        op: view.scrub,
        search: &search,
        bytes: view.shown.related.bytes,
        fading,
    };
    let map = map_ui(ui, arena, &axis, window, &highlight);
    panel.pointer = map.pointer;
    if let Some(range) = map.stretch {
        commands.push(UiCommand::Select(Selection::Bytes(range)));
    } else if map.response.clicked() {
        map.response.request_focus();
        commands.push(UiCommand::Select(map.clicked.map_or(Selection::Nothing, Selection::Buffer)));
    }
    if map.nudge != 0 {
        let last = arena.ops.saturating_sub(1);
        let from = view.scrub.unwrap_or(panel.op);
        panel.op = from.saturating_add_signed(map.nudge).min(last);
        commands.push(UiCommand::Scrub(Some(panel.op)));
    }
}

/// The highlighted parts of flat vectors: those of vectors that are not highlighted as a whole.
fn lit_parts(plan: &PlanView, related: &Related) -> Vec<LitPart> {
    let parts = related.parts.iter().filter(|(id, _)| !related.buffers.contains(id));
    let lit = |&(buffer, part): &(BufferId, usize)| {
        let name = plan.compiled.plan.buffer(buffer).parts.get(part)?.name.clone();
        Some(LitPart { buffer, name, bytes: plan.part_bytes(buffer, part)? })
    };
    parts.filter_map(lit).collect()
}

/// The progress of fading, from 0 to 1; `None` if nothing fades.
fn fade_share(ui: &Ui, view: &ArenaPanelView<'_>, panel: &mut ArenaPanel) -> Option<f32> {
    let since = ui.input(|i| i.time) - panel.shown_at?;
    let still = view.is_still || ui.style().animation_time == 0.0;
    if still || since >= FADE_S {
        panel.shown_at = None;
        return None;
    }
    ui.ctx().request_repaint();
    Some((since / FADE_S) as f32)
}

fn tools_ui(ui: &mut Ui, view: &ArenaPanelView<'_>, panel: &mut ArenaPanel, commands: &mut CommandQueue) {
    ui.horizontal(|ui| {
        command_icon_ui(ui, UiCommand::FitArena, true, commands);
        ui.label(RichText::new(icons::SEARCH).color(theme::colors(ui).weak));
        let width = (ui.available_width() - 216.0).clamp(64.0, 130.0);
        text_line_ui(ui, &mut panel.search, "Find a buffer", "Find a buffer", width);
        ui.spacing_mut().item_spacing.x = 2.0;
        let known = view.shown.measured.is_some();
        for (by_time, label, about) in [
            (false, "Ops", "All operations have the same width"),
            (true, "Time", "The width of every operation is its measured time"),
        ] {
            let on = (panel.by_time && (known || view.shown.is_measuring)) == by_time;
            let response = ui.add(Button::selectable(on, label)).on_hover_text(about);
            if response.clicked() {
                panel.by_time = by_time;
                if by_time && !known {
                    commands.push(UiCommand::MeasureOps);
                }
            }
        }
        ui.add_space(6.0);
        let on = view.values.is_on;
        let about = UiCommand::ShowValues.tooltip(ui.ctx());
        if ui.add(Button::selectable(on, "Values")).on_hover_text(about).clicked() {
            commands.push(UiCommand::ShowValues);
        }
        if view.shown.is_measuring {
            ui.add(egui::Spinner::new().size(14.0));
        }
        ui.add_space(6.0);
        let hint = "wheel zooms, Shift in time only; drag pans, Shift picks bytes";
        let hint = RichText::new(hint).size(12.0).color(theme::colors(ui).weak);
        // A shortened text would be useless; the list of shortcuts contains it too.
        if ui.available_width() > 160.0 {
            ui.add(egui::Label::new(hint).truncate());
        }
    });
}

fn scrubber_ui(
    ui: &mut Ui,
    panel: &mut ArenaPanel,
    plan: &PlanView,
    view: &ArenaPanelView<'_>,
    commands: &mut CommandQueue,
) {
    ui.horizontal(|ui| {
        let mut on = view.scrub.is_some();
        let response = ui.checkbox(&mut on, "Live at op");
        if response.on_hover_text("Marks one operation and highlights the buffers that are live at it").changed() {
            commands.push(UiCommand::Scrub(on.then_some(panel.op)));
        }
        let last = plan.ops.len().saturating_sub(1);
        panel.op = view.scrub.unwrap_or(panel.op).min(last);
        ui.spacing_mut().item_spacing.x = 4.0;
        let mut to = panel.op;
        if icon_ui(ui, icons::BACK, "One op back", "One operation back").clicked() {
            to = to.saturating_sub(1);
        }
        if icon_ui(ui, icons::FORWARD, "One op on", "One operation on").clicked() {
            to = (to + 1).min(last);
        }
        let width = (ui.available_width() - 260.0).clamp(60.0, 600.0);
        slider_ui(ui, Slider::new(&mut to, 0..=last), "Operation of the scrubber", width);
        if to != panel.op {
            panel.op = to;
            commands.push(UiCommand::Scrub(Some(to)));
        }
        let live = plan.arena.live_bytes.get(panel.op).copied().unwrap_or(0);
        let kernel = plan.ops.get(panel.op).map_or("", |o| o.kernel.as_str());
        let text = RichText::new(kernel).font(theme::mono()).color(theme::colors(ui).accent);
        weak_ui(ui, format!("{} live", Bytes(live)));
        let link = ui.add(Button::new(text).frame(false).truncate()).on_hover_text("Selects the operation");
        if link.clicked() {
            commands.push(UiCommand::Select(Selection::Op(panel.op)));
        }
    });
}
