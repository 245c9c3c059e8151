//! Network namespaces by name: enters and identifies them, and lists their processes.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::thread;

use rustix::fs::{Mode, OFlags};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde::{Deserialize, Serialize};

use crate::error::LabError;
use crate::names;

/// Directory in which `ip netns add` creates names (ip-netns(8)).
const DIRECTORY: &str = "/run/netns";

/// File system type of a namespace's file: `NSFS_MAGIC` (linux/magic.h).
const NSFS_MAGIC: u64 = 0x6e73_6673;

/// Runs `work` inside the network namespace `namespace`, in its own thread, and waits for it.
///
/// Sockets and processes created by `work` stay in that namespace; `/proc/sys/net` and `/proc/thread-self/net` are
/// that namespace's, `/sys/class/net` is **not** (use `ip netns exec`). A panic of `work` is propagated.
pub fn within<T: Send>(namespace: &str, work: impl FnOnce() -> T + Send) -> Result<T, LabError> {
    let cannot = |source| LabError::Enter { namespace: namespace.to_owned(), source };
    names::check_namespace(namespace).map_err(|e| cannot(io::Error::new(io::ErrorKind::InvalidInput, e)))?;
    let door = File::open(path(namespace)).map_err(cannot)?;
    let entered = thread::scope(|scope| {
        let visitor = thread::Builder::new().name("lab-within".into()).spawn_scoped(scope, || {
            move_into_link_name_space(door.as_fd(), Some(LinkNameSpaceType::Network))?;
            Ok(work())
        })?;
        visitor.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    entered.map_err(cannot)
}

/// Identity of a namespace while it exists, to distinguish it from another one of the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
}

/// Object behind a name in `/run/netns`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    /// The name does not exist.
    Absent,
    Namespace(Identity),
    /// An empty file without a namespace: `ip netns add` was killed halfway, or the machine was restarted with a
    /// persistent `/run`.
    Leftover,
    /// An object that `ip netns add` does not create.
    Other,
}

/// Examines a name.
pub(crate) fn presence(namespace: &str) -> Result<Presence, LabError> {
    let path = path(namespace);
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::open(&path, flags, Mode::empty()) {
        Ok(fd) => File::from(fd),
        Err(rustix::io::Errno::NOENT) => return Ok(Presence::Absent),
        Err(rustix::io::Errno::LOOP) => return Ok(Presence::Other),
        Err(e) => return Err(LabError::file("open", path)(e.into())),
    };
    let metadata = file.metadata().map_err(LabError::file("examine", &path))?;
    let system = rustix::fs::fstatfs(&file).map_err(|e| LabError::file("examine", &path)(e.into()))?;
    Ok(match (u64::try_from(system.f_type), metadata.is_file()) {
        (Ok(NSFS_MAGIC), _) => Presence::Namespace(Identity { device: metadata.dev(), inode: metadata.ino() }),
        (_, true) if metadata.len() == 0 => Presence::Leftover,
        _ => Presence::Other,
    })
}

/// Returns the processes with a thread in each of the namespaces, in the same order.
///
/// Not a consistent snapshot: processes that end during the scan are omitted.
pub(crate) fn processes_in(namespaces: &[Identity]) -> Vec<BTreeSet<u32>> {
    let mut found = vec![BTreeSet::new(); namespaces.len()];
    for (pid, process) in numbered("/proc".into()) {
        for (_, thread) in numbered(process.join("task")) {
            let Ok(metadata) = fs::metadata(thread.join("ns/net")) else { continue };
            let identity = Identity { device: metadata.dev(), inode: metadata.ino() };
            if let Some(at) = namespaces.iter().position(|&namespace| namespace == identity) {
                found[at].insert(pid);
            }
        }
    }
    found
}

fn path(namespace: &str) -> PathBuf {
    PathBuf::from(DIRECTORY).join(namespace)
}

/// Returns the entries of a directory whose names are numbers.
fn numbered(directory: PathBuf) -> impl Iterator<Item = (u32, PathBuf)> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_namespace_is_absent_and_cannot_be_entered() {
        assert_eq!(presence("linerate-no-such-namespace").unwrap(), Presence::Absent);
        let error = within("linerate-no-such-namespace", || ()).unwrap_err();
        assert!(error.to_string().contains("linerate-no-such-namespace"), "{error}");
        assert!(within("../netns/x", || ()).unwrap_err().to_string().contains("without '/'"));
    }

    #[test]
    fn process_is_found_in_its_namespace() {
        let metadata = fs::metadata("/proc/self/ns/net").unwrap();
        let own = Identity { device: metadata.dev(), inode: metadata.ino() };
        let other = Identity { inode: own.inode + 1_000_000, ..own };
        let found = processes_in(&[other, own]);
        assert!(found[0].is_empty());
        assert!(found[1].contains(&std::process::id()));
    }
}
