//! Who is at the other end of a socket, and who may attach.
//!
//! Unsafe because supplementary groups, and process numbers that can be 0 (a process that cannot be seen from here), are
//! read by libc alone.
#![allow(unsafe_code)]

use rustix::io::Errno;
use rustix::process::{Gid, Uid, getegid, geteuid, getgroups};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// A process, as it was when it connected or began to listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    /// 0 where it cannot be seen from here.
    pub pid: i32,
    pub uid: u32,
    pub gid: u32,
}

impl Peer {
    /// The other end of a socket (`SO_PEERCRED`, unix(7)).
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

/// Who may attach beside root and the user who shares.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Users, by number.
    pub users: Vec<u32>,
    /// Groups, by number: first or supplementary.
    pub groups: Vec<u32>,
    /// Whether readers may ask to be waited for: such a reader can hold the writer up.
    pub lossless: bool,
    /// Whether one of them may decide about frames, by the name it is to call itself by; of an empty name any may.
    pub engine: Option<String>,
    /// The user and group with whose rights a socket in the file system is made, where this is root.
    pub owner: Option<(u32, u32)>,
}

/// The user of whoever has none (`nobody`, and what a user namespace does not know: /proc/sys/kernel/overflowuid).
const NOBODY: u32 = 65_534;

impl Access {
    /// That of a program that goes on as this user and group, who may attach too: unless that is nobody, whose processes have
    /// nothing to do with one another.
    pub fn of_owner(owner: Option<(u32, u32)>) -> Self {
        let users = owner.iter().map(|(user, _)| *user).filter(|user| *user != NOBODY).collect();
        Access { users, owner, ..Access::default() }
    }

    /// Whether anybody else may attach at all.
    pub(crate) fn has_others(&self) -> bool {
        !self.users.is_empty() || !self.groups.is_empty()
    }

    /// Whether this process may.
    pub(crate) fn allows(&self, peer: &Peer, own: u32, socket: BorrowedFd<'_>) -> bool {
        peer.uid == 0
            || peer.uid == own
            || self.users.contains(&peer.uid)
            || self.groups.contains(&peer.gid)
            || (!self.groups.is_empty() && groups(socket).iter().any(|group| self.groups.contains(group)))
    }
}

/// Does something with the rights of another user and group, if this is root; and is root again. Of this thread alone.
pub(crate) fn as_user<T>(user: Option<(u32, u32)>, work: impl FnOnce() -> T) -> Result<T, Errno> {
    let Some((uid, gid)) = user.filter(|(uid, _)| *uid != 0 && geteuid().is_root()) else { return Ok(work()) };
    let (groups, own) = (getgroups()?, getegid());
    let gid = Gid::from_raw(gid);
    set_thread_groups(&[gid])?;
    set_thread_res_gid(None::<Gid>, gid, None::<Gid>)?;
    let result = set_thread_res_uid(None::<Uid>, Uid::from_raw(uid), None::<Uid>).map(|()| work());
    // In the reverse order: it takes root to change groups.
    set_thread_res_uid(None::<Uid>, Uid::ROOT, None::<Uid>)?;
    set_thread_res_gid(None::<Gid>, own, None::<Gid>)?;
    set_thread_groups(&groups)?;
    result
}

/// The supplementary groups of the other end (`SO_PEERGROUPS`, Linux 4.13); none where that cannot be found out.
fn groups(socket: BorrowedFd<'_>) -> Vec<u32> {
    // Few have more; the kernel allows 65,536 (NGROUPS_MAX) and says how many there are.
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
    fn whoever_a_program_goes_on_as_may_attach_but_nobody() {
        assert_eq!(Access::of_owner(Some((1000, 100))).users, [1000]);
        let nobody = Access::of_owner(Some((65_534, 65_534)));
        assert_eq!((nobody.users.len(), nobody.owner), (0, Some((65_534, 65_534))));
        assert_eq!(Access::of_owner(None), Access::default());
    }

    #[test]
    fn root_the_owner_and_those_named_may_attach() {
        let (socket, _other) = UnixStream::pair().unwrap();
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let this = Peer::of(socket.as_fd()).unwrap();
        assert_eq!(this, Peer { pid: std::process::id() as i32, uid, gid });
        // The supplementary groups of this process are those of the peer, whoever it says it is.
        let access = Access { users: vec![4001], groups: vec![4003], ..Access::default() };
        let allows = |uid, gid| access.allows(&Peer { pid: 1, uid, gid }, 4000, socket.as_fd());
        assert!(allows(0, 9) && allows(4000, 9) && allows(4001, 9) && allows(9, 4003));
        assert!(!allows(9, 9) && !allows(4003, 4001));
        let own: Vec<u32> = rustix::process::getgroups().unwrap().iter().map(|group| group.as_raw()).collect();
        assert_eq!(groups(socket.as_fd()), own);
    }
}
