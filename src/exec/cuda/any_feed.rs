//! The general kernels of data feeds.

use super::source::KernelSource;
use crate::ir::Mode;
use crate::lower::Program;
use crate::select::Kernels;
use crate::select::cuda::{KernelFile, KernelSpec};
use crate::tensor::DType;

/// The largest number of steps of one graph.
pub(super) const MAX_STEPS: usize = 64;
/// The number of steps whose places and records the device stores: twice those of the launches in flight.
pub(super) const RING: usize = 4 * MAX_STEPS;

/// A number type as the kernels write it.
pub(super) const fn cpp(dtype: DType) -> Option<&'static str> {
    match dtype {
        DType::F32 => Some("float"),
        DType::Bf16 => Some("bf16"),
        DType::F16 => Some("f16"),
        DType::I32 => Some("int"),
        _ => None,
    }
}

/// The template's arguments of a general member: the types of samples, of targets in the data set and of targets in the
/// step, whether the data are shuffled, whether it is the last feed of a launch, and the width of its accesses.
pub(super) fn any_feed([sample, stored, target]: [&str; 3], is_shuffled: bool, is_last: bool, width: usize) -> String {
    let order = if is_shuffled { "ANY" } else { "0" };
    format!("{sample}, ANY, {stored}, {target}, ANY, ANY, {order}, ANY, ANY, {RING}, {is_last}, {width}")
}

/// The widest access, in elements, that divides a sample of this length.
pub(super) const fn width_of(sample_len: usize) -> usize {
    if sample_len.is_multiple_of(4) {
        4
    } else if sample_len.is_multiple_of(2) {
        2
    } else {
        1
    }
}

/// The general feeds of a training step whose data are on the device and are shuffled.
pub(super) fn expected_feeds(program: &Program, batch: usize) -> Vec<KernelSource> {
    let x = program.value(program.samples());
    let target = program.targets().and_then(|y| cpp(program.value(y).dtype));
    let (Some(sample), Some(target)) = (cpp(x.dtype), target) else { return Vec::new() };
    // Steps that read tokens are not fed on the device.
    if sample == "int" || program.mode != Mode::Train {
        return Vec::new();
    }
    let types = [sample, if target == "int" { "int" } else { "float" }, target];
    let width = width_of(x.shape.len() / batch.max(1));
    [false, true].map(|is_last| general(any_feed(types, true, is_last, width))).into()
}

/// The source of a general member with these arguments of the template.
fn general(any: String) -> KernelSource {
    KernelSpec::new(KernelFile::Feed, "Feed", String::new()).with_general(any, Vec::new()).of(Kernels::General).into()
}

/// The general feeds of steps with samples of this type.
pub(super) fn any_feeds(sample: DType) -> Vec<KernelSource> {
    let Some(sample) = cpp(sample) else { return Vec::new() };
    let mut found = Vec::new();
    for types in [[sample, "int", "int"], [sample, "float", sample]] {
        for (is_shuffled, is_last) in [(false, false), (false, true), (true, false), (true, true)] {
            for width in [1, 2, 4] {
                found.push(general(any_feed(types, is_shuffled, is_last, width)));
            }
        }
    }
    found
}
