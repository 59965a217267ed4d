//! Groups of parameters: parameters of one group are run by exactly the same steps of a network.
//!
//! Parameters that a step leaves out have no gradient in it and are not updated, and an optimizer that corrects its
//! moments needs the number of updates of each parameter. Parameters that always run together share that number: group
//! 0 contains those that every step runs, whose count is that of the steps. Each group is one range of the flat
//! vectors.

use super::checked::Layer;
use super::param::LayerId;
use std::collections::HashMap;

/// A condition for a layer to run: a choosing layer, and the index of its list; `None` for the list that follows an
/// exit.
type Condition = (LayerId, Option<usize>);

/// The group of each of `count` parameters, by number.
pub(super) fn groups(layers: &[Layer], roots: &[LayerId], count: usize) -> Vec<u32> {
    let mut walk = Walk { layers, needed: vec![Vec::new(); count] };
    walk.list(roots, &mut Vec::new());
    let mut known: HashMap<Vec<Vec<Condition>>, u32> = HashMap::from([(vec![Vec::new()], 0)]);
    let of = |mut conditions: Vec<Vec<Condition>>| {
        // A weight that several layers use runs if any of them does.
        if conditions.is_empty() || conditions.iter().any(Vec::is_empty) {
            conditions = vec![Vec::new()];
        }
        conditions.sort();
        conditions.dedup();
        let next = known.len() as u32;
        *known.entry(conditions).or_insert(next)
    };
    walk.needed.into_iter().map(of).collect()
}

struct Walk<'m> {
    layers: &'m [Layer],
    /// For each parameter the conditions of each layer that uses it.
    needed: Vec<Vec<Vec<Condition>>>,
}

impl Walk<'_> {
    /// Records the conditions of the parameters of a list's layers, given the `conditions` of the list. Exits in the
    /// list add a condition to everything that follows the list.
    fn list(&mut self, list: &[LayerId], conditions: &mut Vec<Condition>) {
        for id in list {
            let layer = &self.layers[id.0 as usize];
            for param in &layer.params {
                self.needed[param.0 as usize].push(conditions.clone());
            }
            let choice = layer.spec.choice();
            for (number, inside) in layer.lists.iter().enumerate() {
                let values = choice.as_ref().map(|choice| choice.how.values());
                let is_always_run =
                    values.is_none_or(|values| values.iter().all(|value| layer.spec.list_at(*value) == Some(number)));
                if is_always_run {
                    self.list(inside, conditions);
                } else {
                    let before = conditions.len();
                    conditions.push((*id, Some(number)));
                    let begun = conditions.len();
                    self.list(inside, conditions);
                    // Exits inside a list end some of the steps, also for what follows the list.
                    let ends: Vec<Condition> = conditions.split_off(begun);
                    conditions.truncate(before);
                    conditions.extend(ends);
                }
            }
            let ends = choice.is_some_and(|choice| choice.how.values().iter().any(|value| layer.spec.ends_at(*value)));
            if ends {
                conditions.push((*id, None));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::model::{check, read_preset};

    /// The group of each parameter, by name.
    fn groups(layers: &str) -> Vec<(String, u32)> {
        let text = format!(
            r#"{{"name": "n", "input": {{"shape": [6], "batch": 4}}, "layers": [{{"type": "dense", "units": 5,
            "bias": false}}, {layers}, {{"type": "dense", "units": 3, "bias": false}}], "loss": {{"type": "mse"}},
            "optimizer": {{"type": "sgd", "lr": 0.1}}}}"#
        );
        let model = check(&read_preset(&text).unwrap()).model.unwrap();
        model.params.into_iter().map(|param| (param.name, param.group)).collect()
    }

    fn expect(layers: &str, expected: &[(&str, u32)]) {
        let expected: Vec<(String, u32)> =
            expected.iter().map(|(place, group)| (format!("{place}.weight"), *group)).collect();
        assert_eq!(groups(layers), expected);
    }

    const DENSE: &str = r#"{"type": "dense", "units": 5, "bias": false}"#;

    #[test]
    fn parameters_that_every_step_runs_are_group_zero() {
        let plain = format!(r#"{{"type": "repeat", "times": 2, "layers": [{DENSE}]}}"#);
        expect(&plain, &[("layers.0", 0), ("layers.1.layers.0", 0), ("layers.2", 0)]);
        let always = format!(
            r#"{{"type": "repeat", "times": 2, "layers": [{DENSE}], "choose": {{"by": "cycle", "values": [1, 2]}}}}"#
        );
        expect(&always, &[("layers.0", 0), ("layers.1.layers.0", 0), ("layers.2", 0)]);
    }

    #[test]
    fn parameters_that_run_together_share_a_group() {
        let inner = format!(
            r#"{{"type": "residual", "layers": [{DENSE}, {DENSE}], "choose": {{"by": "cycle", "values": [0, 1]}}}}"#
        );
        let branch = format!(
            r#"{{"type": "branch", "paths": [[{DENSE}, {inner}, {DENSE}], [{DENSE}]],
            "choose": {{"by": "cycle", "values": [0, 1]}}}}"#
        );
        expect(
            &branch,
            &[
                ("layers.0", 0),
                ("layers.1.paths.0.0", 1),
                ("layers.1.paths.0.1.layers.0", 2),
                ("layers.1.paths.0.1.layers.1", 2),
                ("layers.1.paths.0.2", 1),
                ("layers.1.paths.1.0", 3),
                ("layers.2", 0),
            ],
        );
    }

    #[test]
    fn parameters_after_an_exit_form_a_separate_group() {
        let exit = r#"{"type": "early_exit", "layers": [{"type": "dense", "units": 3, "bias": false}],
            "choose": {"by": "random", "weights": [1, 1]}}"#;
        expect(
            &format!("{exit}, {DENSE}"),
            &[("layers.0", 0), ("layers.1.layers.0", 1), ("layers.2", 2), ("layers.3", 2)],
        );
        // An exit inside one path of a branch ends some steps for everything that follows it.
        let branch = format!(
            r#"{{"type": "branch", "paths": [[{exit}, {DENSE}], [{DENSE}]],
            "choose": {{"by": "cycle", "values": [0, 1]}}}}"#
        );
        expect(
            &branch,
            &[
                ("layers.0", 0),
                ("layers.1.paths.0.0.layers.0", 1),
                ("layers.1.paths.0.1", 2),
                ("layers.1.paths.1.0", 3),
                ("layers.2", 4),
            ],
        );
    }
}
