//! A map of values as colours, with a cell that is selected by the pointer or the keys.

use crate::studio::theme;
use crate::studio::view_models::sequences::heat_map::{HeatMap, MASKED};
use crate::studio::widgets::button::weak_ui;
use crate::studio::widgets::classes::{mix, signed};
use egui::{
    Align2, Color32, ColorImage, EventFilter, Key, Pos2, Rect, Sense, Stroke, StrokeKind, TextureHandle,
    TextureOptions, Ui, Vec2,
};

/// The state of a map.
#[derive(Default)]
pub struct HeatMapState {
    texture: Option<TextureHandle>,
    made_for: Option<(u64, bool, bool)>,
    /// The column and the row that are selected.
    cell: Option<[usize; 2]>,
}

/// What a map shows in addition to its values.
pub struct HeatMapSpec<'a> {
    /// The name for assistive tools.
    pub name: &'a str,
    /// The titles above the columns and beside the rows.
    pub columns: &'a [String],
    pub rows: &'a [String],
    /// Whether values below 0 have a separate colour.
    pub is_signed: bool,
    /// Whether cells are square.
    pub is_square: bool,
    /// Changes with the values.
    pub generation: u64,
    /// A column and a row as text.
    pub about: &'a dyn Fn([usize; 2]) -> String,
}

/// The largest side of a cell, the smallest in which a name is written, and the space for names, in points.
const CELL: f32 = 36.0;
const NAMED: f32 = 12.0;
const NAMES: f32 = 40.0;
/// The width of a character in the names, in points.
const LETTER: f32 = 7.5;

/// The colour of every shade.
fn colors(ui: &Ui, is_signed: bool) -> [Color32; 256] {
    let c = theme::colors(ui);
    std::array::from_fn(|shade| {
        if shade == usize::from(MASKED) {
            return mix(c.well, c.hairline, 0.6);
        }
        let share = (shade as f32 - 128.0) / 127.0;
        if is_signed { signed(c.well, share) } else { mix(c.well, c.accent, share.max(0.0)) }
    })
}

impl HeatMapState {
    fn texture(&mut self, ui: &Ui, map: &HeatMap, spec: &HeatMapSpec<'_>) -> Option<TextureHandle> {
        let key = (spec.generation, ui.visuals().dark_mode, spec.is_signed);
        if self.made_for != Some(key) {
            let colors = colors(ui, spec.is_signed);
            let pixels = map.shades.iter().map(|shade| colors[usize::from(*shade)]).collect();
            let image = ColorImage::new([map.width, map.height], pixels);
            match &mut self.texture {
                Some(texture) => texture.set(image, TextureOptions::NEAREST),
                None => self.texture = Some(ui.ctx().load_texture("heat map", image, TextureOptions::NEAREST)),
            }
            self.made_for = Some(key);
        }
        self.texture.clone()
    }

    /// Moves the selected cell with the arrow keys.
    fn follow_keys(&mut self, ui: &Ui, map: &HeatMap) {
        let by = |back: Key, on: Key| ui.input(|i| i.num_presses(on) as i64 - i.num_presses(back) as i64);
        let [across, down] = [by(Key::ArrowLeft, Key::ArrowRight), by(Key::ArrowUp, Key::ArrowDown)];
        let moved = |at: usize, by: i64, count: usize| (at as i64 + by).clamp(0, count as i64 - 1) as usize;
        let [column, row] = self.cell.unwrap_or_default();
        self.cell = Some([moved(column, across, map.columns), moved(row, down, map.rows)]);
    }
}

/// Shows a map in the available space, with information about the cell under the pointer, or about the selected one,
/// below it. A click selects a cell, and the arrow keys move the selection.
pub fn heat_map_ui(ui: &mut Ui, map: &HeatMap, spec: &HeatMapSpec<'_>, state: &mut HeatMapState) {
    if map.columns == 0 || map.rows == 0 {
        return;
    }
    state.cell = state.cell.filter(|[column, row]| *column < map.columns && *row < map.rows);
    let room = Vec2::new(ui.available_width() - NAMES - 8.0, ui.available_height() - 64.0).max(Vec2::splat(64.0));
    let mut cell = Vec2::new(room.x / map.columns as f32, room.y / map.rows as f32).min(Vec2::splat(CELL));
    if spec.is_square {
        cell = Vec2::splat(cell.min_elem());
    }
    let size = cell * Vec2::new(map.columns as f32, map.rows as f32);
    let (all, response) = ui.allocate_exact_size(size + Vec2::new(NAMES, 20.0), Sense::click());
    let rect = Rect::from_min_size(all.min + Vec2::new(NAMES, 20.0), size);
    if let Some(texture) = state.texture(ui, map, spec) {
        let whole = Rect::from_min_max(Pos2::ZERO, Pos2::new(1.0, 1.0));
        ui.painter().image(texture.id(), rect, whole, Color32::WHITE);
    }
    let c = theme::colors(ui);
    ui.painter().rect_stroke(rect, 0, Stroke::new(1.0, c.hairline), StrokeKind::Outside);
    names_ui(ui, spec, rect, cell);
    let at = |pointer: Pos2| {
        let share = (pointer - rect.min) / rect.size();
        map.cell(share.x, share.y)
    };
    let hovered = response.hover_pos().and_then(at);
    if response.clicked() {
        response.request_focus();
        state.cell = response.interact_pointer_pos().and_then(at).or(state.cell);
    }
    if response.has_focus() {
        let filter = EventFilter { horizontal_arrows: true, vertical_arrows: true, ..EventFilter::default() };
        ui.memory_mut(|m| m.set_focus_lock_filter(response.id, filter));
        state.follow_keys(ui, map);
    }
    let chosen = hovered.or(state.cell);
    if let Some([column, row]) = chosen {
        let place = |x: usize, y: usize| rect.min + cell * Vec2::new(x as f32, y as f32);
        let own = Rect::from_min_size(place(column, row), cell.max(Vec2::splat(2.0)));
        let line = Stroke::new(1.0, c.weak);
        ui.painter().hline(rect.x_range(), own.center().y, Stroke::new(0.5, c.weak.gamma_multiply(0.5)));
        ui.painter().vline(own.center().x, rect.y_range(), Stroke::new(0.5, c.weak.gamma_multiply(0.5)));
        ui.painter().rect_stroke(own, 0, line, StrokeKind::Outside);
    }
    if response.has_focus() {
        ui.painter().rect_stroke(rect.expand(2.0), 2, Stroke::new(1.0, c.accent), StrokeKind::Outside);
    }
    let message = chosen.map(spec.about);
    let label = format!("{}{}", spec.name, message.as_ref().map_or_else(String::new, |message| format!(": {message}")));
    response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Image, true, &label));
    weak_ui(ui, message.as_deref().unwrap_or("Point at a cell, or click one and use the arrow keys"));
    if let Some(message) = message.filter(|_| hovered.is_some()) {
        response.on_hover_text_at_pointer(message);
    }
}

/// If there is no space for the number of every column, only every n-th number is written.
fn every(names: &[String], cell: f32) -> usize {
    let longest = names.last().map_or(0, |last| last.chars().count());
    let are_numbers = names.last().is_some_and(|last| last.parse() == Ok(names.len()));
    if are_numbers { (((longest + 1) as f32 * LETTER / cell.max(0.1)).ceil() as usize).max(1) } else { 1 }
}

/// Writes the names of columns and rows if they fit.
fn names_ui(ui: &Ui, spec: &HeatMapSpec<'_>, rect: Rect, cell: Vec2) {
    let c = theme::colors(ui);
    let has_room = |name: &str, room: f32| name.chars().count() as f32 * LETTER <= room;
    let every = every(spec.columns, cell.x);
    if every > 1 {
        for (column, name) in spec.columns.iter().enumerate().step_by(every) {
            let at = Pos2::new(rect.min.x + cell.x * (column as f32 + 0.5), rect.min.y - 3.0);
            ui.painter().text(at, Align2::CENTER_BOTTOM, name, theme::mono(), c.text);
        }
    } else if cell.x >= NAMED {
        for (column, name) in spec.columns.iter().enumerate().filter(|(_, name)| has_room(name, cell.x)) {
            let at = Pos2::new(rect.min.x + cell.x * (column as f32 + 0.5), rect.min.y - 3.0);
            ui.painter().text(at, Align2::CENTER_BOTTOM, name, theme::mono(), c.text);
        }
    }
    if cell.y >= NAMED {
        for (row, name) in spec.rows.iter().enumerate().filter(|(_, name)| has_room(name, NAMES)) {
            let at = Pos2::new(rect.min.x - 4.0, rect.min.y + cell.y * (row as f32 + 0.5));
            ui.painter().text(at, Align2::RIGHT_CENTER, name, theme::mono(), c.text);
        }
    }
}
