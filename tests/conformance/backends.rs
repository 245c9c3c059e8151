//! Opening of each backend at both ends, and its capabilities.

use crate::conformance::wire::Wire;
use linerate_backends::{open_rx, open_tx};
use linerate_lab::{Link, Plan, TemporaryLab};
use linerate_port::{RxOptions, RxPort, Spec, TxOptions, TxPort};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

/// Capabilities of a backend.
#[derive(Clone, Copy, Debug)]
pub(super) struct Can {
    /// Number of senders that each keep their order, and of send queues.
    pub senders: usize,
    /// Frames keep the timestamp of the sender.
    pub keeps_times: bool,
    /// Timestamps do not go backwards within a lane.
    pub ordered_lanes: bool,
    /// Length of the longest frame in bytes.
    pub longest: usize,
    /// Truncates frames to the snap length, but not below this length.
    pub cuts: Option<usize>,
    /// The horizon of an idle lane advances.
    pub idle_horizon: bool,
    /// The receiver is open while the sender sends.
    pub live: bool,
    /// A receiver can be opened again while the sender stays open.
    pub reopens: bool,
    /// The sender blocks without a receiver.
    pub back_pressure: bool,
    /// The kernel strips VLAN tags, and the receiver restores them.
    pub restores_vlan: bool,
}

/// Opens a connected sender and receiver.
pub(super) trait Harness {
    fn name(&self) -> &str;
    fn can(&self) -> Can;
    /// Opens a wire of its own.
    fn open(&self, options: &RxOptions) -> Wire;
    /// Opens a wire with small buffers quickly.
    fn open_small(&self) -> Wire {
        self.open(&RxOptions::default())
    }
    /// Opens another receiver on the same wire, where possible.
    fn reopen(&self, _wire: &Wire) -> RxPort {
        unreachable!("{} cannot be opened again", self.name())
    }
}

/// Returns a number unique in this process.
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
    /// Creates a wire with this suffix of the name: queues and options.
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
    /// Creates a wire over a file with this extension.
    pub(super) fn new(format: &'static str) -> Self {
        FileWire { name: format!("pcap file.{format}"), format }
    }
}

/// Capabilities of files and pipes.
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
    /// Creates a wire over a pipe with this extension.
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
        // Opening blocks until the other end is open.
        let tx = thread::scope(|scope| {
            let tx = scope.spawn(|| transmit(&text, 0));
            (receive(&text, options), tx.join().unwrap())
        });
        Wire::live(tx.1, tx.0).keeping(folder)
    }
}

/// Temporary folder, removed on drop.
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn new() -> Self {
        let path = std::env::temp_dir().join(format!("linerate-conformance-{}-{}", std::process::id(), unique()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    /// Returns the path of a file in it.
    pub(super) fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    /// Returns the `pcap:` port of a file in it.
    pub(super) fn port(&self, name: &str) -> String {
        format!("pcap:{}", self.path(name))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Veth pair between hosts `left` and `right`, with an `eth0` each, and the backends at its ends.
pub(super) struct Veth {
    name: String,
    queues: usize,
    lanes: Option<usize>,
    sender: &'static str,
    receiver: &'static str,
    /// Additional options of the receiver, such as `&mode=native`.
    options: &'static str,
    /// True if frames are received as for forwarding, at once.
    prompt: bool,
    lab: TemporaryLab,
}

/// Small enough that many ports fit in memory, and large enough for all frames of a check.
const PACKET_RING: &str = "ring=32MiB&block=128KiB";
const XDP_RING: &str = "ring=2048";
/// Frames that wait for the merge stay in the ring of the XDP program; AF_XDP has chunks beyond its ring for them.
const WRITTEN_RING: &str = "ring=4096";
/// Overrides `PACKET_RING`: the last of two equal options applies.
pub(super) const SMALL: &str = "&ring=256KiB&block=64KiB";
/// Max frames in flight: the ring has a block for each, in case the kernel puts one frame in each.
const WINDOW: usize = 1024;

impl Veth {
    /// Creates a quiet pair with the largest MTU and `packet` at both ends; reports a skip and returns `None` where
    /// labs cannot be created.
    pub(super) fn up(queues: u32, lanes: Option<usize>) -> Option<Self> {
        Self::with(&format!("left:eth0,right:eth0,queues={queues},mtu=65535"), lanes)
    }

    /// Creates a pair with this link, in the syntax of the lab.
    pub(super) fn with(link: &str, lanes: Option<usize>) -> Option<Self> {
        let root = rustix::process::geteuid().is_root();
        let possible =
            root && Command::new("ip").args(["netns", "list"]).output().is_ok_and(|run| run.status.success());
        if !possible {
            assert!(!root || std::env::var("CI").as_deref() != Ok("true"), "no test may be skipped in CI");
            eprintln!("SKIPPED: {link}: needs root, network namespaces and iproute2");
            return None;
        }
        let parsed: Link = link.parse().unwrap();
        let queues = parsed.queues as usize;
        let plan = Plan::from_links("conformance", vec![parsed]).unwrap();
        let lab = TemporaryLab::up(&plan).unwrap_or_else(|error| panic!("{error}"));
        let shown = lanes.map_or("one per CPU".to_owned(), |lanes| lanes.to_string());
        let name = format!("packet, {link}, lanes: {shown}");
        Some(Veth { name, queues, lanes, sender: "packet", receiver: "packet", options: "", prompt: false, lab })
    }

    /// Sets the backends of the pair.
    pub(super) fn using(mut self, sender: &'static str, receiver: &'static str, options: &'static str) -> Self {
        self.name = format!("{sender} to {receiver}{options}, {}", self.name.trim_start_matches("packet, "));
        if (sender, receiver) == ("xdp-live", "packet") {
            // A veth accepts XDP frames only if its peer has GRO on or an XDP program.
            let gro = self.lab.exec("right", "ethtool").unwrap().args(["-K", "eth0", "gro", "on"]).status();
            assert!(gro.unwrap().success());
        }
        Veth { sender, receiver, options, ..self }
    }

    /// Receives frames as for forwarding.
    pub(super) fn prompt(mut self) -> Self {
        self.name += ", prompt";
        Veth { prompt: true, ..self }
    }

    pub(super) fn lab(&self) -> &TemporaryLab {
        &self.lab
    }

    /// Returns the port that sends on a host's interface.
    pub(super) fn sender(&self, host: &str) -> String {
        format!("{}:eth0?netns={}", self.sender, self.lab.host(host).unwrap())
    }

    /// Returns the port that receives on a host's interface, with additional options such as `&ring=1MiB`.
    pub(super) fn receiver(&self, host: &str, more: &str) -> String {
        let lanes = self.lanes.map_or(String::new(), |lanes| format!("&lanes={lanes}"));
        let options = match self.receiver {
            // block= would select the other ring.
            "packet" if self.prompt => format!("ring={}{lanes}", if more == SMALL { "256KiB" } else { "128MiB" }),
            "packet" => format!("{PACKET_RING}{lanes}{more}"),
            _ => {
                let by_socket = ["native", "generic", "af_xdp"].iter().any(|mode| self.options.contains(mode));
                let ring = if by_socket { XDP_RING } else { WRITTEN_RING };
                format!("{ring}{}{}", self.options, if more == SMALL { "" } else { more })
            }
        };
        format!("{}:eth0?netns={}&{options}", self.receiver, self.lab.host(host).unwrap())
    }

    /// Opens a wire from left to right, with additional options of the receiver.
    pub(super) fn open_with(&self, options: &RxOptions, more: &str) -> Wire {
        let options = RxOptions { prompt: self.prompt, ..options.clone() };
        let rx = receive(&self.receiver("right", more), &options);
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
            // Each CPU stamps its frames in order; several CPUs in one ring do not.
            ordered_lanes: self.lanes != Some(1) && !self.options.contains("generic"),
            // The kernel reserves a part of a live frame's page, which varies; 3,400 bytes fit on all.
            longest: match (self.sender, self.prompt) {
                ("xdp-live", _) => 3400,
                (_, true) => 9014,
                (_, false) => 65_549,
            },
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
        receive(&self.receiver("right", SMALL), &RxOptions { prompt: self.prompt, ..RxOptions::default() })
    }
}
