//! The interface: created, configured, and shared by both directions.

use crate::ebpf::{Assembler, Insn, Reg};
use crate::netns::within;
use crate::nic;
use crate::rtnl::{self, IFF_UP, Rtnetlink};
use crate::sys::bpf::Program;
use crate::sys::ethtool::Ethtool;
use crate::sys::tun_device::{attach, set_filter, set_offloads};
use linerate_port::{PortError, Spec};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Queue length of an interface that the run creates.
const DEPTH: u32 = 1000;
const MAX_QUEUES: usize = 64;

/// A name, its network namespace, and the device open under it.
type OpenTun = (String, Option<String>, Weak<Device>);
/// Devices that this process has open.
static DEVICES: Mutex<Vec<OpenTun>> = Mutex::new(Vec::new());

/// Options of a port.
#[derive(Clone, Debug)]
pub(super) struct TunConfig {
    /// Number of queues; 0 if not given.
    pub queues: usize,
    /// True if it has Ethernet frames.
    pub is_ethernet: bool,
    offloads: bool,
    addresses: Vec<(IpAddr, u8)>,
    mtu: Option<u32>,
    /// Queue length, if given.
    queue: Option<u32>,
    /// Options that the port gives explicitly.
    said: Vec<(String, String)>,
}

#[derive(Debug)]
pub(super) struct Device {
    queues: Vec<Queue>,
    index: u32,
    netlink: Rtnetlink,
    /// Frames dropped on the way to this process: at open, and since then as last read.
    dropped: (u64, AtomicU64),
    /// Options that it was opened with.
    said: Vec<(String, String)>,
    /// Filter that drops all packets after the last reader has detached; `None` if the kernel rejects programs.
    refusal: Option<Program>,
    /// Number of queues that are received from.
    receiving: AtomicUsize,
    /// True if it was opened with Ethernet frames.
    pub is_ethernet: bool,
    /// Queue length.
    pub depth: u32,
}

/// Reason why it could not be configured.
enum SetupError {
    /// IPv6 is disabled on it.
    NoIpv6(IpAddr),
    Failed(String, io::Error),
}

#[derive(Clone, Debug)]
pub(super) struct Queue {
    pub number: usize,
    /// Descriptor of both directions.
    pub fd: Arc<OwnedFd>,
    is_received: Arc<AtomicBool>,
}

impl TunConfig {
    /// Parses the options of a port. `queues` is the number that the caller needs; 0 if unknown.
    pub(super) fn read(spec: &Spec, queues: usize) -> Result<Self, PortError> {
        let wrong = |reason: String| PortError::wrong(spec.to_string(), reason);
        let queues = match spec.queues {
            Some((0, last)) if (last as usize) < MAX_QUEUES => last as usize + 1,
            Some(_) => return Err(wrong(format!("queues start at 0, at most {MAX_QUEUES}; @0-3 makes four"))),
            None => queues.min(MAX_QUEUES),
        };
        let is_ethernet = match spec.option("mode") {
            None | Some("tun") => false,
            Some("tap") => true,
            Some(other) => {
                return Err(wrong(format!("mode={other}: expected tun (IP packets) or tap (Ethernet frames)")));
            }
        };
        let offloads = match spec.option("offloads") {
            None | Some("yes") => true,
            Some("no") => false,
            Some(other) => return Err(wrong(format!("offloads={other}: expected yes or no"))),
        };
        let asked = spec.options.iter().filter(|(key, _)| key == "address").flat_map(|(_, value)| value.split(','));
        let addresses: Option<Vec<(IpAddr, u8)>> = asked.map(address).collect();
        let addresses = addresses.ok_or_else(|| {
            wrong("address=: expected the address of the host's end, such as 10.98.0.1/24".to_owned())
        })?;
        let mtu = spec.option("mtu").map(|_| spec.number("mtu", 0)).transpose()?;
        let queue = spec.option("queue").map(|_| spec.number("queue", 0)).transpose()?;
        if mtu.is_some_and(|mtu| !(68..=65_535).contains(&mtu))
            || queue.is_some_and(|queue| !(1..=1 << 20).contains(&queue))
        {
            return Err(wrong("expected mtu= from 68 to 65535 bytes, queue= from 1 to 1048576 frames".to_owned()));
        }
        let is_name = (1..16).contains(&spec.target.len()) && ![".", ".."].contains(&spec.target.as_str());
        if !is_name || spec.target.contains(|c: char| c.is_whitespace() || "/:%\0".contains(c)) {
            return Err(wrong(
                "invalid interface name; expected 1 to 15 bytes without blank, '/', ':' or '%'".to_owned(),
            ));
        }
        let said = spec.options.iter().filter(|(key, _)| key != "netns" && key != "mode").cloned().collect();
        let (mtu, queue) = (mtu.map(|mtu| mtu as u32), queue.map(|queue| queue as u32));
        Ok(TunConfig { queues, is_ethernet, offloads, addresses, mtu, queue, said })
    }
}

impl Device {
    /// Returns the device that is already open, or opens a new one.
    pub(super) fn open(spec: &Spec, config: &TunConfig) -> io::Result<Arc<Device>> {
        let netns = spec.option("netns").map(str::to_owned);
        let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
        devices.retain(|(_, _, device)| device.strong_count() > 0);
        let known = devices.iter().find(|(name, of, _)| *name == spec.target && *of == netns);
        if let Some(device) = known.and_then(|(_, _, device)| device.upgrade()) {
            if device.is_ethernet != config.is_ethernet {
                return Err(io::Error::other("already open with another mode="));
            }
            if let Some((key, value)) = config.said.iter().find(|option| !device.said.contains(option)) {
                return Err(io::Error::other(format!(
                    "already open without {key}={value}; give both ends the same options"
                )));
            }
            return Ok(device);
        }
        let device = Arc::new(within(netns.as_deref(), || Device::make(&spec.target, netns.as_deref(), config))?);
        devices.push((spec.target.clone(), netns, Arc::downgrade(&device)));
        Ok(device)
    }

    /// Returns `count` of its queues; all for 0.
    pub(super) fn queues(&self, count: usize) -> Result<Vec<Queue>, String> {
        let there = self.queues.len();
        if count > there {
            return Err(format!(
                "already open with {there} queues; name as many at both ends, such as @0-{}",
                count - 1
            ));
        }
        Ok(self.queues[..if count == 0 { there } else { count }].to_vec())
    }

    /// Returns the number of frames that did not fit the queues since it was opened, of all queues together.
    pub(super) fn dropped(&self) -> u64 {
        let (base, last) = &self.dropped;
        // If the interface is gone, the last value stays.
        if let Some(counts) = self.netlink.link(self.index).and_then(|link| nic::parse(&link)) {
            last.store(counts.tx_dropped.saturating_sub(*base), Ordering::Relaxed);
        }
        last.load(Ordering::Relaxed)
    }

    /// Claims the receiving direction of a queue; false if it is in use.
    pub(super) fn claim(&self, queue: &Queue) -> bool {
        let is_free = !queue.is_received.swap(true, Ordering::Relaxed);
        if is_free && self.receiving.fetch_add(1, Ordering::Relaxed) == 0 {
            self.refuse(false);
        }
        is_free
    }

    /// Stops receiving on a queue; after the last one no packet is accepted.
    pub(super) fn retire(&self) {
        if self.receiving.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.refuse(true);
        }
    }

    fn refuse(&self, all: bool) {
        if let Some(refusal) = &self.refusal {
            // Without the filter a few frames too many may be read: at most the queue's length.
            let _ = set_filter(self.queues[0].fd.as_fd(), all.then_some(refusal));
        }
    }

    /// Returns whether the interface is up; `None` if it is gone.
    pub(super) fn is_up(&self) -> Option<bool> {
        self.netlink.flags(self.index).map(|flags| flags & IFF_UP != 0)
    }

    fn make(name: &str, netns: Option<&str>, config: &TunConfig) -> io::Result<Device> {
        let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        let was_there = Ethtool::new(socket.as_fd(), name)?.index().is_ok();
        let count = config.queues.max(1);
        let first = open_queue(name, config, count > 1).or_else(|error| match error.raw_os_error() {
            // An existing interface may have been created with several queues.
            Some(libc::EINVAL) if count == 1 => open_queue(name, config, true),
            _ => Err(error),
        })?;
        let more = (1..count).map(|_| open_queue(name, config, true));
        let fds: Vec<OwnedFd> = std::iter::once(Ok(first)).chain(more).collect::<io::Result<_>>()?;
        for fd in &fds {
            set_offloads(fd.as_fd(), config.offloads)?;
        }
        let index = Ethtool::new(socket.as_fd(), name)?.index()?;
        let netlink = Rtnetlink::new()?;
        let link = netlink.link(index).ok_or(io::ErrorKind::NotFound)?;
        let dropped = nic::parse(&link).map_or(0, |counts| counts.tx_dropped);
        let queue = |(number, fd)| Queue { number, fd: Arc::new(fd), is_received: Arc::default() };
        let mut device = Device {
            queues: fds.into_iter().enumerate().map(queue).collect(),
            index,
            netlink,
            dropped: (dropped, AtomicU64::new(0)),
            said: config.said.clone(),
            refusal: Program::load_filter(&refusal()).ok(),
            receiving: AtomicUsize::new(0),
            is_ethernet: config.is_ethernet,
            depth: DEPTH,
        };
        device.set_up(config, was_there, &link).map_err(|error| match error {
            SetupError::NoIpv6(address) => {
                // An interface that the run creates is gone with this error: only the default helps.
                let of = if was_there { name } else { "default" };
                let within = netns.map(|netns| format!("ip netns exec {netns} ")).unwrap_or_default();
                let how = format!("IPv6 is disabled; run {within}sysctl -w net.ipv6.conf.{of}.disable_ipv6=0");
                io::Error::other(format!("cannot set address {address}: {how}"))
            }
            SetupError::Failed(what, error) => io::Error::other(format!("cannot set {what}: {error}")),
        })?;
        Ok(device)
    }

    /// Configures the interface. Values that already match are not written, so that an interface that belongs to a user
    /// can be used without more rights.
    fn set_up(&mut self, config: &TunConfig, was_there: bool, link: &[u8]) -> Result<(), SetupError> {
        let now = |kind| rtnl::attribute(link, kind).and_then(rtnl::number).unwrap_or(0);
        let (mtu, depth) = (now(rtnl::MTU), now(rtnl::TX_QUEUE));
        if let Some(wanted) = config.mtu.filter(|wanted| *wanted != mtu) {
            let set = self.netlink.set_link(self.index, Some(wanted), None);
            set.map_err(|error| SetupError::Failed("mtu=".to_owned(), error))?;
        }
        let queue = config.queue.or((!was_there).then_some(DEPTH));
        if let Some(wanted) = queue.filter(|wanted| *wanted != depth) {
            let set = self.netlink.set_link(self.index, None, Some(wanted));
            set.map_err(|error| SetupError::Failed("queue=".to_owned(), error))?;
        }
        self.depth = queue.unwrap_or(depth).max(1);
        for (address, prefix) in &config.addresses {
            match self.netlink.add_address(self.index, *address, *prefix) {
                Ok(()) => {}
                Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {}
                Err(error) if address.is_ipv6() && error.raw_os_error() == Some(libc::EACCES) => {
                    return Err(SetupError::NoIpv6(*address));
                }
                Err(error) => return Err(SetupError::Failed(format!("address={address}/{prefix}"), error)),
            }
        }
        if self.is_up() != Some(true) {
            self.netlink.set_up(self.index).map_err(|error| SetupError::Failed("it up".to_owned(), error))?;
        }
        Ok(())
    }
}

impl Queue {
    /// Releases its receiving direction.
    pub(super) fn release_receiver(&self) {
        self.is_received.store(false, Ordering::Relaxed);
    }
}

fn open_queue(name: &str, config: &TunConfig, has_queues: bool) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = openat(CWD, "/dev/net/tun", flags, Mode::empty())?;
    attach(fd.as_fd(), name, config.is_ethernet, has_queues)?;
    Ok(fd)
}

/// Returns the filter that drops every packet.
fn refusal() -> Vec<Insn> {
    let mut program = Assembler::new();
    program.mov(Reg::R0, 0);
    program.exit();
    program.finish().unwrap_or_default()
}

/// Parses `10.98.0.1/24`; without a length it is a single address.
fn address(text: &str) -> Option<(IpAddr, u8)> {
    let (address, prefix) = text.split_once('/').map_or((text, None), |(address, prefix)| (address, Some(prefix)));
    let address: IpAddr = address.parse().ok()?;
    let whole = if address.is_ipv4() { 32 } else { 128 };
    let prefix = prefix.map_or(Some(whole), |prefix| prefix.parse().ok())?;
    (prefix <= whole).then_some((address, prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        assert_eq!(address("10.98.0.1/24"), Some((ip("10.98.0.1"), 24)));
        assert_eq!(address("fd00::1/64"), Some((ip("fd00::1"), 64)));
        assert_eq!(address("10.98.0.1"), Some((ip("10.98.0.1"), 32)));
        for wrong in ["10.98.0.1/33", "10.98.0/24", "/24", "", "10.98.0.1/x"] {
            assert_eq!(address(wrong), None, "{wrong}");
        }
    }
}
