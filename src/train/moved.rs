//! How far the parameters moved in a step, for any path.

use crate::ir::Role;
use crate::lower::Program;
use crate::model::ParamId;
use std::borrow::Cow;

/// The change of each trained parameter of a network, in order of the parameters, from those of the parameters that the
/// step updates, in the order of its plan. Parameters that a path leaves out have not moved.
pub(super) fn of_all_parameters<'v>(program: &Program, values: Cow<'v, [f32]>) -> Cow<'v, [f32]> {
    let is_trained = |id: &ParamId| program.value(program.params[id.0 as usize].value).role == Role::Param;
    let trained: Vec<ParamId> = (0..program.params.len() as u32).map(ParamId).filter(is_trained).collect();
    if program.segments.len() == trained.len() && program.segments.iter().zip(&trained).all(|((p, _), id)| p == id) {
        return values;
    }
    let mut all = vec![0.0; trained.len()];
    for ((param, _), value) in program.segments.iter().zip(values.iter()) {
        if let Ok(place) = trained.binary_search(param) {
            all[place] = *value;
        }
    }
    Cow::Owned(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::{Options, compile};
    use crate::exec::cpu::host_target;
    use crate::model::{check, read_preset};

    #[test]
    fn parameters_that_a_path_leaves_out_have_not_moved() {
        let text = r#"{"name": "n", "input": {"shape": [6], "batch": 4}, "layers": [
            {"type": "branch", "choose": {"by": "cycle", "values": [0, 1]},
                "paths": [[{"type": "dense", "units": 3}], [{"type": "dense", "units": 3, "bias": false}]]},
            {"type": "dense", "units": 2, "bias": false}],
            "loss": {"type": "mse"}, "optimizer": {"type": "sgd", "lr": 0.1}}"#;
        let model = check(&read_preset(text).unwrap()).model.unwrap();
        let of = |step, values: &[f32]| {
            let path = model.along(&model.path_at(step, 0));
            let compiled = compile(&path, &Options::train(host_target(1))).unwrap();
            of_all_parameters(&compiled.plan.program, Cow::Borrowed(values)).into_owned()
        };
        // The layer that every step runs comes first in the flat vectors.
        assert_eq!(of(1, &[4.0, 1.0, 2.0]), [1.0, 2.0, 0.0, 4.0]);
        assert_eq!(of(2, &[4.0, 3.0]), [0.0, 0.0, 3.0, 4.0]);
    }
}
