//! The step graph: the step at every stage of the compiler, as one table that can be filtered, sorted and navigated by
//! keyboard.

use crate::ir::Phase;
use crate::studio::commands::selection::Selection;
use crate::studio::commands::{CommandQueue, UiCommand};
use crate::studio::panels::plan_state::{plan_head_ui, unplanned_ui};
use crate::studio::theme;
use crate::studio::theme::icons;
use crate::studio::view_models::format;
use crate::studio::view_models::kernel_mark::KernelMark;
use crate::studio::view_models::levels::{Level, LevelRow, is_related, selection_of};
use crate::studio::view_models::panels::plan::PlanOnScreen;
use crate::studio::view_models::plan::PlanView;
use crate::studio::view_models::step_graph::letter;
use crate::studio::widgets::button::{
    command_icon_ui, command_ui, empty_ui, named, phase_legend, phase_ui, text_line_ui, weak_ui,
};
use crate::studio::widgets::frozen_columns::{Frozen, Ground};
use crate::studio::widgets::keyboard::{list_ui, row_by_keys};
use crate::studio::widgets::level_table::Column;
use crate::train::KernelChange;
use egui::{Align, Button, ComboBox, Id, Layout, RichText, ScrollArea, Sense, Ui, Vec2};
use egui_extras::{Column as TableColumn, TableBuilder};

/// What the rows depend on.
#[derive(Clone, Debug, PartialEq)]
struct Made {
    revision: u64,
    level: Level,
    filter: String,
    phases: [bool; 5],
    layer: Option<String>,
    sort: Option<(Column, bool)>,
    measured: bool,
    kernel_change: KernelChange,
}

/// The state of the panel.
pub struct StepGraphPanel {
    level: Level,
    filter: String,
    /// Which phases are shown, in their order.
    phases: [bool; 5],
    /// The only layer whose rows are shown.
    layer: Option<String>,
    /// The column that rows are sorted by, and whether the order is descending.
    sort: Option<(Column, bool)>,
    /// The remaining rows, in order.
    rows: Vec<usize>,
    layers: Vec<String>,
    /// The number of characters of the longest shapes and of the longest kernel.
    longest: [usize; 2],
    made_for: Option<Made>,
    shown: Selection,
}

impl Default for StepGraphPanel {
    fn default() -> Self {
        Self {
            level: Level::default(),
            filter: String::new(),
            phases: [true; 5],
            layer: None,
            sort: None,
            rows: Vec::new(),
            layers: Vec::new(),
            longest: [0; 2],
            made_for: None,
            shown: Selection::Nothing,
        }
    }
}

const ROW: f32 = 22.0;

impl StepGraphPanel {
    /// Filters and sorts the rows again if something about them has changed.
    fn make_rows(&mut self, plan: &PlanView, view: &PlanOnScreen<'_>) {
        let PlanOnScreen { revision, measured, kernel_change, .. } = *view;
        let made = Made {
            revision,
            level: self.level,
            filter: self.filter.to_lowercase(),
            phases: self.phases,
            layer: self.layer.clone(),
            sort: self.sort,
            measured: measured.is_some(),
            kernel_change,
        };
        if self.made_for.as_ref() == Some(&made) {
            return;
        }
        let all = plan.levels.rows(self.level);
        let in_layer = |r: &LevelRow| self.layer.as_ref().is_none_or(|l| is_in(&r.layer, l));
        let shown = |r: &&LevelRow| self.phases[r.phase as usize] && in_layer(r) && r.matches(&made.filter);
        self.rows = all.iter().filter(shown).map(|r| r.index).collect();
        if let Some((column, largest_first)) = self.sort {
            self.rows.sort_by(|a, b| {
                let (a, b) = (&all[*a], &all[*b]);
                let order = column.order(a, b, measured);
                let known = |r: &LevelRow| !column.is_number() || column.number(r, measured).is_some();
                // Unknown values are last in both orders.
                if largest_first && known(a) && known(b) { order.reverse() } else { order }
            });
        }
        let longest = |text: fn(&LevelRow) -> &str| all.iter().map(|r| text(r).chars().count()).max().unwrap_or(0);
        let mark = |r: &LevelRow| kernel_mark(r, view).map_or(0, |mark| mark.text.chars().count() + 1);
        let kernel = all.iter().map(|r| r.kernel.chars().count() + mark(r)).max().unwrap_or(0);
        self.longest = [longest(|r| &r.shapes), kernel];
        self.layers.clear();
        for row in all {
            if !row.layer.is_empty() && self.layers.last() != Some(&row.layer) && !self.layers.contains(&row.layer) {
                self.layers.push(row.layer.clone());
            }
        }
        // A block comes before the layers inside it, regardless of where its own operations are.
        self.layers.sort_by_key(|l| number(l).split('.').map(|n| n.parse().unwrap_or(usize::MAX)).collect::<Vec<_>>());
        self.made_for = Some(made);
    }

    /// Sorts by a column: ascending, then descending, then unsorted; numbers start with descending.
    fn press(&mut self, column: Column) {
        let first = column.is_number();
        self.sort = match self.sort {
            Some((c, order)) if c == column && order == first => Some((column, !first)),
            Some((c, _)) if c == column => None,
            _ => Some((column, first)),
        };
    }
}

/// The mark of a row's kernel.
fn kernel_mark(row: &LevelRow, view: &PlanOnScreen<'_>) -> Option<KernelMark> {
    KernelMark::of(row.index, row.compiled_for, view.kernel_change, view.measured)
}

/// The number of a layer's label: `1.0` of `L1.0:Dense`.
fn number(label: &str) -> &str {
    label.split(':').next().unwrap_or_default().trim_start_matches('L')
}

/// True if a layer is the other one, or inside it.
fn is_in(layer: &str, of: &str) -> bool {
    layer == of || number(layer).strip_prefix(number(of)).is_some_and(|rest| rest.starts_with('.'))
}

/// Shows the panel.
pub fn step_graph_ui(ui: &mut Ui, view: &PlanOnScreen<'_>, panel: &mut StepGraphPanel, commands: &mut CommandQueue) {
    let Some(plan) = view.plan else {
        return unplanned_ui(ui, view.readiness, "see its step", commands);
    };
    plan_head_ui(ui, view, commands);
    head_ui(ui, view, panel, plan, commands);
    filters_ui(ui, panel);
    panel.make_rows(plan, view);
    ui.add_space(4.0);
    if panel.rows.is_empty() {
        return empty_ui(ui, "Nothing matches the filter", "Clear the filter, or show all phases and layers again.");
    }
    table_ui(ui, view, panel, plan, commands);
}

/// The width below which a command is shown only as an icon.
const ROOM_FOR_NAME: f32 = 560.0;

fn head_ui(
    ui: &mut Ui,
    view: &PlanOnScreen<'_>,
    panel: &mut StepGraphPanel,
    plan: &PlanView,
    commands: &mut CommandQueue,
) {
    let short = ui.available_width() < ROOM_FOR_NAME;
    ui.horizontal(|ui| {
        ui.spacing_mut().item_spacing.x = 2.0;
        for level in Level::ALL {
            let button = Button::selectable(panel.level == level, level.title());
            let response = ui.add(button).on_hover_text(level.about());
            named(&response, &format!("Level {}", level.title()), true);
            if response.clicked() {
                // The columns differ, so that the column of the sort may not exist.
                (panel.level, panel.sort) = (level, None);
            }
        }
        ui.add_space(8.0);
        if view.is_measuring {
            ui.add(egui::Spinner::new().size(14.0));
            weak_ui(ui, "measuring");
        } else {
            let show = if short { command_icon_ui } else { command_ui };
            show(ui, UiCommand::MeasureOps, view.can_measure, commands);
        }
        ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
            let (us, what) = match view.measured {
                Some(m) => (m.times.replay_us, "measured"),
                None => (plan.whole.us, "estimated"),
            };
            let path = plan
                .path_text()
                .filter(|_| view.recording.is_none())
                .map_or_else(String::new, |path| format!("{path}: "));
            let text = format!(
                "{path}{} FLOP · {} a step, {what}",
                format::count(plan.whole.flops as f64),
                format::micros(us)
            );
            let text = RichText::new(text).size(12.0).color(theme::colors(ui).weak);
            ui.add(egui::Label::new(text).truncate());
        });
    });
}

fn filters_ui(ui: &mut Ui, panel: &mut StepGraphPanel) {
    ui.horizontal_wrapped(|ui| {
        ui.label(RichText::new(icons::SEARCH).color(theme::colors(ui).weak));
        text_line_ui(ui, &mut panel.filter, "Filter operations", "Filter by op, kernel, layer", 200.0);
        ui.spacing_mut().item_spacing.x = 2.0;
        for phase in Phase::ALL {
            phase_toggle_ui(ui, phase, &mut panel.phases[phase as usize]);
        }
        ui.add_space(6.0);
        let shown = panel.layer.clone().unwrap_or_else(|| "All layers".into());
        let combo = ComboBox::from_id_salt("layer filter").width(120.0).selected_text(shown).show_ui(ui, |ui| {
            ui.selectable_value(&mut panel.layer, None, "All layers");
            for layer in &panel.layers {
                ui.selectable_value(&mut panel.layer, Some(layer.clone()), layer);
            }
        });
        combo.response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::ComboBox, true, "Layer of the rows"));
        ui.add_space(6.0);
        let total = panel.rows.len();
        // A number is not separated from its noun.
        let text = RichText::new(format!("{total} {}", panel.level.noun())).size(12.0);
        ui.add(egui::Label::new(text.color(theme::colors(ui).weak)).extend());
    });
}

/// A phase's letter, which shows and hides its rows.
fn phase_toggle_ui(ui: &mut Ui, phase: Phase, on: &mut bool) {
    let (rect, response) = ui.allocate_exact_size(Vec2::splat(22.0), Sense::click());
    let (fill, text) = theme::colors(ui).phase(phase);
    let sign = rect.shrink(3.0);
    if *on {
        ui.painter().rect_filled(sign, 3, fill);
    } else {
        let line = egui::Stroke::new(1.0, theme::colors(ui).hairline);
        ui.painter().rect_stroke(sign, 3, line, egui::StrokeKind::Inside);
    }
    if response.has_focus() || response.hovered() {
        let line = egui::Stroke::new(1.0, theme::colors(ui).accent);
        ui.painter().rect_stroke(sign.expand(1.0), 4, line, egui::StrokeKind::Outside);
    }
    let color = if *on { text } else { theme::colors(ui).weak };
    ui.painter().text(
        rect.center(),
        egui::Align2::CENTER_CENTER,
        letter(phase),
        egui::FontId::proportional(12.0),
        color,
    );
    let name = format!("Show {}", phase.name());
    response.widget_info(|| egui::WidgetInfo::selected(egui::Role::CheckBox, true, *on, &name));
    if response.clicked() {
        *on ^= true;
    }
    let state = if *on { "on" } else { "off" };
    response.on_hover_text(format!("{name}: {state}\n\n{}", phase_legend(phase)));
}

fn table_ui(
    ui: &mut Ui,
    view: &PlanOnScreen<'_>,
    panel: &mut StepGraphPanel,
    plan: &PlanView,
    commands: &mut CommandQueue,
) {
    let level = panel.level;
    let columns = Column::of(level);
    let id = Id::unique("step graph rows");
    keyboard_ui(ui, view, panel, id, commands);
    let own = |r: &usize| selection_of(level, *r) == *view.selection;
    let jump = row_to_show(view, panel);
    let widths = widths(ui, columns, panel.longest);
    let mut pressed = None;
    let mut chosen = None;
    let scroll = ScrollArea::horizontal().id_salt(("step graph", level)).auto_shrink([false, false]);
    scroll.show_viewport(ui, |ui, viewport| {
        let frozen = Frozen::new(ui, viewport, staying(columns, viewport.width()));
        let table = table(ui, level, &widths, jump);
        let header = table.header(22.0, |mut row| {
            frozen.row_ui(&mut row, columns.len(), Ground::default(), |ui, at| {
                if header_ui(ui, columns[at], level, panel.sort) {
                    pressed = Some(columns[at]);
                }
            });
        });
        let all = plan.levels.rows(level);
        header.body(|body| {
            body.rows(ROW, panel.rows.len(), |mut row| {
                let Some(item) = panel.rows.get(row.index()).and_then(|i| all.get(*i)) else { return };
                let ground = Ground { is_selected: own(&item.index), hovers: true };
                row.set_selected(ground.is_selected);
                let related = is_related(level, item.index, view.related);
                let mut clicked = false;
                let stays = frozen.row_ui(&mut row, columns.len(), ground, |ui, at| {
                    clicked |= cell_ui(ui, columns[at], item, level, related, view);
                });
                if stays || clicked || row.response().clicked() {
                    chosen = Some(item.index);
                }
            });
        });
    });
    if let Some(column) = pressed {
        panel.press(column);
    }
    if let Some(index) = chosen {
        ui.memory_mut(|m| m.request_focus(id));
        commands.push(UiCommand::Select(selection_of(level, index)));
    }
}

/// The table as a whole has the keyboard focus: arrow keys move through its rows.
fn keyboard_ui(ui: &mut Ui, view: &PlanOnScreen<'_>, panel: &StepGraphPanel, id: Id, commands: &mut CommandQueue) {
    let level = panel.level;
    let name = format!("Rows of the step graph, {} {}", panel.rows.len(), level.noun());
    let frame = list_ui(ui, id, ui.available_rect_before_wrap(), &name);
    if frame.has_focus() {
        let line = egui::Stroke::new(1.0, theme::colors(ui).accent);
        ui.painter().rect_stroke(frame.rect.expand(3.0), 2, line, egui::StrokeKind::Inside);
    }
    let now = panel.rows.iter().position(|r| selection_of(level, *r) == *view.selection);
    if let Some(row) = row_by_keys(ui, id, panel.rows.len(), now).and_then(|to| panel.rows.get(to)) {
        commands.push(UiCommand::Select(selection_of(level, *row)));
    }
}

/// A table with columns of these widths, scrolled so that a row is visible. The last column takes the remaining width,
/// so that a row is highlighted over the whole width.
fn table<'a>(ui: &'a mut Ui, level: Level, widths: &[f32], jump: Option<usize>) -> TableBuilder<'a> {
    let mut table = TableBuilder::new(ui)
        .id_salt(("ops", level))
        .sense(Sense::click())
        .auto_shrink([false, false])
        .cell_layout(Layout::left_to_right(Align::Center));
    for (at, &width) in widths.iter().enumerate() {
        let is_last = at + 1 == widths.len();
        let column = if is_last { TableColumn::remainder().at_least(width) } else { TableColumn::exact(width) };
        table = table.column(column.clip(true));
    }
    if let Some(row) = jump {
        table = table.scroll_to_row(row, None);
    }
    table
}

/// The row of another selection, or the first that belongs to it, which is scrolled to once.
fn row_to_show(view: &PlanOnScreen<'_>, panel: &mut StepGraphPanel) -> Option<usize> {
    let (level, selected) = (panel.level, view.selection);
    if panel.shown == *selected {
        return None;
    }
    panel.shown = selected.clone();
    let own = |r: &usize| selection_of(level, *r) == *selected;
    let related = |r: &usize| is_related(level, *r, view.related);
    panel.rows.iter().position(own).or_else(|| panel.rows.iter().position(related))
}

/// The widths of columns, given the lengths of their longest shapes and kernel. A shape is always shown whole.
fn widths(ui: &Ui, columns: &[Column], longest: [usize; 2]) -> Vec<f32> {
    let shapes = theme::mono_width(ui, longest[0]).clamp(96.0, 480.0);
    let width = |column: Column| if column == Column::Shapes { Some(shapes) } else { column.width() };
    let fixed: f32 = columns.iter().filter_map(|c| width(*c)).map(|w| w + 8.0).sum();
    let least = theme::mono_width(ui, longest[1]).clamp(96.0, 240.0);
    let kernel = (ui.available_width() - fixed - 24.0).clamp(least, 420.0);
    columns.iter().map(|c| width(*c).unwrap_or(kernel)).collect()
}

/// The number of columns that stay visible when the others are scrolled horizontally: up to the name of a row, as far
/// as they leave space for the others.
fn staying(columns: &[Column], room: f32) -> usize {
    /// The largest share of the width that they may take.
    const MOST: f32 = 0.6;
    let names = columns.iter().rposition(|c| matches!(c, Column::Layer | Column::Name)).map_or(0, |at| at + 1);
    let mut taken = 0.0;
    let fits = columns[..names].iter().take_while(|c| {
        taken += c.width().unwrap_or(room) + 8.0;
        taken <= room * MOST
    });
    fits.count()
}

/// The title of a column, which sorts by it; true if it was pressed.
fn header_ui(ui: &mut Ui, column: Column, level: Level, sort: Option<(Column, bool)>) -> bool {
    let sign = match sort {
        Some((c, true)) if c == column => icons::DOWN,
        Some((c, false)) if c == column => icons::UP,
        _ => "",
    };
    let title = column.title(level);
    let c = theme::colors(ui);
    let color = if sign.is_empty() { c.weak } else { c.accent };
    ui.spacing_mut().button_padding.x = 0.0;
    let text = RichText::new(format!("{} {sign}", if title.is_empty() { "·" } else { title })).size(12.0).color(color);
    let button = Button::new(text).frame(false).truncate();
    let response = if column.is_number() {
        ui.with_layout(Layout::right_to_left(Align::Center), |ui| ui.add(button)).inner
    } else {
        ui.add(button)
    };
    let name = if title.is_empty() { "Sort by phase".to_owned() } else { format!("Sort by {title}") };
    named(&response, &name, true);
    response.on_hover_text(format!("{}. Press to sort.", column.about())).clicked()
}

/// Shows a cell; returns true if it was pressed, which is how the keyboard selects a row.
fn cell_ui(ui: &mut Ui, column: Column, row: &LevelRow, level: Level, related: bool, view: &PlanOnScreen<'_>) -> bool {
    let c = theme::colors(ui);
    if column == Column::Phase {
        if related {
            // A bar in the accent colour marks what belongs to the selection.
            let rect = ui.max_rect();
            ui.painter().vline(rect.left() + 1.0, rect.y_range(), egui::Stroke::new(2.0, c.accent));
        }
        ui.add_space(4.0);
        phase_ui(ui, row.phase);
        return false;
    }
    let (text, exact) = column.text(row, view.measured);
    if column == Column::Kernel {
        ui.spacing_mut().button_padding.x = 0.0;
        let name = RichText::new(text).font(theme::mono()).color(c.text);
        let name_ui = |ui: &mut Ui| ui.add(Button::new(name).frame(false).truncate());
        // The mark stays visible if the name is cut.
        let button = if let Some(mark) = kernel_mark(row, view) {
            let cell = ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
                let text = RichText::new(mark.text).font(theme::mono()).color(c.weak);
                ui.add(egui::Label::new(text).selectable(false)).on_hover_text(mark.about);
                ui.with_layout(Layout::left_to_right(Align::Center), name_ui).inner
            });
            cell.inner
        } else {
            name_ui(ui)
        };
        let what = match level {
            Level::Ir => "Node",
            Level::Lowered => "Lowered op",
            Level::Selected => "Op",
            Level::Recorded => "Call",
        };
        named(&button, &format!("{what} {} {}", row.index, row.kernel), true);
        return button.clicked();
    }
    if column.is_number() {
        ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
            let text = RichText::new(text).size(12.0);
            ui.add(egui::Label::new(text).selectable(false)).on_hover_text(exact);
        });
        return false;
    }
    let weak = matches!(column, Column::Index | Column::Shapes | Column::Dtypes | Column::Detail);
    let text = RichText::new(text).font(theme::mono()).color(if weak { c.weak } else { c.text });
    let label = ui.add(egui::Label::new(text).truncate().selectable(false).show_tooltip_when_elided(false));
    if !exact.is_empty() {
        label.on_hover_text(exact);
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_columns_that_name_a_row_are_fixed_if_there_is_space() {
        assert_eq!(staying(Column::of(Level::Selected), 800.0), 4);
        assert_eq!(staying(Column::of(Level::Selected), 420.0), 3);
        assert_eq!(staying(Column::of(Level::Recorded), 800.0), 3);
    }

    #[test]
    fn a_block_shows_the_operations_of_its_layers_too() {
        assert!(is_in("L1.0:Dense", "L1:Residual") && is_in("L1:Residual", "L1:Residual"));
        assert!(!is_in("L10:Dense", "L1:Residual") && !is_in("L1:Residual", "L1.0:Dense") && !is_in("", "L1:Dense"));
    }
}
