//! CIFAR-10's binary batches.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stepgraph::data::read_cifar;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(records) = read_cifar(bytes, "input") {
        assert_eq!(records.pixels.len(), records.labels.len() * 3072);
    }
});
