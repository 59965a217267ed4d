//! Compares the kernel nodes of a captured graph with the launches of the plan. It works on lists of planned and read
//! values, without calling the driver.

use super::arguments::{FLAGS, MAX_ARGS};
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// One kernel launch according to the plan.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PlannedLaunch<F> {
    pub(super) function: F,
    /// `[members * MAX_ARGS]`
    pub(super) args: Vec<u64>,
    /// The operation of each member; `None` for the data feed.
    pub(super) ops: Vec<Option<usize>>,
    /// Words that contain a general member's numbers and are not zero.
    pub(super) numbers: usize,
}

impl<F> PlannedLaunch<F> {
    /// The operation that a word of the arguments belongs to, and the word's index among the operation's.
    pub(super) fn owner(&self, word: usize) -> (Option<usize>, usize) {
        (self.ops.get(word / MAX_ARGS).copied().flatten(), word % MAX_ARGS)
    }

    /// Words that are addresses; unused words, flags and numbers are not.
    pub(super) fn addresses(&self) -> usize {
        let used = self.args.iter().enumerate().filter(|(word, arg)| word % MAX_ARGS != FLAGS && **arg != 0);
        used.count() - self.numbers
    }

    /// The word of the arguments that contains `address` for `op`. The slot itself is tried first; a pass after a
    /// library's product has its own slots.
    pub(super) fn word_of(&self, op: usize, slot: usize, address: u64) -> Option<usize> {
        let member = self.ops.iter().position(|o| *o == Some(op))?;
        let own = member * MAX_ARGS..member * MAX_ARGS + FLAGS;
        let first = own.start + slot;
        std::iter::once(first).chain(own).find(|word| self.args.get(*word) == Some(&address))
    }
}

/// One kernel node as it was read.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct KernelNode<N, F> {
    pub(super) node: N,
    pub(super) function: F,
    pub(super) args: Vec<u64>,
}

/// A difference between a graph and the plan.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Difference {
    /// A word of a launch's arguments.
    Argument { launch: usize, word: usize, planned: u64, found: u64 },
    /// A launch without a node.
    Missing { launch: usize },
    /// Nodes that no launch accounts for.
    Surplus { count: usize },
}

/// The node of each planned launch, in the order of the launches. Nodes of one function are in the order in which they
/// were launched.
///
/// # Errors
/// The first difference.
pub(super) fn pair<N: Copy, F: Copy + Eq + Hash>(
    planned: &[PlannedLaunch<F>],
    found: &[KernelNode<N, F>],
) -> Result<Vec<N>, Difference> {
    let mut by_function: HashMap<F, VecDeque<&KernelNode<N, F>>> = HashMap::new();
    for node in found {
        by_function.entry(node.function).or_default().push_back(node);
    }
    let mut nodes = Vec::with_capacity(planned.len());
    for (index, launch) in planned.iter().enumerate() {
        let node = by_function.get_mut(&launch.function).and_then(VecDeque::pop_front);
        let node = node.ok_or(Difference::Missing { launch: index })?;
        if let Some((word, planned, found)) = first_difference(&launch.args, &node.args) {
            return Err(Difference::Argument { launch: index, word, planned, found });
        }
        nodes.push(node.node);
    }
    match by_function.values().map(VecDeque::len).sum::<usize>() {
        0 => Ok(nodes),
        count => Err(Difference::Surplus { count }),
    }
}

/// The first word in which two lists differ; missing words count as 0.
fn first_difference(planned: &[u64], found: &[u64]) -> Option<(usize, u64, u64)> {
    let at = |list: &[u64], word: usize| list.get(word).copied().unwrap_or(0);
    let words = 0..planned.len().max(found.len());
    words.map(|word| (word, at(planned, word), at(found, word))).find(|(_, planned, found)| planned != found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A launch of operations with one address in each of the first slots.
    fn launch(function: char, members: &[(Option<usize>, &[u64])]) -> PlannedLaunch<char> {
        let args = members.iter().flat_map(|(_, addresses)| {
            let mut row = [0; MAX_ARGS];
            row[..addresses.len()].copy_from_slice(addresses);
            row
        });
        let ops = members.iter().map(|m| m.0).collect();
        PlannedLaunch { function, args: args.collect(), ops, numbers: 0 }
    }

    fn nodes_of(launches: &[&PlannedLaunch<char>]) -> Vec<KernelNode<usize, char>> {
        let node =
            |(node, l): (usize, &&PlannedLaunch<char>)| KernelNode { node, function: l.function, args: l.args.clone() };
        launches.iter().enumerate().map(node).collect()
    }

    #[test]
    fn nodes_of_one_function_are_matched_in_launch_order() {
        let planned = [
            launch('a', &[(Some(0), &[256, 512])]),
            launch('b', &[(Some(1), &[512])]),
            launch('a', &[(Some(2), &[768])]),
        ];
        // A node of another function may be anywhere between.
        let found = nodes_of(&[&planned[1], &planned[0], &planned[2]]);
        assert_eq!(pair(&planned, &found), Ok(vec![1, 0, 2]));
        let swapped = nodes_of(&[&planned[2], &planned[1], &planned[0]]);
        assert_eq!(
            pair(&planned, &swapped),
            Err(Difference::Argument { launch: 0, word: 0, planned: 256, found: 768 })
        );
    }

    #[test]
    fn every_word_of_every_node_is_compared() {
        let planned = [
            launch('f', &[(None, &[64, 128]), (Some(3), &[256])]),
            launch('a', &[(Some(0), &[256, 512])]),
            launch('g', &[(Some(1), &[512]), (Some(2), &[768, 1024])]),
        ];
        let all: Vec<_> = planned.iter().collect();
        for (index, one) in planned.iter().enumerate() {
            for word in 0..one.args.len() {
                let mut found = nodes_of(&all);
                found[index].args[word] ^= 64;
                let (expected, moved) = (one.args[word], one.args[word] ^ 64);
                let difference = Difference::Argument { launch: index, word, planned: expected, found: moved };
                assert_eq!(pair(&planned, &found), Err(difference));
            }
        }
        assert_eq!(planned[2].owner(0), (Some(1), 0));
        assert_eq!(planned[2].owner(MAX_ARGS + 1), (Some(2), 1));
        assert_eq!(planned[0].owner(1), (None, 1));
        assert_eq!(planned[0].owner(MAX_ARGS), (Some(3), 0));
    }

    #[test]
    fn missing_and_additional_nodes_are_differences() {
        let planned = [launch('a', &[(Some(0), &[256])]), launch('a', &[(Some(1), &[512])])];
        let found = nodes_of(&[&planned[0], &planned[1]]);
        assert_eq!(pair(&planned, &found[..1]), Err(Difference::Missing { launch: 1 }));
        assert_eq!(pair(&planned[..1], &found), Err(Difference::Surplus { count: 1 }));
        let mut short = found;
        short[1].args.clear();
        let lacks = Difference::Argument { launch: 1, word: 0, planned: 512, found: 0 };
        assert_eq!(pair(&planned, &short), Err(lacks));
    }

    #[test]
    fn an_address_is_found_in_the_slot_of_its_operation_or_in_that_of_a_pass() {
        let mut shared = launch('g', &[(Some(1), &[512, 768]), (Some(2), &[768, 768])]);
        shared.args[FLAGS] = 4;
        assert_eq!(shared.word_of(1, 1, 768), Some(1));
        assert_eq!(shared.word_of(2, 1, 768), Some(MAX_ARGS + 1));
        // Slot 5 of the operation is slot 0 of the pass.
        assert_eq!(shared.word_of(1, 5, 512), Some(0));
        assert_eq!((shared.word_of(1, 0, 4), shared.word_of(3, 0, 512)), (None, None));
        assert_eq!(shared.addresses(), 4);
        shared.args[FLAGS - 1] = 8192;
        shared.numbers = 1;
        assert_eq!(shared.addresses(), 4);
    }
}
