//! The map of the arena: the horizontal axis is operations or measured time, the vertical axis the address; each
//! rectangle is a buffer.
//!
//! Only the visible part is drawn, as one mesh, so that thousands of buffers cost little.

use crate::plan::BufferId;
use crate::studio::theme;
use crate::studio::theme::Colors;
use crate::studio::view_models::arena::{ArenaView, BufferRect};
use crate::studio::view_models::format;
use crate::studio::view_models::format::plain_count;
use crate::tensor::Bytes;
use egui::{Align2, Color32, FontId, Mesh, Painter, Pos2, Rect, Response, Sense, Shape, Stroke, StrokeKind, Ui, Vec2};
use std::collections::BTreeSet;

/// The horizontal axis: operations by index, or by measured time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Axis<'a> {
    /// The start of each operation, in microseconds, and the end of the last; `None` for indices of operations.
    pub edges_us: Option<&'a [f64]>,
}

impl Axis<'_> {
    /// The position of the start of operation `op`; one past the last is the end.
    #[must_use]
    pub fn edge(&self, op: usize) -> f64 {
        match self.edges_us {
            Some(edges) => edges.get(op).or_else(|| edges.last()).copied().unwrap_or(0.0),
            None => op as f64,
        }
    }

    /// The operation at a position on the axis.
    #[must_use]
    fn op_at(&self, x: f64) -> usize {
        match self.edges_us {
            Some(edges) => edges.partition_point(|e| *e <= x).saturating_sub(1),
            None => x.max(0.0) as usize,
        }
    }
}

/// The visible part of the arena: positions on the axis and bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    pub time: [f64; 2],
    pub bytes: [f64; 2],
}

impl Window {
    /// The whole arena.
    #[must_use]
    pub fn fit(view: &ArenaView, axis: &Axis<'_>) -> Self {
        let end = axis.edge(view.ops.max(1)).max(1e-3);
        Self { time: [0.0, end], bytes: [0.0, view.arena_bytes.max(1) as f64 * 1.04] }
    }

    /// The view after zooming by `factor` around a point of it, `at` in 0..1 of both axes.
    #[must_use]
    pub fn zoomed(self, factor: Vec2, at: Vec2) -> Self {
        let axis = |[from, to]: [f64; 2], factor: f32, at: f32| {
            let middle = from + (to - from) * f64::from(at);
            let factor = f64::from(factor).max(1e-6);
            [middle - (middle - from) / factor, middle + (to - middle) / factor]
        };
        Self { time: axis(self.time, factor.x, at.x), bytes: axis(self.bytes, factor.y, at.y) }
    }

    /// The view limited to the surroundings of the arena: not larger than twice its size and not away from it.
    #[must_use]
    pub fn held(self, view: &ArenaView, along: &Axis<'_>) -> Self {
        let whole = Self::fit(view, along);
        let axis = |[from, to]: [f64; 2], all: [f64; 2], least: f64| {
            let size = (to - from).clamp(least.min(all[1]), 1.2 * all[1]);
            let from = from.clamp(all[0] - size * 0.5, all[1] - size * 0.5);
            [from, from + size]
        };
        let least = if along.edges_us.is_some() { whole.time[1] / 2000.0 } else { 2.0 };
        Self {
            time: axis(self.time, whole.time, least),
            bytes: axis(self.bytes, whole.bytes, 1024.0_f64.min(whole.bytes[1])),
        }
    }
}

/// The items that the last edit added and removed, while they fade.
#[derive(Clone, Copy, Debug)]
pub struct Fading<'a> {
    /// Buffers that fade in, in order.
    pub came: &'a [BufferId],
    /// Buffers of the previous plan that fade out.
    pub went: &'a [BufferRect],
    /// From 0 at the edit to 1 at the end of fading.
    pub share: f32,
}

/// A highlighted part of a flat vector.
#[derive(Clone, Debug, PartialEq)]
pub struct LitPart {
    pub buffer: BufferId,
    pub name: String,
    /// First byte in the arena, and one past the last.
    pub bytes: [u64; 2],
}

/// The highlighted items.
pub struct Highlight<'a> {
    pub buffers: &'a BTreeSet<BufferId>,
    /// Parts of flat vectors, if not the whole vector is highlighted.
    pub parts: &'a [LitPart],
    pub ops: &'a BTreeSet<usize>,
    /// The operation at the scrubber.
    pub op: Option<usize>,
    /// Buffers whose name does not contain this are dimmed.
    pub search: &'a str,
    /// The selected range of the arena.
    pub bytes: Option<[u64; 2]>,
    pub fading: Option<Fading<'a>>,
}

/// The user's actions on the map.
pub struct MapResponse {
    pub response: Response,
    pub clicked: Option<BufferId>,
    /// The operation and the byte under the pointer.
    pub pointer: Option<(usize, u64)>,
    /// A range of bytes that was drawn with Shift held.
    pub stretch: Option<[u64; 2]>,
    /// The number of operations that the scrubber moves by, from the arrow keys.
    pub nudge: isize,
}

/// The space for the marks of both axes.
const LEFT: f32 = 64.0;
const BOTTOM: f32 = 20.0;

struct Frame<'a> {
    rect: Rect,
    window: Window,
    axis: &'a Axis<'a>,
}

impl Frame<'_> {
    fn x(&self, place: f64) -> f32 {
        let [from, to] = self.window.time;
        self.rect.left() + ((place - from) / (to - from)) as f32 * self.rect.width()
    }

    fn y(&self, byte: f64) -> f32 {
        let [from, to] = self.window.bytes;
        self.rect.bottom() - ((byte - from) / (to - from)) as f32 * self.rect.height()
    }

    fn of(&self, b: &BufferRect) -> Rect {
        self.of_bytes(b, [b.offset, b.offset + b.bytes])
    }

    /// The bytes of the arena that a buffer occupies, and its live range.
    fn of_bytes(&self, b: &BufferRect, [from, to]: [u64; 2]) -> Rect {
        let (x0, x1) = (self.x(self.axis.edge(b.live[0])), self.x(self.axis.edge(b.live[1])));
        let (y0, y1) = (self.y(to as f64), self.y(from as f64));
        Rect::from_min_max(Pos2::new(x0, y0), Pos2::new(x1, y1))
    }

    fn at(&self, pos: Pos2) -> (f64, f64) {
        let [a, b] = self.window.time;
        let [c, d] = self.window.bytes;
        let x = f64::from((pos.x - self.rect.left()) / self.rect.width());
        let y = f64::from((self.rect.bottom() - pos.y) / self.rect.height());
        (a + (b - a) * x, c + (d - c) * y)
    }
}

/// Shows the map in all the available space.
pub fn map_ui(
    ui: &mut Ui,
    view: &ArenaView,
    axis: &Axis<'_>,
    window: &mut Window,
    highlight: &Highlight<'_>,
) -> MapResponse {
    let (outer, response) =
        ui.allocate_exact_size(ui.available_size().max(Vec2::new(160.0, 120.0)), Sense::click_and_drag());
    let rect = Rect::from_min_max(
        Pos2::new(outer.left() + LEFT, outer.top() + 4.0),
        Pos2::new(outer.right() - 4.0, outer.bottom() - BOTTOM),
    );
    let drawn = navigate(ui, &response, rect, window, view, axis);
    let frame = Frame { rect, window: *window, axis };
    let c = theme::colors(ui);
    let painter = ui.painter_at(outer);
    painter.rect_filled(rect, 0, c.well);
    axes(&painter, &frame, c);
    let inner = painter.with_clip_rect(rect);
    let place = response.hover_pos().filter(|p| rect.contains(*p)).map(|pos| frame.at(pos));
    let pointer = place.filter(|(x, byte)| *x >= 0.0 && *byte >= 0.0).map(|(x, byte)| (axis.op_at(x), byte as u64));
    let hovered = pointer.and_then(|(op, byte)| {
        let over = |b: &&BufferRect| b.live[0] <= op && op < b.live[1] && b.offset <= byte && byte < b.offset + b.bytes;
        view.rects.iter().find(over)
    });
    rectangles(&inner, &frame, view, highlight, c);
    scrubber(&inner, &frame, highlight.op, c);
    let bytes = |ends: [Pos2; 2]| ordered(ends.map(|p| frame.at(p).1.clamp(0.0, view.arena_bytes as f64) as u64));
    let (going, stretch) = match drawn {
        Drawn::Nothing => (None, None),
        Drawn::Going(ends) => (Some(bytes(ends)), None),
        Drawn::Done(ends) => (None, Some(bytes(ends))),
    };
    for [from, to] in highlight.bytes.into_iter().chain(going) {
        let top = frame.y(to as f64);
        let band = Rect::from_x_y_ranges(rect.x_range(), top..=frame.y(from as f64).max(top + 1.0));
        inner.rect_filled(band, 0, c.accent.gamma_multiply(0.22));
        inner.rect_stroke(band, 0, Stroke::new(1.0, c.accent), StrokeKind::Inside);
    }
    lower_bound(&inner, &frame, view, c);
    let line = if response.has_focus() { c.accent } else { c.hairline };
    painter.rect_stroke(rect, 0, Stroke::new(1.0, line), StrokeKind::Outside);
    let clicked = if response.clicked() { hovered.map(|b| b.id) } else { None };
    if let Some(b) = hovered {
        inner.rect_stroke(frame.of(b), 1, Stroke::new(2.0, c.text), StrokeKind::Inside);
        response.clone().on_hover_ui_at_pointer(|ui| {
            ui.set_max_width(360.0);
            ui.label(egui::RichText::new(b.tooltip()).font(theme::mono()));
        });
    }
    let name = format!("Arena map, {}", plain_count(view.rects.len(), "buffer"));
    response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Image, true, &name));
    let nudge = keys(ui, &response);
    MapResponse { response, clicked, pointer, stretch, nudge }
}

/// The operation at the scrubber, as a band.
fn scrubber(painter: &Painter, frame: &Frame<'_>, op: Option<usize>, c: &Colors) {
    let (Some(op), rect, axis) = (op, frame.rect, frame.axis) else { return };
    let band = Rect::from_x_y_ranges(frame.x(axis.edge(op))..=frame.x(axis.edge(op + 1)), rect.y_range());
    painter.rect_filled(band, 0, c.accent.gamma_multiply(0.18));
    painter.vline(band.left(), rect.y_range(), Stroke::new(1.0, c.accent));
}

/// A dashed line at the largest sum of live bytes.
fn lower_bound(painter: &Painter, frame: &Frame<'_>, view: &ArenaView, c: &Colors) {
    let rect = frame.rect;
    let lower = frame.y(view.lower_bound_bytes as f64);
    painter.extend(Shape::dashed_line(
        &[Pos2::new(rect.left(), lower), Pos2::new(rect.right(), lower)],
        Stroke::new(1.0, c.text),
        6.0,
        4.0,
    ));
    painter.text(
        Pos2::new(rect.right() - 4.0, lower - 2.0),
        Align2::RIGHT_BOTTOM,
        "lower bound",
        FontId::proportional(12.0),
        c.weak,
    );
}

const fn ordered([a, b]: [u64; 2]) -> [u64; 2] {
    if a < b { [a, b] } else { [b, if a > b { a } else { a + 1 }] }
}

/// The number of operations to move by, while the map has the keyboard focus.
fn keys(ui: &Ui, response: &Response) -> isize {
    if !response.has_focus() {
        return 0;
    }
    let filter = egui::EventFilter { horizontal_arrows: true, ..egui::EventFilter::default() };
    ui.memory_mut(|m| m.set_focus_lock_filter(response.id, filter));
    ui.input_mut(|i| {
        let mut count = |key| i.count_and_consume_key(egui::Modifiers::NONE, key) as isize;
        count(egui::Key::ArrowRight) - count(egui::Key::ArrowLeft)
    })
}

/// Moves the view; returns the ends of a range that is being drawn or was finished.
fn navigate(ui: &Ui, response: &Response, rect: Rect, window: &mut Window, view: &ArenaView, axis: &Axis<'_>) -> Drawn {
    let start = response.id.with("stretch");
    let origin = ui.input(|i| i.pointer.press_origin().filter(|_| i.modifiers.shift));
    if let (true, Some(pos)) = (response.drag_started(), origin) {
        ui.data_mut(|d| d.insert_temp(start, pos));
    }
    let from: Option<Pos2> = ui.data(|d| d.get_temp(start));
    if let (Some(from), Some(to)) = (from, response.interact_pointer_pos()) {
        if response.drag_stopped() {
            ui.data_mut(|d| d.remove::<Pos2>(start));
            return Drawn::Done([from, to]);
        }
        return Drawn::Going([from, to]);
    }
    if response.dragged() {
        let delta = response.drag_delta();
        let (w, h) = (window.time[1] - window.time[0], window.bytes[1] - window.bytes[0]);
        let dx = f64::from(delta.x / rect.width()) * w;
        let dy = f64::from(delta.y / rect.height()) * h;
        window.time = window.time.map(|v| v - dx);
        window.bytes = window.bytes.map(|v| v + dy);
        *window = window.held(view, axis);
    }
    if let Some(pos) = response.hover_pos().filter(|p| rect.contains(*p)) {
        let (scroll, zoom, shift) = ui.input(|i| {
            // With Shift held some systems scroll horizontally.
            let wheel = i.smooth_scroll_delta();
            (wheel.y + if i.modifiers.shift { wheel.x } else { 0.0 }, i.zoom_delta(), i.modifiers.shift)
        });
        let factor = zoom * (scroll * 0.004).exp();
        if (factor - 1.0).abs() > 1e-4 {
            let at = Vec2::new((pos.x - rect.left()) / rect.width(), (rect.bottom() - pos.y) / rect.height());
            // With Shift only the horizontal axis is zoomed, which is useful for a long step.
            let factor = if shift { Vec2::new(factor, 1.0) } else { Vec2::splat(factor) };
            *window = window.zoomed(factor, at).held(view, axis);
        }
    }
    if response.double_clicked() {
        *window = Window::fit(view, axis);
    }
    Drawn::Nothing
}

/// A range of bytes that is drawn with Shift held.
enum Drawn {
    Nothing,
    Going([Pos2; 2]),
    Done([Pos2; 2]),
}

/// Marks about this many points apart, at round values.
fn round_step(span: f64, room: f32, apart: f32, base: f64, least: f64) -> f64 {
    let wanted = span / f64::from((room / apart).max(1.0));
    let power = base.powf((wanted.max(1e-9)).log(base).floor());
    let steps: &[f64] = if base == 2.0 { &[1.0, 2.0] } else { &[1.0, 2.0, 5.0, 10.0] };
    steps.iter().map(|s| s * power).find(|s| *s >= wanted).unwrap_or(power * base).max(least)
}

fn axes(painter: &Painter, frame: &Frame<'_>, c: &Colors) {
    let (rect, w) = (frame.rect, frame.window);
    let font = FontId::proportional(12.0);
    let step = round_step(w.bytes[1] - w.bytes[0], rect.height(), 56.0, 2.0, 1.0);
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
    let by_time = frame.axis.edges_us.is_some();
    let least = if by_time { 1e-3 } else { 1.0 };
    let step = round_step(w.time[1] - w.time[0], rect.width(), 64.0, 10.0, least);
    let mut place = (w.time[0] / step).ceil().max(0.0) * step;
    while place < w.time[1] {
        let (at, text) = if by_time { (place, format::micros(place)) } else { (place + 0.5, format!("{place:.0}")) };
        let galley = painter.layout_no_wrap(text, font.clone(), c.weak);
        // The last mark stays inside the area that can be drawn on.
        let most = (painter.clip_rect().right() - galley.size().x).max(rect.left());
        let left = (frame.x(at) - galley.size().x / 2.0).min(most);
        painter.galley(Pos2::new(left, rect.bottom() + 4.0), galley, c.weak);
        place += step;
    }
}

/// The largest number of labels, so that a dense map is fast to draw and readable.
const LABELS: usize = 160;

fn rectangles(painter: &Painter, frame: &Frame<'_>, view: &ArenaView, highlight: &Highlight<'_>, c: &Colors) {
    // The mesh is below the labels, so its index in the list is reserved first.
    let place = painter.add(Shape::Noop);
    let mut mesh = Mesh::default();
    let mut labels = 0;
    let picks = !highlight.buffers.is_empty() || !highlight.parts.is_empty();
    for b in &view.rects {
        let full = frame.of(b);
        let r = full.intersect(frame.rect);
        if r.width() <= 0.0 || r.height() <= 0.0 {
            continue;
        }
        // A thin gap is left between neighbours, unless it would hide the rectangle.
        let inset = Vec2::new(if full.width() > 3.0 { 0.5 } else { 0.0 }, if full.height() > 3.0 { 0.5 } else { 0.0 });
        let r = r.shrink2(inset);
        let lit = match highlight.op {
            Some(op) => b.live[0] <= op && op < b.live[1],
            None => !picks || highlight.buffers.contains(&b.id),
        };
        let lit = lit && (highlight.search.is_empty() || b.name.to_lowercase().contains(highlight.search));
        let fill = theme::role(b.role);
        let fill = if lit { fill } else { blend(fill, c.well, 0.72) };
        let fill = match &highlight.fading {
            Some(f) if f.came.binary_search(&b.id).is_ok() => blend(fill, c.well, 1.0 - f.share),
            _ => fill,
        };
        mesh.add_colored_rect(r, fill);
        // If a highlighted part is at the same place, its own name is written there.
        let is_covered = |p: &LitPart| p.buffer == b.id && frame.of_bytes(b, p.bytes).y_range().contains(r.center().y);
        if labels < LABELS && !highlight.parts.iter().any(is_covered) {
            labels += usize::from(label(painter, r, &b.name, if lit { ink(fill) } else { c.weak }));
        }
    }
    for part in highlight.parts {
        let Some(b) = view.rect(part.buffer) else { continue };
        let r = frame.of_bytes(b, part.bytes).intersect(frame.rect);
        if highlight.op.is_none() && r.width() > 0.0 && r.height() > 0.0 {
            mesh.add_colored_rect(r, theme::role(b.role));
        }
        if labels < LABELS {
            labels += usize::from(label(painter, r, &part.name, ink(theme::role(b.role))));
        }
    }
    for b in highlight.fading.iter().flat_map(|f| f.went) {
        let r = frame.of(b).intersect(frame.rect);
        if r.width() > 0.0 && r.height() > 0.0 {
            let left = 1.0 - highlight.fading.map_or(1.0, |f| f.share);
            mesh.add_colored_rect(r, theme::role(b.role).gamma_multiply(left * 0.7));
        }
    }
    painter.set(place, Shape::mesh(mesh));
    outline(painter, frame, view, highlight, c);
}

/// Writes a name into a rectangle; returns false if it does not fit.
fn label(painter: &Painter, r: Rect, name: &str, color: Color32) -> bool {
    if r.width() <= 56.0 || r.height() <= 14.0 {
        return false;
    }
    let clip = painter.with_clip_rect(r.shrink2(Vec2::new(2.0, 0.0)).intersect(painter.clip_rect()));
    let at = r.left_center() + Vec2::new(4.0, 0.0);
    clip.text(at, Align2::LEFT_CENTER, name, FontId::proportional(12.0), color);
    true
}

fn outline(painter: &Painter, frame: &Frame<'_>, view: &ArenaView, highlight: &Highlight<'_>, c: &Colors) {
    let buffers = highlight.buffers.iter().filter_map(|id| view.rect(*id)).map(|b| frame.of(b));
    let part = |p: &LitPart| Some(frame.of_bytes(view.rect(p.buffer)?, p.bytes));
    for rect in buffers.chain(highlight.parts.iter().filter_map(part)) {
        // A line of its full width is drawn if a part is thinner than that.
        let rect = rect.expand2(Vec2::new(0.0, (2.0 - rect.height()).max(0.0) / 2.0));
        painter.rect_stroke(rect, 1, Stroke::new(2.0, c.accent), StrokeKind::Inside);
    }
}

fn blend(a: Color32, b: Color32, share: f32) -> Color32 {
    let mix = |x: u8, y: u8| (f32::from(x) * (1.0 - share) + f32::from(y) * share) as u8;
    Color32::from_rgb(mix(a.r(), b.r()), mix(a.g(), b.g()), mix(a.b(), b.b()))
}

/// Black or white, whichever contrasts more with a colour.
fn ink(on: Color32) -> Color32 {
    let light = 0.299 * f32::from(on.r()) + 0.587 * f32::from(on.g()) + 0.114 * f32::from(on.b());
    if light > 110.0 { Color32::BLACK } else { Color32::WHITE }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zooming_keeps_the_point_under_the_cursor() {
        let w = Window { time: [0.0, 100.0], bytes: [0.0, 1000.0] };
        let z = w.zoomed(Vec2::splat(2.0), Vec2::new(0.25, 0.5));
        assert_eq!(z.time, [12.5, 62.5]);
        assert_eq!(z.bytes, [250.0, 750.0]);
    }

    #[test]
    fn operations_are_found_by_index_and_by_time() {
        let index = Axis::default();
        assert_eq!((index.edge(7), index.op_at(7.9)), (7.0, 7));
        let edges = [0.0, 10.0, 11.0, 30.0];
        let time = Axis { edges_us: Some(&edges) };
        assert_eq!((time.edge(2), time.edge(3), time.edge(9)), (11.0, 30.0, 30.0));
        assert_eq!([0.0, 9.9, 10.0, 29.0].map(|x| time.op_at(x)), [0, 0, 1, 2]);
    }

    #[test]
    fn marks_are_round() {
        assert_eq!(round_step(100.0, 560.0, 56.0, 10.0, 1.0), 10.0);
        assert_eq!(round_step(7000.0, 560.0, 56.0, 2.0, 1.0), 1024.0);
    }
}
