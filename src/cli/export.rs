//! `stepgraph export`: a run or a network in another program's format.

use super::error::wrong;
use super::kept_args::ExportArgs;
use super::output;
use super::places::{Kind, Places};
use super::runs::{Named, find, torn, wrote};
use crate::train::export::{Across, ExportError, Format, PlotOptions, Subject};

/// Who made the mistake: what was asked for cannot be made of what is there, or it cannot be written.
fn told(error: ExportError) -> anyhow::Error {
    match error {
        ExportError::Exists(_) => wrong(format!("{error}; give --replace, or another name")),
        ExportError::Train(error) => error.into(),
        ExportError::NoCurves(_)
        | ExportError::Empty(_)
        | ExportError::Lost(_)
        | ExportError::NoWeights(_)
        | ExportError::Missing(_)
        | ExportError::WrongShape { .. }
        | ExportError::TooLarge { .. }
        | ExportError::NotMeasured { .. }
        | ExportError::Preset(_) => wrong(error.to_string()),
        // A place that cannot be written to is the user's to choose; a disk that is full is nobody's mistake.
        ExportError::Write { ref cause, .. } if is_of_place(cause) => wrong(error.to_string()),
        ExportError::Runs(error) => super::runs::told(error),
        other => other.into(),
    }
}

fn is_of_place(cause: &std::io::Error) -> bool {
    use std::io::ErrorKind::{
        InvalidFilename, InvalidInput, IsADirectory, NotADirectory, NotFound, PermissionDenied, ReadOnlyFilesystem,
    };
    matches!(
        cause.kind(),
        InvalidFilename
            | InvalidInput
            | IsADirectory
            | NotADirectory
            | NotFound
            | PermissionDenied
            | ReadOnlyFilesystem
    )
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
    let mut notes = Vec::new();
    let mut run = None;
    let subject = match find(&args.what)? {
        Named::Run(store, entry) => {
            run = Some(entry.id.clone());
            notes.extend(torn(&entry, &store).filter(|_| format.shows_curves()).map(|t| format!("the curves are {t}")));
            if args.weights.is_some() || args.seed.is_some() {
                return Err(wrong("--weights and --seed belong to a preset; a run has its own"));
            }
            Subject::of_run(&store, &entry, format)
        }
        Named::Preset(found) => {
            let mut places = Places::of(&found);
            if args.weights.is_none() && !format.shows_curves() {
                notes.push(
                    "the weights are initial ones, which no step has trained; give trained ones with --weights FILE"
                        .to_owned(),
                );
            }
            places.reads("the weights", args.weights.as_deref());
            if format != Format::TensorBoard {
                places.writes("the export", Kind::Guarded, Some(&args.file))?;
            }
            Subject::of_preset(&found.preset, &found.base, args.seed, args.weights.as_deref())
        }
    }
    .map_err(told)?;
    let across = if args.by_time { Across::Time } else { Across::Step };
    let options = PlotOptions { quantity: args.plot.0, across, log: args.log_axis };
    let files = subject.write(format, &args.file, options, args.replace).map_err(told)?;
    for note in &notes {
        output::note(&format!("note: {note}"));
    }
    if args.json {
        return output::print_json(
            // A name may be several runs': the id is the one that `last` or a few letters stood for.
            &serde_json::json!({ "what": subject.name, "run": run, "format": format.name(), "files": files, "notes": notes }),
        );
    }
    wrote(&files);
    Ok(())
}
