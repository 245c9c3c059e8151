//! Plugin for DPDK, built from these sources.

use super::{has_peer, has_tools};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Returns the plugin, next to this test, where `dpdk:` ports of this process find it too; reports a skip and returns
/// `None` where DPDK is not installed.
///
/// # Panics
/// If DPDK is installed and the plugin cannot be built.
pub fn plugin() -> Option<&'static Path> {
    static PLUGIN: OnceLock<Option<PathBuf>> = OnceLock::new();
    let plugin = PLUGIN.get_or_init(|| {
        let is_installed = has_tools(&["pkg-config", "cc"])
            && Command::new("pkg-config").args(["--exists", "libdpdk"]).status().is_ok_and(|status| status.success());
        if !has_peer(is_installed, "libdpdk") {
            return None;
        }
        let program = std::env::current_exe().expect("this test");
        let folder = program.parent().expect("its folder");
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
        let built = Command::new(root.join("scripts/dpdk")).arg(folder).output().expect("scripts/dpdk");
        let (path, errors) = (String::from_utf8_lossy(&built.stdout), String::from_utf8_lossy(&built.stderr));
        assert!(built.status.success() && errors.is_empty(), "scripts/dpdk: {errors}");
        Some(PathBuf::from(path.trim()))
    });
    plugin.as_deref()
}
