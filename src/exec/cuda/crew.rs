//! Runs one piece of work on several threads.

/// Runs `work` on this thread and on further ones, `threads` in total, each with a name that starts with `name`. If the
/// system refuses to start a thread, this is reported as a thread that `does` the work, and the others do its share.
pub(super) fn share_work(threads: usize, name: &str, does: &str, work: &(impl Fn() + Sync)) {
    std::thread::scope(|scope| {
        for number in 1..threads {
            let spawned = std::thread::Builder::new().name(format!("{name}-{number}")).spawn_scoped(scope, work);
            if let Err(error) = spawned {
                log::warn!("a thread that {does} could not be started: {error}");
            }
        }
        work();
    });
}
