//! NumPy arrays.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stepgraph::data::read_npy;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(array) = read_npy(bytes, "input") {
        assert_eq!(array.values().count(), array.shape().iter().product::<usize>());
    }
});
