//! Shared libraries, each loaded once and never unloaded.
//!
//! cudarc loads and unloads a library whenever it is asked whether the library exists. For cuBLASLt, that takes 70 ms
//! each time on a machine with an H200. While a library is loaded here, cudarc finds it in no time.

use cudarc::get_lib_name_candidates;
use libloading::Library;
use std::sync::OnceLock;

/// A library that may be installed.
pub(super) struct SharedLibrary {
    /// Its names, without prefix and suffix, in the order in which cudarc tries them.
    names: &'static [&'static str],
    loaded: OnceLock<Option<Library>>,
}

pub(super) static DRIVER: SharedLibrary = SharedLibrary::named(&["cuda", "nvcuda"]);
pub(super) static NVRTC: SharedLibrary = SharedLibrary::named(&["nvrtc"]);
pub(super) static CUBLASLT: SharedLibrary = SharedLibrary::named(&["cublasLt"]);
pub(super) static CUDNN: SharedLibrary = SharedLibrary::named(&["cudnn"]);

impl SharedLibrary {
    const fn named(names: &'static [&'static str]) -> Self {
        Self { names, loaded: OnceLock::new() }
    }

    /// Whether the library is installed. The first call loads it, and calls of other threads wait for that.
    pub(super) fn is_installed(&self) -> bool {
        let files = || self.names.iter().flat_map(|name| get_lib_name_candidates(name));
        // SAFETY: loading a library runs its initialisers, which have no preconditions in NVIDIA's libraries.
        let load = || files().find_map(|file| unsafe { Library::new(file) }.ok());
        self.loaded.get_or_init(load).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_is_found_by_its_name() {
        static MISSING: SharedLibrary = SharedLibrary::named(&["stepgraph-has-no-such-library"]);
        assert!(!MISSING.is_installed());
        if cfg!(all(target_os = "linux", target_env = "gnu")) {
            // Every Rust program for this system needs it.
            static PRESENT: SharedLibrary = SharedLibrary::named(&["stepgraph-has-no-such-library", "gcc_s"]);
            assert!(PRESENT.is_installed());
        }
    }
}
