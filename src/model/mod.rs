//! From a preset as a person edits it to a checked model.
//!
//! [`Preset`] is the raw document: it may hold any mistake a person can make. [`check`] turns it into a [`Checked`]: shapes for every layer up to
//! the first that cannot be computed, every mistake as a [`Diagnostic`] on its layer, and, where there is none, the [`Model`] that later stages compile.
//!
//! A new layer is one file in `layers/` (fields, shape rule, diagnostics), its nodes in `ir`, and its lowering.

mod activation;
mod bundled;
mod check;
mod diagnostic;
mod foreign;
mod init;
mod json;
pub mod layers;
mod mistakes;
mod nearest;
mod preset;
pub mod random;
mod read;
mod rng;
mod settings;
mod spec;
mod write;

pub use activation::Activation;
pub use bundled::{BUNDLED, Bundled};
pub use check::{Checked, Layer, LayerFacts, LayerId, Model, Param, ParamId, ParamKind, check};
pub use diagnostic::{Diagnostic, LayerPath};
pub use init::{Init, init_into, init_over, init_values};
pub use layers::{LayerKind, LayerSpec};
pub use nearest::{did_you_mean, nearest};
pub use preset::{
    DataSource, DataSpec, Header, InputSpec, LossSpec, OptimizerSpec, Precision, Preset, SplitKind, TargetColumn,
    TrainSpec,
};
pub use read::{FIELD_HELP, MAX_PRESET_BYTES, Rejected, read_partly, read_preset, read_preset_file, read_value};
pub use rng::Rng;
pub use spec::Fields;
pub use write::{write_loss, write_preset};
