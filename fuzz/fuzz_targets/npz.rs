//! NumPy archives, and the arrays in them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stepgraph::data::{read_npy, read_npz};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(array) = read_npz(bytes, "x", "input") {
        let _ = read_npy(&array, "input");
    }
});
