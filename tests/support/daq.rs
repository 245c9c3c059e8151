//! Module for libdaq 3, built from these sources, and a host that drives it as libdaq does.

use super::program::{Running, spawn};
use super::{has_tools, wait_until};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Returns the module, next to this test; reports a skip and returns `None` without a C compiler or Python (host).
///
/// # Panics
/// If it cannot be built.
pub fn module() -> Option<&'static Path> {
    static MODULE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let module = MODULE.get_or_init(|| {
        if !has_tools(&["cc", "python3"]) {
            return None;
        }
        let program = std::env::current_exe().expect("this test");
        let folder = program.parent().expect("its folder").join("daq");
        let built = Command::new(root().join("scripts/daq")).arg(folder).output().expect("scripts/daq");
        let (path, errors) = (String::from_utf8_lossy(&built.stdout), String::from_utf8_lossy(&built.stderr));
        assert!(built.status.success() && errors.is_empty(), "scripts/daq: {errors}");
        Some(PathBuf::from(path.trim()))
    });
    module.as_deref()
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace")
}

/// Starts the host (`tests/daq/host.py`); arguments: input, mode, action and options.
///
/// # Panics
/// If it cannot be started.
pub fn host(module: &Path, arguments: &[&str]) -> Running {
    let mut command = Command::new("python3");
    command.arg(root().join("tests/daq/host.py")).arg(module).args(arguments);
    spawn(command.stdout(Stdio::piped()).stdin(Stdio::null()))
}

/// Waits until the host has attached, which it writes to this file (`ready=`).
pub fn attached(ready: &str) {
    wait_until("the host has attached", || std::fs::read_to_string(ready).is_ok_and(|text| text == "attached"));
}
