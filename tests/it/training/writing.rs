//! Texts that the worker writes while it trains.

use std::path::Path;
use std::time::{Duration, Instant};
use stepgraph::model::read_preset;
use stepgraph::train::{
    Command, Event, Generation, GenerationEnd, RunState, Sampling, SessionSpec, Worker, WritingEvent,
};

/// A worker over the text `abcabc...`, whose every character follows from the one before.
fn worker(folder: &Path, steps: usize) -> Worker {
    std::fs::write(folder.join("t.txt"), "abc".repeat(400)).unwrap();
    let text = format!(
        r#"{{ "version": 1, "name": "abc", "about": "",
        "input": {{ "type": "tokens", "shape": [32], "vocab": 3, "batch": 8 }},
        "layers": [{{ "type": "embedding", "units": 32 }}, {{ "type": "gru", "units": 32 }},
            {{ "type": "dense", "units": 3 }}],
        "loss": {{ "type": "softmax_cross_entropy" }}, "optimizer": {{ "type": "adam", "lr": 0.01 }},
        "data": {{ "type": "text", "path": "t.txt", "tokens": "chars", "split": "last" }},
        "train": {{ "steps": {steps}, "seed": 3 }} }}"#
    );
    let spec = SessionSpec { threads: 1, ..SessionSpec::new(read_preset(&text).unwrap(), folder.into()) };
    Worker::spawn(spec, || {}).unwrap()
}

fn asked(prompt: &str, tokens: usize) -> Command {
    let sampling = Sampling { temperature: 0.0, ..Sampling::default() };
    Command::Write(Generation { prompt: prompt.into(), tokens: Some(tokens), sampling, stop: None })
}

/// All reports until one of the events is wanted.
fn until(worker: &Worker, wanted: impl Fn(&Event) -> bool) -> Vec<Event> {
    let (mut seen, started) = (Vec::new(), Instant::now());
    while !seen.last().is_some_and(&wanted) {
        assert!(started.elapsed() < Duration::from_secs(60), "the event never came: {:?}", seen.last());
        seen.extend(worker.wait_event(Duration::from_millis(100)));
    }
    seen
}

fn is_end(event: &Event) -> bool {
    matches!(event, Event::Writing(WritingEvent::Ended(_) | WritingEvent::Failed(_)))
}

/// The text in reports, and the steps at which it was drawn.
fn written(seen: &[Event]) -> (String, Vec<u64>) {
    let of = |event: &Event| match event {
        Event::Writing(WritingEvent::Wrote { text, step, .. }) => Some((text.clone(), *step)),
        _ => None,
    };
    seen.iter().filter_map(of).unzip()
}

fn steps(seen: &[Event]) -> usize {
    seen.iter().map(|event| if let Event::Steps(reports) = event { reports.len() } else { 0 }).sum()
}

#[test]
fn a_text_is_written_while_the_run_trains_and_hardly_slows_it() {
    let folder = tempfile::tempdir().unwrap();
    let worker = worker(folder.path(), 1_000_000);
    assert!(worker.send(Command::Start));
    until(&worker, |event| matches!(event, Event::Steps(_)));
    // The speed of the run alone, then while it writes a text that never ends.
    let rate = |time: Duration| {
        let (started, mut count) = (Instant::now(), 0);
        while started.elapsed() < time {
            count += worker.wait_event(Duration::from_millis(20)).map_or(0, |event| steps(&[event]));
        }
        count as f64 / started.elapsed().as_secs_f64()
    };
    let alone = rate(Duration::from_millis(1500));
    assert!(worker.send(asked("abcab", usize::MAX)));
    until(&worker, |event| matches!(event, Event::Writing(WritingEvent::Wrote { .. })));
    let beside = rate(Duration::from_millis(1500));
    // Other tests run at the same time: the bound is loose; the exact share of the time is tested elsewhere.
    assert!(beside > 0.6 * alone, "{beside} steps/s while it writes, {alone} without");
    assert!(worker.send(Command::StopWriting));
    let seen = until(&worker, is_end);
    let (text, at) = written(&seen);
    assert!(text.is_empty() || (text.chars().all(|c| "abc".contains(c)) && at.is_sorted()), "{text}");
    assert!(matches!(seen.last(), Some(Event::Writing(WritingEvent::Ended(GenerationEnd::Cancelled)))));
    // No text is being written any more: a command to stop has no effect, and the run continues.
    assert!(worker.send(Command::StopWriting) && worker.send(Command::Pause));
    let seen = until(&worker, |event| matches!(event, Event::State(RunState::Paused)));
    assert!(!seen.iter().any(is_end));
}

#[test]
fn a_text_follows_the_newest_weights_and_errors_of_prompts_say_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let worker = worker(folder.path(), 300);
    assert!(worker.send(Command::Start));
    until(&worker, |event| matches!(event, Event::State(RunState::Finished)));
    assert!(worker.send(asked("ab", 7)));
    let seen = until(&worker, is_end);
    let begun = Event::Writing(WritingEvent::Began { prompt: "ab".into(), notes: Vec::new(), most: 7 });
    assert_eq!(format!("{:?}", seen[0]), format!("{begun:?}"));
    let (text, at) = written(&seen);
    assert_eq!((&*text, at.last()), ("cabcabc", Some(&300)));
    assert!(matches!(seen.last(), Some(Event::Writing(WritingEvent::Ended(GenerationEnd::Tokens)))));
    assert!(worker.send(asked("abX", 7)));
    let seen = until(&worker, is_end);
    let Some(Event::Writing(WritingEvent::Failed(why))) = seen.last() else { panic!("{seen:?}") };
    assert!(why.contains("'X', which the network does not know; it knows 3: abc"), "{why}");
    // A newer text replaces one that is being written.
    assert!(worker.send(asked("a", usize::MAX)) && worker.send(asked("ca", 4)));
    let seen = until(&worker, is_end);
    let last = seen.iter().rposition(|e| matches!(e, Event::Writing(WritingEvent::Began { .. }))).unwrap();
    assert_eq!(written(&seen[last..]).0, "bcab");
}
