//! `stepgraph export`: writes a run or a network in the format of another program.

use super::error::wrong;
use super::output;
use super::result_places::{Kind, Places};
use super::run_args::ExportArgs;
use super::runs::{Named, find, torn, wrote};
use crate::train::NotReplaced;
use crate::train::export::{Across, ExportError, Format, PlotOptions, Replace, Subject};

/// The error of an export, with the option that solves it.
fn advised(error: ExportError) -> anyhow::Error {
    match error {
        ExportError::Exists(_) => wrong(format!("{error}; give --replace, or another name")),
        ExportError::Kept(NotReplaced::Other { .. }) => wrong(format!("{error}; give another name, or move that file")),
        other => other.into(),
    }
}

/// The note about weights that were not given.
const UNTRAINED: &str =
    "the weights are initial ones, which no step has trained; give trained ones with --weights FILE";

/// Exports.
///
/// # Errors
/// If the run or preset does not exist or lacks what the format needs, or if the file already exists.
pub fn run(args: &ExportArgs) -> anyhow::Result<()> {
    let named = args.format.map(|f| f.0).or_else(|| Format::of_path(&args.file));
    let format = named.ok_or_else(|| {
        let names = Format::ALL.map(Format::name).join(", ");
        wrong(format!("{}: no format follows from its name; give --format {names}", args.file.display()))
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
            if let (Some(preset), false) = (entry.record.read_preset(), format == Format::TensorBoard) {
                let mut places = Places::default();
                places.reads_data(&preset, &entry.record.base);
                places.writes("the export", Kind::Guarded, Some(&args.file))?;
            }
            Subject::of_run(&store, &entry, format)
        }
        Named::Preset(found) => {
            let mut places = Places::of(&found);
            if args.weights.is_none() && !format.shows_curves() {
                notes.push(UNTRAINED.to_owned());
            }
            places.reads("the weights", args.weights.as_deref());
            if format != Format::TensorBoard {
                places.writes("the export", Kind::Guarded, Some(&args.file))?;
            }
            Subject::of_preset(&found.preset, &found.base, args.seed, args.weights.as_deref(), format)
        }
    }
    .map_err(advised)?;
    let across = if args.by_time { Across::Time } else { Across::Step };
    let options = PlotOptions { quantity: args.plot.0, across, log: args.log_axis };
    notes.extend(subject.assumption(format));
    let replace = if args.replace { Replace::Older } else { Replace::Nothing };
    let files = subject.write(format, &args.file, options, replace).map_err(advised)?;
    for note in &notes {
        output::note(&format!("note: {note}"));
    }
    if args.json {
        let shown: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
        return output::print_json(&serde_json::json!({
            "what": subject.name,
            // Several runs may have the same name, so that the message contains the id that `last` or the first letters
            // refer to.
            "run": run,
            "format": format.name(),
            "files": shown,
            "notes": notes,
        }));
    }
    wrote(&files);
    Ok(())
}
