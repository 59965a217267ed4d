//! The recordings of a run as text, and which of them ran at which steps.

use crate::studio::view_models::format::{counted, exact, micros};
use crate::tensor::Bytes;
use crate::train::{Figure, OperationsApart, RecordingSeen, RecordingsSeen, StepDifference, StepFigures};
use std::collections::{HashMap, HashSet};

/// The columns of the table after the key, with the meaning of each.
pub const COLUMNS: [(&str, &str); 6] = [
    ("State", "Whether the recording exists, and whether it may be dropped"),
    ("Uses", "Batches of steps and of evaluations that used the recording"),
    ("Last step", "The last step that used it"),
    ("Recorded in", "Time of its last planning and recording"),
    ("Nodes", "Nodes of its graph on a GPU, otherwise calls of kernels"),
    ("Memory", "Its memory besides the transient memory that all recordings share"),
];

/// The text of each column for a recording.
#[must_use]
pub fn cells(seen: &RecordingSeen) -> [String; COLUMNS.len()] {
    let facts = &seen.facts;
    let state = match (facts.is_there, facts.is_pinned) {
        _ if facts.why_eager.is_some() => "op by op",
        (true, true) => "pinned",
        (true, false) => "ready",
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
    ]
}

/// Why it was recorded, or why its steps run op by op.
#[must_use]
pub fn reason(seen: &RecordingSeen) -> String {
    match &seen.facts.why_eager {
        Some(why) => format!("runs op by op: {why}"),
        None if seen.facts.why.is_empty() => "not recorded yet".into(),
        None => seen.facts.why.to_string(),
    }
}

/// The parts of a key: its inputs, the precision, the path, and its purpose.
fn parts(key: &str) -> Vec<&str> {
    let (mut out, mut from, mut depth) = (Vec::new(), 0, 0_i32);
    for (at, c) in key.char_indices() {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            ',' if depth == 0 => {
                out.push(key[from..at].trim());
                from = at + 1;
            }
            _ => {}
        }
    }
    out.push(key[from..].trim());
    out
}

/// Names of keys that contain only what differs between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyNames {
    /// The inputs, the precision and the choices of layers that are the same in all keys.
    pub common: String,
    /// First words of parts that differ: names of inputs, or `path`. Inputs that other inputs determine are left out.
    different: Vec<String>,
    /// Layers whose choices differ, as `L3`.
    choosers: Vec<String>,
}

impl KeyNames {
    /// The names of these keys.
    #[must_use]
    pub fn of<'a>(keys: impl IntoIterator<Item = &'a str>) -> Self {
        let keys: Vec<&str> = keys.into_iter().collect();
        // The values of each part by its first word, in the order of their occurrence.
        let mut words: Vec<&str> = Vec::new();
        let mut values: HashMap<&str, Vec<&str>> = HashMap::new();
        for key in keys.iter().copied() {
            let what = purpose(key);
            for part in parts(key).into_iter().filter(|part| !what.contains(part)) {
                let word = first_word(part);
                let known = values.entry(word).or_insert_with(|| {
                    words.push(word);
                    Vec::new()
                });
                // Two values are enough to know that they differ.
                if known.len() < 2 && !known.contains(&part) {
                    known.push(part);
                }
            }
        }
        let (different, same): (Vec<&str>, Vec<&str>) = words.into_iter().partition(|word| values[word].len() > 1);
        let mut common: Vec<&str> = same.into_iter().map(|word| values[word][0]).collect();
        common.retain(|part| *part != "path whole");
        let Choosers { different: choosers, same } = Choosers::of(&keys);
        let same = same.join(" ");
        common.extend((different.contains(&"path") && !same.is_empty()).then_some(&*same));
        let common = common.join(", ");
        let different = different.into_iter().map(str::to_owned).collect();
        let mut names = Self { common, different, choosers };
        names.shorten(&keys);
        names
    }

    /// Leaves out inputs that are not needed to distinguish the keys.
    fn shorten(&mut self, keys: &[&str]) {
        let count = |names: &Self| keys.iter().map(|key| names.name(key)).collect::<HashSet<_>>().len();
        let most = count(self);
        for at in (0..self.different.len()).rev() {
            if self.different[at] != "path" {
                let word = self.different.remove(at);
                if count(self) < most {
                    self.different.insert(at, word);
                }
            }
        }
    }

    /// How a key differs from the others: first the path and the purpose, then inputs.
    #[must_use]
    pub fn name(&self, key: &str) -> String {
        let what = purpose(key);
        let own: Vec<&str> = parts(key)
            .into_iter()
            .filter(|part| !what.contains(part) && self.different.iter().any(|word| word == first_word(part)))
            .collect();
        let is_path = |part: &&&str| part.starts_with("path ");
        let is_chooser = |choice: &&str| self.choosers.iter().any(|chooser| chooser == chooser_of(choice));
        let of_path = |part: &&str| match choices(part).filter(is_chooser).collect::<Vec<_>>() {
            differ if differ.is_empty() => (*part).to_owned(),
            differ => differ.join(" "),
        };
        let path = own.iter().filter(is_path).map(of_path);
        let inputs = own.iter().filter(|part| !is_path(part)).copied();
        let others = what.into_iter().chain(inputs).map(str::to_owned);
        path.chain(others).collect::<Vec<_>>().join(", ")
    }
}

/// The layers that choose on the paths of some keys, as `L3`.
struct Choosers<'a> {
    /// Layers that some keys choose differently, or do not reach.
    different: Vec<String>,
    /// The choices of the others.
    same: Vec<&'a str>,
}

impl<'a> Choosers<'a> {
    fn of(keys: &[&'a str]) -> Self {
        let paths: Vec<&'a str> =
            keys.iter().filter_map(|key| parts(key).into_iter().find(|part| part.starts_with("path "))).collect();
        let mut counts: Vec<(&'a str, usize)> = Vec::new();
        for choice in paths.iter().flat_map(|path| choices(path)) {
            match counts.iter_mut().find(|(known, _)| *known == choice) {
                Some((_, count)) => *count += 1,
                None => counts.push((choice, 1)),
            }
        }
        let is_same = |count: usize| count == paths.len();
        let mut different: Vec<String> = Vec::new();
        for (choice, _) in counts.iter().filter(|(_, count)| !is_same(*count)) {
            if !different.iter().any(|known| known == chooser_of(choice)) {
                different.push(chooser_of(choice).to_owned());
            }
        }
        Self {
            different,
            same: counts.iter().filter(|(_, count)| is_same(*count)).map(|(choice, _)| *choice).collect(),
        }
    }
}

/// The choices in the part of a key that is its path: `L3=1` and so on; empty for the whole network.
fn choices(path: &str) -> impl Iterator<Item = &str> {
    path.split(' ').filter(|word| word.contains('='))
}

/// The layer that made a choice, as `L3`.
fn chooser_of(choice: &str) -> &str {
    choice.split_once('=').map_or(choice, |(layer, _)| layer)
}

fn first_word(part: &str) -> &str {
    part.split(' ').next().unwrap_or(part)
}

/// The purpose of a key: the text after its path.
fn purpose(key: &str) -> Vec<&str> {
    let all = parts(key);
    let path = all.iter().position(|part| part.starts_with("path "));
    path.map_or_else(Vec::new, |path| all[path + 1..].to_vec())
}

/// The counts in one line.
#[must_use]
pub fn counts_text(seen: &RecordingsSeen) -> String {
    let c = &seen.counts;
    let mut text = format!(
        "{}, {}, {} ({} made ahead), {}; {} of a budget of {}, including {} of transient memory that all share",
        counted(c.recordings as u64, "recording"),
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

/// The comparison of two recordings: the subject of each line, and the text of both.
#[must_use]
pub fn compared(difference: &StepDifference) -> Vec<[String; 3]> {
    let text = |figure| match figure {
        Figure::Count(count) => exact(count),
        Figure::Bytes(bytes) => Bytes(bytes).to_string(),
        Figure::Micros(us) => micros(us),
    };
    let [a, b] = difference.figures.each_ref().map(StepFigures::named);
    a.into_iter().zip(b).map(|((what, a), (_, b))| [what.to_owned(), text(a), text(b)]).collect()
}

/// What only one of two recordings has, as lines: its operations in order, and its kernels.
#[must_use]
pub fn only_lines(operations: &[OperationsApart], kernels: &[String]) -> Vec<String> {
    let line = |apart: &OperationsApart| {
        let times = if apart.count > 1 { format!(" ({} times)", apart.count) } else { String::new() };
        format!("{}: {} {}{times}", apart.owner, apart.kernel, apart.dims)
    };
    let kernels = (!kernels.is_empty()).then(|| format!("kernels that only this one uses: {}", kernels.join(", ")));
    operations.iter().map(line).chain(kernels).collect()
}

/// A range of the strip: the steps `from..to`, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    pub from: usize,
    pub to: usize,
}

/// The steps `from..to` in ranges for a strip that is at most `width` wide; each range is a single step if there are no
/// more steps than that.
pub fn strip(from: usize, to: usize, width: usize) -> impl ExactSizeIterator<Item = Stretch> {
    let steps = to.saturating_sub(from);
    let count = steps.min(width.max(1));
    (0..count).map(move |at| Stretch { from: from + at * steps / count, to: from + (at + 1) * steps / count })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::{PoolCounts, RecordingFacts};
    use crate::train::SeenStep;
    use crate::train::StepFigures;

    fn seen(facts: RecordingFacts) -> RecordingSeen {
        RecordingSeen {
            key: "x f32[8, 4], y i32[8], f32, path whole, training".into(),
            kind: 1,
            of: SeenStep::Kept,
            facts,
        }
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
    fn a_recording_is_described_as_text() {
        let text = cells(&seen(facts()));
        assert_eq!((&text[0][..], &text[2][..], &text[4][..], &text[5][..]), ("ready", "7", "12", "2.0 KiB"));
        assert_eq!(reason(&seen(facts())), "a coming step needs it");
        let dropped = cells(&seen(RecordingFacts { is_there: false, bytes: 0, ..facts() }));
        assert_eq!((&dropped[0][..], &dropped[5][..]), ("dropped", "–"));
        assert_eq!(cells(&seen(RecordingFacts { is_pinned: true, ..facts() }))[0], "pinned");
        let eager = cells(&seen(RecordingFacts { why_eager: Some("no".into()), ..facts() }));
        assert_eq!(eager[0], "op by op");
        assert_eq!(reason(&seen(RecordingFacts { why_eager: Some("no".into()), ..facts() })), "runs op by op: no");
        let counts = PoolCounts { eager_steps: 2, waits: 1, recordings: 3, ..PoolCounts::default() };
        let text = counts_text(&RecordingsSeen { counts, ..RecordingsSeen::default() });
        assert!(
            text.starts_with("3 recordings, 0 hits") && text.ends_with("1 step waited; 2 steps ran op by op"),
            "{text}"
        );
    }

    #[test]
    fn keys_are_named_by_their_differences() {
        let path = |path: &str, end: &str| format!("x f32[64, 1, 8, 8], y i32[64], f32, path {path}, {end}");
        let keys = [
            path("L3=1 L9=0", "training"),
            path("L3=1 L9=1", "training without metrics, first batch of a step"),
            "x f32[64, 1, 8, 8], f32, path L3=1 L9=1, evaluation".into(),
        ];
        let names = KeyNames::of(keys.iter().map(String::as_str));
        assert_eq!(names.common, "x f32[64, 1, 8, 8], y i32[64], f32, L3=1");
        let named: Vec<String> = keys.iter().map(|key| names.name(key)).collect();
        assert_eq!(
            named,
            ["L9=0, training", "L9=1, training without metrics, first batch of a step", "L9=1, evaluation"]
        );
        let keys = [
            "x i32[16, 64], y i32[16, 64], bf16, path whole, training",
            "x i32[16, 8], y i32[16, 8], bf16, path whole, training",
        ];
        let names = KeyNames::of(keys);
        assert_eq!((&*names.common, &*names.name(keys[1])), ("bf16", "training, x i32[16, 8]"));
        // If an exit was taken, no layer after it is reached; both inputs are named if one alone does not distinguish
        // the keys.
        let exits =
            ["x f32[4], y i32[4], f32, path L1=0 L4=1, training", "x f32[4], y i32[4], f32, path L1=1, training"];
        let names = KeyNames::of(exits);
        assert_eq!(exits.map(|key| names.name(key)), ["L1=0 L4=1, training", "L1=1, training"]);
        let both = ["a f32[4], b f32[4], f32", "a f32[8], b f32[4], f32", "a f32[4], b f32[8], f32"]
            .map(|inputs| format!("{inputs}, path whole, training"));
        let names = KeyNames::of(both.iter().map(String::as_str));
        assert_eq!(names.name(&both[1]), "training, a f32[8], b f32[4]");
        let alone = KeyNames::of([keys[0]]);
        assert_eq!((&*alone.common, &*alone.name(keys[0])), ("x i32[16, 64], y i32[16, 64], bf16", "training"));
    }

    #[test]
    fn a_difference_lists_numbers_and_operations() {
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
        assert_eq!((lines[2].as_str(), lines.len()), ("kernels that only this one uses: gemm, fill", 3));
        assert!(only_lines(&[], &[]).is_empty());
    }

    #[test]
    fn a_strip_has_every_step_once() {
        assert_eq!(strip(4, 4, 10).len(), 0);
        let of = |from, to, width| strip(from, to, width).map(|s| (s.from, s.to)).collect::<Vec<_>>();
        assert_eq!(of(5, 8, 10), [(5, 6), (6, 7), (7, 8)]);
        assert_eq!(of(0, 9, 3), [(0, 3), (3, 6), (6, 9)]);
        let all = of(7, 1007, 64);
        assert_eq!((all.len(), all[0].0, all[63].1), (64, 7, 1007));
        assert!(all.windows(2).all(|pair| pair[0].1 == pair[1].0));
    }
}
