//! The capture plan: buffers by layer, and every scalar as frozen or live.

use crate::studio::commands::fold::FoldCommand;
use crate::studio::commands::selection::Selection;
use crate::studio::commands::{CommandQueue, UiCommand};
use crate::studio::panels::layer_card::fold_ui;
use crate::studio::panels::plan_state::{path_ui, plan_head_ui, unplanned_ui};
use crate::studio::theme;
use crate::studio::theme::icons;
use crate::studio::view_models::capture::ConstantRow;
use crate::studio::view_models::capture::{COLUMNS, CaptureView, Cell, Shown};
use crate::studio::view_models::capture_rows::{CaptureLine, Cells, SumCell};
use crate::studio::view_models::folded_layers::Sideways;
use crate::studio::view_models::format::plain_count;
use crate::studio::view_models::network::NetworkView;
use crate::studio::view_models::panels::capture::CapturePanelView;
use crate::studio::view_models::related::Related;
use crate::studio::widgets::button::{named, weak_ui};
use crate::studio::widgets::frozen_columns::{Frozen, Ground};
use crate::studio::widgets::keyboard::{list_ui, row_by_keys, side_by_keys};
use egui::{Align, Button, Id, Layout, Rect, Response, RichText, ScrollArea, Stroke, StrokeKind, Ui, Vec2};
use egui_extras::{Column, TableBuilder};

/// The state of the panel.
#[derive(Debug, Default)]
pub struct CapturePanel {
    pub shown: Shown,
    /// The folded rows, and what they depend on: revisions of plan, document and folds.
    lines: Vec<CaptureLine>,
    /// The number of characters of the longest text in every column, by the kind of cells.
    longest: [[usize; COLUMNS.len()]; Shown::ALL.len()],
    made_for: Option<(u64, u64, u64)>,
    /// The row that was reached by keyboard.
    at: Option<usize>,
    /// The selection that was last brought into view.
    selected: Option<Selection>,
}

impl CapturePanel {
    /// Updates the folded rows if something about them has changed.
    fn make_lines(&mut self, view: &CapturePanelView<'_>, buffers: &CaptureView) {
        let made = view.made_of;
        // The rows of an older network keep their folds: its layers are not those of the network on screen.
        let stays = view.shown.is_stale && self.made_for.is_some_and(|m| m.0 == made.0);
        if stays || self.made_for == Some(made) {
            return;
        }
        self.made_for = Some(made);
        self.lines = match view.shown.is_stale {
            true => buffers.lines(&NetworkView::default(), &[]),
            false => buffers.lines(view.network, view.rows),
        };
        self.longest = Shown::ALL.map(|shown| buffers.longest(&self.lines, shown));
    }
}

/// Shows the panel.
pub fn capture_ui(ui: &mut Ui, view: &CapturePanelView<'_>, panel: &mut CapturePanel, commands: &mut CommandQueue) {
    let Some(plan) = view.shown.plan else {
        return unplanned_ui(ui, view.shown.readiness, "see its buffers", commands);
    };
    plan_head_ui(ui, &view.shown, commands);
    let buffers = &plan.capture;
    ui.horizontal(|ui| {
        ui.label(RichText::new("Buffers by layer").font(theme::strong(13.0)));
        weak_ui(ui, view.recorded.as_str()).on_hover_text(view.recording.as_str());
        path_ui(ui, &view.shown);
    });
    ui.horizontal(|ui| {
        ui.spacing_mut().item_spacing.x = 2.0;
        for shown in Shown::ALL {
            let [word, about] = shown.words();
            let button = ui.add(Button::selectable(panel.shown == shown, word)).on_hover_text(about);
            named(&button, about, true);
            if button.clicked() {
                panel.shown = shown;
            }
        }
        ui.add_space(12.0);
        ui.add(egui::Label::new(RichText::new(&view.recording).size(12.0).color(theme::colors(ui).weak)).truncate());
    });
    panel.make_lines(view, buffers);
    layers_ui(ui, view, buffers, panel, commands);
    ui.separator();
    let live = buffers.constants.iter().filter(|c| c.live).count();
    ui.horizontal(|ui| {
        ui.label(RichText::new("Constants").font(theme::strong(13.0)));
        weak_ui(
            ui,
            format!("{} frozen at capture, {live} read from memory at every replay", buffers.constants.len() - live),
        );
    });
    constants_ui(ui, &buffers.constants, commands);
}

/// The smallest and the largest width of the names, and of a cell, in points.
const NAME: [f32; 2] = [80.0, 160.0];
const CELL: [f32; 2] = [40.0, 256.0];

/// The indentation of a name for each level of nesting, in points.
const INDENT: f32 = 8.0;

/// The table of buffers, which is as high as its rows, but at most slightly more than half of the panel.
fn layers_ui(
    ui: &mut Ui,
    view: &CapturePanelView<'_>,
    buffers: &CaptureView,
    panel: &mut CapturePanel,
    commands: &mut CommandQueue,
) {
    let shown = panel.shown;
    let extra = &buffers.others;
    let rows = panel.lines.len() + extra.len();
    let half = (ui.available_height() * 0.58).max(120.0).min((rows + 1) as f32 * 28.0);
    let id = Id::unique("capture rows");
    let frame = keyboard_ui(ui, id, half, rows);
    let jump = walk_ui(ui, view, panel, id, commands);
    let lines = &panel.lines;
    let drawn = Drawn { buffers, shown, related: view.shown.related };
    let mut pressed = None;
    let (name, widths) = widths(ui, lines, panel.longest[shown as usize]);
    let scroll = ScrollArea::horizontal().id_salt("layers").auto_shrink([false, true]);
    scroll.show_viewport(ui, |ui, viewport| {
        let frozen = Frozen::new(ui, viewport, 1);
        let table = table(ui, name, widths, (half, jump));
        let table = table.header(20.0, |mut row| {
            frozen.row_ui(&mut row, COLUMNS.len() + 1, Ground::default(), |ui, at| {
                weak_ui(ui, at.checked_sub(1).map_or("Layer", |at| COLUMNS[at]));
            });
        });
        table.body(|body| {
            body.rows(24.0, rows, |mut row| {
                let index = row.index();
                if let Some(line) = lines.get(index) {
                    let is_selected = is_selected(view, line);
                    row.set_selected(is_selected);
                    let is_at = frame.has_focus() && panel.at == Some(index);
                    let ground = Ground { is_selected, hovers: false };
                    frozen.row_ui(&mut row, COLUMNS.len() + 1, ground, |ui, at| {
                        if line_ui(ui, &drawn, line, (at, is_at), commands) {
                            pressed = Some(index);
                        }
                    });
                } else if let Some((name, cell)) = extra.get(index - lines.len()) {
                    frozen.row_ui(&mut row, COLUMNS.len() + 1, Ground::default(), |ui, at| match at {
                        0 => drop(ui.label(RichText::new(name.as_str()).font(theme::mono()))),
                        1 => cell_ui(ui, cell.as_ref(), &drawn, commands),
                        _ => {}
                    });
                }
            });
        });
    });
    if let Some(index) = pressed {
        panel.at = Some(index);
        ui.memory_mut(|m| m.request_focus(id));
    }
}

/// The table as a whole has the keyboard focus, like the list of layers.
fn keyboard_ui(ui: &mut Ui, id: Id, height: f32, rows: usize) -> Response {
    let room = Rect::from_min_size(ui.cursor().min, Vec2::new(ui.available_width(), height));
    let frame = list_ui(ui, id, room, &format!("Buffers by layer, {}", plain_count(rows, "row")));
    if frame.has_focus() {
        let line = Stroke::new(1.0, theme::colors(ui).accent);
        ui.painter().rect_stroke(frame.rect.expand(3.0), 2, line, StrokeKind::Inside);
    }
    frame
}

/// A table of at most this height with columns of these widths, scrolled so that a row is visible.
fn table<'a>(
    ui: &'a mut Ui,
    name: f32,
    widths: [f32; COLUMNS.len()],
    (height, jump): (f32, Option<usize>),
) -> TableBuilder<'a> {
    let mut table = TableBuilder::new(ui)
        .id_salt("capture layers")
        .auto_shrink([false, true])
        .max_scroll_height(height)
        .cell_layout(Layout::left_to_right(Align::Center))
        .column(Column::exact(name).clip(true));
    for width in widths {
        table = table.column(Column::exact(width).clip(true));
    }
    if let Some(row) = jump {
        table = table.scroll_to_row(row, None);
    }
    table
}

/// The widths of the names and of the other columns, given the lengths of their longest texts. A shape is always shown
/// whole: if the columns do not fit side by side, the table scrolls.
fn widths(ui: &Ui, lines: &[CaptureLine], longest: [usize; COLUMNS.len()]) -> (f32, [f32; COLUMNS.len()]) {
    let widths = longest.map(|n| theme::mono_width(ui, n).clamp(CELL[0], CELL[1]));
    let name =
        lines.iter().map(|l| theme::mono_width(ui, l.name.chars().count()) + name_indent(l)).fold(NAME[0], f32::max);
    let name = name.min(NAME[1]);
    let spare = ui.available_width() - name - widths.iter().map(|w| w + 8.0).sum::<f32>();
    let more = (spare / COLUMNS.len() as f32).floor().max(0.0);
    (name, widths.map(|w| w + more))
}

/// True if a row, or something folded into it, belongs to the selection.
fn is_selected(view: &CapturePanelView<'_>, line: &CaptureLine) -> bool {
    let related = &view.shown.related.layers;
    let is_folded = line.fold.as_ref().is_some_and(|(_, folded)| *folded);
    let mut within = view.network.cards.get(line.cards.clone()).unwrap_or_default().iter().map(|c| &c.path);
    let own = line.layer.as_ref().is_some_and(|l| related.contains(l));
    !view.shown.is_stale && (own || is_folded && within.any(|l| related.contains(l)))
}

/// Handles the keyboard: arrows select, and fold and unfold. Returns the row to scroll to.
fn walk_ui(
    ui: &Ui,
    view: &CapturePanelView<'_>,
    panel: &mut CapturePanel,
    id: Id,
    commands: &mut CommandQueue,
) -> Option<usize> {
    let lines = &panel.lines;
    let selected = view.shown.selection;
    let mut jump = None;
    if panel.selected.as_ref() != Some(selected) {
        let own = |l: &CaptureLine| l.layer.as_ref().is_some_and(|p| *selected == Selection::Layer(p.clone()));
        // A row that was reached by keyboard is visible already.
        jump = lines.iter().position(own).filter(|at| panel.at != Some(*at));
        panel.at = jump.or(panel.at);
        panel.selected = Some(selected.clone());
    }
    panel.at = panel.at.map(|at| at.min(lines.len().saturating_sub(1)));
    let mut to = row_by_keys(ui, id, lines.len(), panel.at);
    let row = |n: usize| lines.get(n)?.fold_row();
    match side_by_keys(ui, id).zip(panel.at).and_then(|(left, at)| Sideways::of(left, at, view.network, row)) {
        Some(Sideways::Fold(fold, folds)) => commands.push(UiCommand::Fold(FoldCommand::Set(fold, folds))),
        Some(Sideways::To(row)) => to = Some(row),
        None => {}
    }
    if let Some(to) = to {
        panel.at = Some(to);
        let layer = lines.get(to).and_then(|l| l.layer.clone());
        commands.extend(layer.map(|path| UiCommand::Select(Selection::Layer(path))));
        return Some(to);
    }
    jump
}

/// The width of what is before the name of a row, in points.
fn name_indent(line: &CaptureLine) -> f32 {
    line.depth as f32 * INDENT + if line.fold.is_some() { 22.0 } else { 0.0 }
}

/// What the cells show.
struct Drawn<'a> {
    buffers: &'a CaptureView,
    shown: Shown,
    related: &'a Related,
}

/// Draws a column of a row, the name first; returns true if the name was pressed.
fn line_ui(
    ui: &mut Ui,
    drawn: &Drawn<'_>,
    line: &CaptureLine,
    (column, is_at): (usize, bool),
    commands: &mut CommandQueue,
) -> bool {
    match (column.checked_sub(1), &line.cells) {
        (None, _) => return name_ui(ui, line, is_at, commands),
        (Some(column), Cells::Own(at)) => {
            cell_ui(ui, drawn.buffers.layers[*at].cells[column].as_ref(), drawn, commands);
        }
        (Some(column), Cells::Sum(sums)) => sum_ui(ui, sums[column].as_ref(), drawn.shown),
        (Some(_), Cells::Nothing) => {}
    }
    false
}

/// The name of a row, with the button that folds it; true if it was pressed.
fn name_ui(ui: &mut Ui, line: &CaptureLine, is_at: bool, commands: &mut CommandQueue) -> bool {
    ui.spacing_mut().item_spacing.x = 2.0;
    ui.add_space(line.depth as f32 * INDENT);
    if let Some((fold, folded)) = &line.fold {
        fold_ui(ui, fold.clone(), *folded, &format!("the buffers of {}", line.name), commands);
    }
    let c = theme::colors(ui);
    let text = RichText::new(&line.name).font(theme::mono()).color(if is_at { c.accent } else { c.text });
    let button = ui.add(Button::new(text).frame(false).truncate()).on_hover_text(&line.name);
    if !button.clicked() {
        return false;
    }
    match (&line.layer, &line.fold) {
        (Some(path), _) => commands.push(UiCommand::Select(Selection::Layer(path.clone()))),
        (None, Some((fold, folded))) => commands.push(UiCommand::Fold(FoldCommand::Set(fold.clone(), !folded))),
        (None, None) => {}
    }
    true
}

/// The totals of the tensors of a folded row.
fn sum_ui(ui: &mut Ui, cell: Option<&SumCell>, shown: Shown) {
    let c = theme::colors(ui);
    let Some(cell) = cell else { return drop(ui.label(RichText::new("–").color(c.weak))) };
    let text = RichText::new(&cell.texts[shown as usize]).font(theme::mono()).color(c.weak);
    ui.add(egui::Label::new(text).truncate().selectable(false).show_tooltip_when_elided(false))
        .on_hover_text(&cell.tooltip);
}

fn cell_ui(ui: &mut Ui, cell: Option<&Cell>, drawn: &Drawn<'_>, commands: &mut CommandQueue) {
    let c = theme::colors(ui);
    let Some(cell) = cell else {
        ui.label(RichText::new("–").color(c.weak));
        return;
    };
    let on = drawn.related.holds(cell.buffer, cell.part);
    let text =
        RichText::new(&cell.texts[drawn.shown as usize]).font(theme::mono()).color(if on { c.accent } else { c.text });
    let response = ui.add(Button::new(text).frame(false).truncate()).on_hover_text(&cell.tooltip);
    named(&response, cell.tooltip.lines().next().unwrap_or_default(), true);
    if response.clicked() {
        commands.push(UiCommand::Select(cell.selection()));
    }
}

fn constants_ui(ui: &mut Ui, rows: &[ConstantRow], commands: &mut CommandQueue) {
    // In a narrow window the operation, which is the most important column, keeps its width.
    let widths = if ui.available_width() < 480.0 { [84.0, 100.0, 84.0] } else { [96.0, 130.0, 150.0] };
    let table = TableBuilder::new(ui)
        .id_salt("constants")
        .auto_shrink([false, false])
        .cell_layout(Layout::left_to_right(Align::Center))
        .column(Column::exact(widths[0]))
        .column(Column::initial(widths[1]).at_least(60.0).clip(true))
        .column(Column::initial(widths[2]).at_least(60.0).clip(true))
        .column(Column::remainder().at_least(80.0).clip(true));
    let table = table.header(20.0, |mut row| {
        for name in ["", "Constant", "Value", "Operation"] {
            row.col(|ui| drop(weak_ui(ui, name)));
        }
    });
    table.body(|body| {
        body.rows(22.0, rows.len(), |mut row| {
            let k = &rows[row.index()];
            row.col(|ui| {
                let (icon, word, about) = if k.live {
                    (icons::LIVE, "live", "Read from memory at every replay: it can change while the step is replayed")
                } else {
                    (icons::FROZEN, "frozen", "Written into the recording: a change needs a new one")
                };
                let c = theme::colors(ui);
                let color = if k.live { c.accent } else { c.weak };
                ui.label(RichText::new(format!("{icon}  {word}")).size(12.0).color(color)).on_hover_text(about);
            });
            row.col(|ui| drop(ui.label(RichText::new(&k.name).font(theme::mono()))));
            row.col(|ui| drop(ui.label(RichText::new(&k.value).font(theme::mono()))));
            row.col(|ui| {
                let text = format!("{} {}", k.op, k.kernel);
                if ui.add(Button::new(RichText::new(text).font(theme::mono())).frame(false).truncate()).clicked() {
                    commands.push(UiCommand::Select(Selection::Op(k.op)));
                }
            });
        });
    });
}
