//! Compiles kernels for changes of a network's sizes in advance, and lets libraries answer for the first time.
//!
//! A general kernel works for all sizes of its class: a change of one size needs the kernels of the new class that the
//! current class does not share. Slightly larger sizes than the current ones cover all classes.

use crate::compile::{Options, compile};
use crate::exec::cuda::{compile_ahead, gpu};
use crate::model::{Precision, Preset, Sizes, check};
use crate::select::Target;
use std::sync::{Mutex, PoisonError};

/// The amounts by which sizes grow: vectors have up to eight elements, and tiles depend on the order of magnitude.
const GROWN_BY: [u64; 5] = [1, 2, 3, 4, 8];

/// Networks that differ from this one in one size, which is slightly larger.
pub fn after_small_edits(preset: &Preset) -> impl Iterator<Item = Preset> {
    let sizes = Sizes::of(preset);
    let count = sizes.places.len() * GROWN_BY.len();
    (0..count).filter_map(move |number| {
        // Each amount is applied to all sizes before the next amount, because users usually change one size after
        // another.
        let (by, place) = (number / sizes.places.len(), number % sizes.places.len());
        let place = &sizes.places[place];
        sizes.changed(place, place.value + GROWN_BY[by])
    })
}

/// Held while libraries are asked in advance.
static ASKING: Mutex<()> = Mutex::new(());

/// Asks the libraries of a GPU for something small, so that a changed network that needs one waits less.
pub fn ask_libraries(machine: &Target, precision: Precision) {
    let _asking = ASKING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(device) = machine.as_cuda().and_then(|facts| gpu(facts.ordinal).ok()) {
        device.ask_libraries(precision);
    }
}

/// Waits until no thread asks libraries in advance: a process should not end while a thread is inside one.
pub fn wait_for_libraries() {
    drop(ASKING.lock().unwrap_or_else(PoisonError::into_inner));
}

/// Compiles the kernels of launches that operations with general kernels share, for the steps that were prepared in
/// this process, `threads` at a time, while `goes_on` returns true. Steps that are prepared later run them. Returns the
/// number of kernels.
pub fn compile_for_shared_launches(machine: &Target, threads: usize, goes_on: impl Fn() -> bool + Sync) -> usize {
    let facts = machine.as_cuda().filter(|_| machine.kernels.are_general());
    let device = facts.and_then(|facts| gpu(facts.ordinal).ok());
    device.map_or(0, |device| device.compile_missing(threads, goes_on))
}

/// Compiles the kernels for small changes of a network's sizes that are not in the cache yet, one after the other,
/// while `goes_on` returns true, if the machine's kernels are general. Returns the number of kernels.
pub fn compile_for_edits(preset: &Preset, machine: &Target, goes_on: impl Fn() -> bool + Sync) -> usize {
    let Some(facts) = machine.as_cuda().filter(|_| machine.kernels.are_general()) else { return 0 };
    let Ok(device) = gpu(facts.ordinal) else { return 0 };
    let mut count = 0;
    for changed in after_small_edits(preset) {
        if !goes_on() {
            break;
        }
        let Some(model) = check(&changed).model else { continue };
        let Ok(compiled) = compile(&model, &Options::train(machine.clone())) else { continue };
        match compile_ahead(&device, &compiled, &goes_on) {
            Ok(more) => count += more,
            // The error is reported when the user makes the change.
            Err(why) => log::debug!("kernels for a change of sizes: {why}"),
        }
    }
    count
}
