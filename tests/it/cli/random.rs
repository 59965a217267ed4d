//! `verify --random`: its output, its files and its exit status.

use super::{at, command, json, listing, refused, succeed};
use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

#[test]
fn random_networks_are_verified_and_counted() {
    let report = json(&["verify", "--random", "3", "--seed", "5", "--device", "cpu", "--replays", "10", "--json"]);
    assert_eq!((&report["networks"], &report["seed"]), (&3.into(), &5.into()));
    assert!(report["passed"] == true && report["failures"].as_array().unwrap().is_empty(), "{report}");
    let checks = report["checks"].as_array().unwrap();
    let kernels = checks.iter().find(|c| c["name"].as_str().unwrap().starts_with("each kernel")).unwrap();
    assert!(kernels["passed"] == 3 && kernels["precision"] == "f32", "{kernels}");
    let ratio = kernels["worst_ratio"].as_f64().unwrap();
    assert!(ratio > 0.0 && ratio <= 1.0, "{kernels}");
    let folder = tempfile::tempdir().unwrap();
    let out = at(&folder, "failed.json");
    let text = succeed(&["verify", "--random", "2", "--device", "cpu", "--replays", "10", "--out", &out]);
    assert!(text.starts_with("2 networks (seeds 0 to 1) on ") && text.contains("0 with failures"), "{text}");
    assert!(listing(folder.path()).is_empty(), "nothing failed, and so nothing is written");
}

#[test]
fn an_unwritable_path_is_refused_before_the_first_network() {
    let folder = tempfile::tempdir().unwrap();
    let message = refused(&["verify", "--random", "1000000", "--device", "cpu", "--out", &at(&folder, "none/a.json")]);
    assert!(message.contains("the smallest network that fails cannot be written there"), "{message}");
    assert!(refused(&["verify", "--random", "3", "xor"]).contains("cannot be used with"));
    assert!(refused(&["verify", "xor", "--out", "a.json"]).contains("cannot be used with"));
}

#[cfg(unix)]
#[test]
fn a_signal_ends_after_the_current_check_and_prints_the_results() {
    let args = ["verify", "--random", "1000000", "--device", "cpu", "--json"];
    let mut child = command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    // The second line is the progress, after the choice of the device.
    let mut first = String::new();
    for _ in 0..2 {
        lines.read_line(&mut first).unwrap();
    }
    super::files::signal(&child, "INT");
    let (mut message, mut printed) = (String::new(), String::new());
    lines.read_to_string(&mut message).unwrap();
    child.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{first}{message}");
    assert!(message.contains("stopping after this check"), "{message}");
    let report: serde_json::Value = serde_json::from_str(&printed).unwrap();
    assert!(report["cancelled"] == true && report["networks"].as_u64() > Some(0), "{report}");
}
