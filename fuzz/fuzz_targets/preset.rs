//! Preset documents: reading, checking, and writing what was read.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stepgraph::model::{check, read_preset, write_preset};

fuzz_target!(|text: &str| {
    let Ok(preset) = read_preset(text) else { return };
    let written = write_preset(&preset);
    let again = read_preset(&written);
    assert!(again.as_ref() == Ok(&preset), "written as {written}, read back as {again:?}");
    let _ = check(&preset);
});
