//! The worker thread: commands in, events out.

use super::{MLP_ADAM, spec};
use std::time::{Duration, Instant};
use stepgraph::train::{Command, Event, RunKey, RunState, Worker};

/// Waits for events until one is wanted; all events are added to `seen`.
fn until(worker: &Worker, seen: &mut Vec<Event>, wanted: impl Fn(&Event) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        assert!(
            Instant::now() < deadline,
            "the event never came; seen {} events, the last {:?}",
            seen.len(),
            seen.last()
        );
        if let Some(event) = worker.wait_event(Duration::from_millis(200)) {
            seen.push(event);
            if seen.last().is_some_and(&wanted) {
                return;
            }
        }
    }
}

fn is_state(event: &Event, state: &RunState) -> bool {
    matches!(event, Event::State(s) if s == state)
}

/// The numbers of all reported steps, in order of arrival.
fn reported(seen: &[Event]) -> Vec<u64> {
    let of =
        |e: &Event| if let Event::Steps(reports) = e { reports.iter().map(|r| r.step).collect() } else { Vec::new() };
    seen.iter().flat_map(of).collect()
}

#[test]
fn the_worker_performs_commands_and_reports_every_step_once() {
    let folder = tempfile::tempdir().unwrap();
    let long = MLP_ADAM.replace("\"steps\": 400", "\"steps\": 1000000");
    let woken = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let wakes = std::sync::Arc::clone(&woken);
    let wake = move || {
        wakes.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    };
    let worker = Worker::spawn(spec(&long), wake).unwrap();
    let mut seen = Vec::new();
    until(&worker, &mut seen, |e| is_state(e, &RunState::Ready));
    assert!(
        is_state(&seen[0], &RunState::Preparing) && matches!(seen[1], Event::Prepared { total: 1_000_000, .. }),
        "{seen:?}"
    );
    assert!(worker.send(Command::Step(3)));
    until(&worker, &mut seen, |e| is_state(e, &RunState::Paused));
    assert_eq!(reported(&seen), [1, 2, 3]);
    assert!(worker.send(Command::Start));
    until(&worker, &mut seen, |e| is_state(e, &RunState::Running));
    // A window that hangs for a second loses nothing and delays nothing.
    std::thread::sleep(Duration::from_millis(1200));
    assert!(worker.send(Command::SetLr(0.0005)) && worker.send(Command::Pause));
    until(&worker, &mut seen, |e| is_state(e, &RunState::Paused));
    let count = reported(&seen).len() as u64;
    assert!(count > 100, "it trained on while nobody listened: {count} steps");
    assert_eq!(reported(&seen), (1..=count).collect::<Vec<_>>());
    let path = folder.path().join("worker.ckpt");
    assert!(
        worker.send(Command::SaveCheckpoint(path.clone()))
            && worker.send(Command::Evaluate)
            && worker.send(Command::Predict(vec![0, 3]))
    );
    until(&worker, &mut seen, |e| matches!(e, Event::Predicted { .. }));
    let last = seen.len();
    assert!(matches!(&seen[last - 3], Event::Saved(p) if *p == path), "{:?}", seen[last - 3]);
    assert!(matches!(&seen[last - 2], Event::Evaluated { step, .. } if *step == count));
    assert!(matches!(&seen[last - 1], Event::Predicted { outputs, .. } if outputs.len() == 20));
    assert!(worker.send(Command::LoadCheckpoint(folder.path().join("none"))));
    until(&worker, &mut seen, |e| matches!(e, Event::Problem(text) if text.contains("cannot be read")));
    assert!(worker.send(Command::Step(2)));
    until(&worker, &mut seen, |e| is_state(e, &RunState::Paused));
    assert_eq!(reported(&seen), (1..=count + 2).collect::<Vec<_>>());
    let lr = seen.iter().rev().find_map(|e| if let Event::Steps(r) = e { r.last().map(|r| r.lr) } else { None });
    assert_eq!(lr, Some(0.0005), "the new rate is in force");
    assert!(worker.send(Command::SetTotal(count + 10)) && worker.send(Command::Start));
    until(&worker, &mut seen, |e| is_state(e, &RunState::Finished));
    assert_eq!(reported(&seen), (1..=count + 10).collect::<Vec<_>>());
    assert!(worker.send(Command::Stop));
    until(&worker, &mut seen, |e| is_state(e, &RunState::Stopped));
    assert!(woken.load(std::sync::atomic::Ordering::SeqCst) > 5, "the window is woken");
    // The result of a run that was ended can still be saved, and a failure to do so is reported with its path.
    let (weights, nowhere) = (folder.path().join("w.safetensors"), folder.path().join("no/such/w.safetensors"));
    assert!(worker.send(Command::SaveWeights(weights.clone())) && worker.send(Command::SaveWeights(nowhere.clone())));
    until(&worker, &mut seen, |e| matches!(e, Event::Saved(p) if *p == weights));
    until(&worker, &mut seen, |e| matches!(e, Event::NotSaved(p, why) if *p == nowhere && why.contains("no folder")));
    assert!(weights.exists());
    // A worker that is idle is dropped like any other: nothing hangs.
    drop(worker);
}

#[test]
fn a_prepared_run_is_found_by_its_key() {
    let worker = Worker::spawn(spec(MLP_ADAM), || {}).unwrap();
    let mut seen = Vec::new();
    until(&worker, &mut seen, |e| matches!(e, Event::Prepared { .. }));
    let Some(Event::Prepared { run, .. }) = seen.last() else { unreachable!("the last that was waited for") };
    let shared = worker.artefacts(*run).unwrap();
    assert_eq!((shared.compiled.model.name.as_str(), shared.data.unwrap().0.len()), ("mlp-adam", 1797));
    assert!(worker.artefacts(RunKey::new(run.plan)).is_none(), "another run of the same plan is another run");
}

#[test]
fn a_worker_is_dropped_at_any_time() {
    let long = MLP_ADAM.replace("\"steps\": 400", "\"steps\": 1000000");
    for wait in [0, 5, 60, 300] {
        let worker = Worker::spawn(spec(&long), || {}).unwrap();
        let _ = worker.send(Command::Start);
        std::thread::sleep(Duration::from_millis(wait));
        let started = Instant::now();
        drop(worker);
        assert!(started.elapsed() < Duration::from_secs(20), "dropping took {:?}", started.elapsed());
    }
    let broken = MLP_ADAM.replace("\"units\": 10", "\"units\": 9");
    let worker = Worker::spawn(spec(&broken), || {}).unwrap();
    let mut seen = Vec::new();
    until(&worker, &mut seen, |e| matches!(e, Event::State(RunState::Failed(text)) if text.contains("digits")));
}
