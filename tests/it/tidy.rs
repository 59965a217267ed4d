//! The style of the code, held by tests. A module holds rules of one kind, and shows on made-up text that they fail.

mod circles;
mod functions;
mod habits;
mod lines;
mod order;
mod publics;
mod scan;
mod slots;

fn report(mistakes: &[String]) {
    assert!(mistakes.is_empty(), "{} places:\n{}", mistakes.len(), mistakes.join("\n"));
}
