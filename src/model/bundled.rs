//! The presets inside the program: the files of `presets/`, in a suitable order for a newcomer.

/// A preset inside the program.
#[derive(Clone, Copy, Debug)]
pub struct Bundled {
    pub name: &'static str,
    /// The document, as [`super::read_preset`] reads it.
    pub text: &'static str,
}

macro_rules! bundled {
    ($($name:literal),* $(,)?) => {
        &[$(Bundled { name: $name, text: include_str!(concat!("../../presets/", $name, ".json")) }),*]
    };
}

/// Every preset inside the program.
pub const BUNDLED: &[Bundled] = bundled![
    "digits-mlp",
    "digits-cnn",
    "digits-residual",
    "stochastic-depth",
    "early-exit",
    "branches",
    "gru-digits",
    "gpt-sums",
    "gpt-source",
    "bucketed-text",
    "short-batches",
    "lstm-waves",
    "two-inputs",
    "spirals",
    "moons-deep",
    "circles",
    "xor",
    "iris",
    "regression",
    "shared-weights",
    "mlp-gelu-layernorm",
    "dense-dense",
    "linear-relu-linear",
    "stress-200",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{check, read_preset};

    #[test]
    fn every_bundled_preset_is_valid_and_has_a_description() {
        for bundled in BUNDLED {
            let preset = read_preset(bundled.text).unwrap_or_else(|e| panic!("{}: {e:?}", bundled.name));
            assert_eq!(preset.name, bundled.name);
            assert!(preset.about.len() > 40, "{} says too little", bundled.name);
            assert!(preset.data.is_some() && preset.train.is_some(), "{} trains as it is", bundled.name);
            let checked = check(&preset);
            assert!(checked.model.is_some(), "{}: {:?}", bundled.name, checked.diagnostics);
        }
    }

    #[test]
    fn every_file_of_the_folder_is_bundled() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/presets");
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .filter_map(|e| Some(e.ok()?.file_name().to_str()?.strip_suffix(".json")?.to_owned()))
            .collect();
        let mut names: Vec<&str> = BUNDLED.iter().map(|b| b.name).collect();
        files.sort();
        names.sort_unstable();
        assert_eq!(files, names);
    }
}
