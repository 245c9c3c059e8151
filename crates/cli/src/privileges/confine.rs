//! What of the kernel is left to a run: a filter of system calls, and of the files it may make.
//!
//! Whatever takes the program over by the bytes of a frame then finds no program to start, no socket to open, no other
//! process to look into, and no file to write beside those of the run. Reading files stays as the user may.

use super::calls;
use anyhow::Context;
use landlock::{
    ABI, AccessFs, BitFlags, PathBeneath, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus,
};
use rustix::fs::{CWD, Mode, OFlags, openat};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch, apply_filter_all_threads};
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Lets this thread and those it starts make, replace and remove files beneath `folders` alone, and read them beneath `places`
/// alone if these are given. Returns what could not be done: nothing usually.
pub(super) fn confine(folders: &[OwnedFd], places: Option<&[OwnedFd]>) -> Vec<String> {
    let mut lacking = Vec::new();
    match confine_files(folders, places) {
        // What older ones do not know is cutting files by name, which is no call of the list either.
        Ok(RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced) => {}
        Ok(RulesetStatus::NotEnforced) => lacking.push("files: this kernel has no Landlock".to_owned()),
        Err(error) => lacking.push(format!("files: {error}")),
    }
    if let Err(reason) = confine_calls() {
        lacking.push(format!("system calls: {reason}"));
    }
    lacking.into_iter().map(|what| format!("not confined in {what}")).collect()
}

/// The folder of the socket that a ring has, which is removed in the end, for [`Assumed::confine`](super::Assumed::confine); none of a ring with a name alone.
pub fn socket_folder(ring: &str) -> anyhow::Result<Option<OwnedFd>> {
    let Some(folder) = Path::new(ring).parent().filter(|_| ring.contains('/')) else { return Ok(None) };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(CWD, folder, flags, Mode::empty()).map(Some).with_context(|| folder.display().to_string())
}

/// The folders of these files, and of those that they are links to, for
/// [`Assumed::confine_reading`](super::Assumed::confine_reading).
pub fn read_places<'a>(files: impl IntoIterator<Item = &'a Path>) -> Vec<OwnedFd> {
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

/// Files by which the C library finds the addresses of a host name.
const RESOLVER: [&str; 5] = ["/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/host.conf", "/etc/gai.conf"];

fn confine_files(folders: &[OwnedFd], places: Option<&[OwnedFd]>) -> Result<RulesetStatus, RulesetError> {
    let writing = AccessFs::from_write(ABI::V3);
    let beneath: BitFlags<AccessFs> =
        AccessFs::WriteFile | AccessFs::MakeReg | AccessFs::MakeDir | AccessFs::RemoveFile | AccessFs::Truncate;
    let reading: BitFlags<AccessFs> = AccessFs::ReadFile | AccessFs::ReadDir;
    let handled = if places.is_some() { writing | reading } else { writing };
    let mut rules = Ruleset::default().handle_access(handled | AccessFs::Execute)?.create()?;
    // The threads of the process are reported when it does not stop.
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
    // A spool is read again when its batches are sent.
    let beneath = if places.is_some() { beneath | reading } else { beneath };
    for folder in folders.iter().chain(&sockets).chain(&own) {
        rules = rules.add_rule(PathBeneath::new(folder, beneath))?;
    }
    Ok(rules.restrict_self()?.ruleset)
}

/// What is not listed looks as in a kernel that does not have it, so that libraries do without.
fn confine_calls() -> Result<(), String> {
    if is_costly() {
        return Err("before Linux 5.16 a filter slows all memory down".to_owned());
    }
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(|error| error.to_string())?;
    let rules = calls::allowed().map_err(|error| error.to_string())?;
    let filter = SeccompFilter::new(rules, SeccompAction::Errno(libc::ENOSYS as u32), SeccompAction::Allow, arch)
        .and_then(BpfProgram::try_from)
        .map_err(|error| error.to_string())?;
    apply_filter_all_threads(&filter).map_err(|error| error.to_string())
}

/// Older kernels do without speculation in whatever has a filter (`spec_store_bypass_disable=seccomp`).
fn is_costly() -> bool {
    let release = rustix::system::uname();
    let mut numbers = release.release().to_str().unwrap_or_default().split(['.', '-']).map(str::parse::<u32>);
    let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else { return false };
    (major, minor) < (5, 16)
}
