//! The style of the code, checked by tests. Each module has the rules of one kind, and shows with example texts that
//! they can fail.

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
