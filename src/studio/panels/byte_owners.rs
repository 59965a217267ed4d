//! The owners of a byte of the arena over time: of the byte under the pointer, or of the selected one.

use crate::plan::BufferId;
use crate::studio::commands::selection::Selection;
use crate::studio::commands::{CommandQueue, UiCommand};
use crate::studio::theme;
use crate::studio::view_models::byte_owners::{ByteOwners, read_range};
use crate::studio::view_models::panels::arena::ArenaPanelView;
use crate::studio::view_models::plan::PlanView;
use crate::studio::widgets::button::{role_ui, text_line_ui, weak_ui};
use crate::tensor::Bytes;
use egui::{Align, Button, Key, Layout, RichText, Ui};

/// The text that is being typed.
#[derive(Default)]
pub struct ByteOwnersPanel {
    typed: String,
    is_wrong: bool,
}

/// The number of owners that are listed; the others are only counted.
const LISTED: usize = 12;

/// Shows the owners. `pointer` is the operation and the byte under the pointer.
pub fn byte_owners_ui(
    ui: &mut Ui,
    view: &ArenaPanelView<'_>,
    plan: &PlanView,
    panel: &mut ByteOwnersPanel,
    pointer: Option<(usize, u64)>,
    commands: &mut CommandQueue,
) {
    offset_ui(ui, plan, panel, commands);
    let picked = match view.shown.selection {
        Selection::Bytes([from, _]) => Some(*from),
        Selection::Buffer(id) => plan.arena.rect(*id).map(|r| r.offset),
        Selection::Part(id, part) => plan.part_bytes(*id, *part).map(|b| b[0]),
        _ => None,
    };
    let (byte, op) = match (pointer, picked) {
        (Some((op, byte)), _) if byte < plan.arena.arena_bytes => (byte, Some(op)),
        (_, Some(byte)) => (byte, view.scrub),
        _ => {
            weak_ui(
                ui,
                "Point at the map, or type an offset, to see which buffers use that byte, one after the other.",
            );
            return;
        }
    };
    let owners = ByteOwners::of(&plan.arena, byte);
    ui.label(RichText::new(format!("byte {byte:#x}")).font(theme::mono()));
    if let Some(op) = op {
        around_ui(ui, plan, &owners, op);
    }
    if owners.buffers.is_empty() {
        weak_ui(ui, "No buffer uses it: the placement leaves a gap here.");
    }
    for id in owners.buffers.iter().take(LISTED) {
        owner_ui(ui, plan, *id, op, commands);
    }
    if owners.buffers.len() > LISTED {
        weak_ui(ui, format!("and {} more", owners.buffers.len() - LISTED));
    }
}

/// The field for an offset or a range, which selects it.
fn offset_ui(ui: &mut Ui, plan: &PlanView, panel: &mut ByteOwnersPanel, commands: &mut CommandQueue) {
    let name = "Byte or range of the arena";
    let response = ui.scope(|ui| {
        // Text lines have less space between them than a field needs.
        (ui.spacing_mut().interact_size.y, ui.spacing_mut().button_padding) = (24.0, egui::Vec2::new(6.0, 3.0));
        text_line_ui(ui, &mut panel.typed, name, "0x1200, 4 KiB, or from..to", f32::INFINITY)
    });
    let response = response.inner;
    if response.changed() {
        panel.is_wrong = false;
    }
    if response.lost_focus() && ui.input(|i| i.key_pressed(Key::Enter)) {
        match read_range(&panel.typed) {
            Some(range) if range[0] < plan.arena.arena_bytes => {
                commands.push(UiCommand::Select(Selection::Bytes(range)))
            }
            _ => panel.is_wrong = true,
        }
    }
    if panel.is_wrong {
        let text = format!(
            "Not a byte of the arena, which has {}: type 4096, 0x1000, 4 KiB, or 0..4 KiB.",
            Bytes(plan.arena.arena_bytes)
        );
        ui.add(egui::Label::new(RichText::new(text).size(12.0).color(theme::colors(ui).error)).wrap());
    }
}

/// The writer and the readers of the byte around an operation.
fn around_ui(ui: &mut Ui, plan: &PlanView, owners: &ByteOwners, op: usize) {
    let around = owners.around(&plan.arena, op);
    // Bytes that exist before the step were written by the preceding step, or by the host.
    let line = |what: &str, found: Option<usize>, none: &str| match found {
        Some(at) => format!("{what} op {at}"),
        None => none.to_owned(),
    };
    weak_ui(
        ui,
        format!(
            "at op {op}: {}, {}",
            line("last written by", around.last_writer, "not written before"),
            line("next read by", around.next_reader, "not read after")
        ),
    );
}

/// An owner, with the operations during which it is alive; a click selects it.
fn owner_ui(ui: &mut Ui, plan: &PlanView, id: BufferId, op: Option<usize>, commands: &mut CommandQueue) {
    let Some(r) = plan.arena.rect(id) else { return };
    ui.horizontal(|ui| {
        ui.spacing_mut().item_spacing.x = 6.0;
        role_ui(ui, r.role);
        let now = op.is_some_and(|op| r.live[0] <= op && op < r.live[1]);
        let c = theme::colors(ui);
        let text = RichText::new(&r.name).font(theme::mono()).color(if now { c.accent } else { c.text });
        ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
            weak_ui(ui, format!("{} to {}", r.live[0], r.live[1].saturating_sub(1)));
            ui.with_layout(Layout::left_to_right(Align::Center), |ui| {
                if ui.add(Button::new(text).frame(false).truncate()).clicked() {
                    commands.push(UiCommand::Select(Selection::Buffer(id)));
                }
            });
        });
    });
}
