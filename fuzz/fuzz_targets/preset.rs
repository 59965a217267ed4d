//! Preset documents.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = stepgraph::model::read_preset(text);
});
