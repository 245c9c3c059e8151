//! Confinement of a run: seccomp for system calls, Landlock for files.
//!
//! Code injected through a packet then cannot start programs, open sockets, access other processes, or write files other than
//! those of the run. Reading stays limited only by the rights of the user.

use super::syscalls;
use anyhow::Context;
use landlock::{
    ABI, AccessFs, BitFlags, PathBeneath, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus,
};
use rustix::fs::{CWD, Mode, OFlags, openat};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch, apply_filter_all_threads};
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Restricts this thread and those it starts to creating, replacing and removing files below `folders`, and to reading below
/// `places` if given. Returns a note for each part that failed.
pub(super) fn confine(folders: &[OwnedFd], places: Option<&[OwnedFd]>) -> Vec<String> {
    let mut lacking = Vec::new();
    match confine_files(folders, places) {
        // Older kernels lack only truncation by path, which is not an allowed call either.
        Ok(RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced) => {}
        Ok(RulesetStatus::NotEnforced) => lacking.push("files: this kernel does not support Landlock".to_owned()),
        Err(error) => lacking.push(format!("files: {error}")),
    }
    if let Err(reason) = confine_calls() {
        lacking.push(format!("system calls: {reason}"));
    }
    lacking.into_iter().map(|what| format!("not confined: {what}")).collect()
}

/// Returns the folder of a ring's socket file, which is removed at the end, for [`DroppedPrivileges::confine`](super::DroppedPrivileges::confine);
/// `None` for a ring without a path.
pub fn socket_folder(ring: &str) -> anyhow::Result<Option<OwnedFd>> {
    let Some(folder) = Path::new(ring).parent().filter(|_| ring.contains('/')) else { return Ok(None) };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(CWD, folder, flags, Mode::empty()).map(Some).with_context(|| folder.display().to_string())
}

/// Returns the folders of these files, and of the targets of links, for
/// [`DroppedPrivileges::confine_reading`](super::DroppedPrivileges::confine_reading).
pub fn folders_of<'a>(files: impl IntoIterator<Item = &'a Path>) -> Vec<OwnedFd> {
    let mut folders = BTreeSet::new();
    for file in files {
        for path in [Some(file.to_owned()), file.canonicalize().ok()].into_iter().flatten() {
            folders.insert(
                path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned(),
            );
        }
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    // A folder that cannot be opened is reported when its files are.
    folders.iter().filter_map(|folder| openat(CWD, folder, flags, Mode::empty()).ok()).collect()
}

/// Files that the C library reads to resolve host names.
const RESOLVER: [&str; 5] = ["/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/host.conf", "/etc/gai.conf"];

fn confine_files(folders: &[OwnedFd], places: Option<&[OwnedFd]>) -> Result<RulesetStatus, RulesetError> {
    let writing = AccessFs::from_write(ABI::V3);
    let beneath: BitFlags<AccessFs> =
        AccessFs::WriteFile | AccessFs::MakeReg | AccessFs::MakeDir | AccessFs::RemoveFile | AccessFs::Truncate;
    let reading: BitFlags<AccessFs> = AccessFs::ReadFile | AccessFs::ReadDir;
    let handled = if places.is_some() { writing | reading } else { writing };
    let mut rules = Ruleset::default().handle_access(handled | AccessFs::Execute)?.create()?;
    // For the report of threads that do not stop.
    let threads = openat(CWD, "/proc/self/task", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok();
    for place in places.into_iter().flat_map(|places| places.iter().chain(&threads)) {
        rules = rules.add_rule(PathBeneath::new(place, reading))?;
    }
    let sockets = linerate_backends::memif::socket_folders();
    #[cfg(feature = "serve")]
    let own = crate::view::metrics::folder();
    #[cfg(not(feature = "serve"))]
    let own: Option<OwnedFd> = None;
    if places.is_some() {
        let names =
            RESOLVER.iter().filter_map(|file| openat(CWD, *file, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok());
        for file in names {
            rules = rules.add_rule(PathBeneath::new(file, AccessFs::ReadFile))?;
        }
    }
    // A spool is read again when its batches are exported.
    let beneath = if places.is_some() { beneath | reading } else { beneath };
    for folder in folders.iter().chain(&sockets).chain(&own) {
        rules = rules.add_rule(PathBeneath::new(folder, beneath))?;
    }
    Ok(rules.restrict_self()?.ruleset)
}

/// Unlisted calls fail with ENOSYS, as on a kernel without them, so that libraries use their fallbacks.
fn confine_calls() -> Result<(), String> {
    if is_costly() {
        return Err("a filter slows memory access before Linux 5.16".to_owned());
    }
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(|error| error.to_string())?;
    let rules = syscalls::allowed().map_err(|error| error.to_string())?;
    let filter = SeccompFilter::new(rules, SeccompAction::Errno(libc::ENOSYS as u32), SeccompAction::Allow, arch)
        .and_then(BpfProgram::try_from)
        .map_err(|error| error.to_string())?;
    apply_filter_all_threads(&filter).map_err(|error| error.to_string())
}

/// Returns whether this kernel disables speculation in processes with a filter (`spec_store_bypass_disable=seccomp`).
fn is_costly() -> bool {
    let release = rustix::system::uname();
    let mut numbers = release.release().to_str().unwrap_or_default().split(['.', '-']).map(str::parse::<u32>);
    let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else { return false };
    (major, minor) < (5, 16)
}
