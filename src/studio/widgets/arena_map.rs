//! The map of the arena: operations to the right, bytes upwards, a rectangle for every buffer.
//!
//! What is out of view is left out, and all that is in view is one mesh, so that thousands of buffers cost little.

use crate::plan::BufferId;
use crate::studio::theme::{self, Colors};
use crate::studio::view_models::arena::{ArenaView, BufferRect};
use crate::tensor::Bytes;
use egui::{Align2, Color32, FontId, Mesh, Painter, Pos2, Rect, Response, Sense, Shape, Stroke, StrokeKind, Ui, Vec2};
use std::collections::BTreeSet;

/// The part of the arena that is in view: op indices and bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    pub ops: [f64; 2],
    pub bytes: [f64; 2],
}

impl Window {
    /// The whole arena.
    #[must_use]
    pub fn fit(view: &ArenaView) -> Self {
        Self { ops: [0.0, view.ops.max(1) as f64], bytes: [0.0, view.arena_bytes.max(1) as f64 * 1.04] }
    }

    /// The window after zooming by `factor` around a point of it, `at` in 0..1 of both axes.
    #[must_use]
    pub fn zoomed(self, factor: Vec2, at: Vec2) -> Self {
        let axis = |[from, to]: [f64; 2], factor: f32, at: f32| {
            let middle = from + (to - from) * f64::from(at);
            let factor = f64::from(factor).max(1e-6);
            [middle - (middle - from) / factor, middle + (to - middle) / factor]
        };
        Self { ops: axis(self.ops, factor.x, at.x), bytes: axis(self.bytes, factor.y, at.y) }
    }

    /// The window within reach of the arena: neither further out than twice its size nor away from it.
    #[must_use]
    pub fn held(self, view: &ArenaView) -> Self {
        let whole = Self::fit(view);
        let axis = |[from, to]: [f64; 2], all: [f64; 2], least: f64| {
            let size = (to - from).clamp(least, 1.2 * all[1]);
            let from = from.clamp(all[0] - size * 0.5, all[1] - size * 0.5);
            [from, from + size]
        };
        Self {
            ops: axis(self.ops, whole.ops, 2.0),
            bytes: axis(self.bytes, whole.bytes, 1024.0_f64.min(whole.bytes[1])),
        }
    }
}

/// What lights up.
pub struct Highlight<'a> {
    pub buffers: &'a BTreeSet<BufferId>,
    pub ops: &'a BTreeSet<usize>,
    /// The operation that the scrubber stands on.
    pub op: Option<usize>,
    /// Buffers whose name does not hold this are dimmed.
    pub search: &'a str,
}

/// What a person did with the map.
pub struct MapResponse {
    pub response: Response,
    pub clicked: Option<BufferId>,
}

/// Room for the marks of both axes.
const LEFT: f32 = 64.0;
const BOTTOM: f32 = 20.0;

struct Frame {
    rect: Rect,
    window: Window,
}

impl Frame {
    fn x(&self, op: f64) -> f32 {
        let [from, to] = self.window.ops;
        self.rect.left() + ((op - from) / (to - from)) as f32 * self.rect.width()
    }

    fn y(&self, byte: f64) -> f32 {
        let [from, to] = self.window.bytes;
        self.rect.bottom() - ((byte - from) / (to - from)) as f32 * self.rect.height()
    }

    fn of(&self, b: &BufferRect) -> Rect {
        let (x0, x1) = (self.x(b.live[0] as f64), self.x(b.live[1] as f64));
        let (y0, y1) = (self.y((b.offset + b.bytes) as f64), self.y(b.offset as f64));
        Rect::from_min_max(Pos2::new(x0, y0), Pos2::new(x1, y1))
    }

    fn at(&self, pos: Pos2) -> (f64, f64) {
        let [a, b] = self.window.ops;
        let [c, d] = self.window.bytes;
        let x = f64::from((pos.x - self.rect.left()) / self.rect.width());
        let y = f64::from((self.rect.bottom() - pos.y) / self.rect.height());
        (a + (b - a) * x, c + (d - c) * y)
    }
}

/// Shows the map in all the room there is.
pub fn map_ui(ui: &mut Ui, view: &ArenaView, window: &mut Window, highlight: &Highlight<'_>) -> MapResponse {
    let (outer, response) =
        ui.allocate_exact_size(ui.available_size().max(Vec2::new(160.0, 120.0)), Sense::click_and_drag());
    let rect = Rect::from_min_max(
        Pos2::new(outer.left() + LEFT, outer.top() + 4.0),
        Pos2::new(outer.right() - 4.0, outer.bottom() - BOTTOM),
    );
    navigate(ui, &response, rect, window, view);
    let frame = Frame { rect, window: *window };
    let c = theme::colors(ui);
    let painter = ui.painter_at(outer);
    painter.rect_filled(rect, 0, c.well);
    axes(&painter, &frame, c);
    let inner = painter.with_clip_rect(rect);
    let pointer = response.hover_pos().filter(|p| rect.contains(*p));
    let hovered = pointer.and_then(|pos| {
        let (op, byte) = frame.at(pos);
        let over = |b: &&BufferRect| {
            b.live[0] as f64 <= op
                && op < b.live[1] as f64
                && b.offset as f64 <= byte
                && byte < (b.offset + b.bytes) as f64
        };
        view.rects.iter().find(over)
    });
    rectangles(&inner, &frame, view, highlight, c);
    if let Some(op) = highlight.op {
        let band = Rect::from_x_y_ranges(frame.x(op as f64)..=frame.x(op as f64 + 1.0), rect.y_range());
        inner.rect_filled(band, 0, c.accent.gamma_multiply(0.18));
        inner.vline(band.left(), rect.y_range(), Stroke::new(1.0, c.accent));
    }
    let lower = frame.y(view.lower_bound_bytes as f64);
    inner.extend(Shape::dashed_line(
        &[Pos2::new(rect.left(), lower), Pos2::new(rect.right(), lower)],
        Stroke::new(1.0, c.text),
        6.0,
        4.0,
    ));
    inner.text(
        Pos2::new(rect.right() - 4.0, lower - 2.0),
        Align2::RIGHT_BOTTOM,
        "lower bound",
        FontId::proportional(11.0),
        c.weak,
    );
    painter.rect_stroke(rect, 0, Stroke::new(1.0, c.hairline), StrokeKind::Outside);
    let clicked = if response.clicked() { hovered.map(|b| b.id) } else { None };
    if let Some(b) = hovered {
        inner.rect_stroke(frame.of(b), 1, Stroke::new(2.0, c.text), StrokeKind::Inside);
        response.clone().on_hover_ui_at_pointer(|ui| {
            ui.set_max_width(360.0);
            ui.label(egui::RichText::new(b.tooltip()).font(theme::mono()));
        });
    }
    response.widget_info(|| {
        egui::WidgetInfo::labeled(egui::Role::Image, true, format!("Arena map, {} buffers", view.rects.len()))
    });
    MapResponse { response, clicked }
}

fn navigate(ui: &Ui, response: &Response, rect: Rect, window: &mut Window, view: &ArenaView) {
    if response.dragged() {
        let delta = response.drag_delta();
        let (w, h) = (window.ops[1] - window.ops[0], window.bytes[1] - window.bytes[0]);
        let dx = f64::from(delta.x / rect.width()) * w;
        let dy = f64::from(delta.y / rect.height()) * h;
        window.ops = window.ops.map(|v| v - dx);
        window.bytes = window.bytes.map(|v| v + dy);
        *window = window.held(view);
    }
    if let Some(pos) = response.hover_pos().filter(|p| rect.contains(*p)) {
        let (scroll, zoom, shift) = ui.input(|i| (i.smooth_scroll_delta().y, i.zoom_delta(), i.modifiers.shift));
        let factor = zoom * (scroll * 0.004).exp();
        if (factor - 1.0).abs() > 1e-4 {
            let at = Vec2::new((pos.x - rect.left()) / rect.width(), (rect.bottom() - pos.y) / rect.height());
            // With shift only time is zoomed, which is what a long step needs.
            let factor = if shift { Vec2::new(factor, 1.0) } else { Vec2::splat(factor) };
            *window = window.zoomed(factor, at).held(view);
        }
    }
    if response.double_clicked() {
        *window = Window::fit(view);
    }
}

/// Marks about this many points apart, at round values.
fn round_step(span: f64, room: f32, apart: f32, base: f64) -> f64 {
    let wanted = span / f64::from((room / apart).max(1.0));
    let power = base.powf((wanted.max(1e-9)).log(base).floor());
    let steps: &[f64] = if base == 2.0 { &[1.0, 2.0] } else { &[1.0, 2.0, 5.0, 10.0] };
    steps.iter().map(|s| s * power).find(|s| *s >= wanted).unwrap_or(power * base).max(1.0)
}

fn axes(painter: &Painter, frame: &Frame, c: &Colors) {
    let (rect, w) = (frame.rect, frame.window);
    let font = FontId::proportional(11.0);
    let step = round_step(w.bytes[1] - w.bytes[0], rect.height(), 56.0, 2.0);
    let mut byte = (w.bytes[0] / step).ceil().max(0.0) * step;
    while byte <= w.bytes[1] {
        let y = frame.y(byte);
        painter.hline(rect.x_range(), y, Stroke::new(1.0, c.hairline.gamma_multiply(0.6)));
        painter.text(
            Pos2::new(rect.left() - 6.0, y),
            Align2::RIGHT_CENTER,
            Bytes(byte as u64).to_string(),
            font.clone(),
            c.weak,
        );
        byte += step;
    }
    let step = round_step(w.ops[1] - w.ops[0], rect.width(), 56.0, 10.0);
    let mut op = (w.ops[0] / step).ceil().max(0.0) * step;
    while op < w.ops[1] {
        painter.text(
            Pos2::new(frame.x(op + 0.5), rect.bottom() + 4.0),
            Align2::CENTER_TOP,
            format!("{op:.0}"),
            font.clone(),
            c.weak,
        );
        op += step;
    }
}

/// Labels drawn at most, so that a dense map stays cheap and legible.
const LABELS: usize = 160;

fn rectangles(painter: &Painter, frame: &Frame, view: &ArenaView, highlight: &Highlight<'_>, c: &Colors) {
    // The mesh lies below the labels, so its place in the list is taken first.
    let place = painter.add(Shape::Noop);
    let mut mesh = Mesh::default();
    let mut labels = 0;
    let picks = !highlight.buffers.is_empty();
    for b in &view.rects {
        let full = frame.of(b);
        let r = full.intersect(frame.rect);
        if r.width() <= 0.0 || r.height() <= 0.0 {
            continue;
        }
        // A hairline of ground stays between neighbours, unless it would swallow the rectangle.
        let inset = Vec2::new(if full.width() > 3.0 { 0.5 } else { 0.0 }, if full.height() > 3.0 { 0.5 } else { 0.0 });
        let r = r.shrink2(inset);
        let lit = match highlight.op {
            Some(op) => b.live[0] <= op && op < b.live[1],
            None => !picks || highlight.buffers.contains(&b.id),
        };
        let lit = lit && (highlight.search.is_empty() || b.name.to_lowercase().contains(highlight.search));
        let fill = theme::role(b.role);
        let fill = if lit { fill } else { blend(fill, c.well, 0.72) };
        mesh.add_colored_rect(r, fill);
        if labels < LABELS && r.width() > 56.0 && r.height() > 14.0 {
            labels += 1;
            let text = if lit { ink(fill) } else { c.weak };
            let clip = painter.with_clip_rect(r.shrink(2.0).intersect(painter.clip_rect()));
            clip.text(
                r.left_center() + Vec2::new(4.0, 0.0),
                Align2::LEFT_CENTER,
                &b.name,
                FontId::proportional(11.0),
                text,
            );
        }
    }
    painter.set(place, Shape::mesh(mesh));
    outline(painter, frame, view, highlight, c);
}

fn outline(painter: &Painter, frame: &Frame, view: &ArenaView, highlight: &Highlight<'_>, c: &Colors) {
    for id in highlight.buffers {
        if let Some(b) = view.rect(*id) {
            painter.rect_stroke(frame.of(b), 1, Stroke::new(2.0, c.accent), StrokeKind::Inside);
        }
    }
}

fn blend(a: Color32, b: Color32, share: f32) -> Color32 {
    let mix = |x: u8, y: u8| (f32::from(x) * (1.0 - share) + f32::from(y) * share) as u8;
    Color32::from_rgb(mix(a.r(), b.r()), mix(a.g(), b.g()), mix(a.b(), b.b()))
}

/// Black or white, whichever is easier to read on a colour.
fn ink(on: Color32) -> Color32 {
    let light = 0.299 * f32::from(on.r()) + 0.587 * f32::from(on.g()) + 0.114 * f32::from(on.b());
    if light > 110.0 { Color32::BLACK } else { Color32::WHITE }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zooming_keeps_the_point_under_the_cursor() {
        let w = Window { ops: [0.0, 100.0], bytes: [0.0, 1000.0] };
        let z = w.zoomed(Vec2::splat(2.0), Vec2::new(0.25, 0.5));
        assert_eq!(z.ops, [12.5, 62.5]);
        assert_eq!(z.bytes, [250.0, 750.0]);
    }

    #[test]
    fn marks_are_round() {
        assert_eq!(round_step(100.0, 560.0, 56.0, 10.0), 10.0);
        assert_eq!(round_step(7000.0, 560.0, 56.0, 2.0), 1024.0);
    }
}
