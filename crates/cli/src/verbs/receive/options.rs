//! Options of connections and of frames.

use super::super::flows::free_memory;
use super::super::inputs::span;
use super::super::units::size;
use crate::exit::usage;
use crate::view::rates::grouped;
use clap::builder::PossibleValuesParser;
use linerate_device::frames::Memory;
use linerate_headers::MacAddr;
use linerate_port::spec::parse_size;
use linerate_transport::copy::KernelThroughput;
use linerate_transport::destination::{Destination, Discard, Files, FilesConfig};
use linerate_transport::frames::{Config, Frames, Missing};
use linerate_transport::pattern::Pattern;
use linerate_transport::tcp::{self, AckPolicy, Endpoint, Local};
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::str::FromStr;
use std::time::Instant;

/// A local address with a range of ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenAddress {
    /// Local address.
    pub ip: IpAddr,
    /// Local ports.
    pub ports: RangeInclusive<u16>,
}

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!("{text}: expected ADDRESS:PORT or ADDRESS:FIRST-LAST, such as 10.0.0.9:5001 or [fd00::9]:5001-5016")
        };
        let (ip, ports) = text.rsplit_once(':').ok_or_else(wrong)?;
        let bare = ip.strip_prefix('[').and_then(|ip| ip.strip_suffix(']'));
        let ip: IpAddr = bare.unwrap_or(ip).parse().map_err(|_| wrong())?;
        if ip.is_ipv6() != bare.is_some() {
            return Err(wrong());
        }
        let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
        let port = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0).ok_or_else(wrong);
        let (first, last) = (port(first)?, port(last)?);
        if first > last { Err(wrong()) } else { Ok(ListenAddress { ip, ports: first..=last }) }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, last) = (self.ports.start(), self.ports.end());
        match self.ip {
            IpAddr::V4(ip) => write!(f, "{ip}:{first}")?,
            IpAddr::V6(ip) => write!(f, "[{ip}]:{first}")?,
        }
        if first < last { write!(f, "-{last}") } else { Ok(()) }
    }
}

/// 5 ms at 100 Gb/s.
const WINDOW: &str = "64MiB";

/// Options of TCP connections.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "TCP")]
pub struct TcpArgs {
    /// Maximum packet size; the announced MSS is 40 bytes less [default: the MTU of the interface]
    #[arg(long, value_name = "BYTES")]
    mtu: Option<u32>,
    /// Receive window, up to 1GiB
    #[arg(long, value_name = "SIZE", default_value = WINDOW)]
    window: String,
    /// ACK policy: adaptive, burst (once per received batch), or every N segments (2) or bytes (256KiB)
    #[arg(long, value_name = "WHEN", default_value = "adaptive")]
    acks: Acks,
    /// Maximum number of open connections; more are not answered
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    max_connections: u32,
    /// Idle timeout of a connection in seconds; 0 disables it
    #[arg(long, value_name = "S", default_value_t = 7200.0)]
    idle: f64,
    /// Do not send RST for segments of unknown connections
    #[arg(long)]
    silent: bool,
}

/// ACK policy as an option value.
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
        let wrong = || {
            format!(
                "{text}: invalid ACK policy; expected adaptive, burst, a number of segments (2) or bytes with a unit (256KiB)"
            )
        };
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
    /// Returns the settings by name.
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

    /// Creates an endpoint for these IP and MAC addresses.
    pub fn endpoint(&self, listen: &[ListenAddress], stations: Vec<MacAddr>, mtu: u32) -> anyhow::Result<Endpoint> {
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

/// Destination of frames.
#[derive(Debug, clap::Args)]
pub struct DestinationArgs {
    /// Write one file per stream and a list of frames to this new directory
    #[arg(short = 'w', long, value_name = "DIR")]
    write: Option<String>,
    /// Write one file per frame
    #[arg(long)]
    per_frame: bool,
    /// Bypass the page cache (O_DIRECT)
    #[arg(long)]
    direct: bool,
    /// Verify every byte against the pattern of linerate send
    #[arg(long, conflicts_with = "write")]
    check: bool,
    /// Key of the pattern for --check, as in send --key [default: 0]
    #[arg(long, value_name = "K")]
    key: Option<u64>,
}

impl DestinationArgs {
    /// Opens the destination for frames of this size; returns it with the folder in which it creates files.
    pub fn destination(&self, bytes: usize) -> anyhow::Result<(Box<dyn Destination>, Vec<OwnedFd>)> {
        let Some(folder) = &self.write else {
            return Ok((Box::new(self.pattern().map_or_else(Discard::default, Discard::verifying)), Vec::new()));
        };
        let config = FilesConfig { per_frame: self.per_frame, direct: self.direct };
        let files = Files::create(Path::new(folder), bytes, config)?;
        let made_in = vec![files.folder().try_clone_to_owned()?];
        Ok((Box::new(files), made_in))
    }

    /// Returns the expected pattern, if streams are verified.
    pub fn pattern(&self) -> Option<Pattern> {
        self.check.then(|| Pattern::new(self.key.unwrap_or_default()))
    }

    /// Returns whether the bytes of a frame are read again, which is done in a separate thread.
    pub fn reads_frames(&self) -> bool {
        self.write.is_some() || self.check
    }

    /// Describes the destination; `otherwise` is the text for frames that are neither written nor verified.
    pub fn describe(&self, otherwise: &str) -> String {
        match &self.write {
            Some(folder) => format!("to {folder}"),
            None if self.check => "verified and discarded".to_owned(),
            None => otherwise.to_owned(),
        }
    }

    /// Returns the settings by name.
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

/// Options of frames and their destination.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Frames")]
pub struct FrameArgs {
    /// Destination.
    #[command(flatten)]
    pub go: DestinationArgs,
    /// Size of a frame
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    frame_size: String,
    /// Number of frames in memory; each open stream needs at least one
    #[arg(long, value_name = "N", default_value_t = 8)]
    frames: usize,
    /// Do not compute CRC-32C of frames
    #[arg(long)]
    no_crc: bool,
    /// Content of gaps: zero (filled with zeros), or left (old contents)
    #[arg(long, value_name = "WHAT", default_value = "zero", value_parser = PossibleValuesParser::new(["zero", "left"]))]
    missing: String,
}

impl FrameArgs {
    /// Returns the configuration of the frames.
    pub fn config(&self) -> anyhow::Result<Config> {
        Ok(Config {
            size: size("--frame-size", &self.frame_size)? as usize,
            frames: self.frames,
            crc: !self.no_crc,
            missing: if self.missing == "left" { Missing::Left } else { Missing::Zeroed },
            ..Config::default()
        })
    }

    /// Fails if the frames do not fit in free memory.
    pub fn check_memory(&self) -> anyhow::Result<()> {
        let wanted = size("--frame-size", &self.frame_size)?.saturating_mul(self.frames as u64);
        if let Some(free) = free_memory().filter(|free| wanted > *free) {
            return Err(usage(format!(
                "--frames {}: not enough memory: {} MiB with --frame-size {}, {} MiB free",
                self.frames,
                grouped(wanted >> 20),
                self.frame_size,
                grouped(free >> 20)
            )));
        }
        Ok(())
    }

    /// Creates the frames, in `memory` if given, and measures the fastest way to copy segments of this size. Returns the frames
    /// and a text about the copy rates.
    pub fn pool(&self, segment: u32, memory: Option<Memory>) -> anyhow::Result<(Frames, String)> {
        let config = self.config()?;
        let frames = match memory {
            None => Frames::new(&config),
            Some(Memory::Here(pieces)) => Frames::over(&config, pieces),
            Some(Memory::RemoteMemory(beyond)) => Frames::beyond(&config, beyond),
        };
        let mut frames = frames.map_err(usage)?;
        let began = Instant::now();
        let measured = frames.calibrate(segment as usize, &|| began.elapsed().as_nanos() as u64);
        Ok((frames, copy_rates_text(&measured)))
    }

    /// Opens the destination; returns it with the folder in which it creates files.
    pub fn destination(&self) -> anyhow::Result<(Box<dyn Destination>, Vec<OwnedFd>)> {
        self.go.destination(self.config()?.size)
    }

    /// Returns the settings by name.
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

    fn gaps(&self) -> &'static str {
        if self.missing == "left" { "gaps left" } else { "gaps zero-filled" }
    }

    /// Describes the frames and their destination.
    pub fn describe(&self, shared: Option<&str>, device: Option<String>) -> String {
        let shared =
            shared.map(|name| format!("shared as {name}")).or_else(|| device.map(|_| "kept on the device".to_owned()));
        let to = self.go.describe(shared.as_deref().unwrap_or("discarded (use -w DIR to keep)"));
        let plural = if self.frames == 1 { "" } else { "s" };
        let crc = if self.no_crc { "no CRC" } else { "CRC-32C" };
        format!("{} frame{plural} of {}, {crc}, {}, {to}", self.frames, self.frame_size, self.gaps())
    }
}

/// Returns the copy rates as text, fastest first.
pub fn copy_rates_text(measured: &[KernelThroughput]) -> String {
    if measured.is_empty() {
        return "payload copy: in blocks to the device".to_owned();
    }
    let all = measured.iter().map(|one| format!("{} {:.1}", one.kernel.name(), one.rate as f64 / 1e9));
    format!("payload copy: {} GB/s", all.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_ports_are_parsed_and_printed() {
        for text in ["10.0.0.9:5001", "10.0.0.9:1-65535", "[fd00::9]:5001-5016"] {
            assert_eq!(text.parse::<ListenAddress>().unwrap().to_string(), text);
        }
        for text in
            ["10.0.0.9", "fd00::9:5001", "10.0.0.9:0", "10.0.0.9:9-8", "[10.0.0.9]:1", "host:1", ":5", "10.0.0.9:70000"]
        {
            assert!(text.parse::<ListenAddress>().unwrap_err().contains("ADDRESS:PORT"), "{text}");
        }
    }

    #[test]
    fn ack_policies_are_parsed() {
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
