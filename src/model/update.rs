//! Settings of the update that do not depend on the optimizer's rule: the schedule of the rate, the limit of the
//! gradient's norm, and which parameters have weight decay.

use super::draw::Draw;
use super::field_value::FieldValue;
use super::param::Param;
use super::schedule::Schedule;
use super::schema::{FieldSpec, FieldView, Range, choice_lens, lens};
use super::spec::Fields;
use serde_json::{Map, Value};
use std::ops::Bound;

/// Which parameters have weight decay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Decay {
    #[default]
    All,
    /// Parameters of two dimensions and more; neither biases nor the scales and shifts of normalisations.
    Matrices,
}

impl Decay {
    pub const ALL: [Self; 2] = [Self::All, Self::Matrices];
    /// The names used in presets.
    pub const NAMES: [&'static str; 2] = ["all", "matrices"];

    /// Whether this parameter has weight decay.
    #[must_use]
    pub fn includes(self, param: &Param) -> bool {
        self == Self::All || param.shape.rank() != 1
    }
}

/// Settings of the update that do not depend on the optimizer's rule.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct UpdateSpec {
    pub schedule: Schedule,
    /// Gradients whose norm over all parameters is larger are scaled to this norm; 0 for no limit.
    pub clip_norm: f64,
    pub decay: Decay,
}

const NORM: Range = Range::Real { from: Bound::Included(0.0), to: Bound::Included(1e12), help: "above 0, such as 1" };
const CLIP: FieldSpec<UpdateSpec> = FieldSpec::<UpdateSpec>::real("optimizer.clip_norm", lens!(clip_norm))
    .default(|_| FieldValue::Number(0.0))
    .within(NORM)
    .label("clip norm")
    .help(
        "Gradients with a larger norm are scaled down to this norm; 0 turns this off. A change needs a new recording.",
    );
const DECAY: FieldSpec<UpdateSpec> = FieldSpec::<UpdateSpec>::option(
    "optimizer.decay",
    &Decay::NAMES,
    choice_lens!(decay: Decay),
)
.label("decay")
.help(
    "Parameters that decay: all, or only matrices, so that biases and scales do not. A change needs a new recording.",
);

impl UpdateSpec {
    /// Whether gradients are clipped.
    #[must_use]
    pub fn clips(&self) -> bool {
        self.clip_norm > 0.0
    }

    /// Reads these settings from an optimizer's object.
    pub(super) fn read(f: &mut Fields<'_>) -> Self {
        let mut update = Self::default();
        if let Some(map) = f.object("schedule", None) {
            let at = f.at("schedule");
            update.schedule = Schedule::read(&mut Fields::new(map, at, None, f.sink()));
        }
        CLIP.read(&mut update, f);
        // Without a limit the field is left out.
        if f.has("clip_norm") && update.clip_norm == 0.0 {
            f.fail("clip_norm", "found 0", "expected a number above 0, such as 1; omit it to clip nothing");
        }
        DECAY.read(&mut update, f);
        update
    }

    /// Writes the settings that differ from their defaults into the optimizer's object.
    pub(super) fn write(&self, map: &mut Map<String, Value>) {
        let schedule = self.schedule.write();
        if schedule != Schedule::default().write() {
            map.insert("schedule".into(), schedule);
        }
        CLIP.write(self, map);
        DECAY.write(self, map);
    }

    /// Every mistake of its fields: the field, what was found, and what is allowed.
    pub(super) fn findings(&self) -> Vec<(&'static str, String, String)> {
        let clip = CLIP.findings(self).into_iter().map(|(found, help)| (CLIP.name, found, help));
        self.schedule.findings().into_iter().chain(clip).collect()
    }

    /// The fields with their values, in the order in which they are shown; names are whole paths.
    #[must_use]
    pub fn fields(&self) -> Vec<FieldView> {
        let mut fields = self.schedule.fields();
        fields.extend([CLIP.view(self), DECAY.view(self)]);
        fields
    }

    /// Sets a field; returns false if there is none with this name or the value is of another kind.
    pub fn set(&mut self, name: &str, value: &FieldValue) -> bool {
        match [CLIP, DECAY].iter().find(|field| field.name == name) {
            Some(field) => field.set(self, value),
            None => self.schedule.set(name, value),
        }
    }

    /// The distance from the defaults.
    pub(super) fn cost(&self) -> usize {
        self.schedule.cost() + usize::from(self.clips()) + usize::from(self.decay != Decay::All)
    }

    /// Random settings, which are the defaults in most cases.
    pub(super) fn drawn(draw: &mut Draw) -> Self {
        let schedule = if draw.coin(0.35) { Schedule::drawn(draw) } else { Schedule::default() };
        let norm = |d: &mut Draw| d.extreme_or(&[1e-6, 1e6], |d| d.number(0.05, 3.0).max(0.05));
        let clip_norm = if draw.coin(0.3) { norm(draw) } else { 0.0 };
        let decay = if draw.coin(0.3) { Decay::Matrices } else { Decay::All };
        Self { schedule, clip_norm, decay }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ScheduleKind, check, read_preset, write_preset};

    fn preset(fields: &str, steps: usize) -> String {
        format!(
            r#"{{"version": 1, "name": "n", "input": {{"shape": [4], "batch": 8}}, "layers": [{{"type": "dense",
            "units": 3}}], "loss": {{"type": "l1"}}, "optimizer": {{"type": "lion", "lr": 0.1{fields}}},
            "train": {{"steps": {steps}}}}}"#
        )
    }

    /// The fields with mistakes.
    fn mistakes(fields: &str) -> Vec<String> {
        let found = match read_preset(&preset(fields, 10)) {
            Ok(preset) => check(&preset).diagnostics,
            Err(found) => found,
        };
        found.into_iter().map(|mistake| mistake.path).collect()
    }

    #[test]
    fn defaults_are_not_written() {
        let plain = read_preset(&preset("", 10)).unwrap();
        assert_eq!(plain.update, UpdateSpec::default());
        let text = write_preset(&plain);
        assert!(!text.contains("schedule") && !text.contains("clip_norm") && !text.contains("decay\": \""), "{text}");
        let same = r#", "schedule": {"type": "constant"}, "decay": "all""#;
        assert_eq!(write_preset(&read_preset(&preset(same, 10)).unwrap()), text);
    }

    #[test]
    fn every_field_is_read_and_written() {
        for fields in [
            r#", "schedule": {"type": "step", "every": 6, "factor": 0.5}, "clip_norm": 0.3"#,
            r#", "schedule": {"type": "cosine", "warmup": 3, "final": 0.2}, "decay": "matrices""#,
            r#", "schedule": {"type": "linear", "every": 4}"#,
            r#", "schedule": {"type": "step", "every": 1}"#,
        ] {
            let preset = read_preset(&preset(fields, 10)).unwrap();
            assert!(check(&preset).model.is_some() && preset.update != UpdateSpec::default(), "{fields}");
            assert_eq!(read_preset(&write_preset(&preset)).as_ref(), Ok(&preset));
        }
    }

    #[test]
    fn mistakes_name_their_field() {
        for (fields, path) in [
            (r#", "clip_norm": 0"#, "optimizer.clip_norm"),
            (r#", "clip_norm": -1"#, "optimizer.clip_norm"),
            (r#", "decay": "biases""#, "optimizer.decay"),
            (r#", "schedule": {"type": "exponential"}"#, "optimizer.schedule.type"),
            (r#", "schedule": {"type": "step"}"#, "optimizer.schedule.every"),
            (r#", "schedule": {"type": "step", "every": 0}"#, "optimizer.schedule.every"),
            (r#", "schedule": {"type": "step", "every": 2, "factor": -0.5}"#, "optimizer.schedule.factor"),
            (r#", "schedule": {"type": "linear", "final": -1}"#, "optimizer.schedule.final"),
            (r#", "schedule": {"type": "linear", "warmup": 11}"#, "optimizer.schedule.warmup"),
            (r#", "schedule": {"type": "linear", "length": 11}"#, "optimizer.schedule.length"),
        ] {
            assert_eq!(mistakes(fields), [path], "{fields}");
        }
        assert_eq!(mistakes(r#", "schedule": {"type": "linear", "warmup": 10}"#), Vec::<String>::new());
    }

    #[test]
    fn editors_have_the_fields_of_the_kind() {
        let mut update = UpdateSpec::default();
        let names = |update: &UpdateSpec| update.fields().iter().map(|field| field.name).collect::<Vec<_>>();
        assert!(!names(&update).contains(&"optimizer.schedule.every"));
        assert!(update.set("optimizer.schedule.type", &FieldValue::Choice(3)));
        assert_eq!(update.schedule.kind, ScheduleKind::Step);
        assert!(names(&update).contains(&"optimizer.schedule.every"));
        assert!(update.set("optimizer.clip_norm", &FieldValue::Number(1.0)) && update.clips());
        assert!(!update.set("optimizer.clip", &FieldValue::Number(1.0)));
    }
}
