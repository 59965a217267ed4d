//! Signals that end a command: 128 and the signal's number as exit status, and the saved results.
#![cfg(unix)]

use super::files::{signal, spawn, wait_for_steps};
use super::{command, succeed};
use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

const ENDLESS: [&str; 6] = ["train", "xor", "--threads", "1", "--steps", "1000000000"];

#[test]
fn a_run_without_results_says_that_nothing_was_saved() {
    for (name, status) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
        if name == "HUP" && is_ignored(1) {
            println!("skipped: a closed terminal is ignored here, as behind nohup");
            continue;
        }
        let mut child = spawn(&ENDLESS);
        let mut lines = wait_for_steps(&mut child);
        signal(&child, name);
        let mut message = String::new();
        lines.read_to_string(&mut message).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(status), "{message}");
        assert!(message.contains("stopped after step ") && message.contains("nothing was saved; --save"), "{message}");
        // The message about how to end the run at once fits the signal.
        assert_eq!(message.contains("press Ctrl+C again"), name == "INT", "{message}");
        assert!(name == "INT" || message.contains(&format!("SIG{name}")), "{message}");
    }
}

/// Whether this process ignores a signal, which its children inherit; false if the system does not report it.
fn is_ignored(number: u32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & (1 << (number - 1)) != 0)
}

#[test]
fn a_finished_run_has_status_0() {
    assert!(succeed(&["train", "xor", "--steps", "20"]).contains("step 20"));
}

#[test]
fn a_run_that_has_made_no_step_ends_at_once() {
    // A preset from a pipe is read until the pipe is closed, so the run waits there.
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("preset.json");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let mut child = spawn(&["train", pipe.to_str().unwrap(), "--steps", "3"]);
    let refused = child.try_wait().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(300));
    if refused.is_some() || child.try_wait().unwrap().is_some() {
        println!("skipped: a preset on a pipe is not read");
        return;
    }
    signal(&child, "TERM");
    let mut message = String::new();
    child.stderr.take().unwrap().read_to_string(&mut message).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(143), "{message}");
    assert!(message.contains("ended by SIGTERM: no step was made, and nothing was saved"), "{message}");
}

#[test]
fn other_long_commands_have_the_same_statuses() {
    for (args, name, status) in [
        (&["verify", "digits-mlp", "--replays", "100000000", "--anyway", "--json"][..], "INT", 130),
        (&["bench", "xor", "xor", "--seconds", "300"], "TERM", 143),
    ] {
        let mut child = command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap());
        let mut first = String::new();
        lines.read_line(&mut first).unwrap();
        signal(&child, name);
        let mut message = String::new();
        lines.read_to_string(&mut message).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(status), "{args:?}: {first}{message}");
        assert!(message.contains(&format!("ended by SIG{name}")), "{message}");
    }
}

#[test]
fn a_closed_terminal_that_is_ignored_stays_ignored() {
    let program = env!("CARGO_BIN_EXE_stepgraph");
    let line = format!("trap '' HUP; exec '{program}' train xor --threads 1 --steps 1000000000 --device cpu");
    let mut child = std::process::Command::new("sh");
    let mut child = child.args(["-c", &line]).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = wait_for_steps(&mut child);
    if !cfg!(target_os = "linux") {
        println!("skipped: this system does not say what is ignored");
        child.kill().unwrap();
        child.wait().unwrap();
        return;
    }
    signal(&child, "HUP");
    std::thread::sleep(std::time::Duration::from_millis(200));
    assert!(child.try_wait().unwrap().is_none());
    signal(&child, "INT");
    let mut message = String::new();
    lines.read_to_string(&mut message).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{message}");
}
