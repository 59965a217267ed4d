//! `stepgraph export`: a run or a network in another program's format.

use super::error::wrong;
use super::kept_args::ExportArgs;
use super::places::Places;
use super::runs::{Named, find, wrote};
use crate::train::export::{Across, ExportError, Format, PlotOptions, Subject};

/// Who made the mistake: what was asked for cannot be made of what is there, or it cannot be written.
fn told(error: ExportError) -> anyhow::Error {
    match error {
        ExportError::Exists(_) => wrong(format!("{error}; give --replace, or another name")),
        ExportError::Train(error) => error.into(),
        ExportError::NoCurves(_)
        | ExportError::Empty(_)
        | ExportError::NoWeights(_)
        | ExportError::Missing(_)
        | ExportError::WrongShape { .. }
        | ExportError::TooLarge { .. }
        | ExportError::Preset(_)
        | ExportError::Write { .. } => wrong(error.to_string()),
        other => other.into(),
    }
}

/// Exports.
///
/// # Errors
/// Where there is no such run or preset, it lacks what the format needs, or a file is there already.
pub fn run(args: &ExportArgs) -> anyhow::Result<()> {
    let named = args.format.map(|f| f.0).or_else(|| Format::of_path(&args.file));
    let format = named.ok_or_else(|| {
        let names = Format::ALL.map(Format::name).join(", ");
        wrong(format!("{}: its name tells no format; give --format {names}", args.file.display()))
    })?;
    let subject = match find(&args.what)? {
        Named::Run(store, entry) => {
            if args.weights.is_some() || args.seed.is_some() {
                return Err(wrong("--weights and --seed belong to a preset; a run has its own"));
            }
            Subject::of_run(&store, &entry, format)
        }
        Named::Preset(found) => {
            let mut places = Places::of(&found);
            places.reads("the weights", args.weights.as_deref());
            if format != Format::TensorBoard {
                places.writes("the export", Some(&args.file))?;
            }
            Subject::of_preset(&found.preset, &found.base, args.seed, args.weights.as_deref())
        }
    }
    .map_err(told)?;
    let across = if args.by_time { Across::Time } else { Across::Step };
    let options = PlotOptions { quantity: args.plot.0, across, log: args.log_axis };
    let files = subject.write(format, &args.file, options, args.replace).map_err(told)?;
    wrote(&files);
    Ok(())
}
