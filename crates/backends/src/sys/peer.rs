//! The user of the peer of a UNIX socket (`SO_PEERCRED`, unix(7)).
//!
//! Unsafe because the answer is a structure that the kernel writes; its process number can be 0, for a process that is
//! not visible from here, which the types of `rustix` do not support.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, BorrowedFd};

/// Returns the user that connected, or started to listen; `None` if unknown.
pub(crate) fn user(socket: BorrowedFd<'_>) -> Option<u32> {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the option writes at most `bytes` bytes into a value of plain numbers.
    let result = unsafe {
        let into = (&raw mut peer).cast();
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, into, &mut bytes)
    };
    (result == 0 && peer.uid != u32::MAX).then_some(peer.uid)
}
