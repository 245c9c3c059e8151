//! AF_PACKET sockets: opening, options, sending (packet(7), linux/if_packet.h).
//!
//! Unsafe because options, addresses and message vectors go to the kernel as raw memory.
#![allow(unsafe_code)]

use linerate_burst::Burst;
use linerate_filter::Insn;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Frames handed to the kernel in one call.
pub(crate) const SEND_BATCH: usize = 64;

/// Counts of AF_PACKET since the last call.
#[derive(Clone, Copy, Default)]
pub(crate) struct Statistics {
    /// Frames that passed the socket's filter, including dropped ones.
    pub received: u64,
    /// Frames dropped because the ring was full.
    pub dropped: u64,
    /// Times the ring froze because no block was free.
    pub freezes: u64,
}

/// An AF_PACKET socket bound to one interface.
#[derive(Debug)]
pub(crate) struct PacketSocket {
    fd: OwnedFd,
    index: i32,
}

impl PacketSocket {
    /// Opens a raw socket that receives nothing before it is bound (protocol 0).
    pub(crate) fn open(index: u32) -> io::Result<Self> {
        // SAFETY: no memory is passed.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` is a new descriptor that nothing else owns.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let index = i32::try_from(index).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        Ok(PacketSocket { fd, index })
    }

    /// Returns the descriptor to wait on.
    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Binds to the interface: to receive frames of every protocol, or only to send.
    pub(crate) fn bind(&self, receive: bool) -> io::Result<()> {
        // SAFETY: all-zero is a valid sockaddr_ll.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = if receive { (libc::ETH_P_ALL as u16).to_be() } else { 0 };
        address.sll_ifindex = self.index;
        // SAFETY: the address is a whole sockaddr_ll and its size is passed.
        check(unsafe {
            libc::bind(self.fd.as_raw_fd(), (&raw const address).cast(), size_of::<libc::sockaddr_ll>() as u32)
        })
    }

    /// Sets a 32-bit option of the packet layer.
    pub(crate) fn set(&self, option: i32, value: u32) -> io::Result<()> {
        self.set_raw(libc::SOL_PACKET, option, &value)
    }

    /// Sets the send buffer, beyond the system's limit if permitted.
    pub(crate) fn set_send_buffer(&self, bytes: u32) -> io::Result<()> {
        self.set_raw(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &bytes)
            .or_else(|_| self.set_raw(libc::SOL_SOCKET, libc::SO_SNDBUF, &bytes))
    }

    /// Sets the receive buffer, beyond the system's limit if permitted.
    pub(crate) fn set_receive_buffer(&self, bytes: u32) -> io::Result<()> {
        self.set_raw(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &bytes)
            .or_else(|_| self.set_raw(libc::SOL_SOCKET, libc::SO_RCVBUF, &bytes))
    }

    /// Returns the size of the receive buffer, including the kernel's overhead.
    pub(crate) fn receive_buffer(&self) -> io::Result<u32> {
        self.get(libc::SOL_SOCKET, libc::SO_RCVBUF)
    }

    /// Sets a structured option.
    pub(crate) fn set_raw<T: Copy>(&self, level: i32, option: i32, value: &T) -> io::Result<()> {
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

    /// Attaches a classic BPF program: frames for which it returns 0 are rejected.
    pub(crate) fn attach(&self, program: &[Insn]) -> io::Result<()> {
        #[repr(C)]
        #[derive(Clone, Copy)]
        struct Fprog {
            len: u16,
            filter: *const Insn,
        }
        let len = u16::try_from(program.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        self.set_raw(libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &Fprog { len, filter: program.as_ptr() })
    }

    /// Makes the interface promiscuous until the socket closes.
    pub(crate) fn set_promiscuous(&self) -> io::Result<()> {
        // SAFETY: all-zero is a valid packet_mreq.
        let mut request: libc::packet_mreq = unsafe { std::mem::zeroed() };
        request.mr_ifindex = self.index;
        request.mr_type = libc::PACKET_MR_PROMISC as u16;
        self.set_raw(libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &request)
    }

    /// Joins the fanout group `id`; `None` asks the kernel for a new one. Returns the group's id.
    pub(crate) fn join_fanout(&self, id: Option<u16>, mode: u32) -> io::Result<u16> {
        let flags = if id.is_none() { mode | libc::PACKET_FANOUT_FLAG_UNIQUEID } else { mode };
        self.set(libc::PACKET_FANOUT, flags << 16 | u32::from(id.unwrap_or(0)))?;
        Ok(self.get::<u32>(libc::SOL_PACKET, libc::PACKET_FANOUT)? as u16)
    }

    /// Returns the counts since the last call; the kernel resets them.
    pub(crate) fn statistics(&self) -> io::Result<Statistics> {
        let [received, dropped, freezes] = self.get::<[u32; 3]>(libc::SOL_PACKET, libc::PACKET_STATISTICS)?;
        Ok(Statistics { received: received.into(), dropped: dropped.into(), freezes: freezes.into() })
    }

    /// Returns the pending error of the socket and clears it.
    pub(crate) fn take_error(&self) -> io::Result<()> {
        match self.get::<i32>(libc::SOL_SOCKET, libc::SO_ERROR)? {
            0 => Ok(()),
            code => Err(io::Error::from_raw_os_error(code)),
        }
    }

    /// Returns whether the socket's interface still exists.
    pub(crate) fn interface_exists(&self) -> bool {
        self.named().is_some()
    }

    /// Returns whether the interface is up and has a carrier (`IFF_RUNNING`; the kernel may update it up to a second
    /// late).
    pub(crate) fn interface_runs(&self) -> bool {
        self.named().is_some_and(|mut request| {
            // SAFETY: SIOCGIFFLAGS reads the name from and writes 16 bits into the ifreq it is given.
            let read = unsafe { libc::ioctl(self.fd.as_raw_fd(), libc::SIOCGIFFLAGS, &raw mut request) == 0 };
            // SAFETY: SIOCGIFFLAGS has left 16 bits in the union.
            read && i32::from(unsafe { request.ifr_ifru.ifru_flags }) & libc::IFF_RUNNING != 0
        })
    }

    /// Returns a request with the present name of the interface; `None` if it no longer exists.
    fn named(&self) -> Option<libc::ifreq> {
        // SAFETY: all-zero is a valid ifreq.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        request.ifr_ifru.ifru_ifindex = self.index;
        // SAFETY: SIOCGIFNAME reads the index from and writes the name into the ifreq it is given.
        let known = unsafe { libc::ioctl(self.fd.as_raw_fd(), libc::SIOCGIFNAME, &raw mut request) == 0 };
        known.then_some(request)
    }

    /// Sends frames from the front of `burst`, at most [`SEND_BATCH`]; returns the number that the kernel took. An
    /// error is about the first frame.
    pub(crate) fn send(&self, burst: Burst<'_>) -> io::Result<usize> {
        // SAFETY: all-zero is valid for both types: null pointers with zero lengths.
        let mut parts: [libc::iovec; SEND_BATCH] = unsafe { std::mem::zeroed() };
        // SAFETY: as above.
        let mut messages: [libc::mmsghdr; SEND_BATCH] = unsafe { std::mem::zeroed() };
        let count = burst.len().min(SEND_BATCH);
        for (index, (_, frame)) in burst.iter().take(count).enumerate() {
            parts[index] = libc::iovec { iov_base: frame.as_ptr() as *mut libc::c_void, iov_len: frame.len() };
            messages[index].msg_hdr.msg_iov = &raw mut parts[index];
            messages[index].msg_hdr.msg_iovlen = 1;
        }
        // SAFETY: the first `count` messages point to one live iovec each, which point to live frames; the
        // kernel only reads those.
        let sent =
            unsafe { libc::sendmmsg(self.fd.as_raw_fd(), messages.as_mut_ptr(), count as u32, libc::MSG_DONTWAIT) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(sent as usize) }
    }

    fn get<T: Copy + Default>(&self, level: i32, option: i32) -> io::Result<T> {
        let mut value = T::default();
        let mut length = size_of::<T>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes into `value`; the types used here are integers
        // and arrays of them, valid with any bytes.
        check(unsafe {
            libc::getsockopt(self.fd.as_raw_fd(), level, option, (&raw mut value).cast(), &raw mut length)
        })?;
        Ok(value)
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
