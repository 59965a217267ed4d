//! PNG and JPEG pictures.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stepgraph::data::read_image;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(values) = read_image(bytes, "input", &[3, 8, 8].into()) {
        assert_eq!(values.len(), 3 * 8 * 8);
    }
});
