//! Lists that are walked through by keyboard, and where the keyboard is.

use crate::studio::theme;
use egui::{Context, Event, EventFilter, Id, Key, Modifiers, Rect, Response, Sense, Stroke, StrokeKind, Ui};

/// Rows that a page key moves by.
const PAGE: isize = 20;

/// The list of layers, which takes the keyboard as a whole.
#[must_use]
pub fn layers_id() -> Id {
    Id::unique("layers")
}

/// The table of kept runs, which takes the keyboard as a whole.
#[must_use]
pub fn runs_id() -> Id {
    Id::unique("kept runs rows")
}

/// What had the keyboard before a dialog, and has it again behind it.
#[derive(Debug, Default)]
pub struct Back(Option<Id>);

impl Back {
    /// Takes note of what has the keyboard, before a dialog takes it.
    pub fn remember(&mut self, ui: &Ui) {
        self.0 = ui.memory(egui::Memory::focused).or(self.0);
    }

    /// The dialog leads to this.
    pub const fn lead_to(&mut self, id: Id) {
        self.0 = Some(id);
    }

    /// Gives the keyboard back once nothing stands before what had it. Nothing is taken from who has got it meanwhile.
    pub fn give(&mut self, ui: &Ui) {
        let (stands, focused) = ui.memory(|m| (m.top_modal_layer().is_some(), m.focused()));
        if let Some(back) = self.0.take_if(|_| !stands)
            && focused.is_none()
        {
            ui.memory_mut(|m| m.request_focus(back));
        }
    }
}

/// A list as a whole that takes the keyboard, with the name that assistive tools read.
pub fn list_ui(ui: &Ui, id: Id, rect: Rect, name: &str) -> Response {
    let frame = ui.interact(rect, id, Sense::focusable_noninteractive());
    frame.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Table, true, name));
    frame
}

/// The row that the keys lead to, while the list has the keyboard: arrows, pages, and both ends.
#[must_use]
pub fn row_by_keys(ui: &Ui, id: Id, rows: usize, now: Option<usize>) -> Option<usize> {
    if !ui.memory(|m| m.has_focus(id)) {
        return None;
    }
    let filter = EventFilter { vertical_arrows: true, horizontal_arrows: true, ..EventFilter::default() };
    ui.memory_mut(|m| m.set_focus_lock_filter(id, filter));
    let steps = [(Key::ArrowDown, 1), (Key::ArrowUp, -1), (Key::PageDown, PAGE), (Key::PageUp, -PAGE)];
    let none = Modifiers::NONE;
    let last = rows.checked_sub(1)?;
    let (delta, end) = ui.input_mut(|i| {
        let delta: isize = steps.iter().map(|(k, d)| i.count_and_consume_key(none, *k) as isize * d).sum();
        let end = if i.consume_key(none, Key::Home) { Some(0) } else { None };
        (delta, if i.consume_key(none, Key::End) { Some(last) } else { end })
    });
    match (end, delta) {
        (Some(end), _) => Some(end),
        (None, 0) => None,
        (None, delta) => Some(now.map_or(0, |n| n.saturating_add_signed(delta).min(last))),
    }
}

/// The arrow to the side that was pressed while the list has the keyboard: true for the left one, false for the right one. Asked after [`row_by_keys`].
#[must_use]
pub fn side_by_keys(ui: &Ui, id: Id) -> Option<bool> {
    if !ui.memory(|m| m.has_focus(id)) {
        return None;
    }
    let pressed = |key: Key| ui.input_mut(|i| i.consume_key(Modifiers::NONE, key));
    match (pressed(Key::ArrowLeft), pressed(Key::ArrowRight)) {
        (true, _) => Some(true),
        (false, true) => Some(false),
        (false, false) => None,
    }
}

/// Draws a ring around the control that has the keyboard, once keys lead the focus; the pointer needs none.
#[derive(Debug, Default)]
pub struct FocusRing {
    by_keys: bool,
}

/// The ring's width, in points.
const RING: f32 = 2.0;

impl FocusRing {
    /// True where the ring is drawn.
    #[must_use]
    pub const fn is_shown(&self) -> bool {
        self.by_keys
    }

    /// Draws it, over everything in the layer of the control.
    pub fn ui(&mut self, ctx: &Context) {
        let leads = |key: &Key| {
            let arrows = [Key::ArrowUp, Key::ArrowDown, Key::ArrowLeft, Key::ArrowRight];
            *key == Key::Tab || arrows.contains(key)
        };
        ctx.input(|i| {
            for event in &i.raw.events {
                match event {
                    Event::Key { key, pressed: true, .. } if leads(key) => self.by_keys = true,
                    Event::PointerButton { pressed: true, .. } => self.by_keys = false,
                    _ => {}
                }
            }
        });
        // To read a response lets go of a focus that the pointer has just given: it is read where keys gave it only.
        if !self.by_keys {
            return;
        }
        let Some(control) = ctx.memory(egui::Memory::focused).and_then(|id| ctx.read_response(id)) else { return };
        // What was scrolled away has no room to draw on.
        if !control.interact_rect.is_positive() {
            return;
        }
        let color = theme::of(ctx.theme() == egui::Theme::Dark).accent;
        let painter = ctx.layer_painter(control.layer_id);
        let rect = control.interact_rect.expand(RING / 2.0);
        painter.rect_stroke(rect, 4, Stroke::new(RING, color), StrokeKind::Outside);
    }
}
