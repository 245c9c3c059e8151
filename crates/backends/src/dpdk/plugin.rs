//! Finds the plugin, and starts DPDK.

use crate::sys::dpdk_plugin::{Plugin, is_secure};
use rustix::process::geteuid;
use std::cmp::Reverse;
use std::fs::read_dir;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Default memory of DPDK in this process, set by the first port.
pub const MEMORY_MIB: u32 = 512;
/// Installation folders.
const FOLDERS: [&str; 2] = ["/usr/local/lib/linerate", "/usr/lib/linerate"];
/// Prefix of its name; the ABI of DPDK follows.
const NAME: &str = "linerate-dpdk.so.";
/// Environment variable with a plugin, or its folder.
const VARIABLE: &str = "LINERATE_DPDK";

/// DPDK as it was started.
struct DpdkRuntime {
    plugin: Plugin,
    memory_mib: u32,
    huge: bool,
}

static STARTED: OnceLock<Result<DpdkRuntime, String>> = OnceLock::new();

/// Returns the version of DPDK in use, or why none is available.
pub fn version() -> Result<String, String> {
    plugin(None, false).map(|plugin| plugin.version.clone())
}

/// Returns the plugin; the first call starts DPDK, with this memory, in huge pages if a card is to be opened.
pub(super) fn plugin(memory_mib: Option<u32>, is_card: bool) -> Result<&'static Plugin, String> {
    let start = || {
        let plugin = find()?;
        let memory_mib = memory_mib.unwrap_or(MEMORY_MIB);
        let huge = is_card && huge_pages_mib() >= u64::from(memory_mib);
        plugin.start(memory_mib, huge, &format!("linerate-{}", std::process::id()))?;
        Ok(DpdkRuntime { plugin, memory_mib, huge })
    };
    let started = STARTED.get_or_init(start).as_ref().map_err(Clone::clone)?;
    match memory_mib {
        Some(asked) if asked != started.memory_mib => Err(format!(
            "memory= of the first port applies to the process: DPDK has {} MiB, not {asked}",
            started.memory_mib
        )),
        _ => Ok(&started.plugin),
    }
}

/// Describes what was started.
pub(super) fn how() -> String {
    match STARTED.get() {
        Some(Ok(started)) => format!(
            "{} with {} MiB{}",
            started.plugin.version,
            started.memory_mib,
            if started.huge { " in huge pages" } else { "" }
        ),
        _ => "DPDK".to_owned(),
    }
}

/// Loads the first plugin that can be loaded.
fn find() -> Result<Plugin, String> {
    let named = std::env::var_os(VARIABLE).filter(|_| !is_secure()).map(PathBuf::from);
    let folders = match &named {
        Some(path) if !path.is_dir() => return load(path),
        Some(folder) => vec![folder.clone()],
        None => folders(),
    };
    let mut reasons = Vec::new();
    for path in folders.iter().flat_map(|folder| plugins(folder)) {
        match load(&path) {
            Ok(plugin) => return Ok(plugin),
            Err(reason) => reasons.push(reason),
        }
    }
    if reasons.is_empty() {
        let looked: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
        return Err(format!(
            "no plugin for DPDK ({NAME}N) in {}; build it with make dpdk (needs Debian's dpdk-dev)",
            looked.join(", ")
        ));
    }
    Err(reasons.join("; "))
}

fn load(path: &Path) -> Result<Plugin, String> {
    trusted(path).map_err(|reason| format!("plugin {}: {reason}", path.display()))?;
    Plugin::load(path).map_err(|reason| format!("plugin {}: {reason}", path.display()))
}

/// Rejects files that other users may have written, since they run with all rights of this process. The folder is
/// checked too.
pub fn trusted(path: &Path) -> Result<(), String> {
    let path = path.canonicalize().map_err(|error| error.to_string())?;
    for place in [Some(&*path), path.parent()].into_iter().flatten() {
        let data = place.metadata().map_err(|error| error.to_string())?;
        let is_own = data.uid() == 0 || data.uid() == geteuid().as_raw();
        if !is_own || data.mode() & 0o022 != 0 {
            return Err(format!("{} is writable by other users; chown root, chmod go-w", place.display()));
        }
    }
    Ok(())
}

/// Returns the folders of plugins. A setuid or capable program ignores the folder of the executable.
fn folders() -> Vec<PathBuf> {
    let own = std::env::current_exe().ok().filter(|_| !is_secure());
    let own = own.and_then(|program| Some(program.parent()?.to_path_buf()));
    let lib = own.as_ref().map(|folder| folder.join("../lib/linerate")).filter(|folder| folder.is_dir());
    let mut folders: Vec<PathBuf> = own.into_iter().chain(lib).collect();
    folders.extend(FOLDERS.map(PathBuf::from));
    folders
}

/// Returns the plugins of a folder, that of the latest DPDK first.
fn plugins(folder: &Path) -> Vec<PathBuf> {
    let entries = read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| abi(path).is_some()).collect();
    found.sort_by_key(|path| Reverse(abi(path)));
    found
}

/// Returns the ABI of DPDK that a file is a plugin for.
fn abi(path: &Path) -> Option<u32> {
    path.file_name()?.to_str()?.strip_prefix(NAME)?.parse().ok()
}

/// Returns the free memory in huge pages.
fn huge_pages_mib() -> u64 {
    let entries = read_dir("/sys/kernel/mm/hugepages").into_iter().flatten().flatten();
    let free = entries.filter_map(|entry| {
        let kib: u64 = entry.file_name().to_str()?.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
        let free: u64 = std::fs::read_to_string(entry.path().join("free_hugepages")).ok()?.trim().parse().ok()?;
        Some(kib * free / 1024)
    });
    free.sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{Permissions, create_dir, remove_dir_all, set_permissions, write};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn plugin_writable_by_others_is_not_loaded() {
        let folder = std::env::temp_dir().join(format!("linerate-plugin-{}", std::process::id()));
        create_dir(&folder).unwrap();
        let path = folder.join("plugin");
        write(&path, "").unwrap();
        let with = |of_folder: u32, of_file: u32| {
            set_permissions(&folder, Permissions::from_mode(of_folder)).unwrap();
            set_permissions(&path, Permissions::from_mode(of_file)).unwrap();
            trusted(&path).is_ok()
        };
        let may = [with(0o755, 0o644), with(0o777, 0o644), with(0o1777, 0o644), with(0o755, 0o664), with(0o755, 0o646)];
        remove_dir_all(&folder).unwrap();
        assert_eq!(may, [true, false, false, false, false]);
        assert!(trusted(&path).is_err());
    }
}
