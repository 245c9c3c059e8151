//! Version and build information.

use std::env::consts::{ARCH, OS};

/// Returns the text of `--version`: version, features, build and `commit`, if known.
pub fn version(commit: Option<&str>) -> String {
    let commit = commit.filter(|commit| !commit.is_empty()).unwrap_or("unknown");
    let parquet = if cfg!(feature = "parquet") { "+parquet" } else { "-parquet" };
    let cuda = if cfg!(feature = "cuda") { "+cuda" } else { "-cuda" };
    let library = if cfg!(target_env = "gnu") { "gnu" } else { "other libc" };
    let profile = if cfg!(debug_assertions) { "debug" } else { "release" };
    format!(
        "{}\nfeatures: {parquet} {cuda}\nbuild: {profile}, {ARCH}-{OS}-{library}, commit {commit}",
        env!("CARGO_PKG_VERSION")
    )
}
