//! The cache with other processes, killed writers, foreign files, folders and disks that cannot be written to.

use super::*;
use crate::tensor::random_words;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;

/// Parameters for a process of these tests: its folder, the limit in bytes, and the number of entries, or 0 for no end.
const FOLDER: &str = "STEPGRAPH_TEST_CACHE_FOLDER";
const WORK: &str = "STEPGRAPH_TEST_CACHE_WORK";

fn key(number: usize) -> String {
    format!("NVRTC 1.0 sm_90a\nnamespace member0 {{ using Op = Act<float, RELU, {number}>; }}\n")
}

/// Different code for each number, so that a mix-up is detected; it cannot be compressed, because tests limit
/// the bytes of entries.
fn code(number: usize) -> Vec<u8> {
    let words = (0..125 + (number % 7 * 7) as u32).flat_map(|block| random_words(number as i64, 0, 0, block));
    words.flat_map(u32::to_le_bytes).collect()
}

/// The work of another process: it stores entries, and looks up entries of others.
#[test]
#[ignore = "other tests run it in separate processes"]
fn keeps_what_it_is_asked_to() {
    let (Some(folder), Ok(work)) = (std::env::var_os(FOLDER), std::env::var(WORK)) else { return };
    let numbers: Vec<usize> = work.split(' ').filter_map(|n| n.parse().ok()).collect();
    let [limit, first, count] = numbers[..] else { panic!("{work:?} is not what to do") };
    let cache = KernelCache::at(folder.into(), limit as u64);
    let mut number = first;
    while count == 0 || number < first + count {
        cache.keep(&key(number), &code(number));
        // Entries of other processes are either complete and correct, or missing.
        let other = number * 7919 % 1_600;
        assert!(cache.get(&key(other)).is_none_or(|found| found == code(other)), "entry {other}");
        number += 1;
    }
}

/// A process that runs [`keeps_what_it_is_asked_to`], started through the shell command `shell` if that is not empty.
fn start(folder: &Path, limit: u64, first: usize, count: usize, shell: &str) -> Child {
    let program = std::env::current_exe().unwrap();
    let name = "exec::cuda::kernel_cache::tests::keeps_what_it_is_asked_to";
    let mut command = if shell.is_empty() {
        Command::new(program)
    } else {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{shell}; exec \"$0\" \"$@\"")]).arg(program);
        command
    };
    command.args([name, "--exact", "--ignored", "--nocapture"]);
    command.env(FOLDER, folder).env(WORK, format!("{limit} {first} {count}"));
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn kept(cache: &KernelCache) -> Vec<usize> {
    (0..1_600).filter(|n| cache.seems_to_hold(&key(*n))).collect()
}

/// The files in a folder that are not entries.
fn others(folder: &Path) -> Vec<String> {
    let names = std::fs::read_dir(folder).unwrap().map(|f| f.unwrap().file_name().into_string().unwrap());
    names.filter(|n| !n.ends_with(".kernel")).collect()
}

#[test]
fn the_cache_returns_what_was_stored_and_nothing_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let cache = KernelCache::at(folder.path().join("deeper"), 1 << 20);
    assert_eq!((cache.get(&key(1)), cache.usage(), cache.clear().unwrap()), Default::default());
    cache.keep(&key(1), &code(1));
    assert_eq!(cache.get(&key(1)), Some(code(1)));
    assert_eq!(cache.get(&key(2)), None);
    let path = cache.path(&key(1));
    let whole = std::fs::read(&path).unwrap();
    for cut in (0..60).chain([whole.len() - 1]) {
        std::fs::write(&path, &whole[..cut]).unwrap();
        assert_eq!(cache.get(&key(1)), None, "cut at {cut}");
    }
    for at in (0..24).chain([24 + 3, whole.len() - 1]) {
        let mut changed = whole.clone();
        changed[at] ^= 1;
        std::fs::write(&path, &changed).unwrap();
        assert_eq!(cache.get(&key(1)), None, "changed at {at}");
    }
    // The entry of another key under this key's name, as after a collision.
    cache.keep(&key(2), &code(2));
    std::fs::copy(cache.path(&key(2)), &path).unwrap();
    assert_eq!(cache.get(&key(1)), None);
    cache.keep(&key(1), &code(1));
    assert_eq!((cache.get(&key(1)), cache.usage().entries), (Some(code(1)), 2));
    cache.remove(&key(1));
    assert_eq!((cache.get(&key(1)), cache.usage().entries), (None, 1));
}

#[test]
fn machine_code_is_compressed_and_a_false_length_is_no_entry() {
    let folder = tempfile::tempdir().unwrap();
    let cache = KernelCache::at(folder.path().to_owned(), 1 << 20);
    // As in machine code, many words occur often.
    let code: Vec<u8> = (0..40_000u32).flat_map(|at| (at % 97 * 0x0010_0425).to_le_bytes()).collect();
    cache.keep(&key(1), &code);
    assert!(cache.usage().bytes < code.len() as u64 / 2, "{:?}", cache.usage());
    assert_eq!(cache.get(&key(1)), Some(code.clone()));
    let entry = |packed: &[u8]| {
        let head = [&(key(1).len() as u64).to_le_bytes()[..], &Fnv::of(packed).to_le_bytes()].concat();
        [MAGIC, &head[..], key(1).as_bytes(), packed].concat()
    };
    let packed = compress_prepend_size(&code);
    assert_eq!(code_in(&entry(&packed), &key(1)).as_ref(), Some(&code));
    // With a correct checksum, but with a wrong length before the compressed bytes.
    for length in [0, code.len() as u32 - 1, code.len() as u32 + 1, LONGEST as u32 + 1, u32::MAX] {
        let packed = [&length.to_le_bytes()[..], &packed[4..]].concat();
        assert_eq!(code_in(&entry(&packed), &key(1)), None, "length {length}");
    }
    assert_eq!(code_in(&entry(&packed[..2]), &key(1)), None);
    // An entry of the preceding format, whose name was the checksum of the key alone.
    std::fs::write(folder.path().join(format!("{:016x}.{SUFFIX}", Fnv::of(key(2).as_bytes()))), b"SGKERN2\n").unwrap();
    assert!(cache.seems_to_hold(&key(1)) && !cache.seems_to_hold(&key(2)));
}

#[test]
fn garbage_among_the_entries_is_skipped_and_other_files_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let cache = KernelCache::at(folder.path().to_owned(), 64 << 10);
    // Garbage under entries' names: bytes, an empty file, a folder, the format of an older version.
    let at = |number| cache.path(&key(number));
    std::fs::write(at(1), [0xff; 5000]).unwrap();
    std::fs::write(at(2), []).unwrap();
    std::fs::create_dir(at(3)).unwrap();
    std::fs::write(folder.path().join("0123456789abcdef-sm_90a.kernel"), [7; 30_000]).unwrap();
    for name in ["notes.txt", "times-0123.json", "limit-mib"] {
        std::fs::write(folder.path().join(name), [9; 100_000]).unwrap();
    }
    std::fs::write(folder.path().join(".stepgraph-killed.part"), "half").unwrap();
    for number in 1..40 {
        assert_eq!(cache.get(&key(number)), None, "entry {number}");
        cache.keep(&key(number), &code(number));
    }
    let usage = cache.usage();
    assert!(usage.bytes <= cache.limit_bytes() && usage.entries > 10, "{usage:?}");
    assert_eq!(cache.get(&key(39)), Some(code(39)));
    assert_eq!(cache.get(&key(3)), None, "a folder is no entry");
    let cleared = cache.clear().unwrap();
    assert_eq!((cleared, cache.usage()), (usage, CacheUsage::default()));
    let mut rest = others(folder.path());
    rest.sort();
    assert_eq!(rest, ["limit-mib", "notes.txt", "times-0123.json"]);
    assert!(at(3).is_dir());
}

#[test]
fn the_limit_holds_and_the_least_recently_used_entries_are_removed_first() {
    let folder = tempfile::tempdir().unwrap();
    let limit = 512 << 10;
    let cache = KernelCache::at(folder.path().to_owned(), limit);
    let long_ago = SystemTime::now() - Duration::from_secs(100_000);
    let mut most = 0;
    for number in 0..1_000 {
        cache.keep(&key(number), &code(number));
        let file = File::options().write(true).open(cache.path(&key(number))).unwrap();
        file.set_modified(long_ago + Duration::from_secs(number as u64)).unwrap();
        // The first entry is used repeatedly.
        assert_eq!(cache.get(&key(0)), Some(code(0)), "after {number}");
        most = most.max(cache.usage().bytes);
    }
    assert!(most <= limit && most > limit / 4 * 3, "{most} of {limit}");
    let kept = kept(&cache);
    assert_eq!((kept[0], kept[kept.len() - 1]), (0, 999));
    assert!(kept[1..].windows(2).all(|pair| pair[1] == pair[0] + 1), "the last of them: {kept:?}");
    // A smaller limit applies immediately, also to processes that start later.
    let mut cache = cache;
    let before = cache.usage().bytes;
    cache.set_limit_mib(0).unwrap();
    assert_eq!(
        (cache.usage().bytes, std::fs::read_to_string(folder.path().join(LIMIT_FILE)).unwrap()),
        (0, "0\n".into())
    );
    assert!(before > 0);
    cache.keep(&key(1), &code(1));
    assert_eq!(cache.usage().entries, 0);
}

#[test]
fn eight_processes_write_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let limit = 1 << 20;
    // Half of them write the same entries as the others.
    let children: Vec<Child> = (0..8).map(|n| start(folder.path(), limit, n / 2 * 400, 400, "")).collect();
    let cache = KernelCache::at(folder.path().to_owned(), limit);
    let (done, is_done) = mpsc::channel::<()>();
    let watched = cache.folder().to_owned();
    let watcher = std::thread::spawn(move || {
        let cache = KernelCache::at(watched, limit);
        let mut most = 0;
        while is_done.try_recv() == Err(mpsc::TryRecvError::Empty) {
            most = most.max(cache.usage().bytes);
        }
        most
    });
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
    done.send(()).unwrap();
    let most = watcher.join().unwrap();
    assert!(most <= limit && most > limit / 2, "{most} of {limit}");
    let kept = kept(&cache);
    assert!(kept.len() > 100, "{}", kept.len());
    for number in kept {
        assert_eq!(cache.get(&key(number)), Some(code(number)), "entry {number}");
    }
    assert_eq!(others(folder.path()), [""; 0]);
}

#[test]
fn killed_writers_leave_no_damaged_entries() {
    let folder = tempfile::tempdir().unwrap();
    let (cache, limit) = (KernelCache::at(folder.path().to_owned(), 64 << 20), 64 << 20);
    for round in 0..6 {
        let mut child = start(folder.path(), limit, 0, 0, "");
        let begun = std::time::Instant::now();
        while cache.usage().entries < 20 * (round + 1) {
            assert!(begun.elapsed() < Duration::from_secs(60), "it writes nothing");
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        for number in kept(&cache) {
            assert_eq!(cache.get(&key(number)), Some(code(number)), "entry {number}");
        }
        cache.clear().unwrap();
        assert_eq!(others(folder.path()), [""; 0], "what was half written is removed");
    }
}

#[cfg(unix)]
#[test]
fn a_full_disk_and_a_read_only_folder_only_store_nothing() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    // No file of the process may be larger than one block of 512 or 1024 bytes; the process is not killed when it
    // tries.
    let mut child = start(folder.path(), 1 << 20, 0, 50, "trap '' XFSZ; ulimit -f 1");
    assert!(child.wait().unwrap().success());
    let cache = KernelCache::at(folder.path().to_owned(), 1 << 20);
    assert_eq!((cache.usage(), others(folder.path())), (CacheUsage::default(), Vec::new()));
    // A folder that cannot exist, because there is a file of that name.
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let nowhere = KernelCache::at(file.join("kernels"), 1 << 20);
    nowhere.keep(&key(1), &code(1));
    assert_eq!((nowhere.get(&key(1)), nowhere.usage().entries), (None, 0));
    // A folder that was written and then made read-only. A user who may write everywhere can write here too.
    cache.keep(&key(1), &code(1));
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o555)).unwrap();
    cache.keep(&key(2), &code(2));
    assert_eq!(cache.get(&key(1)), Some(code(1)));
    let is_written = File::create(folder.path().join("probe")).is_ok();
    assert_eq!(cache.get(&key(2)).is_some(), is_written);
    if !is_written {
        assert!(cache.clear().is_err());
    }
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    if is_written {
        println!("skipped in part: this user may write to read-only folders");
    }
}
