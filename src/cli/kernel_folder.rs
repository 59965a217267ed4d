//! The folder of compiled GPU kernels, as `stepgraph doctor` shows and changes it.

use super::doctor_args::DoctorArgs;
use super::error;
use crate::exec::cuda::{CacheUsage, KernelCache, limit_variable};
use crate::tensor::{Bytes, write_advice};
use serde::Serialize;
use std::path::Path;

/// Why there is no cache of compiled kernels.
pub const NOT_KEPT: &str =
    "compiled kernels are not kept: STEPGRAPH_CACHE is the empty string, or there is no home folder";

/// The cache as `doctor` reports it.
#[derive(Serialize)]
pub struct Cache {
    pub path: String,
    pub entries: usize,
    pub bytes: u64,
    pub limit_bytes: u64,
    /// Whether kernels can be stored there.
    pub writable: bool,
    /// Bytes that were removed on request.
    pub cleared_bytes: Option<u64>,
}

impl Cache {
    /// The cache now, after `cleared_bytes` were removed; `None` if kernels are not kept.
    #[must_use]
    pub fn now(cleared_bytes: Option<u64>) -> Option<Self> {
        let cache = KernelCache::of_user()?;
        let CacheUsage { entries, bytes } = cache.usage();
        let (path, writable) = (cache.folder().display().to_string(), is_writable(cache.folder()));
        Some(Self { entries, bytes, limit_bytes: cache.limit_bytes(), writable, cleared_bytes, path })
    }
}

/// Makes the requested changes of the cache of compiled kernels. Returns the bytes that were removed, if asked to.
pub fn change_cache(args: &DoctorArgs) -> anyhow::Result<Option<u64>> {
    if !args.clear_cache && args.cache_limit.is_none() {
        return Ok(None);
    }
    let mut cache = KernelCache::of_user().ok_or_else(|| error::wrong(NOT_KEPT))?;
    let path = cache.folder().display().to_string();
    let refused = |e: &std::io::Error| error::wrong(format!("{path}: {e}; {}", write_advice(e)));
    let cleared = if args.clear_cache { Some(cache.clear().map_err(|e| refused(&e))?.bytes) } else { None };
    if let Some(mib) = args.cache_limit {
        cache.set_limit_mib(mib).map_err(|e| refused(&e))?;
    }
    Ok(cleared)
}

/// What to do about the cache of compiled kernels.
pub fn cache_advice(cache: &Cache, args: &DoctorArgs) -> Vec<String> {
    let mut out = Vec::new();
    if !cache.writable {
        let path = &cache.path;
        out.push(format!("gpu cache: make {path} writable, or set STEPGRAPH_CACHE to a folder that is."));
    }
    let limit = Bytes(cache.limit_bytes);
    match limit_variable() {
        Err(wrong) => out.push(format!("{wrong}; the limit is {limit} until then.")),
        Ok(Some(_)) if args.cache_limit.is_some() => {
            out.push(format!(
                "STEPGRAPH_CACHE_MIB sets a limit of {limit}, and --cache-limit holds where it is unset."
            ));
        }
        Ok(_) => {}
    }
    out
}

/// Whether files can be created in a folder, or in its nearest ancestor that exists; no file remains.
pub fn is_writable(path: &Path) -> bool {
    let Ok(path) = std::path::absolute(path) else { return false };
    path.ancestors().find(|p| p.exists()).is_some_and(|p| tempfile::tempfile_in(p).is_ok())
}
