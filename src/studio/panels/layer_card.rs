//! One layer: its name and shape, its fields in place, its cost, and its mistakes.

use crate::model::{FieldValue, LayerPath, ListId, ListPath};
use crate::studio::commands::Edit;
use crate::studio::commands::fold::{Fold, FoldCommand};
use crate::studio::commands::selection::Selection;
use crate::studio::commands::{CommandQueue, UiCommand};
use crate::studio::theme;
use crate::studio::theme::icons;
use crate::studio::view_models::format::plain_count;
use crate::studio::view_models::network::{Card, ListHead, Sum};
use crate::studio::widgets::button::{command_menu_ui, named, weak_ui};
use crate::studio::widgets::field::{Editing, FieldOptions, field_ui, problem_ui};
use crate::studio::widgets::keyboard::layers_id;
use egui::{Align, Button, Layout, Rect, Response, RichText, Sense, Ui, Vec2};

/// The indentation for each level of nesting, in points.
const INDENT: f32 = 12.0;

/// A layer that is being dragged.
#[derive(Clone, Debug)]
pub struct Dragged(pub LayerPath);

/// What a card shows in addition to its layer.
#[derive(Clone, Copy)]
pub struct CardOptions<'a> {
    /// The summary of a folded block.
    pub inside: Option<&'a Sum>,
    pub marked: bool,
    /// Whether its first field gets the keyboard focus, or the first one with a mistake.
    pub entered: bool,
}

/// Shows a card; returns its rectangle. For a folded block it is the head.
pub fn card_ui(ui: &mut Ui, card: &Card, options: CardOptions<'_>, editing: &mut Editing<'_>) -> Rect {
    let CardOptions { inside, marked, entered } = options;
    let response = ui.push_id(&card.path, |ui| {
        indented_ui(ui, card.depth(), |ui| {
            theme::card(ui, marked).show(ui, |ui| {
                ui.set_width(ui.available_width());
                ui.spacing_mut().item_spacing.y = 4.0;
                head_ui(ui, card, inside.is_some(), editing.commands);
                match inside {
                    Some(sum) => {
                        if sum_ui(ui, sum.line(), sum.problems).clicked() {
                            select_ui(ui, card, editing.commands);
                        }
                    }
                    None => {
                        fields_ui(ui, card, entered, editing);
                        foot_ui(ui, card, editing.commands);
                    }
                }
            });
        });
    });
    let rect = response.response.rect;
    let indent = card.depth() as f32 * INDENT;
    if indent > 0.0 {
        let x = rect.left() + indent - INDENT * 0.5;
        ui.painter().vline(x, rect.y_range(), egui::Stroke::new(1.0, theme::colors(ui).hairline));
    }
    rect
}

/// A row of the list, indented by its nesting.
pub(super) fn indented_ui(ui: &mut Ui, depth: usize, content: impl FnOnce(&mut Ui)) {
    ui.horizontal_top(|ui| {
        ui.spacing_mut().item_spacing.x = 0.0;
        ui.add_space(depth as f32 * INDENT);
        ui.vertical(|ui| {
            ui.spacing_mut().item_spacing.x = 8.0;
            content(ui);
        });
    });
}

/// The button that folds and unfolds an item with this name.
pub(super) fn fold_ui(ui: &mut Ui, fold: Fold, folded: bool, name: &str, commands: &mut CommandQueue) {
    let command = FoldCommand::Set(fold, !folded);
    let info = command.info();
    let sign = if folded { icons::FOLDED } else { icons::DOWN };
    let button = Button::new(RichText::new(sign).size(14.0)).frame(false).min_size(Vec2::splat(20.0));
    let response = ui.add(button).on_hover_text(info.about);
    named(&response, &format!("{} {name}", info.label), true);
    if response.clicked() {
        commands.push(UiCommand::Fold(command));
    }
}

/// The totals of folded layers, including their mistakes.
pub(super) fn sum_ui(ui: &mut Ui, facts: String, problems: usize) -> Response {
    let line = RichText::new(facts).size(12.0).color(theme::colors(ui).weak);
    let response = ui.add(egui::Label::new(line).wrap().selectable(false).sense(Sense::CLICK));
    if problems > 0 {
        let text = format!("{}  {} inside", icons::WARNING, plain_count(problems, "problem"));
        ui.label(RichText::new(text).size(12.0).color(theme::colors(ui).error));
    }
    response
}

/// Selects the card's layer, and gives the keyboard focus to the list.
fn select_ui(ui: &Ui, card: &Card, commands: &mut CommandQueue) {
    commands.push(UiCommand::Select(Selection::Layer(card.path.clone())));
    ui.memory_mut(|m| m.request_focus(layers_id()));
}

fn head_ui(ui: &mut Ui, card: &Card, folded: bool, commands: &mut CommandQueue) {
    let c = theme::colors(ui);
    let label = format!("L{}:{}", card.number(), card.class);
    ui.horizontal(|ui| {
        ui.spacing_mut().item_spacing.x = 4.0;
        let grip = ui.add(
            egui::Label::new(RichText::new(icons::GRIP).size(14.0).color(c.weak)).sense(Sense::DRAG).selectable(false),
        );
        let grip = grip.on_hover_cursor(egui::CursorIcon::Grab);
        grip.dnd_set_drag_payload(Dragged(card.path.clone()));
        if card.can_fold() {
            fold_ui(ui, Fold::Block(card.path.clone()), folded, &label, commands);
        }
        let name = RichText::new(card.class).font(theme::strong(13.0));
        let title = ui.add(egui::Label::new(name).sense(Sense::click()).selectable(false)).on_hover_text(card.about);
        named(&title, &format!("Select {label}"), true);
        if title.clicked() {
            select_ui(ui, card, commands);
        }
        ui.label(RichText::new(card.number()).font(theme::mono()).color(c.weak));
        ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
            ui.spacing_mut().item_spacing.x = 4.0;
            menu_ui(ui, card, &label, commands);
            let (shape, color) = card
                .output
                .as_deref()
                .map_or(("?", if card.problems.is_empty() { c.weak } else { c.error }), |s| (s, c.text));
            ui.label(RichText::new(shape).font(theme::mono()).color(color))
                .on_hover_text("Output of one sample; ? if a problem in an earlier layer makes it unknown");
            // The rest of the line selects too.
            let rest = ui.available_size_before_wrap();
            let (_, response) = ui.allocate_exact_size(Vec2::new(rest.x.max(0.0), 20.0), Sense::CLICK);
            if response.clicked() {
                select_ui(ui, card, commands);
            }
        });
    });
}

fn menu_ui(ui: &mut Ui, card: &Card, label: &str, commands: &mut CommandQueue) {
    let button = ui.add(Button::new(RichText::new(icons::MENU).size(14.0)).frame(false).min_size(Vec2::splat(20.0)));
    named(&button, &format!("Menu of {label}"), true);
    egui::Popup::menu(&button).show(|ui| {
        for (command, enabled) in [
            (UiCommand::Duplicate, true),
            (UiCommand::MoveUp, card.can_move_up()),
            (UiCommand::MoveDown, card.can_move_down()),
            (UiCommand::Remove, true),
        ] {
            let text = command.info().label;
            command_menu_ui(ui, UiCommand::OnLayer(card.path.clone(), Box::new(command)), text, enabled, commands);
        }
    });
}

/// The number of characters of a name that fit before its editor.
const SHORT_NAME: usize = 10;

/// Shows the fields of a layer.
fn fields_ui(ui: &mut Ui, card: &Card, entered: bool, editing: &mut Editing<'_>) {
    if card.fields.is_empty() {
        return;
    }
    let is_wrong = |name: &str| card.problems.iter().any(|p| p.field == name);
    let mut wrong = card.fields.iter().filter(|f| is_wrong(f.name) || editing.drafts.is_mistake(&f.owner, f.name));
    let first = wrong.next().or(card.fields.first()).map(|f| f.name);
    let gap = 12.0;
    let whole = ui.available_width();
    let half = ((whole - gap) / 2.0).floor();
    for pair in card.field_lines() {
        ui.horizontal_top(|ui| {
            ui.spacing_mut().item_spacing.x = gap;
            for field in pair {
                // The names of a choice need more space than numbers do, which is available if it is alone.
                let is_alone = pair.len() == 1 && matches!(field.value, FieldValue::Choice(_) | FieldValue::Choose(_));
                let width = if is_alone { whole } else { half };
                ui.vertical(|ui| {
                    ui.set_width(width);
                    let name = format!("L{} {}", card.number(), field.label);
                    let is_entered = entered && first == Some(field.name);
                    let is_wrong = is_wrong(field.name);
                    let label_width = if field.label.len() > SHORT_NAME { 80.0 } else { 64.0 };
                    let options = FieldOptions { name: &name, is_wrong, label_width, width, is_entered };
                    field_ui(ui, field, options, editing);
                });
            }
        });
    }
}

fn foot_ui(ui: &mut Ui, card: &Card, commands: &mut CommandQueue) {
    for p in &card.problems {
        problem_ui(ui, &p.message, &p.help);
    }
    if let Some(hint) = &card.hint {
        let text = format!("{}  {hint}", icons::INFO);
        let label = ui.add(egui::Label::new(RichText::new(text).size(12.0).color(theme::colors(ui).warning)).wrap());
        named(&label, hint, true);
    }
    let facts = card.facts();
    if !facts.is_empty() {
        weak_ui(ui, facts);
    }
    let Some(children) = card.children else { return };
    let label = format!("L{}:{}", card.number(), card.class);
    ui.horizontal(|ui| {
        let layers = plain_count(children, "layer");
        match card.list_noun() {
            None => {
                weak_ui(ui, format!("{layers} inside"));
                add_inside_ui(ui, &card.path.clone().into(), children, &label, commands);
            }
            Some(noun) => {
                weak_ui(ui, format!("{}, {layers} inside", counted(card.lists.len(), noun)));
                let text = RichText::new(format!("{}  Add {noun}", icons::ADD)).size(12.0);
                let add = ui.add(Button::new(text).frame(false));
                named(&add, &format!("Add {noun} to {label}"), true);
                if let Some(last) = card.lists.last().filter(|_| add.clicked()) {
                    let list = ListId { number: last.at.list.number + 1, ..last.at.list };
                    commands.push(UiCommand::Edit(Edit::InsertList(card.path.list(list))));
                }
            }
        }
    });
}

/// `1 branch`, `2 branches`.
fn counted(count: usize, noun: &str) -> String {
    let ending = match (count, noun.ends_with("ch")) {
        (1, _) => "",
        (_, true) => "es",
        (_, false) => "s",
    };
    format!("{count} {noun}{ending}")
}

/// The button that adds a layer at the end of a list.
fn add_inside_ui(ui: &mut Ui, list: &ListPath, layers: usize, label: &str, commands: &mut CommandQueue) {
    let add = ui.add(Button::new(RichText::new(format!("{}  Add inside", icons::INTO)).size(12.0)).frame(false));
    named(&add, &format!("Add inside {label}"), true);
    egui::Popup::menu(&add).show(|ui| {
        // In a low window not all of them fit at once.
        let room = ui.ctx().content_rect().height() - 48.0;
        egui::ScrollArea::vertical().max_height(room).show(ui, |ui| {
            for kind in crate::model::LayerKind::ALL {
                if ui.button(kind.class).on_hover_text(kind.about).clicked() {
                    commands.push(UiCommand::Edit(Edit::Insert { parent: list.clone(), index: layers, kind }));
                    ui.close();
                }
            }
        });
    });
}

/// Shows the head of one of a block's lists: its name, its other fields, and its commands. Returns its rectangle.
pub fn list_head_ui(ui: &mut Ui, card: &Card, head: &ListHead, entered: bool, editing: &mut Editing<'_>) -> Rect {
    let label = head.at.label();
    let response = ui.push_id((&head.at, "head"), |ui| {
        indented_ui(ui, card.depth() + 1, |ui| {
            ui.set_width(ui.available_width());
            ui.spacing_mut().item_spacing.y = 4.0;
            ui.horizontal(|ui| {
                let title = ui.label(RichText::new(&head.title).font(theme::strong(12.0)));
                let layers = plain_count(head.layers, "layer");
                named(&title, &format!("{label}, {layers}"), true);
                weak_ui(ui, if head.layers == 0 { "passes its input on".to_owned() } else { layers });
                add_inside_ui(ui, &head.at, head.layers, &label, editing.commands);
                if card.lists.len() > 1 {
                    let text = RichText::new(icons::CLOSE).size(12.0);
                    let remove = ui.add(Button::new(text).frame(false));
                    let remove = remove.on_hover_text("Removes it with its layers");
                    named(&remove, &format!("Remove {label}"), true);
                    if remove.clicked() {
                        editing.commands.push(UiCommand::Edit(Edit::RemoveList(head.at.clone())));
                    }
                }
            });
            let width = ui.available_width().min(260.0);
            for (at, field) in head.fields.iter().enumerate() {
                let name = format!("{label} {}", field.label);
                let is_wrong = head.problems.iter().any(|p| p.field == field.name);
                let is_entered = entered && at == 0;
                let options = FieldOptions { name: &name, is_wrong, label_width: 64.0, width, is_entered };
                field_ui(ui, field, options, editing);
            }
            for p in &head.problems {
                problem_ui(ui, &p.message, &p.help);
            }
        });
    });
    response.response.rect
}
