//! Names that the reports of steps refer to by number: paths, and reasons why steps ran op by op; and recordings.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The largest number of names; further ones are not stored.
const MOST: usize = 1 << 16;

#[derive(Default)]
struct Table {
    names: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, u32>,
}

impl Table {
    fn number_of(&mut self, name: &str) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        if self.names.len() == MOST {
            return 0;
        }
        let name: Arc<str> = name.into();
        self.names.push(Arc::clone(&name));
        let number = self.names.len() as u32;
        self.numbers.insert(name, number);
        number
    }

    fn name(&self, number: u32) -> Option<Arc<str>> {
        self.names.get((number as usize).checked_sub(1)?).cloned()
    }
}

#[derive(Default)]
struct Tables {
    texts: Table,
    recordings: Table,
}

/// Names by numbers from 1, shared by a session and those who write down what it reports.
#[derive(Clone, Default)]
pub struct Names(Arc<Mutex<Tables>>);

impl Names {
    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of a path or a reason, which is new where that is; 0 where there are too many.
    #[must_use]
    pub fn number_of(&self, name: &str) -> u32 {
        self.tables().texts.number_of(name)
    }

    /// The path or the reason of a number.
    #[must_use]
    pub fn name(&self, number: u32) -> Option<Arc<str>> {
        self.tables().texts.name(number)
    }

    /// The number of a recording by the id of its key, as [`Self::number_of`].
    #[must_use]
    pub fn number_of_recording(&self, id: &str) -> u32 {
        self.tables().recordings.number_of(id)
    }

    /// The id of the key of the recording with this number.
    #[must_use]
    pub fn recording(&self, number: u32) -> Option<Arc<str>> {
        self.tables().recordings.name(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_number() {
        let names = Names::default();
        let numbers = ["whole", "L1=0", "whole"].map(|name| names.clone().number_of(name));
        assert_eq!(numbers, [1, 2, 1]);
        assert_eq!((names.name(2).as_deref(), names.name(0), names.name(3)), (Some("L1=0"), None, None));
        assert_eq!((names.number_of_recording("whole"), names.number_of_recording("other")), (1, 2));
        assert_eq!((names.recording(2).as_deref(), names.recording(3)), (Some("other"), None));
    }
}
