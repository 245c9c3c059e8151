//! What is asked for of connections and of frames.

use super::super::flows::free_memory;
use super::super::inputs::span;
use super::super::units::size;
use crate::exit::usage;
use crate::view::rates::grouped;
use clap::builder::PossibleValuesParser;
use linerate_device::frames::Memory;
use linerate_port::spec::parse_size;
use linerate_receive::copy::Measured;
use linerate_receive::destination::{Destination, Discard, Files, FilesConfig};
use linerate_receive::frames::{Config, Frames, Missing};
use linerate_receive::pattern::Pattern;
use linerate_receive::tcp::{self, AckPolicy, Endpoint, Local};
use linerate_wire::MacAddr;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::str::FromStr;
use std::time::Instant;

/// An address, and ports of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    /// The address.
    pub ip: IpAddr,
    /// The ports.
    pub ports: RangeInclusive<u16>,
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text}: write ADDRESS:PORT or ADDRESS:FIRST-LAST, as in 10.0.0.9:5001 or [fd00::9]:5001-5016");
        let (ip, ports) = text.rsplit_once(':').ok_or_else(wrong)?;
        let bare = ip.strip_prefix('[').and_then(|ip| ip.strip_suffix(']'));
        let ip: IpAddr = bare.unwrap_or(ip).parse().map_err(|_| wrong())?;
        if ip.is_ipv6() != bare.is_some() {
            return Err(wrong());
        }
        let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
        let port = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0).ok_or_else(wrong);
        let (first, last) = (port(first)?, port(last)?);
        if first > last { Err(wrong()) } else { Ok(Listen { ip, ports: first..=last }) }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, last) = (self.ports.start(), self.ports.end());
        match self.ip {
            IpAddr::V4(ip) => write!(f, "{ip}:{first}")?,
            IpAddr::V6(ip) => write!(f, "[{ip}]:{first}")?,
        }
        if first < last { write!(f, "-{last}") } else { Ok(()) }
    }
}

/// As much as 5 ms at 100 Gb/s.
const WINDOW: &str = "64MiB";

/// Options of how connections are received.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "TCP")]
pub struct TcpArgs {
    /// The longest packet that can arrive; segments of 40 bytes less are asked for [default: the MTU of the interface]
    #[arg(long, value_name = "BYTES")]
    mtu: Option<u32>,
    /// The most that a sender may have on its way, up to 1GiB
    #[arg(long, value_name = "SIZE", default_value = WINDOW)]
    window: String,
    /// When to acknowledge: adaptive, burst (once for all that had come), after a number of segments (2) or bytes (256KiB)
    #[arg(long, value_name = "WHEN", default_value = "adaptive")]
    acks: Acks,
    /// The most connections at a time; others are not answered
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    max_connections: u32,
    /// Give a connection up after so many seconds without a segment; 0 for never
    #[arg(long, value_name = "S", default_value_t = 7200.0)]
    idle: f64,
    /// Answer segments of no connection by nothing, instead of a reset
    #[arg(long)]
    silent: bool,
}

/// When to acknowledge, as users write it.
#[derive(Clone, Copy, Debug)]
pub struct Acks(AckPolicy);

impl fmt::Display for Acks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            AckPolicy::Adaptive => f.write_str("adaptive"),
            AckPolicy::Burst => f.write_str("burst"),
            AckPolicy::Segments(segments) => write!(f, "{segments}"),
            AckPolicy::Bytes(bytes) => write!(f, "{}KiB", bytes.div_ceil(1 << 10)),
        }
    }
}

impl FromStr for Acks {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text}: write adaptive, burst, a number of segments (2), or of bytes with its unit (256KiB)");
        let policy = match text {
            "adaptive" => AckPolicy::Adaptive,
            "burst" => AckPolicy::Burst,
            _ => match text.parse::<u32>() {
                Ok(segments @ 1..=1000) => AckPolicy::Segments(segments),
                Ok(_) => return Err(wrong()),
                Err(_) => AckPolicy::Bytes(parse_size(text).filter(|bytes| *bytes > 0).ok_or_else(wrong)?),
            },
        };
        Ok(Acks(policy))
    }
}

impl TcpArgs {
    /// What is asked for, by name.
    pub fn asked(&self, mtu: u32) -> Vec<(&'static str, String)> {
        vec![
            ("mtu", self.mtu.unwrap_or(mtu).to_string()),
            ("window", self.window.clone()),
            ("acks", self.acks.to_string()),
            ("max_connections", self.max_connections.to_string()),
            ("idle", self.idle.to_string()),
            ("silent", self.silent.to_string()),
        ]
    }

    /// An endpoint for these addresses, at these stations.
    pub fn endpoint(&self, listen: &[Listen], stations: Vec<MacAddr>, mtu: u32) -> anyhow::Result<Endpoint> {
        let random = RandomState::new();
        let config = tcp::Config {
            listen: listen.iter().map(|listen| Local { ip: listen.ip, ports: listen.ports.clone() }).collect(),
            stations,
            mtu: self.mtu.unwrap_or(mtu),
            window: size("--window", &self.window)?,
            connections: self.max_connections as usize,
            acks: self.acks.0,
            idle: Some(span("--idle", self.idle)?).filter(|idle| !idle.is_zero()),
            secret: [random.hash_one(1), random.hash_one(2)],
            reset_unknown: !self.silent,
            ..tcp::Config::default()
        };
        Endpoint::new(config).map_err(usage)
    }
}

/// Options of where frames go.
#[derive(Debug, clap::Args)]
pub struct GoArgs {
    /// Write to this folder, which is made: a file a stream, and a list of frames beside them
    #[arg(short = 'w', long, value_name = "DIR")]
    write: Option<String>,
    /// Write a file a frame instead
    #[arg(long)]
    per_frame: bool,
    /// Write without the page cache (O_DIRECT)
    #[arg(long)]
    direct: bool,
    /// Verify every byte against what linerate send sends
    #[arg(long, conflicts_with = "write")]
    check: bool,
    /// The key of send --key, where it was given one: --check verifies with it
    #[arg(long, value_name = "K")]
    key: Option<u64>,
}

impl GoArgs {
    /// Where frames of so many bytes go, and the folder in which that makes files.
    pub fn destination(&self, bytes: usize) -> anyhow::Result<(Box<dyn Destination>, Vec<OwnedFd>)> {
        let Some(folder) = &self.write else {
            return Ok((Box::new(self.pattern().map_or_else(Discard::default, Discard::verifying)), Vec::new()));
        };
        let config = FilesConfig { per_frame: self.per_frame, direct: self.direct };
        let files = Files::create(Path::new(folder), bytes, config)?;
        let made_in = vec![files.folder().try_clone_to_owned()?];
        Ok((Box::new(files), made_in))
    }

    /// What streams have to be, if they are verified.
    pub fn pattern(&self) -> Option<Pattern> {
        self.check.then(|| Pattern::new(self.key.unwrap_or_default()))
    }

    /// Whether somebody has to look at every byte of a frame once more: in a thread of its own.
    pub fn is_looked_at(&self) -> bool {
        self.write.is_some() || self.check
    }

    /// For people; `otherwise`: what becomes of frames that are neither written nor verified.
    pub fn describe(&self, otherwise: &str) -> String {
        match &self.write {
            Some(folder) => format!("to {folder}"),
            None if self.check => "verified".to_owned(),
            None => otherwise.to_owned(),
        }
    }

    /// What is asked for, by name.
    fn asked(&self) -> Vec<(&'static str, String)> {
        vec![
            ("write", self.write.clone().unwrap_or_default()),
            ("per_frame", self.per_frame.to_string()),
            ("direct", self.direct.to_string()),
            ("check", self.check.to_string()),
            ("key", self.key.unwrap_or_default().to_string()),
        ]
    }
}

/// Options of frames, and of where they go.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Frames")]
pub struct FrameArgs {
    /// Where they go.
    #[command(flatten)]
    pub go: GoArgs,
    /// Bytes of a frame
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    frame_size: String,
    /// How many frames there are; a stream needs one at least
    #[arg(long, value_name = "N", default_value_t = 8)]
    frames: usize,
    /// Compute no CRC-32C of frames
    #[arg(long)]
    no_crc: bool,
    /// What is where bytes are missing: zero, or left (whatever was there before)
    #[arg(long, value_name = "WHAT", default_value = "zero", value_parser = PossibleValuesParser::new(["zero", "left"]))]
    missing: String,
}

impl FrameArgs {
    /// How they are.
    pub fn config(&self) -> anyhow::Result<Config> {
        Ok(Config {
            size: size("--frame-size", &self.frame_size)? as usize,
            frames: self.frames,
            crc: !self.no_crc,
            missing: if self.missing == "left" { Missing::Left } else { Missing::Zeroed },
            ..Config::default()
        })
    }

    /// Refuses more of them than there is memory for.
    pub fn check_memory(&self) -> anyhow::Result<()> {
        let wanted = size("--frame-size", &self.frame_size)?.saturating_mul(self.frames as u64);
        if let Some(free) = free_memory().filter(|free| wanted > *free) {
            return Err(usage(format!(
                "--frames {}: {} MiB by --frame-size {}, and {} MiB are free",
                self.frames,
                grouped(wanted >> 20),
                self.frame_size,
                grouped(free >> 20)
            )));
        }
        Ok(())
    }

    /// The frames, and how bytes come there, for people: by whatever copies segments of so many bytes fastest here.
    /// With `memory` in that one.
    pub fn pool(&self, segment: u32, memory: Option<Memory>) -> anyhow::Result<(Frames, String)> {
        let config = self.config()?;
        let frames = match memory {
            None => Frames::new(&config),
            Some(Memory::Here(pieces)) => Frames::over(&config, pieces),
            Some(Memory::Beyond(beyond)) => Frames::beyond(&config, beyond),
        };
        let mut frames = frames.map_err(usage)?;
        let began = Instant::now();
        let measured = frames.calibrate(segment as usize, &|| began.elapsed().as_nanos() as u64);
        Ok((frames, told(&measured)))
    }

    /// Where they go, and the folder in which that makes files.
    pub fn destination(&self) -> anyhow::Result<(Box<dyn Destination>, Vec<OwnedFd>)> {
        self.go.destination(self.config()?.size)
    }

    /// What is asked for, by name.
    pub fn asked(&self) -> Vec<(&'static str, String)> {
        let mut asked = vec![
            ("frames", self.frames.to_string()),
            ("frame_size", self.frame_size.clone()),
            ("crc32c", (!self.no_crc).to_string()),
            ("missing", self.missing.clone()),
        ];
        asked.extend(self.go.asked());
        asked
    }

    /// For people.
    pub fn describe(&self, shared: Option<&str>, device: Option<String>) -> String {
        let shared =
            shared.map(|name| format!("shared as {name}")).or_else(|| device.map(|_| "kept there alone".to_owned()));
        let to = self.go.describe(shared.as_deref().unwrap_or("kept nowhere (-w DIR)"));
        let plural = if self.frames == 1 { "" } else { "s" };
        let crc = if self.no_crc { "no CRC" } else { "CRC-32C" };
        format!("{} frame{plural} of {}, {crc}, gaps {}, {to}", self.frames, self.frame_size, self.missing)
    }
}

/// How fast bytes are copied, the fastest way first.
pub fn told(measured: &[Measured]) -> String {
    if measured.is_empty() {
        return "payload that is copied: in blocks to the device".to_owned();
    }
    let all = measured.iter().map(|one| format!("{} {:.1}", one.kernel.name(), one.rate as f64 / 1e9));
    format!("payload that is copied: {} GB/s", all.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_ports_are_read_and_said() {
        for text in ["10.0.0.9:5001", "10.0.0.9:1-65535", "[fd00::9]:5001-5016"] {
            assert_eq!(text.parse::<Listen>().unwrap().to_string(), text);
        }
        for text in
            ["10.0.0.9", "fd00::9:5001", "10.0.0.9:0", "10.0.0.9:9-8", "[10.0.0.9]:1", "host:1", ":5", "10.0.0.9:70000"]
        {
            assert!(text.parse::<Listen>().unwrap_err().contains("ADDRESS:PORT"), "{text}");
        }
    }

    #[test]
    fn when_to_acknowledge_is_read() {
        let read = |text: &str| text.parse::<Acks>().map(|acks| acks.0);
        assert_eq!(read("adaptive"), Ok(AckPolicy::Adaptive));
        assert_eq!(read("burst"), Ok(AckPolicy::Burst));
        assert_eq!(read("2"), Ok(AckPolicy::Segments(2)));
        assert_eq!(read("256KiB"), Ok(AckPolicy::Bytes(256 << 10)));
        for text in ["0", "0KiB", "often", "-1", ""] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
