//! A private copy of the step, which runs up to the point that the user views.

use crate::ops::Dir;
use crate::studio::commands::choices::DeviceChoice;
use crate::studio::jobs::measurements::request::{Point, Task, ValuesAnswer, ValuesRequest};
use crate::studio::view_models::values::{Place, ShownValues};
use crate::train::{Held, Probe, TrainError, held_part};
use std::sync::Arc;

/// The private copy, kept as long as the same network is viewed.
#[derive(Default)]
pub(super) struct PrivateCopy {
    /// The plan's revision and the device that it is for.
    probe: Option<(u64, DeviceChoice, Probe)>,
    /// The number of the snapshot that it starts from; `None` for the initial weights.
    from: Option<u64>,
}

impl PrivateCopy {
    /// The values at a point of the step, or the first value that is not finite.
    pub(super) fn answer(&mut self, request: &ValuesRequest) -> ValuesAnswer {
        match self.try_answer(request) {
            Ok(answer) => answer,
            Err(error) => {
                self.probe = None;
                ValuesAnswer::Failed(error.to_string())
            }
        }
    }

    fn try_answer(&mut self, request: &ValuesRequest) -> Result<ValuesAnswer, TrainError> {
        let network = &request.network;
        let device = network.machine.choice;
        if self.probe.as_ref().is_none_or(|(r, d, _)| (*r, *d) != (network.revision, device)) {
            // The memory of the old copy is freed before the new one is allocated.
            self.probe = None;
            self.probe = Some((network.revision, device, Probe::new(&network.spec())?));
            self.from = None;
        }
        let Some((_, _, probe)) = &mut self.probe else {
            return Ok(ValuesAnswer::Failed("The copy of the step whose values are shown does not exist.".into()));
        };
        let from = request.snapshot.as_ref().map(|m| m.step);
        if from != self.from {
            if !probe.start_from(request.snapshot.as_deref())? {
                let why = "The run trains another network than the one on screen. Show the initial weights, or \
                           train again.";
                return Ok(ValuesAnswer::Failed(why.into()));
            }
            self.from = from;
        }
        let point = match request.task {
            Task::FirstBad => {
                let found = probe.first_bad().map_err(|e| e.to_string());
                return Ok(ValuesAnswer::FirstBad(network.revision, found));
            }
            Task::Query(point) => point,
        };
        Ok(ValuesAnswer::Query(point, Box::new(look_at(probe, &point)?)))
    }
}

/// Runs the step up to a point, and reads the values there.
fn look_at(probe: &mut Probe, point: &Point) -> Result<ShownValues, TrainError> {
    let compiled = Arc::clone(probe.compiled());
    let plan = &compiled.plan;
    let (Place { buffer, ops, .. }, part, step) = (point.place, point.part, probe.step());
    let mut shown = ShownValues {
        revision: point.revision,
        place: Place { buffer, part, ops },
        step,
        holds: String::new(),
        writer: None,
        summary: None,
        number: 0,
    };
    match held_part(plan, buffer, part, ops) {
        Held::Value(value, writer) => {
            probe.advance_to(ops)?;
            shown.writer = writer;
            let v = plan.program.value(value);
            shown.holds = format!("{} {}{}", v.name, v.dtype, v.shape);
            shown.summary = Some(probe.look(value, point.slice)?);
        }
        Held::Unwritten => {
            let of_part = plan.ops_of_part(buffer, part, Dir::Out).first().copied();
            let of_whole = || plan.buffers.get(buffer.0 as usize)?.writers.first().copied();
            let first = of_part.or_else(of_whole);
            let when = first.map_or_else(String::new, |w| format!(": op {w} is the first to write it"));
            shown.holds = format!("Not written yet{when}.");
        }
        Held::Freed { last } => {
            shown.holds = format!("The buffer holds no value any more: op {last} was the last to use it.");
        }
        Held::Scratch => shown.holds = "Scratch memory of one operation; it holds no value of the network.".into(),
    }
    Ok(shown)
}
