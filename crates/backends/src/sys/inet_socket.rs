//! Information of a sending socket that the standard library does not provide: acknowledged bytes, and when they were
//! acknowledged (tcp(7), Documentation/networking/timestamping.rst).
//!
//! Unsafe because options, control messages and ioctls go to the kernel as raw memory.
#![allow(unsafe_code)]

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd};

/// linux/net_tstamp.h: a stamp when the peer has acknowledged, without data, by the system clock.
const TX_ACK: u32 = 1 << 9;
const SOFTWARE: u32 = 1 << 4;
const STAMP_ONLY: u32 = 1 << 11;
/// With the number of the byte, counted from the first one written after this was set.
const OPT_ID: u32 = 1 << 7;
/// linux/udp.h.
const UDP_SEGMENT: i32 = 103;

/// Aligned room for the control message of a timestamp and others.
type ControlBuffer = [u64; 32];

/// Information of the kernel on a connection (linux/tcp.h), as far as used here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// Shortest round trip, in microseconds.
    pub min_rtt_us: u32,
    /// Number of retransmitted segments.
    pub resent: u32,
    /// Time limited by the receiver's window, in microseconds.
    pub window_limited_us: u64,
    /// Time limited by the send buffer, in microseconds.
    pub buffer_limited_us: u64,
}

/// Returns the bytes written that the peer has not acknowledged yet.
pub(crate) fn unacknowledged(fd: BorrowedFd<'_>) -> io::Result<u64> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the request (SIOCOUTQ, the same number) writes one int, which is live.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) } as isize)?;
    Ok(bytes.max(0) as u64)
}

/// Enables stamps for bytes marked by [`write_marked`], read by [`acknowledged_at`].
pub(crate) fn enable_ack_timestamps(fd: BorrowedFd<'_>) -> io::Result<()> {
    set(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, &(SOFTWARE | STAMP_ONLY | OPT_ID))
}

/// Makes the kernel segment written data into datagrams of this size.
pub(crate) fn cut_datagrams(fd: BorrowedFd<'_>, bytes: u16) -> io::Result<()> {
    set(fd, libc::SOL_UDP, UDP_SEGMENT, &i32::from(bytes))
}

/// Writes, and marks the last byte that is taken: the kernel stamps its acknowledgement.
pub(crate) fn write_marked(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    let mut piece = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut control: ControlBuffer = [0; 32];
    // SAFETY: all-zero is a valid msghdr.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = &raw mut piece;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    // SAFETY: CMSG_SPACE, CMSG_LEN and CMSG_DATA calculate; the first header is at the start of `control`, which is
    // aligned for it and has room for one message of four bytes.
    unsafe {
        message.msg_controllen = libc::CMSG_SPACE(4) as _;
        let head = libc::CMSG_FIRSTHDR(&raw const message);
        (*head).cmsg_level = libc::SOL_SOCKET;
        (*head).cmsg_type = libc::SO_TIMESTAMPING;
        (*head).cmsg_len = libc::CMSG_LEN(4) as _;
        libc::CMSG_DATA(head).cast::<u32>().write_unaligned(TX_ACK);
    }
    // SAFETY: the message points to live memory of the given sizes, which the kernel only reads.
    check(unsafe { libc::sendmsg(fd.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) })
}

/// An acknowledged marked byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AckStamp {
    /// Number of the byte among all written, modulo 2^32.
    pub place: u32,
    /// Time in nanoseconds of UTC.
    pub at: u64,
}

/// Returns the oldest acknowledged marked byte that was not returned yet.
pub(crate) fn acknowledged_at(fd: BorrowedFd<'_>) -> io::Result<Option<AckStamp>> {
    let mut control: ControlBuffer = [0; 32];
    // SAFETY: all-zero is a valid msghdr.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = size_of::<ControlBuffer>() as _;
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    // SAFETY: the message has no pieces, and room for control messages of the given size.
    match check(unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut message, flags) }) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
        Err(error) => return Err(error),
    }
    let (mut at, mut place) = (None, None);
    // SAFETY: the kernel has written whole control messages and their length; the walk stays within them, and the payload of these
    // kinds is three timespecs, and a sock_extended_err.
    unsafe {
        let mut head = libc::CMSG_FIRSTHDR(&raw const message);
        while !head.is_null() {
            match ((*head).cmsg_level, (*head).cmsg_type) {
                (libc::SOL_SOCKET, libc::SCM_TIMESTAMPING) => {
                    let stamp = libc::CMSG_DATA(head).cast::<libc::timespec>().read_unaligned();
                    at = Some(stamp.tv_sec as u64 * 1_000_000_000 + stamp.tv_nsec as u64);
                }
                (libc::SOL_IP, libc::IP_RECVERR) | (libc::SOL_IPV6, libc::IPV6_RECVERR) => {
                    place = Some(libc::CMSG_DATA(head).cast::<libc::sock_extended_err>().read_unaligned().ee_data);
                }
                _ => {}
            }
            head = libc::CMSG_NXTHDR(&raw const message, head);
        }
    }
    // An error without a stamp, such as one from ICMP, is ignored: the next write or read returns it.
    Ok(at.zip(place).map(|(at, place)| AckStamp { place, at }))
}

/// Returns the kernel's information on a connection; zeros for fields that the kernel lacks.
pub(crate) fn tcp_info(fd: BorrowedFd<'_>) -> io::Result<TcpInfo> {
    let mut info = [0_u8; 256];
    let mut len = info.len() as libc::socklen_t;
    let at = info.as_mut_ptr();
    // SAFETY: the kernel writes at most `len` bytes, which are live.
    check(unsafe { libc::getsockopt(fd.as_raw_fd(), libc::SOL_TCP, libc::TCP_INFO, at.cast(), &raw mut len) } as isize)?;
    let word = |at: usize| u32::from_ne_bytes(info[at..at + 4].try_into().unwrap_or_default());
    let long = |at: usize| u64::from_ne_bytes(info[at..at + 8].try_into().unwrap_or_default());
    Ok(TcpInfo { resent: word(100), min_rtt_us: word(148), window_limited_us: long(176), buffer_limited_us: long(184) })
}

fn set<T: Copy>(fd: BorrowedFd<'_>, level: i32, option: i32, value: &T) -> io::Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` is a live T and its size is passed.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, (&raw const *value).cast(), len) } as isize)
        .map(drop)
}

fn check(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}
