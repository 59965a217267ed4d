//! The paths of a network whose layers choose: which one a step takes, and the model of a path.
//!
//! A layer that chooses has a [`Choice`] among small numbers. The *path* of a step contains the value of every choosing
//! layer that the step reaches, in order: layers inside a part that is not run, and after an exit that is taken, are
//! not reached. [`Model::path_at`] is a function of only the step's number and the run's seed, so that a continued run
//! takes the same paths on every machine.
//!
//! [`Model::along`] returns the model of one path: its lists of layers contain only what the path runs. A branch is
//! replaced by the layers of its path, a block that is left out does not exist, a repeated block is repeated the chosen
//! number of times, and the list ends with the head of the exit that is taken. The graph, and everything that follows
//! from it, is made from such a model by the same code as from a network that does not choose.
//!
//! Layers, parameters and their numbers are those of the whole network in every one of these models. So one store
//! contains all parameters and their optimizer state, and the step of each path binds the ones that its graph uses.
//! Parameters that some steps leave out belong to a [group](super::groups) that is updated as a whole and has its own
//! count of updates.

use super::checked::{Model, PathOf};
use super::choose::Choice;
use super::chosen_path::Path;
use super::param::LayerId;
use super::path::LayerPath;
use std::collections::HashSet;
use std::sync::Arc;
use thiserror::Error;

/// A text that is not a path of a network.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{why}; give the number of a step, \"evaluation\", or choices such as \"{example}\"")]
pub struct NoSuchPath {
    why: String,
    example: String,
}

/// The paths that are known in advance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Foreseen {
    /// In the order of their first use; if they are random, in the order of their values.
    pub paths: Vec<Path>,
    /// Whether these are all paths.
    pub are_all: bool,
}

/// The number of steps of cycles and schedules that are searched for paths.
const MOST_STEPS: u64 = 1 << 14;

impl Model {
    /// Whether layers choose at every step; false in the model of one path.
    #[must_use]
    pub fn chooses(&self) -> bool {
        self.of_path.is_none() && self.layers.iter().any(|layer| layer.spec.choice().is_some())
    }

    /// The path that this is the model of; the empty path for a network that does not choose.
    #[must_use]
    pub fn path(&self) -> Path {
        self.of_path.as_ref().map(|of| of.path.clone()).unwrap_or_default()
    }

    /// The path of a step, counted from 1, in a run with this seed.
    #[must_use]
    pub fn path_at(&self, step: u64, seed: u64) -> Path {
        self.path_by(|chooser, choice| choice.how.value(step, seed, chooser))
    }

    /// The path of evaluations.
    #[must_use]
    fn evaluation_path(&self) -> Path {
        self.path_by(|_, choice| choice.evaluation)
    }

    /// The path that a text describes: in the printed form, where layers that it does not mention take their value in
    /// evaluation; `evaluation`; or the number of a step of a run with this seed.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn path_named(&self, text: &str, seed: u64) -> Result<Path, NoSuchPath> {
        let wrong = |why: String| NoSuchPath { why, example: self.evaluation_path().to_string() };
        let text = text.trim();
        if text == "evaluation" || (text == "whole" && !self.chooses()) {
            return Ok(self.evaluation_path());
        }
        if let Ok(step) = text.parse::<u64>() {
            return Ok(self.path_at(step.max(1), seed));
        }
        let mut wanted: Vec<(LayerId, usize)> = Vec::new();
        for entry in text.split([' ', ',']).filter(|entry| !entry.is_empty()) {
            let parts = entry.split_once('=').and_then(|(layer, value)| Some((layer, value.parse().ok()?)));
            let (name, value) = parts.ok_or_else(|| wrong(format!("{entry:?} is not a choice of a layer")))?;
            let is_named = |layer: &super::Layer| format!("L{}", layer.path.number()) == name;
            let chooser = |at: &usize| self.layers[*at].spec.choice().is_some() && is_named(&self.layers[*at]);
            let at = (0..self.layers.len()).find(chooser).ok_or_else(|| wrong(format!("{name} does not choose")))?;
            let most = self.layers[at].spec.choice().map_or(0, |choice| choice.most);
            if value > most {
                return Err(wrong(format!("{name} chooses from 0 to {most}, and not {value}")));
            }
            wanted.push((LayerId(at as u32), value));
        }
        let path = self.path_by(|id, choice| {
            wanted.iter().find(|(layer, _)| layer.0 == id).map_or(choice.evaluation, |(_, value)| *value)
        });
        match wanted.iter().find(|(id, _)| path.value(&self.layer(*id).path).is_none()) {
            Some((id, _)) => Err(wrong(format!("this path does not meet L{}", self.layer(*id).path.number()))),
            None => Ok(path),
        }
    }

    /// The path on which `choose` chooses the value of each layer, given the layer's number.
    fn path_by(&self, mut choose: impl FnMut(u32, &Choice) -> usize) -> Path {
        let mut taken = Vec::new();
        if self.of_path.is_none() {
            self.follow(&self.roots, &mut taken, &mut choose);
        }
        Path(taken.into())
    }

    /// Traverses a list of layers and records the choices; returns false if the network ends in it.
    fn follow(
        &self,
        list: &[LayerId],
        taken: &mut Vec<(LayerPath, usize)>,
        choose: &mut dyn FnMut(u32, &Choice) -> usize,
    ) -> bool {
        list.iter().all(|id| {
            let layer = self.layer(*id);
            let Some(choice) = layer.spec.choice() else {
                return layer.lists.iter().all(|inside| self.follow(inside, taken, choose));
            };
            let value = choose(id.0, &choice);
            taken.push((layer.path.clone(), value));
            let run = layer.spec.list_at(value);
            let continues = run.is_none_or(|number| self.follow(&layer.lists[number], taken, choose));
            continues && !layer.spec.ends_at(value)
        })
    }

    /// The model of a path. A layer that the path does not mention takes its value in evaluation. A network that does
    /// not choose, and the model of a path, are returned unchanged.
    #[must_use]
    pub fn along(&self, path: &Path) -> Self {
        if self.chooses() { Self::along_in(&Arc::new(self.clone()), path) } else { self.clone() }
    }

    /// As [`Self::along`], of a network that several paths share.
    #[must_use]
    pub fn along_in(whole: &Arc<Self>, path: &Path) -> Self {
        let mut model = Self::clone(whole);
        if whole.chooses() {
            model.roots = whole.settled(&whole.roots, path, &mut model.layers).0;
            model.of_path = Some(PathOf { path: path.clone(), whole: Arc::clone(whole) });
        }
        model
    }

    /// A set of paths that together reach every layer; that of evaluations comes first.
    #[must_use]
    pub fn covering_paths(&self) -> Vec<Path> {
        let mut paths = vec![self.evaluation_path()];
        let mut is_run = self.along(&paths[0]).runs();
        while let Some(missing) = is_run.iter().position(|run| !run) {
            let path = self.path_to(&self.layer(self.params[missing].layer).path);
            let more = self.along(&path).runs();
            if !more[missing] {
                // It belongs to a layer that no step can reach.
                return paths;
            }
            is_run.iter_mut().zip(more).for_each(|(run, more)| *run |= more);
            paths.push(path);
        }
        paths
    }

    /// A path that reaches a layer and runs it; exits that do not contain the layer are not taken.
    fn path_to(&self, target: &LayerPath) -> Path {
        self.path_by(|id, choice| {
            let layer = &self.layers[id as usize];
            let list = target.0.get(layer.path.depth()).filter(|_| target.starts_with(&layer.path));
            let values = || 0..=choice.most;
            match list {
                Some(next) => values().find(|value| layer.spec.list_at(*value) == Some(next.list.number)),
                None => Some(choice.evaluation).filter(|value| !layer.spec.ends_at(*value)),
            }
            .unwrap_or(0)
        })
    }

    /// The model of the path that evaluations take, if layers choose; otherwise the model itself.
    #[must_use]
    pub fn in_evaluation(&self) -> Self {
        self.along(&self.evaluation_path())
    }

    /// Reduces a list of layers to what a path runs; returns whether the network continues after it.
    fn settled(&self, list: &[LayerId], path: &Path, layers: &mut [super::Layer]) -> (Vec<LayerId>, bool) {
        let mut out = Vec::with_capacity(list.len());
        for id in list {
            let layer = self.layer(*id);
            let Some(choice) = layer.spec.choice() else {
                let inside = layer.lists.iter().map(|inside| self.settled(inside, path, layers).0).collect();
                layers[id.0 as usize].lists = inside;
                out.push(*id);
                continue;
            };
            let value = path.value(&layer.path).unwrap_or(choice.evaluation);
            let Some(number) = layer.spec.list_at(value) else { continue };
            let (inside, continues) = self.settled(&layer.lists[number], path, layers);
            if layer.spec.must_keep_shape() && !layer.spec.ends_at(value) {
                // It stays a block, which does what the path chooses.
                let settled = &mut layers[id.0 as usize];
                settled.spec = layer.spec.settled(value);
                settled.lists = vec![inside];
                out.push(*id);
            } else {
                out.extend(inside);
            }
            if !continues || layer.spec.ends_at(value) {
                return (out, false);
            }
        }
        (out, true)
    }

    /// Whether the model runs each of its layers; the model of a path leaves some out.
    #[must_use]
    pub fn run_layers(&self) -> Vec<bool> {
        let mut is_run = vec![false; self.layers.len()];
        let mut waiting = self.roots.clone();
        while let Some(id) = waiting.pop() {
            is_run[id.0 as usize] = true;
            waiting.extend(self.layer(id).children());
        }
        is_run
    }

    /// Whether the layers that the model runs use each parameter.
    #[must_use]
    pub fn runs(&self) -> Vec<bool> {
        let mut is_run = vec![false; self.params.len()];
        for (layer, _) in self.layers.iter().zip(self.run_layers()).filter(|(_, is_run)| *is_run) {
            layer.params.iter().for_each(|param| is_run[param.0 as usize] = true);
        }
        is_run
    }

    /// The paths that steps take, in the order of their first use: those of all combinations of choices if there are at
    /// most `most`, otherwise those that are known in advance.
    #[must_use]
    pub fn foreseen(&self, most: usize) -> Foreseen {
        let choices: Vec<Choice> = self.layers.iter().filter_map(|layer| layer.spec.choice()).collect();
        if !self.chooses() {
            return Foreseen { paths: vec![Path::default()], are_all: true };
        }
        match choices.iter().map(|choice| choice.how.period()).collect::<Option<Vec<u64>>>() {
            Some(periods) => self.foreseen_by_steps(&choices, &periods, most),
            None => self.foreseen_by_values(most),
        }
    }

    /// The paths of cycles and schedules: one full turn of all cycles, from each step at which an entry of a schedule
    /// begins.
    fn foreseen_by_steps(&self, choices: &[Choice], periods: &[u64], most: usize) -> Foreseen {
        let turn = periods.iter().try_fold(1, |all, period| common_multiple(all, *period)).unwrap_or(u64::MAX);
        let mut begins: Vec<u64> = choices.iter().flat_map(|choice| choice.how.begins()).collect();
        begins.sort_unstable();
        begins.dedup();
        let ends = begins.iter().skip(1).copied().chain([u64::MAX]);
        let (mut paths, mut seen, mut left) = (Vec::new(), HashSet::new(), MOST_STEPS);
        for (begin, end) in begins.iter().zip(ends) {
            for step in *begin..end.min(begin.saturating_add(turn)) {
                let path = self.path_at(step, 0);
                if seen.insert(path.clone()) {
                    paths.push(path);
                }
                left -= 1;
                if paths.len() > most || left == 0 {
                    paths.truncate(most);
                    return Foreseen { paths, are_all: false };
                }
            }
        }
        Foreseen { paths, are_all: true }
    }

    /// The paths of all combinations of possible values.
    fn foreseen_by_values(&self, most: usize) -> Foreseen {
        let mut paths = Vec::new();
        // The index of each value among those of its layer, for the layers that the last path reached.
        let mut numbers: Vec<usize> = Vec::new();
        loop {
            let (mut met, mut counts) = (0, Vec::new());
            let path = self.path_by(|_, choice| {
                let values = choice.how.values();
                let number = numbers.get(met).copied().unwrap_or(0);
                met += 1;
                counts.push(values.len());
                values[number]
            });
            if paths.len() == most {
                return Foreseen { paths, are_all: false };
            }
            paths.push(path);
            numbers.resize(counts.len(), 0);
            // The next combination: the last layer that has another value takes it.
            let Some(at) = (0..counts.len()).rev().find(|at| numbers[*at] + 1 < counts[*at]) else {
                return Foreseen { paths, are_all: true };
            };
            numbers[at] += 1;
            numbers.truncate(at + 1);
        }
    }
}

/// The least common multiple; `None` if it is too large.
fn common_multiple(a: u64, b: u64) -> Option<u64> {
    let (mut large, mut small) = (a, b);
    while small > 0 {
        (large, small) = (small, large % small);
    }
    (a / large.max(1)).checked_mul(b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{check, read_preset};

    /// A network with dense layers between these layers.
    fn model(layers: &str) -> Model {
        let text = format!(
            r#"{{"name": "n", "input": {{"shape": [6], "batch": 4}}, "layers": [{{"type": "dense", "units": 5}},
            {layers}, {{"type": "dense", "units": 3}}], "loss": {{"type": "mse"}},
            "optimizer": {{"type": "sgd", "lr": 0.1}}}}"#
        );
        let checked = check(&read_preset(&text).unwrap());
        assert_eq!(checked.diagnostics, []);
        checked.model.unwrap()
    }

    fn dense(units: usize) -> String {
        format!(r#"{{"type": "dense", "units": {units}}}"#)
    }

    /// The indices of the layers that a model runs, in the order in which it runs them.
    fn run(model: &Model) -> Vec<String> {
        fn of(model: &Model, list: &[LayerId], out: &mut Vec<String>) {
            for id in list {
                let layer = model.layer(*id);
                out.push(layer.path.number());
                let times = layer.spec.times().unwrap_or(1);
                (0..times).for_each(|_| layer.lists.iter().for_each(|list| of(model, list, out)));
            }
        }
        let mut out = Vec::new();
        of(model, &model.roots, &mut out);
        out
    }

    fn paths(model: &Model, steps: u64) -> Vec<String> {
        (1..=steps).map(|step| model.path_at(step, 3).to_string()).collect()
    }

    #[test]
    fn a_network_that_does_not_choose_has_one_path_and_is_unchanged() {
        let model = model(&dense(5));
        assert!(!model.chooses() && model.path_at(1, 0).is_whole());
        assert_eq!((model.path_at(9, 0).to_string(), model.along(&Path::default())), ("whole".into(), model.clone()));
        assert_eq!(model.foreseen(8), Foreseen { paths: vec![Path::default()], are_all: true });
    }

    #[test]
    fn a_branch_becomes_the_layers_of_its_path() {
        let (a, b) = (dense(5), dense(7));
        let model = model(&format!(
            r#"{{"type": "branch", "choose": {{"by": "cycle", "values": [2, 0, 1]}},
            "paths": [[], [{a}], [{b}, {a}]]}}"#
        ));
        let covering: Vec<String> = model.covering_paths().iter().map(Path::to_string).collect();
        assert_eq!(covering, ["L1=2", "L1=1"]);
        let found: Vec<Vec<String>> = (1..=3).map(|step| run(&model.along(&model.path_at(step, 0)))).collect();
        assert_eq!(found, [&["0", "1.2.0", "1.2.1", "2"][..], &["0", "2"], &["0", "1.1.0", "2"]]);
        assert_eq!(paths(&model, 4), ["L1=2", "L1=0", "L1=1", "L1=2"]);
        assert_eq!(model.evaluation_path().to_string(), "L1=2");
        let along = model.along(&model.path_at(2, 0));
        assert!(!along.chooses() && along.path().to_string() == "L1=0" && along.params == model.params);
        assert_eq!(model.foreseen(8).paths.iter().map(Path::to_string).collect::<Vec<_>>(), ["L1=2", "L1=0", "L1=1"]);
        assert_eq!(model.foreseen(2), Foreseen { paths: model.foreseen(8).paths[..2].to_vec(), are_all: false });
    }

    #[test]
    fn a_path_is_found_by_its_text_or_by_a_step() {
        let inner = dense(5);
        let residual = format!(r#"{{"type": "residual", "layers": [{inner}], "keep": 0.5}}"#);
        let layers = format!(
            r#"{{"type": "branch", "paths": [[{inner}], [{residual}]], "choose": {{"by": "cycle", "values": [0, 1]}}}}"#
        );
        let model = model(&layers);
        let named = |text: &str| model.path_named(text, 0).map(|path| path.to_string());
        let found = ["L1=1 L1.1.0=0", "L1=0", "evaluation", "1", "L1.1.0=0"].map(named);
        let expected = ["L1=1 L1.1.0=0", "L1=0", "L1=1 L1.1.0=1", "L1=0", "L1=1 L1.1.0=0"];
        assert_eq!(found, expected.map(|path| Ok(path.to_owned())));
        for (text, why) in [
            ("L1", "\"L1\" is no choice of a layer"),
            ("L0=1", "L0 does not choose"),
            ("L1=2", "L1 chooses from 0 to 1, and not 2"),
            ("L1=0 L1.1.0=1", "this path does not meet L1.1.0"),
        ] {
            assert!(named(text).unwrap_err().to_string().starts_with(why), "{text}: {:?}", named(text));
        }
    }

    #[test]
    fn blocks_are_left_out_or_repeated_and_exits_end_the_network() {
        let inner = dense(5);
        let layers = format!(
            r#"{{"type": "repeat", "times": 3, "layers": [{inner}], "choose": {{"by": "cycle", "values": [0, 2]}}}},
            {{"type": "residual", "layers": [{inner}], "choose": {{"by": "cycle", "values": [1, 1, 0]}}}},
            {{"type": "early_exit", "layers": [{}], "choose": {{"by": "schedule", "at": [[1, 0], [4, 1]]}}}}"#,
            dense(3)
        );
        let model = model(&layers);
        let found: Vec<Vec<String>> = (1..=4).map(|step| run(&model.along(&model.path_at(step, 0)))).collect();
        assert_eq!(found[0], ["0", "2", "2.0", "4"]);
        assert_eq!(found[1], ["0", "1", "1.0", "1.0", "2", "2.0", "4"]);
        assert_eq!(found[2], ["0", "4"]);
        assert_eq!(found[3], ["0", "1", "1.0", "1.0", "2", "2.0", "3.0"]);
        assert_eq!(model.evaluation_path().to_string(), "L1=3 L2=1 L3=0");
        // 0 2 with 1 1 0, before and after the exit begins.
        assert_eq!(model.foreseen(64).paths.len(), 7);
    }

    #[test]
    fn layers_inside_parts_that_are_not_run_are_not_on_the_path() {
        let inner = dense(5);
        let residual = format!(r#"{{"type": "residual", "layers": [{inner}], "keep": 0.5}}"#);
        let layers = format!(
            r#"{{"type": "branch", "paths": [[{inner}], [{residual}, {residual}]],
            "choose": {{"by": "random", "weights": [1, 3]}}, "evaluate": 0}}"#
        );
        let model = model(&layers);
        let foreseen = model.foreseen(64);
        let texts: Vec<String> = foreseen.paths.iter().map(Path::to_string).collect();
        let inside = |a, b| format!("L1=1 L1.1.0={a} L1.1.1={b}");
        assert_eq!(texts, ["L1=0".to_owned(), inside(0, 0), inside(0, 1), inside(1, 0), inside(1, 1)]);
        assert!(foreseen.are_all && model.evaluation_path().to_string() == "L1=0");
        assert!(paths(&model, 200).iter().all(|path| texts.contains(path)));
        assert_eq!(model.path_at(150, 3), model.path_at(150, 3));
        assert_ne!(paths(&model, 40), (1..=40).map(|s| model.path_at(s, 4).to_string()).collect::<Vec<_>>());
    }
}
