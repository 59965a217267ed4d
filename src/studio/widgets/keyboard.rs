//! Lists that are navigated by keyboard, and the keyboard focus.

use crate::studio::theme;
use egui::{Context, Event, EventFilter, Id, Key, LayerId, Modifiers, Order, Popup, Rect, Response, Sense, Stroke};
use egui::{StrokeKind, Ui};

/// The number of rows that a page key moves by.
const PAGE: isize = 20;

/// The list of layers, which has the keyboard focus as a whole.
#[must_use]
pub fn layers_id() -> Id {
    Id::unique("layers")
}

/// The table of kept runs, which has the keyboard focus as a whole.
#[must_use]
pub fn runs_id() -> Id {
    Id::unique("kept runs rows")
}

/// The control that had the keyboard focus before a dialog, and gets it back afterwards.
#[derive(Debug, Default)]
pub struct Back(Option<Id>);

impl Back {
    /// Records the control that has the keyboard focus, before a dialog takes it.
    pub fn remember(&mut self, ui: &Ui) {
        self.0 = ui.memory(egui::Memory::focused).or(self.0);
    }

    /// The control that gets the focus after the dialog.
    pub const fn lead_to(&mut self, id: Id) {
        self.0 = Some(id);
    }

    /// Returns the keyboard focus once no dialog is in front of the control. A widget that has received the focus since
    /// keeps it.
    pub fn give(&mut self, ui: &Ui) {
        let (is_modal, focused) = ui.memory(|m| (m.top_modal_layer().is_some(), m.focused()));
        if let Some(back) = self.0.take_if(|_| !is_modal)
            && focused.is_none()
        {
            ui.memory_mut(|m| m.request_focus(back));
        }
    }
}

/// A list that has the keyboard focus as a whole, with a name for assistive tools.
pub fn list_ui(ui: &Ui, id: Id, rect: Rect, name: &str) -> Response {
    let frame = ui.interact(rect, id, Sense::focusable_noninteractive());
    frame.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Table, true, name));
    frame
}

/// The row that the keys move to, while the list has the focus: arrows, pages, and both ends.
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

/// The horizontal arrow key that was pressed while the list has the focus: true for the left one, false for the right
/// one. Must be called after [`row_by_keys`].
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

/// Draws a ring around the focused control, once keys move the focus; the pointer needs none. It also keeps the focus
/// where it was when a text was entered or a choice was made, and moves it from panel to panel.
#[derive(Debug, Default)]
pub struct FocusRing {
    by_keys: bool,
    /// The control that had the focus in the last frame.
    last: Option<Id>,
    /// The control that has the focus, or had it before a list opened over the panels.
    home: Option<Id>,
    /// True where a list was open in the last frame.
    had_popup: bool,
}

/// The ring's width, in points.
const RING: f32 = 2.0;

impl FocusRing {
    /// True if the ring is drawn.
    #[must_use]
    pub const fn is_shown(&self) -> bool {
        self.by_keys
    }

    /// Draws it over everything in the layer of the control. `areas` are the panels, in the order of the keyboard.
    pub fn ui(&mut self, ctx: &Context, areas: &[Rect]) {
        let leads = |key: &Key| {
            let arrows = [Key::ArrowUp, Key::ArrowDown, Key::ArrowLeft, Key::ArrowRight];
            matches!(key, Key::Tab | Key::F6) || arrows.contains(key)
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
        self.keep(ctx);
        self.lead(ctx, areas);
        // Reading a response would remove a focus that the pointer has just set, so it is read only if keys set it.
        if !self.by_keys {
            return;
        }
        let Some(control) = ctx.memory(egui::Memory::focused).and_then(|id| ctx.read_response(id)) else { return };
        // A control that was scrolled out of view has no visible rectangle.
        if !control.interact_rect.is_positive() {
            return;
        }
        let color = theme::of(ctx.theme() == egui::Theme::Dark).accent;
        let painter = ctx.layer_painter(control.layer_id);
        let rect = control.interact_rect.expand(RING / 2.0);
        painter.rect_stroke(rect, 4, Stroke::new(RING, color), StrokeKind::Outside);
    }

    /// Returns the focus to a field whose text was entered, and to the control whose list was closed, so that the next
    /// Tab continues from there.
    fn keep(&mut self, ctx: &Context) {
        let (focused, is_modal) = ctx.memory(|m| (m.focused(), m.top_modal_layer().is_some()));
        let is_on_panel = |id: Id| ctx.read_response(id).is_some_and(|r| r.layer_id.order == Order::Background);
        let popup = Popup::is_any_open(ctx);
        let is_closed = std::mem::replace(&mut self.had_popup, popup) && !popup;
        let entered = ctx.input(|i| i.key_pressed(Key::Enter));
        let last = std::mem::replace(&mut self.last, focused);
        let back = match focused {
            _ if is_modal => None,
            None if entered && !is_closed => last.filter(|id| is_on_panel(*id)),
            // The focused row of the list was removed with it.
            _ if is_closed && self.by_keys => self.home.filter(|_| focused.is_none_or(|id| !is_on_panel(id))),
            _ => None,
        };
        if let Some(back) = back {
            ctx.memory_mut(|m| m.request_focus(back));
            self.last = Some(back);
        } else if !popup && !is_modal {
            self.home = focused.filter(|id| self.by_keys && is_on_panel(*id));
        }
    }

    /// Moves the focus to the first control of the next panel, or of the previous one.
    fn lead(&mut self, ctx: &Context, areas: &[Rect]) {
        let is_modal = ctx.memory(|m| m.top_modal_layer().is_some()) || Popup::is_any_open(ctx);
        if is_modal {
            return;
        }
        let (next, before) = ctx.input_mut(|i| {
            let before = i.consume_key(Modifiers::SHIFT, Key::F6);
            (i.consume_key(Modifiers::NONE, Key::F6), before)
        });
        if !(next || before) {
            return;
        }
        let center = ctx.memory(egui::Memory::focused).and_then(|id| ctx.read_response(id)).map(|r| r.rect.center());
        let now = center.and_then(|at| areas.iter().position(|a| a.contains(at)));
        let count = areas.len();
        let firsts: Vec<Option<Id>> = areas.iter().map(|area| first_in(ctx, *area)).collect();
        let order: Vec<usize> = match (now, before) {
            (None, false) => (0..count).collect(),
            (None, true) => (0..count).rev().collect(),
            (Some(now), false) => (1..=count).map(|n| (now + n) % count).collect(),
            (Some(now), true) => (1..=count).map(|n| (now + count - n) % count).collect(),
        };
        // A panel without a control, such as a status line that only reports, is skipped.
        if let Some(first) = order.into_iter().find_map(|n| firsts[n]) {
            ctx.memory_mut(|m| m.request_focus(first));
            ctx.request_repaint();
        }
    }
}

/// The first control of an area that can have the focus and is visible.
fn first_in(ctx: &Context, area: Rect) -> Option<Id> {
    ctx.viewport(|v| {
        let widgets = v.this_pass.widgets.get_layer(LayerId::background());
        // The edges for resizing panels extend over them.
        let mut inside = widgets.filter(|w| w.enabled && w.sense.is_focusable() && w.interact_rect.is_positive());
        inside.find(|w| area.expand(1.0).contains_rect(w.interact_rect)).map(|w| w.id)
    })
}
