//! Names that the reports of steps refer to by number: paths, and reasons why steps ran op by op.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The largest number of names; further ones are not stored.
const MOST: usize = 1 << 16;

#[derive(Default)]
struct Table {
    names: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, u32>,
}

/// Names by numbers from 1, shared by a session and the code that writes its reports.
#[derive(Clone, Default)]
pub struct Names(Arc<Mutex<Table>>);

impl Names {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of a name, which is added if it is new; 0 if there are too many.
    #[must_use]
    pub fn number_of(&self, name: &str) -> u32 {
        let mut table = self.table();
        if let Some(number) = table.numbers.get(name) {
            return *number;
        }
        if table.names.len() == MOST {
            return 0;
        }
        let name: Arc<str> = name.into();
        table.names.push(Arc::clone(&name));
        let number = table.names.len() as u32;
        table.numbers.insert(name, number);
        number
    }

    /// The name of a number.
    #[must_use]
    pub fn name(&self, number: u32) -> Option<Arc<str>> {
        self.table().names.get((number as usize).checked_sub(1)?).cloned()
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
    }
}
