//! Attaching to a tun or tap interface (Documentation/networking/tuntap.rst, linux/if_tun.h).
//!
//! Unsafe because requests go to the kernel as raw memory.
#![allow(unsafe_code)]

use super::bpf::Program;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// The interface may deliver packets without checksum, or super-frames of TCP.
const OFFLOADS: libc::c_uint = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6;

/// Makes an open `/dev/net/tun` a queue of this interface, which is created if it does not exist, with the header for
/// `crate::virtio` before each frame.
pub(crate) fn attach(fd: BorrowedFd<'_>, name: &str, is_ethernet: bool, has_queues: bool) -> io::Result<()> {
    // SAFETY: all-zero is a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let bytes = name.as_bytes();
    if bytes.len() >= request.ifr_name.len() || bytes.contains(&0) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in request.ifr_name.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    let kind = if is_ethernet { libc::IFF_TAP } else { libc::IFF_TUN };
    let queues = if has_queues { libc::IFF_MULTI_QUEUE } else { 0 };
    request.ifr_ifru.ifru_flags = (kind | libc::IFF_NO_PI | libc::IFF_VNET_HDR | queues) as libc::c_short;
    // SAFETY: the request reads and writes one ifreq, which is live.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) })?;
    // The length and byte order of that header belong to the interface, and stay as its last user set them.
    let (len, little) = (crate::virtio::LEN as libc::c_int, libc::c_int::from(cfg!(target_endian = "little")));
    for (set, value) in [(libc::TUNSETVNETHDRSZ, &len), (libc::TUNSETVNETLE, &little)] {
        // SAFETY: the requests read one int, which is live.
        check(unsafe { libc::ioctl(fd.as_raw_fd(), set as _, std::ptr::from_ref(value)) })?;
    }
    Ok(())
}

/// Sets whether super-frames and incomplete checksums are accepted.
pub(crate) fn set_offloads(fd: BorrowedFd<'_>, on: bool) -> io::Result<()> {
    let offloads = libc::c_ulong::from(if on { OFFLOADS } else { 0 });
    // SAFETY: the request takes a number and no memory.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETOFFLOAD as _, offloads) })
}

/// Makes the interface drop packets that a program rejects; none without a program.
pub(crate) fn set_filter(fd: BorrowedFd<'_>, program: Option<&Program>) -> io::Result<()> {
    let program: libc::c_int = program.map_or(-1, |program| program.0.as_raw_fd());
    // SAFETY: the request reads one int, which is live; the kernel holds the program itself from then on.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETFILTEREBPF as _, &raw const program) })
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
