//! The recordings of a run in words, and which of them ran where in it.

use crate::studio::view_models::format::{counted, exact, micros};
use crate::tensor::Bytes;
use crate::train::{OperationsApart, RecordingSeen, RecordingsSeen, StepDifference, StepFigures};

/// The columns of the table behind the key, with what each means.
pub const COLUMNS: [(&str, &str); 7] = [
    ("State", "Whether the recording is there, and whether it may be dropped"),
    ("Steps", "Steps and other uses that found it there"),
    ("Last step", "The last step that used it"),
    ("Recorded in", "Planning and recording, the last time"),
    ("Nodes", "Nodes of its graph on a GPU, otherwise calls of kernels"),
    ("Memory", "What it takes besides the transient memory that all share"),
    ("Why", "Why it was recorded"),
];

/// The text of each column for a recording.
#[must_use]
pub fn cells(seen: &RecordingSeen) -> [String; COLUMNS.len()] {
    let facts = &seen.facts;
    let state = match (facts.is_there, facts.is_pinned) {
        _ if facts.why_eager.is_some() => "op by op",
        (true, true) => "pinned",
        (true, false) => "there",
        (false, _) if facts.captures > 0 => "dropped",
        (false, _) => "none",
    };
    let or_dash = |is_known: bool, text: String| if is_known { text } else { "–".to_owned() };
    let nodes = if facts.nodes > 0 { facts.nodes } else { facts.calls };
    [
        state.to_owned(),
        exact(facts.hits),
        or_dash(facts.last_step > 0, exact(facts.last_step)),
        or_dash(facts.captures > 0, micros(facts.capture_us as f64)),
        or_dash(nodes > 0, exact(nodes as u64)),
        or_dash(facts.bytes > 0, Bytes(facts.bytes).to_string()),
        facts.why_eager.clone().unwrap_or_else(|| facts.why.to_string()),
    ]
}

/// The counts in one line.
#[must_use]
pub fn counts_text(seen: &RecordingsSeen) -> String {
    let c = &seen.counts;
    let mut text = format!(
        "{} there, {}, {} ({} made ahead), {}; {} of {} with {} of transient memory",
        exact(c.recordings as u64),
        counted(c.hits, "hit"),
        counted(c.misses, "miss"),
        exact(c.made_ahead),
        counted(c.evictions, "eviction"),
        Bytes(c.bytes),
        Bytes(c.budget_bytes),
        Bytes(c.arena_bytes),
    );
    if c.waits > 0 {
        text.push_str(&format!("; {} waited", counted(c.waits, "step")));
    }
    if c.eager_steps > 0 {
        text.push_str(&format!("; {} ran op by op", counted(c.eager_steps, "step")));
    }
    text
}

/// What is compared of two recordings, with the text for one of them.
const COMPARED: [(&str, fn(&StepFigures) -> String); 6] = [
    ("Operations", |figures| exact(figures.operations as u64)),
    ("Kernels", |figures| exact(figures.kernels as u64)),
    ("Arithmetic", |figures| exact(figures.flops)),
    ("Bytes moved", |figures| Bytes(figures.bytes_moved).to_string()),
    ("Transient memory", |figures| Bytes(figures.transient_bytes).to_string()),
    ("Estimated time", |figures| micros(figures.estimated_us)),
];

/// The figures of two recordings: what each line compares, and the text of either.
#[must_use]
pub fn compared(difference: &StepDifference) -> Vec<[String; 3]> {
    let line = |(what, of): (&str, fn(&StepFigures) -> String)| {
        let [a, b] = difference.figures.each_ref().map(of);
        [what.to_owned(), a, b]
    };
    COMPARED.into_iter().map(line).collect()
}

/// What only one of two recordings has, in lines: its operations in their order, and its kernels.
#[must_use]
pub fn only_lines(operations: &[OperationsApart], kernels: &[String]) -> Vec<String> {
    let line = |apart: &OperationsApart| {
        let times = if apart.count > 1 { format!(" ({} times)", apart.count) } else { String::new() };
        format!("{}: {} {}{times}", apart.owner, apart.kernel, apart.dims)
    };
    let kernels = (!kernels.is_empty()).then(|| format!("kernels of it alone: {}", kernels.join(", ")));
    operations.iter().map(line).chain(kernels).collect()
}

/// A stretch of the strip: the steps `from..to`, counted from 0, and the number of the recording that most of them
/// used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    pub from: usize,
    pub to: usize,
    pub kind: u16,
}

/// The stretches of a strip that is `width` wide at most; each is a step where there are no more than that.
#[must_use]
pub fn strip(kinds: &[u16], width: usize) -> Vec<Stretch> {
    let count = kinds.len().min(width.max(1));
    let stretch = |at: usize| {
        let (from, to) = (at * kinds.len() / count, (at + 1) * kinds.len() / count);
        Stretch { from, to, kind: most_frequent(&kinds[from..to]) }
    };
    (0..count).map(stretch).collect()
}

/// The number that comes most often; of equals the smallest.
fn most_frequent(kinds: &[u16]) -> u16 {
    let mut sorted = kinds.to_vec();
    sorted.sort_unstable();
    let runs = sorted.chunk_by(|a, b| a == b);
    runs.fold((0, 0), |best, run| if run.len() > best.1 { (run[0], run.len()) } else { best }).0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::{PoolCounts, RecordingFacts};

    fn seen(facts: RecordingFacts) -> RecordingSeen {
        RecordingSeen { key: "x f32[8, 4], y i32[8], f32, path whole, training".into(), kind: 1, facts }
    }

    fn facts() -> RecordingFacts {
        RecordingFacts {
            is_there: true,
            hits: 1200,
            last_step: 7,
            captures: 1,
            capture_us: 1500,
            calls: 12,
            bytes: 2048,
            why: "a coming step needs it".into(),
            ..RecordingFacts::default()
        }
    }

    #[test]
    fn a_recording_is_described_in_words() {
        let text = cells(&seen(facts()));
        assert_eq!((&text[0][..], &text[2][..], &text[4][..], &text[5][..]), ("there", "7", "12", "2.0 KiB"));
        assert_eq!(text[6], "a coming step needs it");
        let dropped = cells(&seen(RecordingFacts { is_there: false, bytes: 0, ..facts() }));
        assert_eq!((&dropped[0][..], &dropped[5][..]), ("dropped", "–"));
        assert_eq!(cells(&seen(RecordingFacts { is_pinned: true, ..facts() }))[0], "pinned");
        let eager = cells(&seen(RecordingFacts { why_eager: Some("no".into()), ..facts() }));
        assert_eq!((&eager[0][..], &eager[6][..]), ("op by op", "no"));
        let counts = PoolCounts { eager_steps: 2, waits: 1, recordings: 3, ..PoolCounts::default() };
        let text = counts_text(&RecordingsSeen { counts, ..RecordingsSeen::default() });
        assert!(text.starts_with("3 there, 0 hits") && text.ends_with("1 step waited; 2 steps ran op by op"), "{text}");
    }

    #[test]
    fn a_difference_is_lines_of_figures_and_of_operations() {
        let figures = |operations| StepFigures { operations, bytes_moved: 2048, ..StepFigures::default() };
        let difference = StepDifference { figures: [figures(9), figures(7)], ..StepDifference::default() };
        let lines = compared(&difference);
        assert_eq!(lines[0], ["Operations", "9", "7"].map(str::to_owned));
        assert_eq!(lines[3][1], "2.0 KiB");
        let apart = |count| OperationsApart {
            owner: "L2:Dense".into(),
            kernel: "gemm".into(),
            dims: "m=4 n=3 k=3".into(),
            count,
        };
        let lines = only_lines(&[apart(1), apart(2)], &["gemm".into(), "fill".into()]);
        assert_eq!(lines[0], "L2:Dense: gemm m=4 n=3 k=3");
        assert_eq!(lines[1], "L2:Dense: gemm m=4 n=3 k=3 (2 times)");
        assert_eq!((lines[2].as_str(), lines.len()), ("kernels of it alone: gemm, fill", 3));
        assert!(only_lines(&[], &[]).is_empty());
    }

    #[test]
    fn a_strip_shows_what_most_steps_of_a_stretch_used() {
        assert_eq!(strip(&[], 10), []);
        let of = |kinds: &[u16], width| strip(kinds, width).iter().map(|s| s.kind).collect::<Vec<_>>();
        assert_eq!(of(&[1, 2, 3], 10), [1, 2, 3]);
        assert_eq!(of(&[1, 1, 2, 3, 3, 2, 3, 3, 3], 3), [1, 3, 3]);
        let all = strip(&[7; 1000], 64);
        assert_eq!((all.len(), all[0].from, all[63].to), (64, 0, 1000));
        assert!(all.windows(2).all(|pair| pair[0].to == pair[1].from));
    }
}
