//! Doing something inside a network namespace, from a thread of its own.

use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Where `ip netns add` keeps its namespaces.
pub(crate) const DIRECTORY: &str = "/run/netns";

/// Runs `work` inside the namespace called `name`, or right here where there is no name. What it opens
/// stays in that namespace for good; the calling thread never leaves its own.
pub fn within<T: Send>(name: Option<&str>, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    let Some(name) = name else { return work() };
    if name.is_empty() || name.contains('/') || name.starts_with('.') {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{name:?} is no name of a namespace")));
    }
    let path = format!("{DIRECTORY}/{name}");
    let namespace = rustix::fs::openat(CWD, &path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .map_err(|error| io::Error::other(format!("no network namespace {name:?} ({path}: {error})")))?;
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).map_err(|error| {
                io::Error::other(format!(
                    "cannot enter the network namespace {name:?} ({error}); it needs CAP_SYS_ADMIN"
                ))
            })?;
            work()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// A /sys whose `class/net` has the interfaces of this thread's network namespace: the usual one may have those of another.
/// Nobody else sees it, and it goes with its descriptor.
pub fn sysfs() -> io::Result<OwnedFd> {
    let context = fsopen("sysfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    Ok(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?)
}
