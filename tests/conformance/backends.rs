//! How each backend is opened at both ends, and what it can do.

use crate::conformance::wire::Wire;
use linerate_backends::{open_rx, open_tx};
use linerate_lab::{Link, Plan, TemporaryLab};
use linerate_port::{RxOptions, RxPort, Spec, TxOptions, TxPort};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

/// What a backend can do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Can {
    /// Senders that keep their order each, and queues to send with.
    pub senders: usize,
    /// Frames keep the time they were sent with.
    pub keeps_times: bool,
    /// Times do not go back within a lane.
    pub ordered_lanes: bool,
    /// The longest frame, in bytes.
    pub longest: usize,
    /// Cuts frames to the snap length, if that is so long.
    pub cuts: Option<usize>,
    /// The horizon of an idle lane moves with time.
    pub idle_horizon: bool,
    /// The receiver is open while the sender sends.
    pub live: bool,
    /// A receiver can be opened anew while the sender stays.
    pub reopens: bool,
    /// A sender is held up while nobody receives.
    pub back_pressure: bool,
    /// The kernel takes VLAN tags out on the way.
    pub restores_vlan: bool,
}

/// A way to open a matched sender and receiver.
pub(super) trait Harness {
    fn name(&self) -> &str;
    fn can(&self) -> Can;
    /// A wire that nobody else uses.
    fn open(&self, options: &RxOptions) -> Wire;
    /// The same for few frames, opened quickly.
    fn open_small(&self) -> Wire {
        self.open(&RxOptions::default())
    }
    /// Another receiver on the same wire, where that is possible.
    fn reopen(&self, _wire: &Wire) -> RxPort {
        unreachable!("{} cannot be opened anew", self.name())
    }
}

/// A number that no other test of this process has.
pub(super) fn unique() -> u32 {
    static USED: AtomicU32 = AtomicU32::new(0);
    USED.fetch_add(1, Ordering::Relaxed)
}

pub(super) fn receive(text: &str, options: &RxOptions) -> RxPort {
    open_rx(&Spec::parse(text).unwrap(), options).unwrap_or_else(|error| panic!("{error}"))
}

pub(super) fn transmit(text: &str, queues: usize) -> TxPort {
    open_tx(&Spec::parse(text).unwrap(), &TxOptions { queues, ..TxOptions::default() })
        .unwrap_or_else(|error| panic!("{error}"))
}

/// `mem:`.
pub(super) struct MemWire {
    name: String,
    suffix: &'static str,
}

impl MemWire {
    /// With what stands behind the name: queues and options.
    pub(super) fn new(suffix: &'static str) -> Self {
        MemWire { name: format!("mem:{}{suffix}", unique()), suffix }
    }
}

impl Harness for MemWire {
    fn name(&self) -> &str {
        &self.name
    }

    fn can(&self) -> Can {
        let keeps_times = !self.suffix.contains("now");
        Can {
            senders: if self.suffix.starts_with('@') { 4 } else { 1 },
            keeps_times,
            ordered_lanes: true,
            longest: if self.suffix.contains("chunk") { 65_549 } else { linerate_burst::MAX_FRAME },
            cuts: None,
            idle_horizon: !keeps_times,
            live: true,
            reopens: true,
            back_pressure: true,
            restores_vlan: false,
        }
    }

    fn open(&self, options: &RxOptions) -> Wire {
        Wire::live(transmit(&self.name, 0), receive(&self.name, options))
    }

    fn reopen(&self, _wire: &Wire) -> RxPort {
        receive(&self.name, &RxOptions::default())
    }
}

/// `pcap:` with a file in between.
pub(super) struct FileWire {
    name: String,
    format: &'static str,
}

impl FileWire {
    /// Of a format, by the ending of its files.
    pub(super) fn new(format: &'static str) -> Self {
        FileWire { name: format!("pcap file.{format}"), format }
    }
}

/// What files and pipes have in common.
const FILES: Can = Can {
    senders: 1,
    keeps_times: true,
    ordered_lanes: true,
    longest: linerate_burst::MAX_FRAME,
    cuts: None,
    idle_horizon: false,
    live: false,
    reopens: false,
    back_pressure: false,
    restores_vlan: false,
};

impl Harness for FileWire {
    fn name(&self) -> &str {
        &self.name
    }

    fn can(&self) -> Can {
        FILES
    }

    fn open(&self, options: &RxOptions) -> Wire {
        let folder = Folder::new();
        let text = folder.port(&format!("wire.{}", self.format));
        let (tx, options) = (transmit(&text, 0), options.clone());
        Wire::late(tx, move || receive(&text, &options)).keeping(folder)
    }
}

/// `pcap:` with a named pipe in between.
pub(super) struct Fifo {
    name: String,
    format: &'static str,
}

impl Fifo {
    /// Of a format, by the ending of its name.
    pub(super) fn new(format: &'static str) -> Self {
        Fifo { name: format!("pcap pipe.{format}"), format }
    }
}

impl Harness for Fifo {
    fn name(&self) -> &str {
        &self.name
    }

    fn can(&self) -> Can {
        Can { live: true, ..FILES }
    }

    fn open(&self, options: &RxOptions) -> Wire {
        let folder = Folder::new();
        let text = folder.port(&format!("wire.{}", self.format));
        mknodat(CWD, text.trim_start_matches("pcap:"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        // Each end waits for the other to be opened.
        let tx = thread::scope(|scope| {
            let tx = scope.spawn(|| transmit(&text, 0));
            (receive(&text, options), tx.join().unwrap())
        });
        Wire::live(tx.1, tx.0).keeping(folder)
    }
}

/// A folder of its own, removed when dropped.
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn new() -> Self {
        let path = std::env::temp_dir().join(format!("linerate-conformance-{}-{}", std::process::id(), unique()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    /// A file in it.
    pub(super) fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    /// A file in it as a port.
    pub(super) fn port(&self, name: &str) -> String {
        format!("pcap:{}", self.path(name))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A veth pair between two hosts, `left` and `right`, with an `eth0` each, and the backends at its ends.
pub(super) struct Veth {
    name: String,
    queues: usize,
    lanes: Option<usize>,
    sender: &'static str,
    receiver: &'static str,
    /// More options of the receiver, as in `&mode=native`.
    options: &'static str,
    lab: TemporaryLab,
}

/// Small enough that many ports fit in memory at once, and large enough for all that one check sends.
const PACKET_RING: &str = "ring=32MiB&block=128KiB";
const XDP_RING: &str = "ring=2048";
/// Frames that wait for others to be merged stay where the program wrote them; AF_XDP has chunks beyond its ring for them.
const WRITTEN_RING: &str = "ring=4096";
/// Overrides it for `packet`: the last of two options counts.
pub(super) const SMALL: &str = "&ring=256KiB&block=64KiB";
/// Enough blocks for this many frames, however few the kernel puts in each.
const WINDOW: usize = 1024;

impl Veth {
    /// A silent pair that takes the longest frames, with `packet` at both ends; `None`, said aloud, where labs
    /// cannot be made.
    pub(super) fn up(queues: u32, lanes: Option<usize>) -> Option<Self> {
        Self::with(&format!("left:eth0,right:eth0,queues={queues},mtu=65535"), lanes)
    }

    /// A pair with a link as the lab takes it.
    pub(super) fn with(link: &str, lanes: Option<usize>) -> Option<Self> {
        let root = rustix::process::geteuid().is_root();
        let possible =
            root && Command::new("ip").args(["netns", "list"]).output().is_ok_and(|run| run.status.success());
        if !possible {
            assert!(!root || std::env::var("CI").as_deref() != Ok("true"), "nothing may be skipped in CI");
            eprintln!("SKIPPED: {link}: needs root, network namespaces and iproute2");
            return None;
        }
        let parsed: Link = link.parse().unwrap();
        let queues = parsed.queues as usize;
        let plan = Plan::from_links("conformance", vec![parsed]).unwrap();
        let lab = TemporaryLab::up(&plan).unwrap_or_else(|error| panic!("{error}"));
        let shown = lanes.map_or("one a cpu".to_owned(), |lanes| lanes.to_string());
        let name = format!("packet, {link}, lanes: {shown}");
        Some(Veth { name, queues, lanes, sender: "packet", receiver: "packet", options: "", lab })
    }

    /// The same pair with other backends.
    pub(super) fn using(mut self, sender: &'static str, receiver: &'static str, options: &'static str) -> Self {
        self.name = format!("{sender} to {receiver}{options}, {}", self.name.trim_start_matches("packet, "));
        if (sender, receiver) == ("xdp-live", "packet") {
            // A veth takes XDP frames only if the other end makes packets of them, or has a program.
            let gro = self.lab.exec("right", "ethtool").unwrap().args(["-K", "eth0", "gro", "on"]).status();
            assert!(gro.unwrap().success());
        }
        Veth { sender, receiver, options, ..self }
    }

    pub(super) fn lab(&self) -> &TemporaryLab {
        &self.lab
    }

    /// A host's interface as a port to send to.
    pub(super) fn sender(&self, host: &str) -> String {
        format!("{}:eth0?netns={}", self.sender, self.lab.host(host).unwrap())
    }

    /// A host's interface as a port to receive from, with more options as in `&ring=1MiB`.
    pub(super) fn receiver(&self, host: &str, more: &str) -> String {
        let lanes = self.lanes.map_or(String::new(), |lanes| format!("&lanes={lanes}"));
        let options = match self.receiver {
            "packet" => format!("{PACKET_RING}{lanes}{more}"),
            _ => {
                let by_socket = ["native", "generic", "af_xdp"].iter().any(|mode| self.options.contains(mode));
                let ring = if by_socket { XDP_RING } else { WRITTEN_RING };
                format!("{ring}{}{}", self.options, if more == SMALL { "" } else { more })
            }
        };
        format!("{}:eth0?netns={}&{options}", self.receiver, self.lab.host(host).unwrap())
    }

    /// Sends from left to right, with more options for the receiver.
    pub(super) fn open_with(&self, options: &RxOptions, more: &str) -> Wire {
        let rx = receive(&self.receiver("right", more), options);
        Wire::live(transmit(&self.sender("left"), self.can().senders), rx).with_window(WINDOW)
    }

    /// Runs `ip` in a host.
    pub(super) fn ip(&self, host: &str, arguments: &str) -> String {
        let run = self.lab.exec(host, "ip").unwrap().args(arguments.split(' ')).output().unwrap();
        assert!(run.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&run.stderr));
        String::from_utf8_lossy(&run.stdout).into_owned()
    }
}

impl Harness for Veth {
    fn name(&self) -> &str {
        &self.name
    }

    fn can(&self) -> Can {
        let packet = self.receiver == "packet";
        Can {
            senders: match self.sender {
                "packet" => 2,
                "xdp-live" => 1,
                _ => self.queues.min(2),
            },
            keeps_times: false,
            // Each CPU stamps its own frames in order; several of them in one ring do not keep it.
            ordered_lanes: self.lanes != Some(1) && !self.options.contains("generic"),
            // What the kernel keeps of a live frame's page for itself differs; 3,400 bytes are left on all.
            longest: if self.sender == "xdp-live" { 3400 } else { 65_549 },
            cuts: match self.receiver {
                "packet" => Some(0),
                "xdp" if self.options.contains("ring") => Some(14),
                _ => None,
            },
            idle_horizon: true,
            live: true,
            reopens: true,
            back_pressure: false,
            restores_vlan: packet,
        }
    }

    fn open(&self, options: &RxOptions) -> Wire {
        self.open_with(options, "")
    }

    fn open_small(&self) -> Wire {
        self.open_with(&RxOptions::default(), SMALL)
    }

    fn reopen(&self, _wire: &Wire) -> RxPort {
        receive(&self.receiver("right", SMALL), &RxOptions::default())
    }
}
