//! A fault for tests: text of the kernels that is replaced before they are compiled. `verify` must find each such
//! fault.
//!
//! It is injected by a call, once for the whole process and before the first kernel is compiled; no file, option or
//! environment variable can inject it. Compiled kernels are cached under their whole text, so that a changed one never
//! replaces the right one.

use std::borrow::Cow;
use std::sync::OnceLock;

/// Text in one of the kernels' files and its replacement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextFault {
    pub file: &'static str,
    pub before: &'static str,
    pub after: &'static str,
}

static PLANTED: OnceLock<TextFault> = OnceLock::new();

/// Injects a fault for as long as the process lives.
///
/// # Errors
/// The fault that was injected before, if it is another one.
pub fn plant(fault: TextFault) -> Result<(), TextFault> {
    let planted = *PLANTED.get_or_init(|| fault);
    if planted == fault { Ok(()) } else { Err(planted) }
}

/// A file's text as it is compiled.
pub(super) fn text(file: &str, text: &'static str) -> Cow<'static, str> {
    match PLANTED.get() {
        Some(fault) if fault.file == file => Cow::Owned(text.replace(fault.before, fault.after)),
        _ => Cow::Borrowed(text),
    }
}
