//! IDX files, plain and gzip.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stepgraph::data::read_idx;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(array) = read_idx(bytes, "input") {
        assert_eq!(array.values().count(), array.shape().iter().product::<usize>());
    }
});
