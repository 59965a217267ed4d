//! Compares the properties of operations with numbers that were written down.

use super::{Dir, OpKind, header};
use crate::tensor::Fnv;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

/// All properties of an operation, as text.
fn facts(kind: &OpKind) -> String {
    let numbers = [kind.flops(), kind.least_flops(), kind.least_flops_with_tiles(), kind.work_ns()];
    let bytes = [2, 4, 8].map(|elem| kind.bytes_moved(elem));
    let counts = [kind.scratch_floats(), kind.step_parts()];
    let mut out = format!("{} {} [{}] {}", kind.name(), kind.stem(), kind.dims(), kind.is_for_gpus());
    let _ = write!(out, "\n{numbers:?} {bytes:?} {counts:?} {:?} {:?}", kind.in_place(), kind.weight());
    for (index, slot) in kind.slots().iter().enumerate().filter(|(_, slot)| slot.dir != Dir::Work) {
        let len = kind.extent(index).unwrap();
        let least = [(len, 4), (len + 1, 2)].map(|(len, elem)| kind.least_bytes(index, len, elem));
        let flags = [kind.is_needed(index), kind.is_activation(index)];
        let _ = write!(out, "\n{} {len} {least:?} {flags:?}", slot.name);
    }
    out
}

/// Each line of `tests/data/operations.txt` is the checksum of an operation's properties, and the operation. If a
/// change is intended, copy the lines that this prints.
#[test]
fn the_properties_of_operations_equal_the_stored_ones() {
    let text = std::fs::read_to_string(root().join("tests/data/operations.txt")).unwrap();
    let mut lines = String::new();
    for line in text.lines() {
        let (_, kind) = line.split_once(' ').unwrap();
        let op: OpKind = serde_json::from_str(kind).unwrap();
        assert_eq!(serde_json::to_string(&op).unwrap(), kind, "operations are written as they are read");
        let _ = writeln!(lines, "{:016x} {kind}", Fnv::of(facts(&op).as_bytes()));
    }
    let changed = lines.lines().zip(text.lines()).filter(|(new, old)| new != old).map(|(new, _)| new);
    assert_eq!(changed.collect::<Vec<_>>().join("\n"), "");
    assert!(text.lines().count() > 300);
}

#[test]
fn slot_tables_have_one_line_for_each_slot_and_include_every_operation() {
    let text = std::fs::read_to_string(root().join("tests/data/operations.txt")).unwrap();
    let kinds = text.lines().map(|line| serde_json::from_str::<OpKind>(line.split_once(' ').unwrap().1).unwrap());
    let known = |kind: &OpKind| super::TABLES.iter().any(|(_, table)| *table == kind.slots());
    assert!(kinds.into_iter().all(|kind| known(&kind)));
    for (module, table) in super::TABLES {
        for (index, slot) in table.iter().enumerate() {
            assert!(table[..index].iter().all(|other| other.name != slot.name), "{module} has {} twice", slot.name);
            assert_eq!(slot.name, slot.name.to_lowercase());
        }
    }
}

/// With `STEPGRAPH_WRITE_SLOTS=1` the header is written again.
#[test]
fn the_header_of_the_kernels_is_up_to_date() {
    let path = root().join("kernels/slots.cuh");
    if std::env::var_os("STEPGRAPH_WRITE_SLOTS").is_some() {
        std::fs::write(&path, header::header()).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap();
    let how = "STEPGRAPH_WRITE_SLOTS=1 cargo test --lib the_header_of_the_kernels writes kernels/slots.cuh again";
    assert!(found == header::header(), "{how}");
}
