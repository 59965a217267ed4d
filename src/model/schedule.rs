//! The schedule of the learning rate.

use super::diagnostic::Diagnostic;
use super::draw::Draw;
use super::field_value::FieldValue;
use super::schema::{FieldSpec, FieldView, Range, choice_lens, lens};
use super::spec::Fields;
use crate::tensor::plural;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::ops::Bound;

/// The curve that the rate follows once the warm-up is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScheduleKind {
    #[default]
    Constant,
    /// In a straight line to the final rate.
    Linear,
    /// Along half a wave of the cosine to the final rate.
    Cosine,
    /// Multiplied by a factor after each interval of steps.
    Step,
}

impl ScheduleKind {
    pub const ALL: [Self; 4] = [Self::Constant, Self::Linear, Self::Cosine, Self::Step];
    /// The names used in presets.
    pub const NAMES: [&'static str; 4] = ["constant", "linear", "cosine", "step"];

    /// The name used in presets.
    #[must_use]
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// Whether it depends on the number of steps of the run.
    #[must_use]
    pub const fn has_end(self) -> bool {
        matches!(self, Self::Linear | Self::Cosine)
    }
}

/// The learning rate of each step as a function of the base rate, the step's number and the length of the run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Schedule {
    pub kind: ScheduleKind,
    /// Steps in which the rate rises from zero to the base rate.
    pub warmup: usize,
    /// The final share of the base rate, for curves that have an end.
    pub last: f64,
    /// The number of steps with one rate, and the factor after them.
    pub every: usize,
    pub factor: f64,
}

impl Default for Schedule {
    fn default() -> Self {
        Self { kind: ScheduleKind::Constant, warmup: 0, last: 0.0, every: 1, factor: 0.1 }
    }
}

const SHARE: Range =
    Range::Real { from: Bound::Included(0.0), to: Bound::Included(10.0), help: "from 0 to 10, such as 0.1" };
const WARMUP: Range = Range::Whole { least: 0, most: usize::MAX, help: None };

const KIND: FieldSpec<Schedule> =
    FieldSpec::<Schedule>::option("optimizer.schedule.type", &ScheduleKind::NAMES, choice_lens!(kind: ScheduleKind))
        .label("schedule")
        .help("How the rate of each step follows from the learning rate; a change needs a new recording.");
/// A field, and the kinds that use it.
type KindField = (FieldSpec<Schedule>, fn(ScheduleKind) -> bool);
/// The fields other than the kind.
const FIELDS: [KindField; 4] = [
    (
        FieldSpec::<Schedule>::count("optimizer.schedule.warmup", lens!(warmup))
            .default(|_| FieldValue::Count(0))
            .within(WARMUP)
            .label("warm-up")
            .unit("steps")
            .help("Steps in which the rate rises from zero."),
        |_| true,
    ),
    (
        FieldSpec::<Schedule>::real("optimizer.schedule.final", lens!(last))
            .default(|_| FieldValue::Number(0.0))
            .within(SHARE)
            .label("final")
            .help("The share of the learning rate that the last step has."),
        ScheduleKind::has_end,
    ),
    (
        FieldSpec::<Schedule>::count("optimizer.schedule.every", lens!(every))
            .label("every")
            .unit("steps")
            .help("Steps of one rate."),
        |kind| matches!(kind, ScheduleKind::Step),
    ),
    (
        FieldSpec::<Schedule>::real("optimizer.schedule.factor", lens!(factor))
            .default(|_| FieldValue::Number(0.1))
            .within(SHARE)
            .label("factor")
            .help("The factor that the rate is multiplied by after these steps."),
        |kind| matches!(kind, ScheduleKind::Step),
    ),
];

impl Schedule {
    /// Whether every step has the base rate.
    #[must_use]
    pub fn is_constant(&self) -> bool {
        self.kind == ScheduleKind::Constant && self.warmup == 0
    }

    /// The rate of step `step`, counted from 1, in a run of `total` steps with the base rate `lr`. Steps beyond the run
    /// have the rate of its last one.
    #[must_use]
    pub fn rate(&self, lr: f64, step: i64, total: i64) -> f64 {
        let (s, warmup) = (step as f64, self.warmup as f64);
        if s <= warmup {
            return lr * s / warmup;
        }
        let length = total as f64 - warmup;
        let p = if s < total as f64 { (s - warmup) / length } else { 1.0 };
        match self.kind {
            ScheduleKind::Constant => lr,
            ScheduleKind::Linear => lr * (1.0 - (1.0 - self.last) * p),
            ScheduleKind::Cosine => {
                lr * (self.last + (1.0 - self.last) * (1.0 + (std::f64::consts::PI * p).cos()) / 2.0)
            }
            ScheduleKind::Step => lr * self.factor.powf(((step - 1) / self.every.max(1) as i64) as f64),
        }
    }

    /// The mistake of a warm-up that is longer than a run of this many steps; `None` if it is not longer.
    #[must_use]
    pub fn beyond(&self, steps: u64) -> Option<Diagnostic> {
        (self.warmup as u64 > steps).then(|| Diagnostic {
            layer: None,
            path: "optimizer.schedule.warmup".into(),
            message: format!("found {}, and the run has {steps} {}", self.warmup, plural(steps, "step")),
            help: "the warm-up must end before the run does: make it shorter, or the run longer".into(),
        })
    }

    /// The schedule as short text: `cosine to 0.1 after 100 steps of warm-up`.
    #[must_use]
    pub fn text(&self) -> String {
        let curve = match self.kind {
            ScheduleKind::Constant => "constant".to_owned(),
            ScheduleKind::Linear | ScheduleKind::Cosine => format!("{} to {} of it", self.kind.name(), self.last),
            ScheduleKind::Step => format!("times {} every {} steps", self.factor, self.every),
        };
        if self.warmup == 0 { curve } else { format!("{curve} after {} steps of warm-up", self.warmup) }
    }

    pub(super) fn read(f: &mut Fields<'_>) -> Self {
        let mut schedule = Self::default();
        let names = ScheduleKind::ALL.map(|kind| (kind.name(), kind));
        let Some(kind) = f.choice("type", &names, true) else { return schedule };
        schedule.kind = kind;
        // A field that the kind does not use is allowed and kept, so that the user can change only the kind; a required
        // field must be present only if the kind uses it.
        for (field, is_used) in &FIELDS {
            if is_used(kind) || f.has(field.key()) {
                field.read(&mut schedule, f);
            }
        }
        f.finish_ref();
        schedule
    }

    pub(super) fn write(&self) -> Value {
        let mut map = Map::new();
        map.insert("type".into(), self.kind.name().into());
        let usual = Self::default();
        for (field, is_used) in &FIELDS {
            let is_step = self.kind == ScheduleKind::Step && is_used(self.kind) && field.default.is_none();
            if is_step || field.get(self) != field.get(&usual) {
                field.write_always(self, &mut map);
            }
        }
        Value::Object(map)
    }

    pub(super) fn findings(&self) -> Vec<(&'static str, String, String)> {
        let of = |field: &FieldSpec<Self>| {
            let name = field.name;
            field.findings(self).into_iter().map(move |(found, help)| (name, found, help)).collect::<Vec<_>>()
        };
        FIELDS.iter().flat_map(|(field, _)| of(field)).collect()
    }

    /// The fields of its kind with their values.
    pub(super) fn fields(&self) -> Vec<FieldView> {
        let used = FIELDS.iter().filter(|(_, is_used)| is_used(self.kind)).map(|(field, _)| field.view(self));
        // A constant rate can only have a warm-up.
        std::iter::once(KIND.view(self)).chain(used).collect()
    }

    pub(super) fn set(&mut self, name: &str, value: &FieldValue) -> bool {
        let fields = std::iter::once(&KIND).chain(FIELDS.iter().map(|(field, _)| field));
        fields.into_iter().find(|field| field.name == name).is_some_and(|field| field.set(self, value))
    }

    pub(super) fn drawn(draw: &mut Draw) -> Self {
        let kind = draw.pick(&ScheduleKind::ALL);
        let warmup = draw.extreme_or(&[0, 1], |d| if d.coin(0.5) { d.between(1, 9) } else { 0 });
        let mut schedule = Self { kind, warmup, ..Self::default() };
        if kind.has_end() {
            schedule.last = draw.extreme_or(&[0.0, 1.0], |d| d.number(0.0, 0.5));
        }
        if kind == ScheduleKind::Step {
            schedule.every = draw.extreme_or(&[1], |d| d.between(2, 20));
            schedule.factor = draw.extreme_or(&[0.0, 1.0], |d| d.number(0.1, 0.95));
        }
        schedule
    }

    /// The distance from having no schedule.
    pub(super) fn cost(&self) -> usize {
        usize::from(self.kind != ScheduleKind::Constant) + usize::from(self.warmup != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(schedule: Schedule, lr: f64, total: i64) -> Vec<f64> {
        (1..=total).map(|step| schedule.rate(lr, step, total)).collect()
    }

    fn assert_near(found: &[f64], expected: &[f64]) {
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() <= 1e-15, "{found:?} is not {expected:?}");
        }
    }

    const USUAL: Schedule = Schedule { kind: ScheduleKind::Constant, warmup: 0, last: 0.0, every: 1, factor: 0.1 };

    #[test]
    fn rates_equal_those_of_pytorch() {
        // Values of torch.optim.lr_scheduler, seven steps: StepLR(3, 0.5) at its epochs 0 to 6; CosineAnnealingLR(7,
        // eta_min=0.03) and LinearLR(1, 0.2, 7) at their epochs 1 to 7.
        let step = Schedule { kind: ScheduleKind::Step, every: 3, factor: 0.5, ..USUAL };
        assert_near(&rates(step, 0.005, 7), &[0.005, 0.005, 0.005, 0.0025, 0.0025, 0.0025, 0.00125]);
        let falls = |kind, last, expected: &str| {
            let expected: Vec<f64> = expected.split(' ').map(|rate| rate.parse().unwrap()).collect();
            assert_near(&rates(Schedule { kind, last, ..USUAL }, 0.3, 7), &expected);
        };
        falls(
            ScheduleKind::Cosine,
            0.1,
            "0.2866307971668266 0.24917112325092902 0.19504032608410243 0.13495967391589758 0.080828876749071 \
             0.04336920283317343 0.03",
        );
        falls(
            ScheduleKind::Linear,
            0.2,
            "0.2657142857142857 0.2314285714285714 0.19714285714285712 0.16285714285714284 0.12857142857142856 \
             0.09428571428571428 0.059999999999999984",
        );
    }

    #[test]
    fn a_warm_up_rises_to_the_base_rate_and_the_rest_begins_there() {
        let warm = Schedule { warmup: 4, ..USUAL };
        assert_near(&rates(warm, 0.2, 6), &[0.05, 0.1, 0.15, 0.2, 0.2, 0.2]);
        let linear = Schedule { kind: ScheduleKind::Linear, warmup: 3, last: 0.2, ..USUAL };
        // The recipe of the trajectory accumulate-clip.
        assert_near(&rates(linear, 0.2, 20)[2..5], &[0.2, 0.2 * (1.0 - 0.8 / 17.0), 0.2 * (1.0 - 1.6 / 17.0)]);
        assert!((rates(linear, 0.2, 20)[19] - 0.04).abs() < 1e-15);
        // A warm-up as long as the run, and steps beyond the run.
        assert_near(&rates(linear, 0.3, 3), &[0.1, 0.2, 0.3]);
        assert!((linear.rate(0.3, 99, 20) - 0.06).abs() < 1e-15);
        assert!(linear.rate(0.3, 4, 0).is_finite());
    }
}
