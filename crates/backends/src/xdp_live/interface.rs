//! The interface that frames are sent to, and the meaning of its errors.

use super::shared_state::{LiveCounts, State};
use crate::sys::ethtool::Ethtool;
use linerate_port::PortError;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Bytes of an Ethernet header; the kernel sends no shorter frame.
pub(crate) const LEAST_FRAME: usize = 14;
/// Upper bound of a live frame: the kernel keeps it in one page of 4096 bytes, after 256 bytes of headroom and with its
/// own metadata around it. The size of the metadata depends on the kernel.
pub(crate) const MOST_BYTES: usize = 3840;
const ETHERNET: usize = 14;
/// Bytes that the kernel allows beyond the MTU for a VLAN tag (`is_skb_forwardable` and similar checks).
const VLAN_TAG: usize = 4;
const IFF_UP: u32 = 1;
const IFF_RUNNING: u32 = 0x40;

/// Queries the interface from any namespace.
pub(crate) struct Interface {
    port: String,
    name: String,
    driver: String,
    /// Longest live frame of this kernel.
    live: usize,
    /// Socket in the interface's network namespace.
    socket: OwnedFd,
}

impl Interface {
    /// Opens an interface; call it inside the interface's network namespace.
    pub(crate) fn new(port: String, name: &str, driver: &str) -> io::Result<Self> {
        let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        Ok(Interface { port, name: name.to_owned(), driver: driver.to_owned(), live: MOST_BYTES, socket })
    }

    /// Sets the longest live frame that the kernel makes.
    pub(crate) fn limited(self, live: usize) -> Self {
        Interface { live, ..self }
    }

    /// Returns the longest live frame that the kernel makes.
    pub(crate) fn longest_live(&self) -> usize {
        self.live
    }

    /// Returns the port's name in messages.
    pub(crate) fn port(&self) -> &str {
        &self.port
    }

    /// Returns the longest frame that the interface sends, and the longest with a VLAN tag; an error if it cannot send.
    pub(crate) fn longest(&self) -> Result<(usize, usize), PortError> {
        let ask = Ethtool::new(self.socket.as_fd(), &self.name).and_then(|ask| Ok((ask.flags()?, ask.mtu()?)));
        let (flags, mtu) = ask.map_err(|_| PortError::removed(&self.port))?;
        if flags & IFF_UP == 0 || flags & IFF_RUNNING == 0 {
            return Err(PortError::Down { port: self.port.clone() });
        }
        let longest = mtu as usize + ETHERNET;
        Ok((longest.min(self.live), (longest + VLAN_TAG).min(self.live)))
    }

    /// Returns whether the driver takes a frame of this length.
    pub(crate) fn fits(frame: &[u8], (plain, tagged): (usize, usize)) -> bool {
        let has_tag = matches!(frame.get(12..14), Some([0x81, 0] | [0x88, 0xa8]));
        frame.len() <= if has_tag { tagged } else { plain }
    }

    /// Explains frames that were refused, or dropped for another reason than a full queue, between two counts.
    pub(crate) fn check_counts(&self, state: &State, before: LiveCounts, after: LiveCounts) -> Result<(), PortError> {
        let refused = after.refused() > before.refused() || after.failed > before.failed;
        if !refused && (after.dropped == before.dropped || !state.is_rejected()) {
            return Ok(());
        }
        self.longest()?;
        match state.error() {
            libc::ENETDOWN => Err(PortError::Down { port: self.port.clone() }),
            // The peer of a veth goes down before this end shows it.
            libc::ENXIO if after.sent > 0 => Err(PortError::Down { port: self.port.clone() }),
            libc::ENODEV => Err(PortError::removed(&self.port)),
            libc::EOPNOTSUPP | libc::ENXIO => Err(PortError::broken(&self.port, self.takes_none())),
            0 => Err(PortError::broken(&self.port, "the kernel could not create frames for this interface")),
            error => {
                let error = io::Error::from_raw_os_error(error);
                Err(PortError::broken(&self.port, format!("the driver rejects frames: {error}")))
            }
        }
    }

    fn takes_none(&self) -> String {
        if self.driver == "veth" {
            return "its veth peer drops XDP frames; run `ethtool -K PEER gro on` in the namespace of the peer, \
                    or attach an XDP program there"
                .into();
        }
        format!(
            "the driver {} does not support sending XDP frames (ndo_xdp_xmit); some drivers do while an XDP program is \
             attached to the interface; packet:{} works with every driver",
            self.driver, self.name
        )
    }

    /// Explains the error of a system call that sends.
    pub(crate) fn explain(&self, error: &io::Error) -> PortError {
        let advice = match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => {
                "; this kernel needs CAP_BPF for each send, also after dropping privileges: use Linux 6.5, or packet:"
            }
            Some(libc::EINVAL | libc::EOPNOTSUPP) => "; live frames need Linux 5.18 or later",
            _ => "",
        };
        PortError::broken(&self.port, format!("sending failed: {error}{advice}"))
    }
}
