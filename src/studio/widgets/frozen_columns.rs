//! Columns at the left of a table that stay visible while the rest of it is scrolled horizontally.

use crate::studio::theme;
use egui::{Rangef, Rect, Response, Sense, Stroke, Ui, UiBuilder, Vec2};
use egui_extras::TableRow;

/// The fixed columns of a table with this scroll offset.
#[derive(Clone, Copy)]
pub struct Frozen {
    /// The number of columns from the left.
    count: usize,
    /// The distance that the table is scrolled, in points.
    offset: f32,
    /// The visible range of the table, from the left to the right.
    seen: Rangef,
}

/// The background of a row.
#[derive(Clone, Copy, Default)]
pub struct Ground {
    pub is_selected: bool,
    /// True if a row shows that it can be clicked.
    pub hovers: bool,
}

impl Frozen {
    /// The first `count` columns are fixed. `ui` has the contents of a horizontal scroll area that shows `viewport` of
    /// them.
    #[must_use]
    pub fn new(ui: &Ui, viewport: Rect, count: usize) -> Self {
        Self { count, offset: viewport.left().max(0.0), seen: ui.clip_rect().x_range() }
    }

    /// Shows the cells of a row, each of which `add` draws given its column; returns true if a fixed one was clicked
    /// itself. Fixed cells are drawn last, over the others.
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

    /// The edge behind which the others disappear, at the right of the last fixed cell.
    fn edge_ui(&self, ui: &Ui, last: Option<&Rect>) {
        let Some(cell) = last else { return };
        let right = cell.right() + self.offset + 0.5 * ui.spacing().item_spacing.x - 0.5;
        let painter = ui.painter().with_clip_rect(Rect::from_x_y_ranges(self.seen, ui.clip_rect().y_range()));
        let rows = cell.expand2(0.5 * ui.spacing().item_spacing).y_range();
        painter.vline(right, rows, Stroke::new(1.0, theme::colors(ui).hairline));
    }

    /// Shows a fixed cell; `cell` is its rectangle in the table; `ui` is that of the row's last cell.
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
