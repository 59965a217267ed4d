//! The network panel: inputs, the layers as cards, and the training settings.

use crate::model::{LayerPath, ListPath};
use crate::studio::commands::Edit;
use crate::studio::commands::fold::{Fold, FoldCommand};
use crate::studio::commands::selection::Selection;
use crate::studio::commands::{CommandQueue, UiCommand};
use crate::studio::panels::layer_card::Dragged;
use crate::studio::panels::layer_card::{CardOptions, card_ui, fold_ui, indented_ui, list_head_ui, sum_ui};
use crate::studio::theme;
use crate::studio::theme::icons;
use crate::studio::view_models::folded_layers::{FoldRow, Sideways};
use crate::studio::view_models::format;
use crate::studio::view_models::format::plain_count;
use crate::studio::view_models::network::{Card, NetworkView, Row, Run, Section, Sum};
use crate::studio::view_models::panels::network::NetworkPanelView;
use crate::studio::widgets::button::{command_icon_ui, weak_ui};
use crate::studio::widgets::field::{Editing, FieldOptions, field_ui, problem_ui};
use crate::studio::widgets::keyboard::{layers_id, list_ui, row_by_keys, side_by_keys};
use egui::{Align, Button, Id, Key, Label, Layout, Modifiers, Rect, RichText, ScrollArea, Sense, Stroke, Ui, Vec2};
use std::collections::HashMap;

/// The state of the panel.
pub struct NetworkPanel {
    /// Heights of the rows as last drawn; rows that are not visible are not laid out. An outdated height is corrected
    /// when its row becomes visible.
    heights: HashMap<RowKey, f32>,
    /// The last selection that was scrolled to.
    shown: Selection,
    /// The row that was reached by keyboard, if it does not follow from the selection.
    at: Option<RowKey>,
    /// The rectangle of the list as last drawn.
    frame: Rect,
    /// The rows' keys, and what they depend on: revisions of document and folds.
    keys: Vec<RowKey>,
    keys_for: Option<(u64, u64)>,
    /// Whether the list scrolls to its top in the next frame, because another document was opened.
    is_new: bool,
}

impl NetworkPanel {
    /// Scrolls to the top for another document.
    pub const fn begin(&mut self) {
        self.is_new = true;
    }
}

impl Default for NetworkPanel {
    fn default() -> Self {
        Self {
            heights: HashMap::new(),
            shown: Selection::Nothing,
            at: None,
            frame: Rect::ZERO,
            keys: Vec::new(),
            keys_for: None,
            is_new: true,
        }
    }
}

/// Identifies a row by its layer, and by what it shows of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum RowKey {
    Card(LayerPath),
    Block(LayerPath),
    Run(LayerPath),
    List(ListPath),
}

impl RowKey {
    fn of(row: &Row, network: &NetworkView) -> Self {
        match row {
            Row::Card(card) => Self::Card(network.cards[*card].path.clone()),
            Row::Block(card, _) => Self::Block(network.cards[*card].path.clone()),
            Row::Run { run, .. } => Self::Run(network.runs[*run].first.clone()),
            Row::List { card, list, .. } => Self::List(network.cards[*card].lists[*list].at.clone()),
        }
    }

    /// True if both represent the same layer or sequence, folded or not.
    fn is(&self, other: &Self) -> bool {
        self == other || self.layer().is_some() && self.layer() == other.layer()
    }

    /// The layer that is selected with the row.
    const fn layer(&self) -> Option<&LayerPath> {
        match self {
            Self::Card(path) | Self::Block(path) => Some(path),
            Self::Run(_) | Self::List(_) => None,
        }
    }
}

/// The place where a dragged layer would be dropped.
#[derive(Clone, Debug, PartialEq)]
struct Landing {
    pub parent: ListPath,
    pub index: usize,
}

/// Shows the panel.
pub fn network_ui(ui: &mut Ui, view: &NetworkPanelView<'_>, panel: &mut NetworkPanel, editing: &mut Editing<'_>) {
    let network = view.network;
    ui.horizontal(|ui| {
        ui.label(RichText::new("Network").font(theme::strong(13.0)));
        let counts =
            format!("{} · {} params", plain_count(network.cards.len(), "layer"), format::count(network.params as f64));
        ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
            ui.spacing_mut().item_spacing.x = 0.0;
            command_icon_ui(ui, UiCommand::AddLayer, true, editing.commands);
            // One button for both directions: it does what is not done yet.
            if network.folds().next().is_some() {
                let all = network.folds().all(|f| view.folds.is_folded(&f));
                let command = if all { FoldCommand::Nothing } else { FoldCommand::All };
                command_icon_ui(ui, UiCommand::Fold(command), true, editing.commands);
            }
            ui.with_layout(Layout::left_to_right(Align::Center), |ui| {
                let text = RichText::new(counts).size(12.0).color(theme::colors(ui).weak);
                ui.add(egui::Label::new(text).truncate());
            });
        });
    });
    ui.separator();
    let area = ScrollArea::vertical().id_salt("network").auto_shrink([false, false]);
    let area = if std::mem::take(&mut panel.is_new) { area.vertical_scroll_offset(0.0) } else { area };
    area.show(ui, |ui| {
        ui.spacing_mut().item_spacing.y = 4.0;
        for p in &network.general {
            problem_ui(ui, &p.message, &p.help);
        }
        if let Some(section) = network.sections.first() {
            section_ui(ui, section, true, editing);
        }
        cards_ui(ui, view, panel, editing);
        ui.add_space(8.0);
        for section in network.sections.iter().skip(1) {
            // If the Data tab is shown, it reports what is wrong with the data beside the samples.
            let says_problems = section.title != "Data" || !view.is_data_shown;
            section_ui(ui, section, says_problems, editing);
        }
        ui.add_space(16.0);
    });
}

/// Shows the fields of a section; if `says_problems` is false, mistakes are only marked.
pub(super) fn section_ui(ui: &mut Ui, section: &Section, says_problems: bool, editing: &mut Editing<'_>) {
    ui.add_space(4.0);
    ui.label(RichText::new(section.title).font(theme::strong(12.0)).color(theme::colors(ui).weak));
    let width = ui.available_width();
    for field in &section.fields {
        let (title, place) = (field.title(), field.owner.path_of(field.name));
        let own = section.problems.iter().filter(|p| p.field == place);
        let is_wrong = own.clone().next().is_some();
        let options = FieldOptions { name: &title, is_wrong, label_width: 104.0, width, is_entered: false };
        field_ui(ui, field, options, editing);
        for p in own.filter(|_| says_problems) {
            problem_ui(ui, &p.message, &p.help);
        }
    }
    let places: Vec<String> = section.fields.iter().map(|f| f.owner.path_of(f.name)).collect();
    for p in section.problems.iter().filter(|p| says_problems && !places.contains(&p.field)) {
        problem_ui(ui, &p.message, &p.help);
    }
}

/// The state of the list of layers during a frame.
struct List<'a> {
    view: &'a NetworkPanelView<'a>,
    keys: &'a [RowKey],
    /// The row to scroll to.
    wanted: Option<RowKey>,
    /// True if the fields of the row that was reached by keyboard get the keyboard focus.
    enters: bool,
    width: f32,
    /// True once the drop target of a dragged layer was found.
    has_landing: bool,
}

impl List<'_> {
    /// True for the row of the selected layer.
    fn is_selected(&self, key: &RowKey) -> bool {
        key.layer().is_some_and(|p| *self.view.selection == Selection::Layer(p.clone()))
    }
}

fn cards_ui(ui: &mut Ui, view: &NetworkPanelView<'_>, panel: &mut NetworkPanel, editing: &mut Editing<'_>) {
    let network = view.network;
    ui.add_space(4.0);
    ui.label(RichText::new("Layers").font(theme::strong(12.0)).color(theme::colors(ui).weak));
    if network.cards.is_empty() {
        weak_ui(ui, "No layers yet. Add the first one.");
    }
    let width = ui.available_width();
    let made = (view.revision, view.folds.revision());
    if panel.keys_for.replace(made) != Some(made) {
        panel.keys = view.rows.iter().map(|r| RowKey::of(r, network)).collect();
    }
    let keys = std::mem::take(&mut panel.keys);
    let mut list = List { view, keys: &keys, wanted: None, enters: false, width, has_landing: false };
    if panel.shown != *view.selection {
        panel.at = keys.iter().find(|k| list.is_selected(k)).cloned();
        list.wanted.clone_from(&panel.at);
    }
    let id = layers_id();
    let frame = Rect::from_min_size(ui.cursor().min, Vec2::new(width, panel.frame.height()));
    list_ui(ui, id, frame, &format!("List of layers, {}", plain_count(network.cards.len(), "layer")));
    list.enters = ui.memory(|m| m.has_focus(id)) && ui.input_mut(|i| i.consume_key(Modifiers::NONE, Key::Enter));
    if let Some(key) = walk_ui(ui, view, panel, &keys, id, editing.commands) {
        panel.at = Some(key.clone());
        list.wanted = Some(key);
    }
    // If there are no fields to enter, folded layers are shown.
    let at_row = keys.iter().position(|k| list.enters && panel.at.as_ref().is_some_and(|at| at.is(k)));
    let entered = at_row.and_then(|n| fold_row(network, view.rows.get(n)?, keys.get(n)?).1);
    let folded = entered.filter(|(_, folded)| *folded);
    editing.commands.extend(folded.map(|(fold, _)| UiCommand::Fold(FoldCommand::Set(fold, false))));
    let (mut landing, mut whole) = (None, Rect::from_min_size(frame.min, Vec2::new(width, 0.0)));
    for at in 0..view.rows.len().min(keys.len()) {
        let (rect, over) = list_row_ui(ui, &list, at, panel, editing);
        whole |= rect;
        landing = landing.or(over);
        list.has_landing = landing.is_some();
    }
    panel.frame = whole;
    panel.shown = view.selection.clone();
    panel.keys = keys;
    add_ui(ui, width, editing.commands);
    drop_ui(ui, landing, editing.commands);
}

/// Draws a row of the list; returns its rectangle, and the place where a dragged layer would be dropped. A row that is
/// not visible is not laid out.
fn list_row_ui(
    ui: &mut Ui,
    list: &List<'_>,
    at: usize,
    panel: &mut NetworkPanel,
    editing: &mut Editing<'_>,
) -> (Rect, Option<Landing>) {
    let (row, key) = (&list.view.rows[at], &list.keys[at]);
    let known = panel.heights.get(key).copied();
    let bring = list.wanted.as_ref() == Some(key);
    if let Some(height) = known {
        let rect = Rect::from_min_size(ui.cursor().min, Vec2::new(list.width, height));
        if bring {
            ui.scroll_to_rect(rect, None);
        }
        if !ui.is_rect_visible(rect) {
            ui.allocate_exact_size(Vec2::new(list.width, height), Sense::hover());
            return (rect, None);
        }
    }
    let is_at = panel.at.as_ref().is_some_and(|at| at.is(key));
    let (rect, landing) = row_ui(ui, list, (row, key), list.enters && is_at, editing);
    let is_clicked =
        |i: &egui::InputState| i.pointer.any_click() && i.pointer.interact_pos().is_some_and(|p| rect.contains(p));
    let has_focus = ui.memory(|m| m.has_focus(layers_id()));
    if has_focus && ui.input(is_clicked) {
        panel.at = Some(key.clone());
    }
    panel.heights.insert(key.clone(), rect.height());
    if bring && known.is_none() {
        ui.scroll_to_rect(rect, None);
    }
    if has_focus && panel.at.as_ref().is_some_and(|at| at.is(key)) {
        let line = Stroke::new(2.0, theme::colors(ui).accent);
        ui.painter().rect_stroke(rect.expand(1.0), 4, line, egui::StrokeKind::Inside);
    }
    (rect, landing)
}

/// Draws a sequence's head or a card; returns its rectangle, and the place where a dragged layer would be dropped.
fn row_ui(
    ui: &mut Ui,
    list: &List<'_>,
    (row, key): (&Row, &RowKey),
    entered: bool,
    editing: &mut Editing<'_>,
) -> (Rect, Option<Landing>) {
    let (network, related) = (list.view.network, &list.view.related.layers);
    match row {
        Row::Run { run, class, depth, folded, sum } => {
            let run = &network.runs[*run];
            let related = *folded && related.iter().any(|l| run.holds(l));
            let head = RunHead { run, class, depth: *depth, folded: *folded, related, sum };
            (run_ui(ui, &head, editing.commands), None)
        }
        Row::List { card, list: number, .. } => {
            let card = &network.cards[*card];
            let head = &card.lists[*number];
            let rect = list_head_ui(ui, card, head, entered, editing);
            let landing = if list.has_landing { None } else { land_in_ui(ui, &head.at, rect) };
            (rect, landing)
        }
        Row::Card(index) | Row::Block(index, _) => {
            let card = &network.cards[*index];
            let inside = if let Row::Block(_, sum) = row { Some(sum) } else { None };
            let within = |l: &LayerPath| l.starts_with(&card.path);
            let related = related.contains(&card.path) || inside.is_some() && related.iter().any(within);
            let options = CardOptions { inside, marked: list.is_selected(key) || related, entered };
            let rect = card_ui(ui, card, options, editing);
            let landing = if list.has_landing { None } else { land_ui(ui, card, rect) };
            (rect, landing)
        }
    }
}

/// The button that adds a layer at the end.
fn add_ui(ui: &mut Ui, width: f32, commands: &mut CommandQueue) {
    let c = theme::colors(ui);
    let add = Button::new(RichText::new(format!("{}  Add layer…", icons::ADD)).color(c.accent))
        .min_size(Vec2::new(width, 28.0))
        .frame(false);
    let response = ui.add(add).on_hover_text(UiCommand::AddLayer.tooltip(ui.ctx()));
    crate::studio::widgets::button::named(&response, "Add layer at the end", true);
    if response.clicked() {
        commands.push(UiCommand::Select(Selection::Nothing));
        commands.push(UiCommand::AddLayer);
    }
}

/// What a click on a row folds.
fn fold_row(network: &NetworkView, row: &Row, key: &RowKey) -> FoldRow {
    let fold = match (row, key) {
        (Row::Run { folded, .. }, RowKey::Run(first)) => Some((Fold::Run(first.clone()), *folded)),
        (Row::Block(..), RowKey::Block(path)) => Some((Fold::Block(path.clone()), true)),
        (Row::Card(card), RowKey::Card(path)) if network.cards[*card].can_fold() => {
            Some((Fold::Block(path.clone()), false))
        }
        _ => None,
    };
    let path = match key {
        RowKey::Card(path) | RowKey::Block(path) | RowKey::Run(path) => path.clone(),
        // The head of a list is at the place of its first layer.
        RowKey::List(list) => list.child(0),
    };
    (path, fold)
}

/// Handles the keyboard: arrows select, and fold and unfold. Returns the row that was reached.
fn walk_ui(
    ui: &Ui,
    view: &NetworkPanelView<'_>,
    panel: &NetworkPanel,
    keys: &[RowKey],
    list: Id,
    commands: &mut CommandQueue,
) -> Option<RowKey> {
    if !ui.memory(|m| m.has_focus(list)) {
        return None;
    }
    let now = keys.iter().position(|k| panel.at.as_ref().is_some_and(|at| at.is(k)));
    let mut to = row_by_keys(ui, list, keys.len(), now);
    let row = |n: usize| Some(fold_row(view.network, view.rows.get(n)?, keys.get(n)?));
    match side_by_keys(ui, list).zip(now).and_then(|(left, now)| Sideways::of(left, now, view.network, row)) {
        Some(Sideways::Fold(fold, folds)) => commands.push(UiCommand::Fold(FoldCommand::Set(fold, folds))),
        Some(Sideways::To(row)) => to = Some(row),
        None => {}
    }
    let key = keys.get(to?)?;
    commands.extend(key.layer().map(|path| UiCommand::Select(Selection::Layer(path.clone()))));
    Some(key.clone())
}

/// The head of a sequence of equal layers.
struct RunHead<'a> {
    run: &'a Run,
    class: &'static str,
    depth: usize,
    folded: bool,
    /// Whether a part of it is selected.
    related: bool,
    sum: &'a Sum,
}

/// Shows a sequence's head: a card if it is folded, a line above it otherwise.
fn run_ui(ui: &mut Ui, head: &RunHead<'_>, commands: &mut CommandQueue) -> Rect {
    let fold = Fold::Run(head.run.first.clone());
    let name = format!("{} of {} × {}", head.run.span(), head.run.count, head.class);
    let mut texts = false;
    let response = ui.push_id(("run", &head.run.first), |ui| {
        indented_ui(ui, head.depth, |ui| {
            let frame = if head.folded { theme::card(ui, head.related) } else { egui::Frame::new() };
            frame.show(ui, |ui| {
                ui.set_width(ui.available_width());
                ui.spacing_mut().item_spacing.y = 4.0;
                ui.horizontal(|ui| {
                    ui.spacing_mut().item_spacing.x = 4.0;
                    fold_ui(ui, fold.clone(), head.folded, &name, commands);
                    let title = format!("{} × {}", head.run.count, head.class);
                    let title = RichText::new(title).font(theme::strong(13.0));
                    texts |= ui.add(Label::new(title).selectable(false).sense(Sense::CLICK)).clicked();
                    // The number of layers is at the right, and the range is shortened if both do not fit.
                    ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
                        weak_ui(ui, plain_count(head.sum.layers, "layer"));
                        ui.with_layout(Layout::left_to_right(Align::Center), |ui| {
                            let text = head.run.span();
                            let span = RichText::new(&text).font(theme::mono()).color(theme::colors(ui).weak);
                            let span = Label::new(span).truncate().selectable(false).show_tooltip_when_elided(false);
                            let span = ui.add(span.sense(Sense::CLICK));
                            texts |= span.on_hover_text(format!("{text}: neighbours with the same fields")).clicked();
                        });
                    });
                });
                if head.folded {
                    texts |= sum_ui(ui, head.sum.facts(), head.sum.problems).clicked();
                }
            });
        });
    });
    // The text folds and unfolds like the button before it.
    if texts {
        commands.push(UiCommand::Fold(FoldCommand::Set(fold, !head.folded)));
        ui.memory_mut(|m| m.request_focus(layers_id()));
    }
    response.response.rect
}

/// Where the pointer would drop a dragged layer: before or after this card, or into it if it is an empty block.
fn land_ui(ui: &Ui, card: &Card, rect: Rect) -> Option<Landing> {
    let dragged = egui::DragAndDrop::payload::<Dragged>(ui.ctx())?;
    let pos = ui.input(|i| i.pointer.interact_pos())?;
    if !rect.expand2(Vec2::new(0.0, 2.0)).contains(pos) || card.path.starts_with(&dragged.0) {
        return None;
    }
    let (parent, index) = card.place();
    let c = theme::colors(ui);
    if card.children.is_some() && pos.y > rect.top() + rect.height() * 0.35 {
        ui.painter().rect_stroke(rect.shrink(1.0), 4, Stroke::new(2.0, c.accent), egui::StrokeKind::Inside);
        let first = card.lists.first().map_or_else(|| card.path.clone().into(), |head| head.at.clone());
        return Some(Landing { parent: first, index: 0 });
    }
    let behind = pos.y > rect.center().y;
    let y = if behind { rect.bottom() + 2.0 } else { rect.top() - 2.0 };
    ui.painter().hline(rect.x_range(), y, Stroke::new(2.0, c.accent));
    Some(Landing { parent, index: index + usize::from(behind) })
}

/// If the pointer with a dragged layer is on the head of a list: the start of the list.
fn land_in_ui(ui: &Ui, list: &ListPath, rect: Rect) -> Option<Landing> {
    let dragged = egui::DragAndDrop::payload::<Dragged>(ui.ctx())?;
    let pos = ui.input(|i| i.pointer.interact_pos())?;
    if !rect.contains(pos) || list.block.starts_with(&dragged.0) {
        return None;
    }
    ui.painter().rect_stroke(rect, 4, Stroke::new(2.0, theme::colors(ui).accent), egui::StrokeKind::Inside);
    Some(Landing { parent: list.clone(), index: 0 })
}

fn drop_ui(ui: &Ui, landing: Option<Landing>, commands: &mut CommandQueue) {
    if !ui.input(|i| i.pointer.any_released()) {
        return;
    }
    if let (Some(landing), Some(dragged)) = (landing, egui::DragAndDrop::take_payload::<Dragged>(ui.ctx())) {
        commands.push(UiCommand::Edit(Edit::Move {
            from: dragged.0.clone(),
            parent: landing.parent,
            index: landing.index,
        }));
    }
}
