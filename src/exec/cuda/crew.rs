//! Runs one piece of work on several threads.

/// Runs `work` on this thread and on further ones, `threads` in total. The further ones are called `stepgraph-`, `name`
/// and a number. If the system refuses to start a thread, this is reported as a thread that `does` the work, and the
/// others do its share.
pub(super) fn share_work(threads: usize, name: &str, does: &str, work: &(impl Fn() + Sync)) {
    std::thread::scope(|scope| {
        for number in 1..threads {
            let thread = std::thread::Builder::new().name(format!("stepgraph-{name}-{number}"));
            let spawned = thread.spawn_scoped(scope, work);
            if let Err(error) = spawned {
                log::warn!("a thread that {does} could not be started: {error}");
            }
        }
        work();
    });
}
