//! Rewriting: a lowered program becomes the one that runs best on a kind of machine.
//!
//! Lowering writes one plain operation for everything in the step. A pass changes some of them: it fuses neighbours,
//! chooses the width of values, or moves updates. Each pass is a file in `passes/` with a function from
//! [`Program`](crate::lower::Program) to `Program`; [`PASSES`] is the table of their names and conditions, in order.
//! They share the `Rewriter`, which keeps the history: the names and nodes of what was fused, and the numbers that
//! operations had before the pass.
//!
//! The program's verifier runs after every pass in debug builds, in tests and in [`trace`]; in a release build it runs
//! once, after the last pass. If it fails there, all passes run again to find the one that is responsible.

mod epilogue;
mod history;
mod pass;
mod passes;
mod pipeline;
mod print;
mod rewriter;
#[cfg(test)]
mod sample;
mod tiles;
mod updates;
mod uses;

pub use history::{Change, How, PassRun, origins};
pub use pass::{Goal, Machine, Pass};
pub(crate) use passes::LARGE_SCORES;
pub use passes::{PASSES, stored_in_half};
pub use pipeline::{RewriteError, Rewritten, Stage, rewrite, trace};
pub use print::changes_text;
pub(crate) use tiles::{LONE_UPDATE_TILE, MOST_TOGETHER};
