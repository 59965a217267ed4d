//! `verify`: what its messages and results say, and that docs/verify.md says the same.

use super::{at, command, json, refused, run, stderr, stdout, succeed, was_refused};
use serde_json::Value;
use std::collections::BTreeSet;
use std::process::Output;
use stepgraph::train::{CHECKS, GPU_CHECKS};

fn document() -> String {
    std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/verify.md")).unwrap()
}

/// The first column of the table behind a line, without the marks of code.
fn column(document: &str, behind: &str) -> Vec<String> {
    let table = document.split_once(behind).unwrap_or_else(|| panic!("{behind} is not in docs/verify.md")).1;
    let rows = table.lines().skip_while(|line| !line.starts_with("|")).take_while(|line| line.starts_with("|"));
    let cell = |row: &str| row.split('|').nth(1).unwrap().trim().replace('`', "");
    rows.skip(2).map(cell).collect()
}

fn keys(value: &Value) -> BTreeSet<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn the_document_lists_the_checks_by_the_names_that_are_printed() {
    assert_eq!(column(&document(), "# Checks that a step is correct"), CHECKS);
    let report = json(&["verify", "iris", "--replays", "20", "--device", "cpu", "--threads", "2", "--json"]);
    let names: Vec<&str> = report["checks"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect();
    let on_cpu: Vec<&str> = CHECKS.into_iter().filter(|name| !GPU_CHECKS.contains(name)).collect();
    assert_eq!(names, on_cpu);
    let random = ["verify", "--random", "1", "--replays", "10", "--device", "cpu", "--json"];
    let random = json(&random);
    let names: Vec<&str> = random["checks"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect();
    assert_eq!(names, on_cpu);
}

#[test]
fn the_document_lists_every_key_of_the_results() {
    let document = document();
    let described = |behind: &str| column(&document, behind).into_iter().collect::<BTreeSet<String>>();
    let report = json(&["verify", "xor", "--replays", "20", "--device", "cpu", "--json"]);
    let random = json(&["verify", "--random", "1", "--replays", "10", "--device", "cpu", "--json"]);
    let found: BTreeSet<&str> = keys(&report).union(&keys(&random)).copied().collect();
    assert_eq!(described("The keys of the results:"), found.into_iter().map(str::to_owned).collect());
    let of_checks = |report: &Value| -> BTreeSet<String> {
        report["checks"].as_array().unwrap().iter().flat_map(|check| keys(check)).map(str::to_owned).collect()
    };
    assert_eq!(described("The keys of a check of a preset:"), of_checks(&report));
    assert_eq!(described("The keys of a check of random networks:"), of_checks(&random));
    // Keys that both have mean the same.
    let common: BTreeSet<&str> = keys(&report).intersection(&keys(&random)).copied().collect();
    assert_eq!(common, BTreeSet::from(["cancelled", "checks", "device", "passed", "seconds", "seed"]));
    assert!(report["cancelled"] == false && report["seed"] == 0, "{report}");
}

#[test]
fn several_presets_are_a_list() {
    let list = json(&["verify", "xor", "iris", "--replays", "20", "--seed", "3", "--device", "cpu", "--json"]);
    let names: Vec<&Value> = list.as_array().unwrap().iter().map(|report| &report["preset"]).collect();
    assert_eq!(names, ["xor", "iris"]);
    assert!(list.as_array().unwrap().iter().all(|report| report["seed"] == 3), "{list}");
}

#[test]
fn the_usage_names_every_form() {
    const FORMS: [&str; 3] =
        ["stepgraph verify [OPTIONS] PRESET...", "stepgraph verify [OPTIONS] --all", "[OPTIONS] --random N"];
    let nothing = refused(&["verify"]);
    assert!(
        nothing.contains("nothing to verify is given") && nothing.contains("give --all or --random N"),
        "{nothing}"
    );
    for text in [nothing, succeed(&["verify", "--help"]), refused(&["verify", "--random", "3", "xor"])] {
        assert!(FORMS.iter().all(|form| text.contains(form)) && !text.contains("[PRESET]..."), "{text}");
    }
    let help = succeed(&["verify", "--help"]);
    assert!(
        ["Exit status: 0 if", "1 if a check failed", "2 if an", "130, 143 or"].iter().all(|t| help.contains(t)),
        "{help}"
    );
}

#[test]
fn a_file_for_failures_without_random_networks_has_one_message() {
    let folder = tempfile::tempdir().unwrap();
    let out = at(&folder, "x.json");
    let joined = format!("--out={out}");
    for args in [&["verify", "--out", &out][..], &["verify", "xor", "--out", &out], &["verify", "--all", &joined]] {
        let message = refused(args);
        assert!(message.contains("--out cannot be used without --random"), "{message}");
        assert!(message.contains("leave it out, or give --random N instead of presets"), "{message}");
    }
}

#[test]
fn seeds_that_would_start_over_are_refused() {
    let last = u64::MAX.to_string();
    let message = refused(&["verify", "--random", "2", "--seed", &last, "--device", "cpu"]);
    assert!(message.contains("is too large for 2 networks") && message.contains("18446744073709551614 or less"));
    let one = ["verify", "--random", "1", "--seed", &last, "--device", "cpu", "--replays", "10"];
    let text = succeed(&one);
    assert!(text.starts_with("1 network (seed 18446744073709551615) on "), "{text}");
}

#[test]
fn places_of_failures_are_checked_before_the_first_network() {
    let folder = tempfile::tempdir().unwrap();
    let notes = at(&folder, "notes.txt");
    std::fs::write(&notes, "a letter").unwrap();
    let message = refused(&["verify", "--random", "1000000", "--device", "cpu", "--out", &notes]);
    assert!(message.contains("is no network, so it is not replaced"), "{message}");
    assert_eq!(std::fs::read_to_string(&notes).unwrap(), "a letter");
    // Without --out, the current folder is the place. Nobody makes files there, whoever they are.
    if !cfg!(target_os = "linux") {
        println!("skipped: this system has no /proc");
        return;
    }
    let args = ["verify", "--random", "1000000", "--seed", "5", "--device", "cpu"];
    let message = was_refused(&args, &command(&args).current_dir("/proc").output().unwrap());
    assert!(message.contains("random-5.json: the smallest network that fails cannot be written there"), "{message}");
    assert!(message.trim_end().ends_with("or name another place with --out"), "{message}");
}

#[test]
fn the_number_of_replays_is_explained() {
    let of = |args: &[&str]| {
        let report = json(&[&["verify", "xor", "--device", "cpu", "--json"], args].concat());
        let checks = report["checks"].as_array().unwrap();
        let endurance = checks.iter().find(|c| c["name"] == "endurance and determinism").unwrap();
        endurance["figures"].as_str().unwrap().to_owned()
    };
    assert!(of(&["--replays", "1"]).starts_with("1 replay (the given number) twice, "));
    let figures = of(&[]);
    let reasons =
        ["(the most without --replays)", "(as many as take 6 s; ", "(the least, though they take 6 s or more)"];
    assert!(reasons.iter().any(|reason| figures.contains(reason)), "{figures}");
}

#[test]
fn what_has_no_data_is_described_alike_for_presets_and_random_networks() {
    let folder = super::small(1, &[0]);
    let text = succeed(&["verify", &at(&folder, "small.json"), "--replays", "10", "--device", "cpu"]);
    assert!(text.contains("the network has no data of its own") && !text.contains("the preset names"), "{text}");
    let random = succeed(&["verify", "--random", "6", "--replays", "10", "--device", "cpu"]);
    assert!(
        random.contains("skipped: the network has no data of its own") && !random.contains("(network "),
        "{random}"
    );
}

#[test]
fn numbers_and_presets_that_are_wrong_are_named() {
    for (args, part) in [
        (&["verify", "xor", "--replays", "0"][..], "expected a whole number, at least 1"),
        (&["verify", "xor", "--seed", "text"], "expected a whole number, at least 0"),
        (&["verify", "xor", "no-such-preset"], "no such file"),
        (&["verify", "--random", "many"], "expected a whole number, at least 1"),
        (&["verify", "--all", "xor"], "cannot be used with"),
    ] {
        let message = refused(args);
        assert!(message.contains(part), "{args:?}: {message}");
    }
}

#[cfg(unix)]
mod interrupted {
    use super::*;
    use crate::cli::files::signal;
    use std::io::{BufRead, BufReader, Read};
    use std::process::{Child, Stdio};

    /// The command until the line of standard error or output that contains `until`, and then a signal.
    fn interrupted(args: &[&str], until: &str) -> Output {
        let mut child: Child = command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap());
        let mut seen = String::new();
        while !seen.contains(until) {
            assert!(lines.read_line(&mut seen).unwrap() > 0, "{args:?}: {until} is not in {seen}");
        }
        signal(&child, "INT");
        lines.read_to_string(&mut seen).unwrap();
        let mut output = child.wait_with_output().unwrap();
        output.stderr = seen.into_bytes();
        output
    }

    #[test]
    fn what_was_checked_before_a_signal_is_printed() {
        let endless = ["--replays", "100000000", "--anyway", "--device", "cpu", "--json"];
        let output = interrupted(&[&["verify", "xor"], &endless[..]].concat(), "pass an injected fault");
        let (text, notes) = (stdout(&output), stderr(&output));
        assert_eq!(output.status.code(), Some(130), "{notes}");
        assert!(notes.contains("ended by SIGINT: "), "{notes}");
        let report: Value = serde_json::from_str(&text).unwrap();
        let checks = report["checks"].as_array().unwrap();
        let last = checks.last().unwrap();
        assert!(report["cancelled"] == true && report["passed"] == true && report["preset"] == "xor", "{report}");
        assert!(checks.len() > 5 && last["name"] == "an injected fault is caught", "{report}");
        // Of several presets, those that were begun are listed.
        let several = interrupted(&[&["verify", "xor", "iris"], &endless[..]].concat(), "pass an injected fault");
        let list: Value = serde_json::from_str(&stdout(&several)).unwrap();
        let list = list.as_array().unwrap();
        assert!(list.len() == 1 && list[0]["cancelled"] == true && several.status.code() == Some(130), "{list:?}");
    }

    #[test]
    fn the_counts_of_interrupted_random_networks_agree() {
        let args = ["verify", "--random", "1000000", "--device", "cpu", "--json"];
        let output = interrupted(&args, " of 1,000,000 networks, ");
        assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
        let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
        let networks = report["networks"].as_u64().unwrap();
        assert!(networks > 0 && report["cancelled"] == true, "{report}");
        for check in report["checks"].as_array().unwrap() {
            let counts = ["passed", "failed", "skipped"].map(|key| check[key].as_u64().unwrap());
            assert_eq!(counts.iter().sum::<u64>(), networks, "{check}");
        }
    }
}

#[cfg(unix)]
#[test]
fn a_reader_that_goes_away_ends_the_checks() {
    let program = env!("CARGO_BIN_EXE_stepgraph");
    // Without a reader, these replays would take hours.
    let line = format!("'{program}' verify xor --device cpu --anyway --replays 100000000 | head -n 1");
    let mut shell = std::process::Command::new("sh");
    let output = shell.args(["-c", &line]).env("STEPGRAPH_NO_TUNING", "1").output().unwrap();
    assert_eq!(stdout(&output), "xor\n");
    assert!(!stderr(&output).contains("error"), "{}", stderr(&output));
}

#[test]
fn places_that_cannot_be_written_have_the_documented_status() {
    let commands = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/commands.md")).unwrap();
    let statuses = column(&commands, "## Output and exit status");
    assert_eq!(statuses, ["0", "1", "2", "128 + N"]);
    let row = commands.lines().find(|line| line.starts_with("| 2 |")).unwrap();
    assert!(row.contains("the place of a result"), "{row}");
    let folder = tempfile::tempdir().unwrap();
    let output = run(&["verify", "--random", "2", "--device", "cpu", "--out", &at(&folder, "none/a.json")]);
    assert_eq!(output.status.code(), Some(2));
}
