//! Columns at the left of a table that stay in view while the rest of it is moved sideways.

use crate::studio::theme;
use egui::{Rangef, Rect, Response, Sense, Stroke, Ui, UiBuilder, Vec2};
use egui_extras::TableRow;

/// The columns that stay, in a table that is moved by so much.
#[derive(Clone, Copy)]
pub struct Frozen {
    /// Columns from the left.
    count: usize,
    /// Points that the table is moved to the left.
    offset: f32,
    /// What is seen of the table, from the left to the right.
    seen: Rangef,
}

/// How a row looks behind its cells.
#[derive(Clone, Copy, Default)]
pub struct Ground {
    pub is_selected: bool,
    /// True where a row shows that it can be pressed.
    pub hovers: bool,
}

impl Frozen {
    /// The first `count` columns stay. `ui` holds the contents of a horizontal scroll area that shows `viewport` of
    /// them.
    #[must_use]
    pub fn new(ui: &Ui, viewport: Rect, count: usize) -> Self {
        Self { count, offset: viewport.left().max(0.0), seen: ui.clip_rect().x_range() }
    }

    /// Shows the cells of a row, of which `add` draws one by its column; true where one that stays was pressed itself.
    /// Those that stay are drawn last, over the others.
    pub fn row_ui(
        &self,
        row: &mut TableRow<'_, '_>,
        columns: usize,
        ground: Ground,
        mut add: impl FnMut(&mut Ui, usize),
    ) -> bool {
        let (mut kept, mut is_pressed) = (Vec::new(), false);
        for column in 0..columns {
            row.col(|ui| {
                if column < self.count && self.offset > 0.5 {
                    kept.push(ui.max_rect());
                    return;
                }
                add(ui, column);
                if column + 1 == columns {
                    for (column, cell) in kept.iter().enumerate() {
                        is_pressed |= self.cell_ui(ui, *cell, ground, |ui| add(ui, column)).clicked();
                    }
                    self.edge_ui(ui, kept.last());
                }
            });
        }
        is_pressed
    }

    /// The edge behind which the others pass, at the right of the last cell that stays.
    fn edge_ui(&self, ui: &Ui, last: Option<&Rect>) {
        let Some(cell) = last else { return };
        let right = cell.right() + self.offset + 0.5 * ui.spacing().item_spacing.x - 0.5;
        let painter = ui.painter().with_clip_rect(Rect::from_x_y_ranges(self.seen, ui.clip_rect().y_range()));
        let rows = cell.expand2(0.5 * ui.spacing().item_spacing).y_range();
        painter.vline(right, rows, Stroke::new(1.0, theme::colors(ui).hairline));
    }

    /// Shows a cell that stays, for which `cell` is the place in the table; `ui` is that of the row's last cell.
    fn cell_ui(&self, ui: &mut Ui, cell: Rect, ground: Ground, add: impl FnOnce(&mut Ui)) -> Response {
        let rect = cell.translate(Vec2::new(self.offset, 0.0));
        let gapless = rect.expand2(0.5 * ui.spacing().item_spacing);
        let row = ui.clip_rect().y_range();
        let salt = ("frozen", cell.left() as i32);
        let builder = UiBuilder::new().id_salt(salt).max_rect(rect).layout(*ui.layout()).sense(Sense::click());
        let mut child = ui.new_child(builder);
        child.set_clip_rect(Rect::from_x_y_ranges(self.seen, row));
        let painter = child.painter();
        painter.rect_filled(gapless, 0, theme::colors(ui).panel);
        let is_under = |at: egui::Pos2| self.seen.contains(at.x) && gapless.y_range().contains(at.y);
        if ground.is_selected {
            painter.rect_filled(gapless, 0, ui.visuals().selection.bg_fill);
        } else if ground.hovers && ui.input(|i| i.pointer.hover_pos()).is_some_and(is_under) {
            painter.rect_filled(gapless, 0, ui.visuals().widgets.hovered.bg_fill);
        }
        child.set_clip_rect(Rect::from_x_y_ranges(rect.x_range().intersection(self.seen), row));
        child.style_mut().wrap_mode = Some(egui::TextWrapMode::Truncate);
        add(&mut child);
        child.response()
    }
}
