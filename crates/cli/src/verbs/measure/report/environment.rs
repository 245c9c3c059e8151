//! Environment of a measurement.

use crate::verbs::generate::preflight;
use crate::verbs::measure::trial::Direction;
use serde::Serialize;
use std::time::{SystemTime, UNIX_EPOCH};

/// Host and its ports.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Environment {
    /// Start time in nanoseconds of UTC.
    began_ns: u64,
    host: String,
    kernel: String,
    processor: String,
    processors: usize,
    clock: &'static str,
    clock_resolution_ns: i64,
    ports: Vec<Interface>,
}

/// Interface of a port.
#[derive(Clone, Debug, Serialize)]
struct Interface {
    port: String,
    driver: String,
    mtu: u32,
    speed_mbps: Option<u64>,
    queues: (u32, u32),
    offloads: Vec<String>,
}

impl Environment {
    /// Collects the facts of this host.
    pub(crate) fn find(directions: &[Direction]) -> Self {
        let release = rustix::system::uname();
        let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpus.lines().find(|line| line.starts_with("model name")).and_then(|line| line.split(": ").nth(1));
        let resolution = rustix::time::clock_getres(rustix::time::ClockId::Realtime);
        let interface = |spec: &linerate_port::Spec| {
            let found = preflight::interface(spec)?;
            Some(Interface {
                port: spec.to_string(),
                driver: found.driver,
                mtu: found.mtu,
                speed_mbps: found.speed_mbps,
                queues: found.queues,
                offloads: found.offloads,
            })
        };
        let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Environment {
            began_ns: u64::try_from(began.as_nanos()).unwrap_or(0),
            host: release.nodename().to_string_lossy().into_owned(),
            kernel: release.release().to_string_lossy().into_owned(),
            processor: model.unwrap_or_default().to_owned(),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            clock: "CLOCK_REALTIME; timestamps at the hand-over to the transmit port and by the receive port",
            clock_resolution_ns: resolution.tv_sec * 1_000_000_000 + resolution.tv_nsec,
            ports: directions[..1].iter().flat_map(|way| [&way.from, &way.to]).filter_map(interface).collect(),
        }
    }

    /// Formats the start time.
    pub(crate) fn started(&self) -> String {
        let seconds = self.began_ns / 1_000_000_000;
        let ((year, month, day), second) = (linerate_print::date(seconds / 86_400), seconds % 86_400);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
    }

    /// Returns the facts for reports.
    pub(crate) fn facts(&self) -> Vec<(&'static str, String)> {
        let mut facts = vec![
            ("host", self.host.clone()),
            ("kernel", self.kernel.clone()),
            ("processor", format!("{} x {}", self.processors, self.processor)),
            ("clock", format!("{}; resolution {} ns", self.clock, self.clock_resolution_ns)),
        ];
        for port in &self.ports {
            let speed = port.speed_mbps.map_or_else(|| "unknown speed".to_owned(), |speed| format!("{speed} Mb/s"));
            let Interface { port, driver, mtu, queues: (rx, tx), .. } = port;
            let queues = if *tx == 1 { "queue" } else { "queues" };
            facts.push(("interface", format!("{port}: {driver}, MTU {mtu}, {speed}, {rx} RX and {tx} TX {queues}")));
        }
        facts
    }
}
