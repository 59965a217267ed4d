//! Several threads for one piece of work.

/// Runs `work` on this thread and on as many others as make `threads` of them, each with a name that begins with
/// `name`. A thread that the system refuses is reported as one that `does` the work: the others do its share.
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
