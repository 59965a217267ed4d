//! The origin of each operation: over one pass, and over all of them.

use crate::lower::Op;
use crate::tensor::plural;
use serde::Serialize;
use std::fmt;

/// What happened to an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum How {
    /// Several operations became one.
    Fused,
    /// It is one of several operations made from the same one.
    Split,
    /// It has other arguments or dimensions.
    Changed,
    /// It is at another place in the order.
    Moved,
    Added,
    Removed,
}

impl How {
    pub const ALL: [Self; 6] = [Self::Fused, Self::Split, Self::Changed, Self::Moved, Self::Added, Self::Removed];

    /// The word in listings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fused => "fused",
            Self::Split => "split",
            Self::Changed => "changed",
            Self::Moved => "moved",
            Self::Added => "added",
            Self::Removed => "removed",
        }
    }
}

/// A difference between an operation before and after a pass.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    pub how: How,
    /// The numbers of the operations that it was made from, in the program before the pass, ascending.
    pub before: Vec<usize>,
    /// Its number in the program after the pass; `None` if it was removed.
    pub after: Option<usize>,
}

/// What a pass did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PassRun {
    /// The name of the pass.
    pub name: &'static str,
    /// Operations before the pass, and after it.
    pub before: usize,
    pub after: usize,
    /// Values that the pass added to the program, and values whose type or place it changed.
    pub values_added: usize,
    pub values_changed: usize,
    /// Everything that changed, in the order of the program after the pass; removed operations come last. All other
    /// operations kept their order.
    pub changes: Vec<Change>,
}

impl PassRun {
    /// Whether the program changed.
    #[must_use]
    pub fn changed(&self) -> bool {
        !self.changes.is_empty() || self.values_added + self.values_changed > 0
    }

    /// The number of changes of a kind.
    #[must_use]
    pub fn count(&self, how: How) -> usize {
        self.changes.iter().filter(|change| change.how == how).count()
    }

    /// For each operation after the pass, the numbers of the operations that it was made from, before the pass.
    #[must_use]
    pub fn origins(&self) -> Vec<Vec<usize>> {
        let mut out: Vec<Option<Vec<usize>>> = vec![None; self.after];
        let mut kept = vec![true; self.before];
        for change in &self.changes {
            change.before.iter().for_each(|&number| kept[number] = false);
            if let Some(after) = change.after {
                out[after] = Some(change.before.clone());
            }
        }
        let mut kept = (0..self.before).filter(|&number| kept[number]);
        out.into_iter().map(|origins| origins.unwrap_or_else(|| kept.next().into_iter().collect())).collect()
    }
}

/// A pass on one line: its name, the operations before and after it, and the number of changes of each kind.
impl fmt::Display for PassRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = How::ALL.iter().map(|how| (self.count(*how), how.name().to_owned()));
        let value = |n: usize, what: &str| (n, format!("{} {what}", plural(n as u64, "value")));
        let values = [value(self.values_added, "added"), value(self.values_changed, "changed")];
        let parts: Vec<String> =
            counts.chain(values).filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
        let what = if parts.is_empty() { "nothing".to_owned() } else { parts.join(", ") };
        write!(f, "{:<26} {:>6} -> {:<6} {what}", self.name, self.before, self.after)
    }
}

/// For each operation of the rewritten program, the numbers of the operations that it was made from, in the lowered
/// program.
#[must_use]
pub fn origins(lowered: usize, runs: &[PassRun]) -> Vec<Vec<usize>> {
    let start: Vec<Vec<usize>> = (0..lowered).map(|number| vec![number]).collect();
    runs.iter().filter(|run| !run.changes.is_empty()).fold(start, |before, run| {
        let of = |numbers: Vec<usize>| {
            let mut all: Vec<usize> = numbers.into_iter().flat_map(|number| before[number].iter().copied()).collect();
            all.sort_unstable();
            all.dedup();
            all
        };
        run.origins().into_iter().map(of).collect()
    })
}

/// The names of the plain operations that an operation consists of: those that were fused into it, or its own.
pub(super) fn parts(op: &Op) -> Vec<String> {
    if op.fused.is_empty() { vec![op.kind.name().to_owned()] } else { op.fused.clone() }
}

/// Adds another operation to the history of one that now does its work too.
pub(super) fn absorb(into: &mut Op, other: &Op) {
    if into.fused.is_empty() {
        into.fused.push(into.kind.name().to_owned());
    }
    into.fused.extend(parts(other));
    for node in &other.nodes {
        if !into.nodes.contains(node) {
            into.nodes.push(*node);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_follow_operations_through_several_passes() {
        let change = |how, before: &[usize], after| Change { how, before: before.to_vec(), after };
        let run = |before, after, changes| PassRun {
            name: "test",
            before,
            after,
            values_added: 0,
            values_changed: 0,
            changes,
        };
        // 0 and 1 become one at the place of 1; then an operation is added at the start, and the last one is removed.
        let fused = run(4, 3, vec![change(How::Fused, &[0, 1], Some(0))]);
        assert_eq!(fused.origins(), [vec![0, 1], vec![2], vec![3]]);
        let rest = run(3, 3, vec![change(How::Added, &[], Some(0)), change(How::Removed, &[2], None)]);
        assert_eq!(rest.origins(), [vec![], vec![0], vec![1]]);
        assert_eq!(origins(4, &[fused.clone(), rest]), [vec![], vec![0, 1], vec![2]]);
        assert_eq!(fused.to_string(), format!("{:<26}      4 -> 3      1 fused", "test"));
    }
}
