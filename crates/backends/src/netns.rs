//! Runs code inside a network namespace, in its own thread.

use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Directory of the namespaces of `ip netns add`.
pub(crate) const DIRECTORY: &str = "/run/netns";

/// Runs `work` inside the namespace called `name`, or in the current one without a name. Whatever it opens stays in
/// that namespace; the calling thread never leaves its own.
pub fn within<T: Send>(name: Option<&str>, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    let Some(name) = name else { return work() };
    if name.is_empty() || name.contains('/') || name.starts_with('.') {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("invalid namespace name {name:?}")));
    }
    let path = format!("{DIRECTORY}/{name}");
    let namespace = rustix::fs::openat(CWD, &path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .map_err(|error| io::Error::other(format!("no network namespace {name:?} ({path}: {error})")))?;
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).map_err(|error| {
                io::Error::other(format!("cannot enter network namespace {name:?}: {error}; needs CAP_SYS_ADMIN"))
            })?;
            work()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Mounts a /sys whose `class/net` has the interfaces of this thread's network namespace: the usual one may belong to
/// another. It is private, and unmounted with its descriptor.
pub fn sysfs() -> io::Result<OwnedFd> {
    let context = fsopen("sysfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    Ok(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?)
}
