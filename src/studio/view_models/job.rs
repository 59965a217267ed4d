//! Background jobs, as they are shown.

use crate::studio::commands::UiCommand;
use crate::studio::commands::choices::JobKind;

/// A background job.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    pub kind: JobKind,
    pub name: String,
    /// From 0 to 1; `None` if it is not known.
    pub progress: Option<f32>,
}

impl Job {
    /// A job of a kind.
    #[must_use]
    pub fn new(kind: JobKind, name: impl Into<String>, progress: Option<f32>) -> Self {
        Self { kind, name: name.into(), progress }
    }

    /// The command that cancels it, if its kind can be cancelled.
    #[must_use]
    pub fn cancel(&self) -> Option<UiCommand> {
        self.kind.can_be_cancelled().then_some(UiCommand::CancelJob(self.kind))
    }

    /// The name with the progress: `Compare planners, 40%`.
    #[must_use]
    pub fn title(&self) -> String {
        match self.progress {
            Some(share) => format!("{}, {:.0}%", self.name, share * 100.0),
            None => self.name.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_shows_its_progress_and_how_to_cancel_it() {
        let job = Job::new(JobKind::Compare, "Compare planners", Some(0.4));
        assert_eq!(job.title(), "Compare planners, 40%");
        assert_eq!(job.cancel(), Some(UiCommand::CancelJob(JobKind::Compare)));
        let writing = Job::new(JobKind::Files, "Read or write files", None);
        assert_eq!((writing.title().as_str(), writing.cancel()), ("Read or write files", None));
    }
}
