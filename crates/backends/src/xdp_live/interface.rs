//! The interface that frames go to, and what its refusals mean.

use super::words::{Counts, State};
use crate::sys::ethtool::Ethtool;
use linerate_port::PortError;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// An Ethernet header; the kernel sends nothing shorter.
pub(crate) const LEAST_FRAME: usize = 14;
/// No live frame is longer: the kernel keeps it in one page of 4096 bytes, 256 of them in front of it, with its own notes
/// around. How much these take differs from kernel to kernel.
pub(crate) const MOST_BYTES: usize = 3840;
const ETHERNET: usize = 14;
/// Beyond the MTU the kernel grants a VLAN tag (`is_skb_forwardable` and its like).
const VLAN_TAG: usize = 4;
const IFF_UP: u32 = 1;
const IFF_RUNNING: u32 = 0x40;

/// Asks about the interface from anywhere.
pub(crate) struct Interface {
    port: String,
    name: String,
    driver: String,
    /// The longest live frame of this kernel.
    live: usize,
    /// Of the interface's network namespace.
    socket: OwnedFd,
}

impl Interface {
    /// Call it inside the interface's network namespace.
    pub(crate) fn new(port: String, name: &str, driver: &str) -> io::Result<Self> {
        let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        Ok(Interface { port, name: name.to_owned(), driver: driver.to_owned(), live: MOST_BYTES, socket })
    }

    /// With the longest live frame that the kernel makes.
    pub(crate) fn limited(self, live: usize) -> Self {
        Interface { live, ..self }
    }

    /// The longest live frame that the kernel makes.
    pub(crate) fn longest_live(&self) -> usize {
        self.live
    }

    /// As messages name it.
    pub(crate) fn port(&self) -> &str {
        &self.port
    }

    /// The longest frame that it sends, and the longest with a VLAN tag; an error where it cannot send.
    pub(crate) fn longest(&self) -> Result<(usize, usize), PortError> {
        let ask = Ethtool::new(self.socket.as_fd(), &self.name).and_then(|ask| Ok((ask.flags()?, ask.mtu()?)));
        let (flags, mtu) = ask.map_err(|_| PortError::removed(&self.port))?;
        if flags & IFF_UP == 0 || flags & IFF_RUNNING == 0 {
            return Err(PortError::Down { port: self.port.clone() });
        }
        let longest = mtu as usize + ETHERNET;
        Ok((longest.min(self.live), (longest + VLAN_TAG).min(self.live)))
    }

    /// Whether the driver takes a frame of this length.
    pub(crate) fn fits(frame: &[u8], (plain, tagged): (usize, usize)) -> bool {
        let has_tag = matches!(frame.get(12..14), Some([0x81, 0] | [0x88, 0xa8]));
        frame.len() <= if has_tag { tagged } else { plain }
    }

    /// What it means that frames were refused, or dropped for another reason than a full queue, between two counts.
    pub(crate) fn judge(&self, state: &State, before: Counts, after: Counts) -> Result<(), PortError> {
        let refused = after.refused() > before.refused() || after.failed > before.failed;
        if !refused && (after.dropped == before.dropped || !state.is_turned_away()) {
            return Ok(());
        }
        self.longest()?;
        match state.error() {
            libc::ENETDOWN => Err(PortError::Down { port: self.port.clone() }),
            // A veth's other end goes down before this one shows it.
            libc::ENXIO if after.sent > 0 => Err(PortError::Down { port: self.port.clone() }),
            libc::ENODEV => Err(PortError::removed(&self.port)),
            libc::EOPNOTSUPP | libc::ENXIO => Err(PortError::broken(&self.port, self.takes_none())),
            0 => Err(PortError::broken(&self.port, "the kernel could not make frames for this interface")),
            error => {
                let error = io::Error::from_raw_os_error(error);
                Err(PortError::broken(&self.port, format!("the driver refuses frames: {error}")))
            }
        }
    }

    fn takes_none(&self) -> String {
        if self.driver == "veth" {
            return "the other end of this veth drops XDP frames: have it take them with `ethtool -K PEER gro on`, PEER \
                    being its name, in its namespace (or attach an XDP program there)"
                .into();
        }
        format!(
            "the driver {} takes no XDP frames (no ndo_xdp_xmit); some drivers do as long as an XDP program is \
             attached to the interface; packet:{} works with every driver",
            self.driver, self.name
        )
    }

    /// What went wrong in a system call that sends.
    pub(crate) fn explain(&self, error: &io::Error) -> PortError {
        let advice = match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => {
                "; this kernel wants CAP_BPF also while sending, when privileges are gone: use Linux 6.5 or later, or packet:"
            }
            Some(libc::EINVAL | libc::EOPNOTSUPP) => "; live frames need Linux 5.18 or later",
            _ => "",
        };
        PortError::broken(&self.port, format!("sending failed: {error}{advice}"))
    }
}
