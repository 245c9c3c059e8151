//! AF_XDP sockets: creating one over a memory, binding it to a queue, waking the kernel, its statistics
//! (linux/if_xdp.h; Documentation/networking/af_xdp.rst).
//!
//! Unsafe because options and addresses go to the kernel as raw memory.
#![allow(unsafe_code)]

use super::xsk_memory::Memory;
use super::xsk_ring::{Consumer, Offsets, Producer};
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::Arc;

/// `XDP_MAX_TX_SKB_BUDGET` (Linux 6.17): frames sent by one call in copy mode; the default is 32.
const MAX_TX_SKB_BUDGET: i32 = 9;

/// Entries of the four rings: powers of two.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RingSizes {
    /// Frames received.
    pub receive: u32,
    /// Chunks for frames to be received.
    pub fill: u32,
    /// Frames to be sent.
    pub send: u32,
    /// Chunks of frames that were sent.
    pub completion: u32,
}

/// Form in which a queue is bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Binding {
    /// True if the card writes frames into our memory; otherwise the kernel copies them.
    pub zero_copy: bool,
    /// True if frames may use several chunks.
    pub multi_buffer: bool,
}

/// Counts of AF_XDP for a socket.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Statistics {
    /// Frames dropped for lack of a chunk, or longer than a chunk.
    pub dropped: u64,
    /// Frames dropped because the receive ring was full.
    pub ring_full: u64,
    /// Times no chunk was found in the fill ring.
    pub fill_empty: u64,
    /// Descriptors in the send ring that the kernel rejected as invalid.
    pub invalid_send: u64,
}

#[derive(Debug)]
pub(crate) struct XskSocket {
    fd: OwnedFd,
    /// Registered with the kernel, which may write it as long as the socket is open.
    memory: Arc<Memory>,
}

/// The rings of a socket.
pub(crate) struct Rings {
    /// Frames received.
    pub receive: Consumer<libc::xdp_desc>,
    /// Chunks for frames to be received.
    pub fill: Producer<u64>,
    /// Frames to be sent.
    pub send: Producer<libc::xdp_desc>,
    /// Chunks of frames that were sent.
    pub completion: Consumer<u64>,
}

impl XskSocket {
    /// Creates a socket over a memory, with its rings.
    pub(crate) fn new(memory: Arc<Memory>, sizes: RingSizes) -> io::Result<(Self, Rings)> {
        // SAFETY: no memory is passed.
        let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` is a new descriptor that nothing else owns.
        let socket = XskSocket { fd: unsafe { OwnedFd::from_raw_fd(fd) }, memory };
        socket.set(
            libc::SOL_XDP,
            libc::XDP_UMEM_REG,
            &libc::xdp_umem_reg {
                addr: socket.memory.base() as u64,
                len: socket.memory.chunk_bytes() as u64,
                chunk_size: socket.memory.chunk(),
                headroom: 0,
                flags: 0,
                tx_metadata_len: 0,
            },
        )?;
        socket.set(libc::SOL_XDP, libc::XDP_UMEM_FILL_RING, &sizes.fill)?;
        socket.set(libc::SOL_XDP, libc::XDP_UMEM_COMPLETION_RING, &sizes.completion)?;
        socket.set(libc::SOL_XDP, libc::XDP_RX_RING, &sizes.receive)?;
        socket.set(libc::SOL_XDP, libc::XDP_TX_RING, &sizes.send)?;
        // SAFETY: struct xdp_mmap_offsets is sixteen integers, valid with any bytes.
        let offsets: libc::xdp_mmap_offsets = unsafe { socket.get(libc::XDP_MMAP_OFFSETS) }?;
        let fd = socket.fd.as_fd();
        let rings = Rings {
            receive: Consumer::new(fd, libc::XDP_PGOFF_RX_RING as u64, parts(&offsets.rx), sizes.receive)?,
            fill: Producer::new(fd, libc::XDP_UMEM_PGOFF_FILL_RING, parts(&offsets.fr), sizes.fill)?,
            send: Producer::new(fd, libc::XDP_PGOFF_TX_RING as u64, parts(&offsets.tx), sizes.send)?,
            completion: Consumer::new(fd, libc::XDP_UMEM_PGOFF_COMPLETION_RING, parts(&offsets.cr), sizes.completion)?,
        };
        Ok((socket, rings))
    }

    /// Binds to a queue of an interface.
    pub(crate) fn bind(&self, interface: u32, queue: u32, binding: Binding) -> io::Result<()> {
        let copy = if binding.zero_copy { libc::XDP_ZEROCOPY } else { libc::XDP_COPY };
        let several = if binding.multi_buffer { libc::XDP_USE_SG } else { 0 };
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: copy | several | libc::XDP_USE_NEED_WAKEUP,
            sxdp_ifindex: interface,
            sxdp_queue_id: queue,
            sxdp_shared_umem_fd: 0,
        };
        // SAFETY: the address is a whole sockaddr_xdp and its size is passed.
        check(unsafe {
            libc::bind(self.fd.as_raw_fd(), (&raw const address).cast(), size_of::<libc::sockaddr_xdp>() as u32)
        })
    }

    /// Sets the number of frames that one call sends, if the kernel supports the option.
    pub(crate) fn set_send_budget(&self, frames: u32) {
        let _ = self.set(libc::SOL_XDP, MAX_TX_SKB_BUDGET, &frames);
    }

    /// Makes calls on this socket drive the card's queue instead of its interrupts, up to `budget` frames per call.
    pub(crate) fn set_busy_poll(&self, budget: u32) -> io::Result<()> {
        self.set(libc::SOL_SOCKET, libc::SO_PREFER_BUSY_POLL, &1u32)?;
        self.set(libc::SOL_SOCKET, libc::SO_BUSY_POLL, &20u32)?;
        self.set(libc::SOL_SOCKET, libc::SO_BUSY_POLL_BUDGET, &budget)
    }

    /// Returns the descriptor, to wait on and to put into a map.
    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Makes the kernel check the fill ring, and the card with busy polling.
    pub(crate) fn kick_receive(&self) {
        // SAFETY: no memory is passed.
        unsafe {
            libc::recvfrom(
                self.fd.as_raw_fd(),
                ptr::null_mut(),
                0,
                libc::MSG_DONTWAIT,
                ptr::null_mut(),
                ptr::null_mut(),
            );
        }
    }

    /// Makes the kernel send the frames in the send ring.
    pub(crate) fn kick_send(&self) -> io::Result<()> {
        // SAFETY: no memory is passed.
        let result = unsafe { libc::sendto(self.fd.as_raw_fd(), ptr::null(), 0, libc::MSG_DONTWAIT, ptr::null(), 0) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Returns the counts since the socket was created.
    pub(crate) fn statistics(&self) -> Statistics {
        // SAFETY: struct xdp_statistics is six integers, valid with any bytes.
        let counts: libc::xdp_statistics = unsafe { self.get(libc::XDP_STATISTICS) }.unwrap_or_else(|_| {
            // SAFETY: as above.
            unsafe { std::mem::zeroed() }
        });
        Statistics {
            dropped: counts.rx_dropped,
            ring_full: counts.rx_ring_full,
            fill_empty: counts.rx_fill_ring_empty_descs,
            invalid_send: counts.tx_invalid_descs,
        }
    }

    /// Returns the pending error of the socket and clears it.
    pub(crate) fn take_error(&self) -> io::Result<()> {
        let mut code = 0i32;
        let mut length = size_of::<i32>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes into `code`.
        check(unsafe {
            libc::getsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_ERROR,
                (&raw mut code).cast(),
                &raw mut length,
            )
        })?;
        if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) }
    }

    fn set<T>(&self, level: i32, option: i32, value: &T) -> io::Result<()> {
        // SAFETY: `value` is a live T and its size is passed.
        check(unsafe {
            libc::setsockopt(
                self.fd.as_raw_fd(),
                level,
                option,
                (&raw const *value).cast(),
                size_of::<T>() as libc::socklen_t,
            )
        })
    }

    /// # Safety
    /// `T` consists of integers without padding.
    unsafe fn get<T>(&self, option: i32) -> io::Result<T> {
        // SAFETY: integers are valid with all bits zero.
        let mut value: T = unsafe { std::mem::zeroed() };
        let mut length = size_of::<T>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes into `value`.
        check(unsafe {
            libc::getsockopt(self.fd.as_raw_fd(), libc::SOL_XDP, option, (&raw mut value).cast(), &raw mut length)
        })?;
        Ok(value)
    }
}

fn parts(offset: &libc::xdp_ring_offset) -> Offsets {
    Offsets { producer: offset.producer, consumer: offset.consumer, entries: offset.desc, flags: offset.flags }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
