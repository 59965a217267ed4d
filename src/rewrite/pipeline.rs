//! Runs the passes, and the verifier after them.

use super::history::PassRun;
use super::pass::{Goal, Machine, Pass};
use super::passes::PASSES;
use crate::lower::{Program, ProgramError, verify};
use crate::tensor::DType;
use thiserror::Error;

/// A program after all passes.
#[derive(Clone, Debug, PartialEq)]
pub struct Rewritten {
    pub program: Program,
    /// The passes that ran, in order, with what each changed.
    pub runs: Vec<PassRun>,
}

/// The program after one pass.
#[derive(Clone, Debug)]
pub struct Stage {
    pub pass: Pass,
    pub run: PassRun,
    pub program: Program,
}

/// A pass made a program that violates a rule: a defect of this program.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("the pass {pass} broke the program: {source}")]
pub struct RewriteError {
    pub pass: &'static str,
    pub source: ProgramError,
}

/// The passes of a program for a goal.
fn passes(program: &Program, goal: &Goal) -> impl Iterator<Item = Pass> {
    // No GPU runs steps in f64: selection reports that, and there is nothing to rewrite.
    let none = goal.machine == Machine::Gpu && program.real == DType::F64;
    let goal = *goal;
    PASSES.into_iter().filter(move |pass| !none && (pass.applies)(&goal))
}

fn checked(pass: &Pass, program: &Program) -> Result<(), RewriteError> {
    verify(program).map_err(|source| RewriteError { pass: pass.name, source })
}

/// Runs every pass for a goal. Values keep their ids; new ones come last.
///
/// # Errors
/// If a pass makes an invalid program.
pub fn rewrite(program: &Program, goal: &Goal) -> Result<Rewritten, RewriteError> {
    let (mut current, mut runs) = (program.clone(), Vec::new());
    for pass in passes(program, goal) {
        let (next, run) = pass.apply(current, goal);
        current = next;
        if cfg!(debug_assertions) && run.changed() {
            checked(&pass, &current)?;
        }
        runs.push(run);
    }
    if !cfg!(debug_assertions)
        && let Some(last) = passes(program, goal).last()
        && let Err(error) = checked(&last, &current)
    {
        // The responsible pass is found by verifying after each pass.
        return Err(trace(program, goal).err().unwrap_or(error));
    }
    Ok(Rewritten { program: current, runs })
}

/// The program after each pass, verified: the steps of [`rewrite`].
///
/// # Errors
/// If a pass makes an invalid program.
pub fn trace(program: &Program, goal: &Goal) -> Result<Vec<Stage>, RewriteError> {
    let (mut current, mut stages) = (program.clone(), Vec::new());
    for pass in passes(program, goal) {
        let (next, run) = pass.apply(current, goal);
        checked(&pass, &next)?;
        stages.push(Stage { pass, run, program: next.clone() });
        current = next;
    }
    Ok(stages)
}

#[cfg(test)]
mod tests {
    use super::super::history::origins;
    use super::super::rewriter::Rewriter;
    use super::super::sample::{classifier, lowered};
    use super::*;
    use crate::lower::FilterOrder;
    use crate::model::Precision;
    use std::collections::BTreeSet;

    const DENSE: &str = r#"{"type": "dense", "units": 128, "activation": "relu"}"#;

    #[test]
    fn a_trace_ends_with_the_rewritten_program() {
        for goal in [Goal::cpu(), Goal::gpu(Precision::F32), Goal::gpu(Precision::Bf16), Goal::gpu(Precision::F16)] {
            let program = lowered(&classifier(DENSE, "adam"), FilterOrder::Ohwi);
            let (rewritten, stages) = (rewrite(&program, &goal).unwrap(), trace(&program, &goal).unwrap());
            assert_eq!(stages.last().unwrap().program, rewritten.program);
            assert_eq!(stages.iter().map(|s| s.run.clone()).collect::<Vec<_>>(), rewritten.runs);
            // The origin of every operation is known, and no lowered operation is lost.
            let origins = origins(program.ops.len(), &rewritten.runs);
            assert_eq!(origins.len(), rewritten.program.ops.len());
            let found: BTreeSet<usize> = origins.iter().flatten().copied().collect();
            assert_eq!(found, (0..program.ops.len()).collect());
        }
    }

    #[test]
    fn reference_programs_on_a_cpu_are_not_changed() {
        let program = lowered(&classifier(DENSE, "adam"), FilterOrder::Hwio);
        let rewritten = rewrite(&program, &Goal { fuses: false, ..Goal::cpu() }).unwrap();
        assert_eq!((rewritten.program, rewritten.runs), (program, Vec::new()));
    }

    #[test]
    fn an_error_names_the_pass() {
        let lose = Pass {
            name: "lose",
            about: "Loses the first operation.",
            when: "in this test",
            applies: |_| true,
            run: |rw: &mut Rewriter, _| rw.remove(0),
        };
        let (program, run) = lose.apply(lowered(&classifier(DENSE, "adam"), FilterOrder::Hwio), &Goal::cpu());
        assert_eq!((run.before - run.after, run.changes.len()), (1, 1));
        let error = checked(&lose, &program).unwrap_err().to_string();
        assert!(error.starts_with("the pass lose broke the program: op 0"), "{error}");
    }
}
