//! The size of the window: its initial size, and fitting it on the screen including its frame.

use egui::{Vec2, ViewportBuilder, ViewportCommand, ViewportInfo};

/// The size of the content at the first start: with a frame and a bar of the system it fits a screen of 1280 by 800.
const FIRST_SIZE: Vec2 = Vec2::new(1240.0, 720.0);
/// The smallest usable window.
const LEAST_SIZE: Vec2 = Vec2::new(720.0, 480.0);
/// The height of a system's own bar, which the window's library does not report.
const BAR: f32 = 40.0;
/// The number of frames within which a system has placed a window and reports its position.
const FRAMES: u32 = 30;

/// The initial window.
#[must_use]
pub fn viewport(app_id: &str) -> ViewportBuilder {
    ViewportBuilder::default()
        .with_app_id(app_id)
        .with_title("Stepgraph")
        .with_inner_size(FIRST_SIZE)
        .with_min_inner_size(LEAST_SIZE)
        .with_drag_and_drop(true)
}

/// Makes a window that is larger than its screen smaller, once: its size may come from another screen, or its frame was
/// not counted.
#[derive(Debug, Default)]
pub struct Fit {
    frames: u32,
}

impl Fit {
    /// Requests a smaller window if necessary, in the first frames.
    pub fn keep(&mut self, ctx: &egui::Context) {
        if self.frames >= FRAMES {
            return;
        }
        self.frames += 1;
        if let Some(size) = ctx.input(|i| fitting(i.viewport())) {
            self.frames = FRAMES;
            ctx.send_viewport_cmd(ViewportCommand::InnerSize(size));
        }
    }
}

/// The size for the content of a window that does not fit its screen including its frame; `None` if it fits, if it
/// fills the screen on purpose, or if the system does not report its position.
fn fitting(window: &ViewportInfo) -> Option<Vec2> {
    if window.maximized.unwrap_or(false) || window.fullscreen.unwrap_or(false) {
        return None;
    }
    let (screen, inner, outer) = (window.monitor_size?, window.inner_rect?.size(), window.outer_rect?.size());
    let frame = (outer - inner).max(Vec2::ZERO);
    let room = screen - frame - Vec2::new(0.0, BAR);
    let fits = inner.x <= room.x + 0.5 && inner.y <= room.y + 0.5;
    (!fits && room.min_elem() > 0.0).then(|| inner.min(room).max(LEAST_SIZE.min(room)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use egui::{Pos2, Rect};

    fn window(screen: [f32; 2], inner: [f32; 2], frame: [f32; 2]) -> ViewportInfo {
        let rect = |size: Vec2| Some(Rect::from_min_size(Pos2::ZERO, size));
        ViewportInfo {
            monitor_size: Some(screen.into()),
            inner_rect: rect(inner.into()),
            outer_rect: rect(Vec2::from(inner) + Vec2::from(frame)),
            ..ViewportInfo::default()
        }
    }

    #[test]
    fn the_first_window_fits_a_small_screen_with_its_frame() {
        let first = [FIRST_SIZE.x, FIRST_SIZE.y];
        assert_eq!(viewport("stepgraph").inner_size, Some(FIRST_SIZE));
        assert_eq!(fitting(&window([1280.0, 800.0], first, [8.0, 37.0])), None);
        assert_eq!(fitting(&window([1024.0, 700.0], first, [0.0, 30.0])), Some(Vec2::new(1024.0, 630.0)));
    }

    #[test]
    fn a_window_is_never_larger_than_its_screen() {
        let of = |screen, inner, frame| fitting(&window(screen, inner, frame));
        assert_eq!(of([1280.0, 800.0], [1280.0, 800.0], [0.0, 30.0]), Some(Vec2::new(1280.0, 730.0)));
        assert_eq!(of([1280.0, 800.0], [1920.0, 600.0], [10.0, 30.0]), Some(Vec2::new(1270.0, 600.0)));
        assert_eq!(of([1920.0, 1080.0], [1280.0, 800.0], [10.0, 30.0]), None);
        let large = window([1280.0, 800.0], [1280.0, 800.0], [0.0, 0.0]);
        assert_eq!(fitting(&ViewportInfo { maximized: Some(true), ..large.clone() }), None);
        assert_eq!(fitting(&ViewportInfo { monitor_size: None, ..large }), None);
    }
}
