//! From a preset as the user edits it to a checked model.
//!
//! [`Preset`] is the raw document, which may contain any mistake. [`check`] turns it into a [`Checked`]: shapes for
//! every layer up to the first that cannot be computed, every mistake as a [`Diagnostic`] on its layer, and, if there
//! are no mistakes, the [`Model`] that later stages compile.
//!
//! A new layer is one file in `layers/` (fields, shape rule, diagnostics, parameters), one in `ir/layers` (forward pass
//! and derivative), and one in `lower/layers`.

mod activation;
mod bundled;
mod cell;
mod check;
mod checked;
mod choices;
mod choose;
mod choose_field;
mod chosen_path;
mod diagnostic;
mod draw;
mod field_value;
mod groups;
mod infer;
mod init;
mod input;
mod json;
pub mod layers;
pub mod losses;
mod mistakes;
mod nearest;
mod one_list;
pub mod optimizers;
mod other_formats;
mod padding;
mod param;
mod path;
mod path_codes;
mod preset;
pub mod random;
mod read;
mod resized;
mod rng;
#[cfg(test)]
mod sample;
mod schedule;
pub mod schema;
mod settings;
mod single_values;
mod sizes;
mod sources;
mod spec;
mod ties;
mod update;
mod write;

pub use activation::Activation;
pub use bundled::{BUNDLED, Bundled};
pub use cell::Cell;
pub use check::check;
pub use checked::{Checked, Layer, LayerFacts, Model, PathOf};
pub use choices::{Foreseen, NoSuchPath};
pub use choose::{Choice, Choose};
pub use choose_field::Choosing;
pub use chosen_path::Path;
pub use diagnostic::Diagnostic;
pub use field_value::{FieldValue, NumberOrName};
pub use init::{init_into, init_over, init_values};
pub use input::{Content, Flow, InputSpec, NamedInput, inputs_text, is_unnamed, sample_len, value_name};
pub use layers::{LayerKind, LayerSpec};
pub use losses::{LossRule, LossSpec, Targets};
pub use nearest::{did_you_mean, nearest};
pub use optimizers::{OptimizerSpec, UpdateRule};
pub use padding::Padding;
pub use param::{Init, LayerId, Param, ParamId, ParamKind};
pub use path::{LayerPath, ListField, ListId, ListPath, NoPath, Segment};
pub use path_codes::Choices;
pub use preset::{
    ColumnRange, DataSource, DataSpec, Header, LastBatch, Precision, Preset, SplitKind, TargetColumn, Tokens, TrainSpec,
};
pub use read::{MAX_PRESET_BYTES, Rejected, read_partly, read_preset, read_preset_file, read_value};
pub use resized::UnsuitedLength;
pub use rng::Rng;
#[cfg(test)]
pub(crate) use sample::checked_network;
pub use schedule::{Schedule, ScheduleKind};
pub use sizes::Sizes;
pub use spec::Fields;
pub use update::{Decay, UpdateSpec};
pub use write::write_preset;
