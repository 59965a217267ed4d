//! A strip of which recording every step of a run used, one colour for each.

use crate::studio::view_models::recordings::{Stretch, strip};
use crate::train::RecordingSeen;
use egui::{Color32, Rangef, Rect, Response, Ui};

/// The colour of a recording by its number: hues that follow one another are far apart.
#[must_use]
pub fn recording_color(kind: u16) -> Color32 {
    let hue = (f32::from(kind) * 0.618_034).fract();
    egui::ecolor::Hsva::new(hue, 0.55, 0.8, 1.0).into()
}

/// Steps beside each other: the number of the recording of each, the first step, counted from 1, and where they are
/// drawn.
pub struct StripSpec<'a> {
    pub kinds: &'a [u16],
    pub first: usize,
    pub x: Rangef,
    /// What the numbers stand for.
    pub recordings: &'a [RecordingSeen],
}

/// Draws the steps of a strip at the height of `response`, from the earliest on the left to the newest on the right;
/// says under the pointer which recording ran.
pub fn recording_strip_ui(ui: &Ui, response: Response, spec: &StripSpec<'_>) {
    let stretches = strip(spec.kinds, spec.x.span() as usize);
    let each = spec.x.span() / stretches.len().max(1) as f32;
    for (at, stretch) in stretches.iter().enumerate() {
        let left = spec.x.min + at as f32 * each;
        let cell = Rect::from_x_y_ranges(left..=left + each, response.rect.y_range());
        ui.painter().rect_filled(cell, 0, recording_color(stretch.kind));
    }
    let name = format!("Recording of each of {} steps", spec.kinds.len());
    response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Image, true, &name));
    let pointer = response.hover_pos().filter(|at| spec.x.contains(at.x));
    let under = pointer.map(|at| ((at.x - spec.x.min) / each) as usize);
    if let Some(stretch) = under.and_then(|at| stretches.get(at)) {
        response.on_hover_text_at_pointer(stretch_text(stretch, spec));
    }
}

/// Which steps a stretch is of, and which recording most of them used.
fn stretch_text(stretch: &Stretch, spec: &StripSpec<'_>) -> String {
    let recording = spec.recordings.iter().find(|seen| seen.kind == u32::from(stretch.kind));
    let (first, last) = (spec.first + stretch.from, spec.first + stretch.to - 1);
    let steps = if first == last { format!("step {first}") } else { format!("most of steps {first} to {last}") };
    format!("{steps}: {}", recording.map_or("not known", |seen| &seen.key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::RecordingFacts;

    #[test]
    fn a_stretch_names_its_steps_and_its_recording() {
        let recordings = [RecordingSeen { key: "path 1".into(), kind: 2, facts: RecordingFacts::default() }];
        let spec = StripSpec { kinds: &[1, 2, 2], first: 11, x: Rangef::new(0.0, 3.0), recordings: &recordings };
        let text = |from, to, kind| stretch_text(&Stretch { from, to, kind }, &spec);
        assert_eq!(text(0, 1, 1), "step 11: not known");
        assert_eq!(text(1, 3, 2), "most of steps 12 to 13: path 1");
        let colors: std::collections::HashSet<_> = (1..40).map(recording_color).collect();
        assert_eq!(colors.len(), 39);
    }
}
