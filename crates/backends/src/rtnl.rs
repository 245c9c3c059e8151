//! Link information of the kernel, by rtnetlink (rtnetlink(7), linux/if_link.h) and the family "netdev" of generic
//! netlink (linux/netdev.h, linux/genetlink.h).

use rustix::net::netlink::{GENERIC, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with};
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

/// `struct rtnl_link_stats64`.
pub(crate) const STATS64: u16 = 23;
/// Interface of which this one is a part: a bridge, a bond.
pub(crate) const MASTER: u16 = 10;
/// Flag: administratively up.
pub(crate) const IFF_UP: u32 = 1;
/// Flag: has a carrier.
pub(crate) const IFF_RUNNING: u32 = 0x40;
/// Peer interface of a veth, and the number of its network namespace, if different.
pub(crate) const LINK: u16 = 5;
/// As above.
pub(crate) const LINK_NETNSID: u16 = 37;
/// Nested: attached XDP program.
pub(crate) const XDP: u16 = 43;
/// In [`XDP`]: mode (`enum` with `XDP_ATTACHED_SKB` = 2).
pub(crate) const XDP_ATTACHED: u16 = 2;
/// In [`XDP`]: number of the program.
pub(crate) const XDP_PROGRAM: u16 = 4;

const NLMSG_HEADER: usize = 16;
const IFINFOMSG: usize = 16;
const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const RTM_NEWQDISC: u16 = 36;
const RTM_GETQDISC: u16 = 38;
const TCMSG: usize = 20;
const QDISC_KIND: u16 = 1;
/// `TCA_STATS2`, and in it `TCA_STATS_QUEUE` (linux/gen_stats.h).
const QDISC_STATS2: u16 = 7;
const STATS_QUEUE: u16 = 3;
/// Parent of a discipline at ingress; that of the root is the next (`TC_H_ROOT`).
const TC_H_INGRESS: u32 = 0xffff_fff1;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_DUMP: u16 = 0x300;
const NLM_F_ACK: u16 = 4;
const NLM_F_EXCL: u16 = 0x200;
const NLM_F_CREATE: u16 = 0x400;
const RTM_NEWADDR: u16 = 20;
/// `IFA_ADDRESS`, `IFA_LOCAL`; `IFA_F_NODAD`: no duplicate address detection.
const ADDRESS: u16 = 1;
const LOCAL: u16 = 2;
const NO_DETECTION: u8 = 2;
const IFNAME: u16 = 3;
/// Maximum packet length (`IFLA_MTU`).
pub(crate) const MTU: u16 = 4;
/// Queue length (`IFLA_TXQLEN`).
pub(crate) const TX_QUEUE: u16 = 13;
const LINKINFO: u16 = 18;
/// In [`LINKINFO`]: `IFLA_INFO_KIND`, `IFLA_INFO_DATA`; in the latter `VETH_INFO_PEER` (linux/veth.h).
const INFO_KIND: u16 = 1;
const INFO_DATA: u16 = 2;
const VETH_PEER: u16 = 1;
/// The top bits of a type are flags, such as for nested attributes.
const KIND: u16 = 0x3fff;

/// A netlink socket; it stays in the network namespace it was created in.
#[derive(Debug)]
pub(crate) struct Rtnetlink(OwnedFd);

impl Rtnetlink {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Rtnetlink(socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?))
    }

    /// Returns the attributes of a link; `None` if it is gone.
    pub(crate) fn link(&self, index: u32) -> Option<Vec<u8>> {
        Some(self.ask(index)?.split_off(NLMSG_HEADER + IFINFOMSG))
    }

    /// Returns the `IFF_*` flags of a link (linux/if.h); `None` if it is gone.
    pub(crate) fn flags(&self, index: u32) -> Option<u32> {
        // struct ifinfomsg: family, type, index, flags, change.
        number(&self.ask(index)?[NLMSG_HEADER + 8..])
    }

    /// Creates a pair of veth interfaces with these numbers, called `a` and `b`.
    pub(crate) fn add_veth(&self, (a, b): (u32, u32)) -> io::Result<()> {
        let peer = [&ifinfomsg(b)[..], &pack(IFNAME, b"b\0")].concat();
        let info = [pack(INFO_KIND, b"veth\0"), pack(INFO_DATA, &pack(VETH_PEER, &peer))].concat();
        let body = [&ifinfomsg(a)[..], &pack(IFNAME, b"a\0"), &pack(LINKINFO, &info)].concat();
        self.order(RTM_NEWLINK, NLM_F_REQUEST | NLM_F_ACK | NLM_F_EXCL | NLM_F_CREATE, &body)
    }

    /// Sends a request, and waits for the acknowledgement.
    fn order(&self, kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
        sendto(&self.0, &message(kind, flags, body), SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
        let mut answer = [0u8; 1024];
        let (length, _) = recv(&self.0, &mut answer[..], RecvFlags::empty())?;
        // struct nlmsgerr: a negative error, or 0.
        match number(answer.get(NLMSG_HEADER..length).unwrap_or_default()).map(|number| number as i32) {
            Some(0) => Ok(()),
            Some(error) => Err(io::Error::from_raw_os_error(error.wrapping_neg())),
            None => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Sets the MTU of a link and its queue length.
    pub(crate) fn set_link(&self, index: u32, mtu: Option<u32>, queue: Option<u32>) -> io::Result<()> {
        let mut body = ifinfomsg(index).to_vec();
        for (kind, value) in [(MTU, mtu), (TX_QUEUE, queue)] {
            body.extend(value.into_iter().flat_map(|value| pack(kind, &value.to_ne_bytes())));
        }
        self.order(RTM_NEWLINK, NLM_F_REQUEST | NLM_F_ACK, &body)
    }

    pub(crate) fn set_up(&self, index: u32) -> io::Result<()> {
        let mut body = ifinfomsg(index);
        // Flags, and the mask of changes.
        body[8..12].copy_from_slice(&IFF_UP.to_ne_bytes());
        body[12..16].copy_from_slice(&IFF_UP.to_ne_bytes());
        self.order(RTM_NEWLINK, NLM_F_REQUEST | NLM_F_ACK, &body)
    }

    /// Adds an address to a link, usable at once.
    pub(crate) fn add_address(&self, index: u32, address: IpAddr, prefix: u8) -> io::Result<()> {
        let (family, bytes) = match address {
            IpAddr::V4(address) => (AddressFamily::INET, address.octets().to_vec()),
            IpAddr::V6(address) => (AddressFamily::INET6, address.octets().to_vec()),
        };
        // struct ifaddrmsg: family, prefix length, flags, scope, index.
        let head = [family.as_raw() as u8, prefix, NO_DETECTION, 0];
        let body = [&head[..], &index.to_ne_bytes(), &pack(ADDRESS, &bytes), &pack(LOCAL, &bytes)].concat();
        self.order(RTM_NEWADDR, NLM_F_REQUEST | NLM_F_ACK | NLM_F_EXCL | NLM_F_CREATE, &body)
    }

    /// Returns the kinds of the queueing disciplines of a link, each with its number of dropped packets; `ingress` and
    /// `clsact` hold tc filters.
    pub(crate) fn disciplines(&self, index: u32) -> Vec<(String, u64)> {
        // struct tcmsg: family, padding, ifindex, handle, parent, info.
        let mut body = [0; TCMSG];
        body[4..8].copy_from_slice(&index.to_ne_bytes());
        let kernel = SocketAddrNetlink::new(0, 0);
        let request = message(RTM_GETQDISC, NLM_F_REQUEST | NLM_F_DUMP, &body);
        if sendto(&self.0, &request, SendFlags::empty(), &kernel).is_err() {
            return Vec::new();
        }
        let (mut kinds, mut answer) = (Vec::new(), vec![0u8; 64 << 10]);
        // Several messages per answer; the last one has another type.
        while let Ok((length, _)) = recv(&self.0, &mut answer[..], RecvFlags::DONTWAIT) {
            let mut rest = &answer[..length.min(answer.len())];
            while let (Some(length), Some(kind)) = (number(rest), half(rest, 4)) {
                let Some(one) = rest.get(..length as usize).filter(|one| one.len() >= NLMSG_HEADER) else {
                    return kinds;
                };
                if kind != RTM_NEWQDISC {
                    return kinds;
                }
                let is_of_it = number(one.get(NLMSG_HEADER + 4..).unwrap_or_default()) == Some(index);
                let attributes = one.get(NLMSG_HEADER + TCMSG..).unwrap_or_default();
                if let Some(name) = attribute(attributes, QDISC_KIND).filter(|_| is_of_it) {
                    // A discipline at the root or at ingress includes the counts of its children. struct
                    // gnet_stats_queue: qlen, backlog, drops.
                    let is_top = number(&one[NLMSG_HEADER + 12..]).is_some_and(|parent| parent >= TC_H_INGRESS);
                    let queue = attribute(attributes, QDISC_STATS2).and_then(|stats| attribute(stats, STATS_QUEUE));
                    let drops = queue.filter(|_| is_top).and_then(|queue| number(queue.get(8..)?)).unwrap_or_default();
                    kinds.push((String::from_utf8_lossy(name).trim_end_matches('\0').to_owned(), drops.into()));
                }
                rest = rest.get((length as usize).next_multiple_of(4)..).unwrap_or_default();
            }
        }
        kinds
    }

    fn ask(&self, index: u32) -> Option<Vec<u8>> {
        let kernel = SocketAddrNetlink::new(0, 0);
        sendto(&self.0, &request(index), SendFlags::empty(), &kernel).ok()?;
        let mut answer = vec![0u8; 16 << 10];
        let (length, _) = recv(&self.0, &mut answer[..], RecvFlags::DONTWAIT).ok()?;
        answer.truncate(length);
        (half(&answer, 4)? == RTM_NEWLINK && answer.len() >= NLMSG_HEADER + IFINFOMSG).then_some(answer)
    }
}

/// Feature: a program may run in the driver (`NETDEV_XDP_ACT_BASIC`).
pub const XDP_BASIC: u64 = 1;
/// Feature: the driver sends redirected frames (`NETDEV_XDP_ACT_NDO_XMIT`).
pub const XDP_SENDS: u64 = 1 << 2;
/// Feature: AF_XDP with zero copy (`NETDEV_XDP_ACT_XSK_ZEROCOPY`).
pub const XDP_ZERO_COPY: u64 = 1 << 3;
/// Metadata: the VLAN tag that the card has removed (`NETDEV_XDP_RX_METADATA_VLAN_TAG`, Linux 6.8 and later).
pub(crate) const XDP_VLAN_TAG: u64 = 1 << 2;

/// `GENL_ID_CTRL`, `CTRL_CMD_GETFAMILY`, `CTRL_ATTR_FAMILY_NAME`, `CTRL_ATTR_FAMILY_ID`.
const CONTROL: u16 = 16;
const GET_FAMILY: u8 = 3;
const FAMILY_NAME: u16 = 2;
const FAMILY_ID: u16 = 1;
/// `NETDEV_CMD_DEV_GET`, `NETDEV_A_DEV_IFINDEX`, `NETDEV_A_DEV_XDP_FEATURES`, `NETDEV_A_DEV_XDP_RX_METADATA_FEATURES`.
const DEV_GET: u8 = 1;
const DEV_INDEX: u16 = 1;
const DEV_FEATURES: u16 = 3;
const DEV_METADATA: u16 = 5;
/// `struct genlmsghdr`: command, version, reserved.
const GENL_HEADER: usize = 4;

/// Queries the XDP features of drivers; stays in the network namespace it was created in.
#[derive(Debug)]
pub(crate) struct XdpFeatures {
    socket: OwnedFd,
    family: u16,
}

impl XdpFeatures {
    /// Opens a socket; `None` if the kernel does not report features (before Linux 6.3).
    pub(crate) fn new() -> Option<Self> {
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, Some(GENERIC)).ok()?;
        let name = pack(FAMILY_NAME, b"netdev\0");
        let family = half(attribute(&query_family(&socket, CONTROL, GET_FAMILY, &name)?, FAMILY_ID)?, 0)?;
        Some(XdpFeatures { socket, family })
    }

    /// Returns the present features of a link's driver (`enum netdev_xdp_act`).
    pub(crate) fn of(&self, index: u32) -> Option<u64> {
        self.get(index, DEV_FEATURES)
    }

    /// Returns what the driver reports to an XDP program about a packet (`enum netdev_xdp_rx_metadata`, Linux 6.7 and later).
    pub(crate) fn metadata(&self, index: u32) -> Option<u64> {
        self.get(index, DEV_METADATA)
    }

    fn get(&self, index: u32, wanted: u16) -> Option<u64> {
        let answer = query_family(&self.socket, self.family, DEV_GET, &pack(DEV_INDEX, &index.to_ne_bytes()))?;
        Some(u64::from_ne_bytes(attribute(&answer, wanted)?.get(..8)?.try_into().ok()?))
    }
}

/// Returns the attributes of an answer of a generic netlink family.
fn query_family(socket: &OwnedFd, family: u16, command: u8, attributes: &[u8]) -> Option<Vec<u8>> {
    let body = [&[command, 1, 0, 0][..], attributes].concat();
    let kernel = SocketAddrNetlink::new(0, 0);
    sendto(socket, &message(family, NLM_F_REQUEST, &body), SendFlags::empty(), &kernel).ok()?;
    let mut answer = vec![0u8; 16 << 10];
    let (length, _) = recv(socket, &mut answer[..], RecvFlags::DONTWAIT).ok()?;
    answer.truncate(length);
    (half(&answer, 4)? == family && answer.len() >= NLMSG_HEADER + GENL_HEADER)
        .then(|| answer.split_off(NLMSG_HEADER + GENL_HEADER))
}

/// Finds an attribute.
pub(crate) fn attribute(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    while let (Some(length), Some(kind)) = (half(attributes, 0), half(attributes, 2)) {
        let value = attributes.get(4..usize::from(length))?;
        if kind & KIND == wanted {
            return Some(value);
        }
        attributes = attributes.get(usize::from(length).next_multiple_of(4)..)?;
    }
    None
}

/// Returns the name of a link from its attributes.
pub(crate) fn name(attributes: &[u8]) -> Option<String> {
    Some(String::from_utf8_lossy(attribute(attributes, IFNAME)?).trim_end_matches('\0').to_owned())
}

/// Reads an attribute's value as a 32-bit number.
pub(crate) fn number(value: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(value.get(..4)?.try_into().ok()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

/// RTM_GETLINK for one interface.
fn request(index: u32) -> Vec<u8> {
    message(RTM_GETLINK, NLM_F_REQUEST, &ifinfomsg(index))
}

/// struct nlmsghdr: length, type, flags, sequence, port; then the body.
fn message(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
    let length = (NLMSG_HEADER + body.len()) as u32;
    [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), &flags.to_ne_bytes(), &[0; 8], body].concat()
}

/// struct ifinfomsg: family, type, index, flags, change.
fn ifinfomsg(index: u32) -> [u8; IFINFOMSG] {
    let mut header = [0; IFINFOMSG];
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    header
}

/// An attribute: length, kind, value, padding.
fn pack(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = [&((4 + value.len()) as u16).to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_loopback_link_has_statistics_and_no_master() {
        let attributes = Rtnetlink::new().unwrap().link(1).expect("every namespace has lo");
        assert!(attribute(&attributes, STATS64).is_some_and(|stats| stats.len() >= 8 * 16));
        assert_eq!(attribute(&attributes, MASTER), None);
        assert!(Rtnetlink::new().unwrap().flags(1).is_some());
        assert_eq!(Rtnetlink::new().unwrap().flags(u32::MAX >> 1), None);
    }

    #[test]
    fn the_features_of_the_loopback_link_are_read_if_reported() {
        if let Some(ask) = XdpFeatures::new() {
            assert_eq!(ask.of(1).map(|features| features & XDP_ZERO_COPY), Some(0));
            assert_eq!(ask.of(u32::MAX >> 1), None);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed(bytes in prop::collection::vec(any::<u8>(), 0..200), wanted in 0u16..50) {
            if let Some(value) = attribute(&bytes, wanted) {
                let _ = number(value);
            }
        }
    }
}
