//! The changes of the plan by the last edit, which open from the status line.

use crate::studio::commands::selection::Selection;
use crate::studio::commands::{CommandQueue, UiCommand};
use crate::studio::theme;
use crate::studio::view_models::changes::{OpChange, PlanChanges};
use crate::studio::view_models::format;
use crate::studio::view_models::panels::status::DifferenceView;
use crate::studio::widgets::button::{named, weak_ui};
use crate::tensor::Bytes;
use egui::{Button, Label, Popup, PopupCloseBehavior, RichText, ScrollArea, Ui};

/// Shows the difference as a button; a click lists the added and removed items.
pub fn difference_ui(ui: &mut Ui, view: &DifferenceView<'_>, commands: &mut CommandQueue) {
    let difference = view.text;
    let took = format::micros(view.took.as_secs_f64() * 1e6);
    let c = theme::colors(ui);
    let text = RichText::new(difference).size(12.0).color(c.text);
    let button = ui.add(Button::new(text).frame(false).truncate());
    named(&button, &format!("What the last edit changed: {difference}"), true);
    let button = button.on_hover_text(format!(
        "What the last edit changed: {difference}. Planned in {took}. Click to see what was added and removed."
    ));
    Popup::menu(&button).id(button.id.with("changes")).close_behavior(PopupCloseBehavior::CloseOnClickOutside).show(
        |ui| {
            ui.set_width(380.0);
            ui.label(RichText::new(difference).font(theme::strong(13.0)));
            weak_ui(ui, format!("Planned in {took}, from the edit to this answer."));
            match view.changes {
                Some(changes) => {
                    ScrollArea::vertical().max_height(360.0).show(ui, |ui| list_ui(ui, changes, commands)).inner
                }
                None => drop(weak_ui(ui, "The previous plan is no longer known.")),
            }
        },
    );
}

/// The number of entries that are listed; the others are only counted.
const LISTED: usize = 60;

fn list_ui(ui: &mut Ui, changes: &PlanChanges, commands: &mut CommandQueue) {
    ui.spacing_mut().item_spacing.y = 2.0;
    ui.spacing_mut().interact_size.y = 18.0;
    ui.spacing_mut().button_padding = egui::Vec2::new(0.0, 1.0);
    if changes.is_empty() {
        weak_ui(ui, "No operation was added or removed, and no buffer changed its size.");
    }
    ops_ui(ui, "New operations", '+', &changes.ops.came, true, commands);
    ops_ui(ui, "Removed operations", '−', &changes.ops.went, false, commands);
    for (title, sign, kernels) in
        [("New kernels", '+', &changes.kernels.came), ("Kernels no longer used", '−', &changes.kernels.went)]
    {
        section_ui(ui, title, kernels.len());
        for kernel in kernels.iter().take(LISTED) {
            let to = (sign == '+').then(|| Selection::Kernel(kernel.clone()));
            entry_ui(ui, &format!("{sign} {kernel}"), to, commands);
        }
    }
    section_ui(ui, "Buffers of another size", changes.grown.len());
    for g in changes.grown.iter().take(LISTED) {
        let text = format!("{}  {} → {}", g.name, Bytes(g.before), Bytes(g.after));
        entry_ui(ui, &text, Some(Selection::Buffer(g.id)), commands);
    }
    let (came, went) = (changes.buffers.came.len(), changes.buffers.went.len());
    if came + went > 0 {
        section_ui(ui, "Buffers", came + went);
        weak_ui(ui, format!("{came} came, {went} went; the arena shows them."));
    }
}

fn section_ui(ui: &mut Ui, title: &str, count: usize) {
    if count == 0 {
        return;
    }
    ui.add_space(6.0);
    let more = if count > LISTED { format!(" ({LISTED} of {count})") } else { format!(" ({count})") };
    let text = RichText::new(format!("{title}{more}")).font(theme::strong(12.0)).color(theme::colors(ui).weak);
    ui.label(text);
}

fn ops_ui(ui: &mut Ui, title: &str, sign: char, ops: &[OpChange], there: bool, commands: &mut CommandQueue) {
    section_ui(ui, title, ops.len());
    for op in ops.iter().take(LISTED) {
        let to = there.then_some(Selection::Op(op.index));
        entry_ui(ui, &format!("{sign} {} {}  {}", op.index, op.kernel, op.layer), to, commands);
    }
}

/// A line, which selects its item if that still exists.
fn entry_ui(ui: &mut Ui, text: &str, to: Option<Selection>, commands: &mut CommandQueue) {
    let c = theme::colors(ui);
    let color = if to.is_some() { c.accent } else { c.weak };
    let text = RichText::new(text).font(theme::mono()).color(color);
    match to {
        Some(to) => {
            if ui.add(Button::new(text).frame(false).truncate()).clicked() {
                commands.push(UiCommand::Select(to));
            }
        }
        None => drop(ui.add(Label::new(text).truncate())),
    }
}
