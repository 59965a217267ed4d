//! A strip that shows which recording every step of a run used, with a colour for each.

use crate::studio::view_models::recordings::{KeyNames, Stretch, strip};
use crate::studio::view_models::step_kinds::StepKinds;
use crate::train::RecordingSeen;
use egui::{Color32, Rangef, Rect, Response, Ui};

/// The colour of a recording by its number: hues of consecutive numbers differ strongly.
#[must_use]
pub fn recording_color(kind: u16) -> Color32 {
    let hue = (f32::from(kind) * 0.618_034).fract();
    egui::ecolor::Hsva::new(hue, 0.55, 0.8, 1.0).into()
}

/// The steps of a strip, and which of them are drawn.
pub struct StripSpec<'a> {
    /// The recordings of all steps of the run.
    pub kinds: &'a StepKinds,
    /// The first of the drawn steps and one past the last, counted from 0.
    pub steps: [usize; 2],
    pub x: Rangef,
    /// The recordings of the numbers, and their names.
    pub recordings: &'a [RecordingSeen],
    pub names: &'a KeyNames,
}

/// Draws the steps of a strip at the height of `response`, from the earliest on the left to the newest on the right:
/// each recording of a range has its share of the height. The tooltip under the pointer names the recordings.
pub fn recording_strip_ui(ui: &Ui, response: Response, spec: &StripSpec<'_>) {
    let [from, to] = spec.steps;
    let stretches = strip(from, to, spec.x.span() as usize);
    let each = spec.x.span() / stretches.len().max(1) as f32;
    let pointer = response.hover_pos().filter(|at| spec.x.contains(at.x));
    let under = pointer.map(|at| ((at.x - spec.x.min) / each) as usize);
    let mut text = None;
    for (at, stretch) in stretches.enumerate() {
        let left = spec.x.min + at as f32 * each;
        let mut top = response.rect.top();
        let counts = spec.kinds.counts(stretch.from, stretch.to);
        for (kind, count) in &counts {
            let share = *count as f32 / (stretch.to - stretch.from) as f32;
            let bottom = top + share * response.rect.height();
            let cell = Rect::from_x_y_ranges(left..=left + each, top..=bottom);
            ui.painter().rect_filled(cell, 0, recording_color(*kind));
            top = bottom;
        }
        if under == Some(at) {
            text = Some(stretch_text(stretch, &counts, spec));
        }
    }
    let name = format!("Recording of each of {} steps", to.saturating_sub(from));
    response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Image, true, &name));
    if let Some(text) = text {
        response.on_hover_text_at_pointer(text);
    }
}

/// The steps of a range, and how many of them used which recording.
fn stretch_text(stretch: Stretch, counts: &[(u16, u32)], spec: &StripSpec<'_>) -> String {
    let called = |kind: u16| {
        let known = spec.recordings.iter().find(|seen| seen.kind == u32::from(kind));
        known.map_or_else(|| "no longer known".to_owned(), |seen| spec.names.name(&seen.key))
    };
    let (first, last) = (stretch.from + 1, stretch.to);
    if let (true, [(kind, _)]) = (first == last, counts) {
        return format!("step {first}: {}", called(*kind));
    }
    let mut text = format!("steps {first} to {last}");
    for (kind, count) in counts {
        text += &format!("\n{count} × {}", called(*kind));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::RecordingFacts;
    use crate::train::SeenStep;

    #[test]
    fn the_text_of_a_range_names_its_steps_and_recordings() {
        let facts = RecordingFacts::default();
        let key = "f32, path 1, training".to_owned();
        let recordings = [RecordingSeen { key, kind: 2, of: SeenStep::Kept, facts }];
        let names = KeyNames::of(["f32, path 1, training", "f32, path 2, training"]);
        let kinds = StepKinds::from_iter([7, 1, 2, 2]);
        let x = Rangef::new(0.0, 3.0);
        let spec = StripSpec { kinds: &kinds, steps: [1, 4], x, recordings: &recordings, names: &names };
        let text = |from, to| stretch_text(Stretch { from, to }, &kinds.counts(from, to), &spec);
        assert_eq!(text(1, 2), "step 2: no longer known");
        assert_eq!(text(2, 4), "steps 3 to 4\n2 × path 1, training");
        let colors: std::collections::HashSet<_> = (1..40).map(recording_color).collect();
        assert_eq!(colors.len(), 39);
    }
}
