//! A strip of which recording every step of a run used, one colour for each.

use crate::studio::view_models::recordings::{KeyNames, Stretch, shares, strip};
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
    /// What the numbers stand for, and what these are called.
    pub recordings: &'a [RecordingSeen],
    pub names: &'a KeyNames,
}

/// Draws the steps of a strip at the height of `response`, from the earliest on the left to the newest on the right:
/// each recording of a stretch has its share of the height. Says under the pointer which ones ran.
pub fn recording_strip_ui(ui: &Ui, response: Response, spec: &StripSpec<'_>) {
    let stretches = strip(spec.kinds, spec.x.span() as usize);
    let each = spec.x.span() / stretches.len().max(1) as f32;
    for (at, stretch) in stretches.iter().enumerate() {
        let left = spec.x.min + at as f32 * each;
        let mut top = response.rect.top();
        for (kind, share) in shares(&spec.kinds[stretch.from..stretch.to]) {
            let bottom = top + share * response.rect.height();
            let cell = Rect::from_x_y_ranges(left..=left + each, top..=bottom);
            ui.painter().rect_filled(cell, 0, recording_color(kind));
            top = bottom;
        }
    }
    let name = format!("Recording of each of {} steps", spec.kinds.len());
    response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Image, true, &name));
    let pointer = response.hover_pos().filter(|at| spec.x.contains(at.x));
    let under = pointer.map(|at| ((at.x - spec.x.min) / each) as usize);
    if let Some(stretch) = under.and_then(|at| stretches.get(at)) {
        response.on_hover_text_at_pointer(stretch_text(stretch, spec));
    }
}

/// Which steps a stretch is of, and how many of them used which recording.
fn stretch_text(stretch: &Stretch, spec: &StripSpec<'_>) -> String {
    let called = |kind: u16| {
        let known = spec.recordings.iter().find(|seen| seen.kind == u32::from(kind));
        known.map_or_else(|| "not known any more".to_owned(), |seen| spec.names.name(&seen.key))
    };
    let (first, last) = (spec.first + stretch.from, spec.first + stretch.to - 1);
    if first == last {
        return format!("step {first}: {}", called(stretch.kind));
    }
    let mut text = format!("steps {first} to {last}");
    for (kind, share) in shares(&spec.kinds[stretch.from..stretch.to]) {
        text += &format!("\n{:.0} × {}", share * (stretch.to - stretch.from) as f32, called(kind));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::RecordingFacts;

    #[test]
    fn a_stretch_names_its_steps_and_its_recording() {
        let facts = RecordingFacts::default();
        let recordings = [RecordingSeen { key: "f32, path 1, training".into(), kind: 2, facts }];
        let names = KeyNames::of(["f32, path 1, training", "f32, path 2, training"]);
        let x = Rangef::new(0.0, 3.0);
        let spec = StripSpec { kinds: &[1, 2, 2], first: 11, x, recordings: &recordings, names: &names };
        let text = |from, to, kind| stretch_text(&Stretch { from, to, kind }, &spec);
        assert_eq!(text(0, 1, 1), "step 11: not known any more");
        assert_eq!(text(1, 3, 2), "steps 12 to 13\n2 × path 1, training");
        let colors: std::collections::HashSet<_> = (1..40).map(recording_color).collect();
        assert_eq!(colors.len(), 39);
    }
}
