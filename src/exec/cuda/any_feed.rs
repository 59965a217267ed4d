//! The general kernels of data feeds.

use super::source::KernelSource;
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

/// The general feeds of steps with samples of this type.
pub(super) fn any_feeds(sample: DType) -> Vec<KernelSource> {
    let Some(sample) = cpp(sample) else { return Vec::new() };
    let mut found = Vec::new();
    for types in [[sample, "int", "int"], [sample, "float", sample]] {
        for (is_shuffled, is_last) in [(false, false), (false, true), (true, false), (true, true)] {
            for width in [1, 2, 4] {
                let any = any_feed(types, is_shuffled, is_last, width);
                let spec = KernelSpec::new(KernelFile::Feed, "Feed", String::new()).with_general(any, Vec::new());
                found.push(spec.of(Kernels::General).into());
            }
        }
    }
    found
}
