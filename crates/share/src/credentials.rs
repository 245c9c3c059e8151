//! Credentials of the peer of a socket, and the users that may attach.
//!
//! Unsafe because only libc reads supplementary groups, and process numbers that can be 0 (a process that is not
//! visible from here).
#![allow(unsafe_code)]

use rustix::io::Errno;
use rustix::process::{Gid, Uid, getegid, geteuid, getgroups};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// A process, as it was when it connected or started to listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    /// 0 if it is not visible from here.
    pub pid: i32,
    pub uid: u32,
    pub gid: u32,
}

impl Peer {
    /// Returns the peer of a socket (`SO_PEERCRED`, unix(7)).
    pub(crate) fn of(socket: BorrowedFd<'_>) -> io::Result<Peer> {
        let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
        let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
        // SAFETY: the option writes at most `bytes` bytes into a value of plain numbers.
        let result = unsafe {
            let into = (&raw mut peer).cast();
            libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, into, &mut bytes)
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Peer { pid: peer.pid, uid: peer.uid, gid: peer.gid })
    }
}

/// Users that may attach, in addition to root and the owner of the ring.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// User numbers.
    pub users: Vec<u32>,
    /// Group numbers: primary or supplementary.
    pub groups: Vec<u32>,
    /// True if lossless readers are allowed: such a reader can block the writer.
    pub lossless: bool,
    /// The name of the engine that may give verdicts on frames; `None`: no engine, an empty name: any engine.
    pub engine: Option<String>,
    /// The user and group with whose rights a socket in the file system is created, if this process is root.
    pub owner: Option<(u32, u32)>,
}

/// The overflow user (65534, and users unknown in a user namespace: /proc/sys/kernel/overflowuid).
const NOBODY: u32 = 65_534;

impl Access {
    /// Returns the access of a program that drops privileges to this user and group. The user may attach too, unless it
    /// is `nobody`, whose processes are unrelated to one another.
    pub fn of_owner(owner: Option<(u32, u32)>) -> Self {
        let users = owner.iter().map(|(user, _)| *user).filter(|user| *user != NOBODY).collect();
        Access { users, owner, ..Access::default() }
    }

    /// Returns whether any other user may attach.
    pub(crate) fn allows_others(&self) -> bool {
        !self.users.is_empty() || !self.groups.is_empty()
    }

    /// Returns whether this process may attach.
    pub(crate) fn allows(&self, peer: &Peer, own: u32, socket: BorrowedFd<'_>) -> bool {
        peer.uid == 0
            || peer.uid == own
            || self.users.contains(&peer.uid)
            || self.groups.contains(&peer.gid)
            || (!self.groups.is_empty() && groups(socket).iter().any(|group| self.groups.contains(group)))
    }
}

/// Runs `work` with the rights of another user and group, if this process is root, then restores root. Affects only
/// this thread.
pub(crate) fn as_user<T>(user: Option<(u32, u32)>, work: impl FnOnce() -> T) -> Result<T, Errno> {
    let Some((uid, gid)) = user.filter(|(uid, _)| *uid != 0 && geteuid().is_root()) else { return Ok(work()) };
    let (groups, own) = (getgroups()?, getegid());
    let gid = Gid::from_raw(gid);
    set_thread_groups(&[gid])?;
    set_thread_res_gid(None::<Gid>, gid, None::<Gid>)?;
    let result = set_thread_res_uid(None::<Uid>, Uid::from_raw(uid), None::<Uid>).map(|()| work());
    // In reverse order: only root may change groups.
    set_thread_res_uid(None::<Uid>, Uid::ROOT, None::<Uid>)?;
    set_thread_res_gid(None::<Gid>, own, None::<Gid>)?;
    set_thread_groups(&groups)?;
    result
}

/// Returns the supplementary groups of the peer (`SO_PEERGROUPS`, Linux 4.13); none if they cannot be read.
fn groups(socket: BorrowedFd<'_>) -> Vec<u32> {
    // Few have more; the kernel allows 65,536 (NGROUPS_MAX) and returns the size needed.
    let mut groups = vec![0u32; 32];
    loop {
        let room = size_of_val(&groups[..]) as libc::socklen_t;
        let mut bytes = room;
        // SAFETY: the option writes at most `bytes` bytes of plain numbers.
        let result = unsafe {
            let into = groups.as_mut_ptr().cast();
            libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERGROUPS, into, &mut bytes)
        };
        let is_short = result != 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ERANGE);
        groups.resize(if result == 0 || is_short { bytes as usize / size_of::<u32>() } else { 0 }, 0);
        if !is_short || bytes <= room {
            return if is_short { Vec::new() } else { groups };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn the_unprivileged_user_may_attach_unless_it_is_the_overflow_user() {
        assert_eq!(Access::of_owner(Some((1000, 100))).users, [1000]);
        let overflow = Access::of_owner(Some((65_534, 65_534)));
        assert_eq!((overflow.users.len(), overflow.owner), (0, Some((65_534, 65_534))));
        assert_eq!(Access::of_owner(None), Access::default());
    }

    #[test]
    fn root_owner_and_named_users_may_attach() {
        let (socket, _other) = UnixStream::pair().unwrap();
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let this = Peer::of(socket.as_fd()).unwrap();
        assert_eq!(this, Peer { pid: std::process::id() as i32, uid, gid });
        // The peer's supplementary groups are those of this process, whatever ids the `Peer` has.
        let access = Access { users: vec![4001], groups: vec![4003], ..Access::default() };
        let allows = |uid, gid| access.allows(&Peer { pid: 1, uid, gid }, 4000, socket.as_fd());
        assert!(allows(0, 9) && allows(4000, 9) && allows(4001, 9) && allows(9, 4003));
        assert!(!allows(9, 9) && !allows(4003, 4001));
        let own: Vec<u32> = rustix::process::getgroups().unwrap().iter().map(|group| group.as_raw()).collect();
        assert_eq!(groups(socket.as_fd()), own);
    }
}
