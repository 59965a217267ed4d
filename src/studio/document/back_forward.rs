//! Values before and after a current one: for undo and redo, and for going back and forward.

/// The values on both sides of a current one, which their owner has; at most `LIMIT` before it.
#[derive(Debug)]
pub struct BackForward<T, const LIMIT: usize> {
    back: Vec<T>,
    forward: Vec<T>,
}

impl<T, const LIMIT: usize> Default for BackForward<T, LIMIT> {
    fn default() -> Self {
        Self { back: Vec::new(), forward: Vec::new() }
    }
}

impl<T, const LIMIT: usize> BackForward<T, LIMIT> {
    /// Records the value before a new current one. What came after it is dropped.
    pub fn record(&mut self, before: T) {
        self.back.push(before);
        if self.back.len() > LIMIT {
            self.back.remove(0);
        }
        self.end_here();
    }

    /// Drops the values after the current one.
    pub fn end_here(&mut self) {
        self.forward.clear();
    }

    #[must_use]
    pub const fn can_go_back(&self) -> bool {
        !self.back.is_empty()
    }

    #[must_use]
    pub const fn can_go_forward(&self) -> bool {
        !self.forward.is_empty()
    }

    /// Changes the current value to the one before it; false if there is none.
    pub fn go_back(&mut self, current: &mut T) -> bool {
        change(&mut self.back, current, &mut self.forward)
    }

    /// Changes the current value to the one after it; false if there is none.
    pub fn go_forward(&mut self, current: &mut T) -> bool {
        change(&mut self.forward, current, &mut self.back)
    }

    /// Replaces every value, or removes it.
    pub fn replace(&mut self, into: impl Fn(&T) -> Option<T>) {
        for list in [&mut self.back, &mut self.forward] {
            *list = list.iter().filter_map(&into).collect();
        }
    }
}

/// Takes the current value from one side and puts the old one on the other side.
fn change<T>(from: &mut Vec<T>, current: &mut T, to: &mut Vec<T>) -> bool {
    let Some(next) = from.pop() else { return false };
    to.push(std::mem::replace(current, next));
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_values_are_dropped() {
        let (mut current, mut others) = (0, BackForward::<i32, 2>::default());
        for next in 1..=4 {
            others.record(std::mem::replace(&mut current, next));
        }
        assert!(others.go_back(&mut current) && others.go_back(&mut current) && !others.go_back(&mut current));
        assert_eq!((current, others.can_go_back(), others.can_go_forward()), (2, false, true));
        others.replace(|value| (*value != 3).then_some(value * 10));
        assert!(others.go_forward(&mut current) && !others.go_forward(&mut current));
        assert_eq!(current, 40);
        assert!(others.go_back(&mut current) && others.can_go_forward());
        others.record(current);
        assert!(!others.can_go_forward());
    }
}
