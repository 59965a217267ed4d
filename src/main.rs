//! The program: arguments, logging, dispatch.

use log::{Level, LevelFilter, Log, Metadata, Record};
use std::io::{Write, stderr};
use std::process::ExitCode;
use stepgraph::cli;
use stepgraph::exec::cuda;

/// Messages of libraries and of this program, on standard error. If that is closed, there is no reader.
struct StderrLog;

impl Log for StderrLog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            let level = if record.level() == Level::Error { "error" } else { "note" };
            let _ = writeln!(stderr(), "{level}: {}: {}", record.target(), record.args());
        }
    }

    fn flush(&self) {}
}

/// Logs to standard error, at the level that `STEPGRAPH_LOG` sets.
fn start_logging() {
    log::set_max_level(cli::log_level().unwrap_or(LevelFilter::Error));
    // There is no other logger, because this runs once.
    let _ = log::set_logger(&StderrLog);
}

/// A panic is a defect of this program, reported in one clear line. A command ends, even if it would wait for the
/// thread that panicked; the window continues, because it may still save its work.
fn explain_panics(ends: bool) {
    std::panic::set_hook(Box::new(move |info| {
        let place = info.location().map(|l| format!(" at {}:{}", l.file(), l.line())).unwrap_or_default();
        let message = info.payload_as_str().unwrap_or("no message");
        let _ = writeln!(
            stderr(),
            "error: this is a defect of stepgraph{place}: {message}; please report it with the command and the preset"
        );
        if ends {
            std::process::exit(1);
        }
    }));
}

fn main() -> ExitCode {
    if let Some(ended) = cuda::compile_for_another() {
        return if ended.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    cuda::may_start_compilers();
    let cli = cli::parse();
    explain_panics(!cli::opens_window(&cli));
    start_logging();
    cli::report_wrong_values();
    cli::run(&cli)
}
