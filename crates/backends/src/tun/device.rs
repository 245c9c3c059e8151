//! The interface: made, set up, shared by both directions.

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

/// Frames that the kernel keeps for us, for each queue of an interface that the run makes.
const DEPTH: u32 = 1000;
const MAX_QUEUES: usize = 64;

/// A name, its network namespace, and what is open under it.
type Open = (String, Option<String>, Weak<Device>);
/// Those that this process has open, by name and namespace.
static DEVICES: Mutex<Vec<Open>> = Mutex::new(Vec::new());

/// What a port asks for.
#[derive(Clone, Debug)]
pub(super) struct Wish {
    /// How many queues; 0 where it does not say.
    pub queues: usize,
    /// Whether its frames are Ethernet's.
    pub is_ethernet: bool,
    offloads: bool,
    addresses: Vec<(IpAddr, u8)>,
    mtu: Option<u32>,
    /// Packets that the kernel keeps for us, if it says.
    queue: Option<u32>,
    /// Which of its options it says.
    said: Vec<(String, String)>,
}

/// One interface.
#[derive(Debug)]
pub(super) struct Device {
    queues: Vec<Queue>,
    index: u32,
    netlink: Rtnetlink,
    /// Frames dropped on the way to us: when it was opened, and since then as last told.
    dropped: (u64, AtomicU64),
    /// What it was opened with.
    said: Vec<(String, String)>,
    /// What refuses all that comes once nobody receives any more; none where the kernel takes no programs from us.
    refusal: Option<Program>,
    /// Queues that are received from.
    receiving: AtomicUsize,
    /// What it was opened as.
    pub is_ethernet: bool,
    /// The most frames that the kernel keeps for a queue.
    pub depth: u32,
}

/// Why it is not what it is to be.
enum Unset {
    /// It has no IPv6.
    NoSix(IpAddr),
    Failed(String, io::Error),
}

/// One of its queues.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    /// Its number.
    pub number: usize,
    /// Both directions of it.
    pub fd: Arc<OwnedFd>,
    is_received: Arc<AtomicBool>,
}

impl Wish {
    /// What a port asks for, and how many queues its user.
    pub(super) fn read(spec: &Spec, queues: usize) -> Result<Self, PortError> {
        let wrong = |reason: String| PortError::wrong(spec.to_string(), reason);
        let queues = match spec.queues {
            Some((0, last)) if (last as usize) < MAX_QUEUES => last as usize + 1,
            Some(_) => return Err(wrong(format!("its queues count from 0, up to {MAX_QUEUES}: @0-3 makes four"))),
            None => queues.min(MAX_QUEUES),
        };
        let is_ethernet = match spec.option("mode") {
            None | Some("tun") => false,
            Some("tap") => true,
            Some(other) => return Err(wrong(format!("mode={other}: it is tun (IP packets) or tap (Ethernet frames)"))),
        };
        let offloads = match spec.option("offloads") {
            None | Some("yes") => true,
            Some("no") => false,
            Some(other) => return Err(wrong(format!("offloads={other}: it is yes or no"))),
        };
        let asked = spec.options.iter().filter(|(key, _)| key == "address").flat_map(|(_, value)| value.split(','));
        let addresses: Option<Vec<(IpAddr, u8)>> = asked.map(address).collect();
        let addresses =
            addresses.ok_or_else(|| wrong("address= is that of the host's end, as in 10.98.0.1/24".to_owned()))?;
        let mtu = spec.option("mtu").map(|_| spec.number("mtu", 0)).transpose()?;
        let queue = spec.option("queue").map(|_| spec.number("queue", 0)).transpose()?;
        if mtu.is_some_and(|mtu| !(68..=65_535).contains(&mtu))
            || queue.is_some_and(|queue| !(1..=1 << 20).contains(&queue))
        {
            return Err(wrong("mtu= is 68 to 65535 bytes, queue= 1 to 1048576 frames".to_owned()));
        }
        let is_name = (1..16).contains(&spec.target.len()) && ![".", ".."].contains(&spec.target.as_str());
        if !is_name || spec.target.contains(|c: char| c.is_whitespace() || "/:%\0".contains(c)) {
            return Err(wrong("the name of an interface has 1 to 15 bytes, and no blank, '/', ':' or '%'".to_owned()));
        }
        let said = spec.options.iter().filter(|(key, _)| key != "netns" && key != "mode").cloned().collect();
        let (mtu, queue) = (mtu.map(|mtu| mtu as u32), queue.map(|queue| queue as u32));
        Ok(Wish { queues, is_ethernet, offloads, addresses, mtu, queue, said })
    }
}

impl Device {
    /// The one that is open already, or a new one.
    pub(super) fn open(spec: &Spec, wish: &Wish) -> io::Result<Arc<Device>> {
        let netns = spec.option("netns").map(str::to_owned);
        let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
        devices.retain(|(_, _, device)| device.strong_count() > 0);
        let known = devices.iter().find(|(name, of, _)| *name == spec.target && *of == netns);
        if let Some(device) = known.and_then(|(_, _, device)| device.upgrade()) {
            if device.is_ethernet != wish.is_ethernet {
                return Err(io::Error::other("is open already with another mode="));
            }
            if let Some((key, value)) = wish.said.iter().find(|option| !device.said.contains(option)) {
                return Err(io::Error::other(format!(
                    "is open already without {key}={value}: say the same at both ends"
                )));
            }
            return Ok(device);
        }
        let device = Arc::new(within(netns.as_deref(), || Device::make(&spec.target, netns.as_deref(), wish))?);
        devices.push((spec.target.clone(), netns, Arc::downgrade(&device)));
        Ok(device)
    }

    /// So many of its queues; all where it is 0.
    pub(super) fn queues(&self, count: usize) -> Result<Vec<Queue>, String> {
        let there = self.queues.len();
        if count > there {
            return Err(format!(
                "is open with {there} queues already: name as many at both ends, as in @0-{}",
                count - 1
            ));
        }
        Ok(self.queues[..if count == 0 { there } else { count }].to_vec())
    }

    /// Frames that did not fit the queues since it was opened, all of them together.
    pub(super) fn dropped(&self) -> u64 {
        let (base, last) = &self.dropped;
        // Of an interface that is gone the last that was told remains.
        if let Some(counts) = self.netlink.link(self.index).and_then(|link| nic::parse(&link)) {
            last.store(counts.tx_dropped.saturating_sub(*base), Ordering::Relaxed);
        }
        last.load(Ordering::Relaxed)
    }

    /// Claims the receiving direction of a queue; false if somebody has it.
    pub(super) fn claim(&self, queue: &Queue) -> bool {
        let is_free = !queue.is_received.swap(true, Ordering::Relaxed);
        if is_free && self.receiving.fetch_add(1, Ordering::Relaxed) == 0 {
            self.refuse(false);
        }
        is_free
    }

    /// A queue is to take in no more; once none does, nothing comes in.
    pub(super) fn retire(&self) {
        if self.receiving.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.refuse(true);
        }
    }

    fn refuse(&self, all: bool) {
        if let Some(refusal) = &self.refusal {
            // Without it no more is read than the kernel kept, which may be some frames too many.
            let _ = set_filter(self.queues[0].fd.as_fd(), all.then_some(refusal));
        }
    }

    /// Whether it is there and up.
    pub(super) fn is_up(&self) -> Option<bool> {
        self.netlink.flags(self.index).map(|flags| flags & IFF_UP != 0)
    }

    fn make(name: &str, netns: Option<&str>, wish: &Wish) -> io::Result<Device> {
        let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        let was_there = Ethtool::new(socket.as_fd(), name)?.index().is_ok();
        let count = wish.queues.max(1);
        let first = open_queue(name, wish, count > 1).or_else(|error| match error.raw_os_error() {
            // One that is there already may have room for several.
            Some(libc::EINVAL) if count == 1 => open_queue(name, wish, true),
            _ => Err(error),
        })?;
        let more = (1..count).map(|_| open_queue(name, wish, true));
        let fds: Vec<OwnedFd> = std::iter::once(Ok(first)).chain(more).collect::<io::Result<_>>()?;
        for fd in &fds {
            set_offloads(fd.as_fd(), wish.offloads)?;
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
            said: wish.said.clone(),
            refusal: Program::load_filter(&refusal()).ok(),
            receiving: AtomicUsize::new(0),
            is_ethernet: wish.is_ethernet,
            depth: DEPTH,
        };
        device.set_up(wish, was_there, &link).map_err(|error| match error {
            Unset::NoSix(address) => {
                // One that the run makes is gone with this error: only what new ones begin with helps.
                let of = if was_there { name } else { "default" };
                let within = netns.map(|netns| format!("ip netns exec {netns} ")).unwrap_or_default();
                let how = format!("IPv6 is switched off: {within}sysctl -w net.ipv6.conf.{of}.disable_ipv6=0");
                io::Error::other(format!("{address} cannot be its address: {how}"))
            }
            Unset::Failed(what, error) => io::Error::other(format!("{what} cannot be set: {error}")),
        })?;
        Ok(device)
    }

    /// Makes it what it is to be. What it is already is left alone: an interface that was given to a user can be used without
    /// more rights.
    fn set_up(&mut self, wish: &Wish, was_there: bool, link: &[u8]) -> Result<(), Unset> {
        let now = |kind| rtnl::attribute(link, kind).and_then(rtnl::number).unwrap_or(0);
        let (mtu, depth) = (now(rtnl::MTU), now(rtnl::TX_QUEUE));
        if let Some(wanted) = wish.mtu.filter(|wanted| *wanted != mtu) {
            let set = self.netlink.set_link(self.index, Some(wanted), None);
            set.map_err(|error| Unset::Failed("mtu=".to_owned(), error))?;
        }
        let queue = wish.queue.or((!was_there).then_some(DEPTH));
        if let Some(wanted) = queue.filter(|wanted| *wanted != depth) {
            let set = self.netlink.set_link(self.index, None, Some(wanted));
            set.map_err(|error| Unset::Failed("queue=".to_owned(), error))?;
        }
        self.depth = queue.unwrap_or(depth).max(1);
        for (address, prefix) in &wish.addresses {
            match self.netlink.add_address(self.index, *address, *prefix) {
                Ok(()) => {}
                Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {}
                Err(error) if address.is_ipv6() && error.raw_os_error() == Some(libc::EACCES) => {
                    return Err(Unset::NoSix(*address));
                }
                Err(error) => return Err(Unset::Failed(format!("address={address}/{prefix}"), error)),
            }
        }
        if self.is_up() != Some(true) {
            self.netlink.set_up(self.index).map_err(|error| Unset::Failed("that it is up".to_owned(), error))?;
        }
        Ok(())
    }
}

impl Queue {
    /// Gives its receiving direction back.
    pub(super) fn give_back(&self) {
        self.is_received.store(false, Ordering::Relaxed);
    }
}

fn open_queue(name: &str, wish: &Wish, has_queues: bool) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = openat(CWD, "/dev/net/tun", flags, Mode::empty())?;
    attach(fd.as_fd(), name, wish.is_ethernet, has_queues)?;
    Ok(fd)
}

/// Keeps no byte of any packet.
fn refusal() -> Vec<Insn> {
    let mut program = Assembler::new();
    program.mov(Reg::R0, 0);
    program.exit();
    program.finish().unwrap_or_default()
}

/// `10.98.0.1/24`; a whole address without a length.
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
    fn addresses_are_read() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        assert_eq!(address("10.98.0.1/24"), Some((ip("10.98.0.1"), 24)));
        assert_eq!(address("fd00::1/64"), Some((ip("fd00::1"), 64)));
        assert_eq!(address("10.98.0.1"), Some((ip("10.98.0.1"), 32)));
        for wrong in ["10.98.0.1/33", "10.98.0/24", "/24", "", "10.98.0.1/x"] {
            assert_eq!(address(wrong), None, "{wrong}");
        }
    }
}
