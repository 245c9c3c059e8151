//! Counters of a host's kernel: its sockets, protocols and interface.

use crate::flows::testbed::Stage;
use serde_json::Value;
use std::collections::HashMap;

/// Counters of one host.
pub(super) struct Host {
    /// Open connections.
    pub sockets: Vec<Socket>,
    /// `/proc/net/snmp` and `/proc/net/netstat`, with names such as `Tcp.InSegs`.
    counters: HashMap<String, u64>,
    /// Frames and bytes received and sent by `eth0`.
    pub received: [u64; 2],
    pub sent: [u64; 2],
}

/// A connection, as `ss -ti` shows it (`struct tcp_info`, linux/tcp.h).
#[derive(Debug)]
pub(super) struct Socket {
    pub local_port: u64,
    pub peer_port: u64,
    values: HashMap<String, String>,
}

/// Arguments of `ss` for [`Socket::all`].
pub(super) const SHOW: [&str; 3] = ["-HtienO", "state", "established"];

impl Host {
    /// Reads the counters.
    pub(super) fn look(stage: &Stage, host: &str) -> Self {
        let shown = stage.ask(host, "ss", &SHOW);
        let counters = ["/proc/net/snmp", "/proc/net/netstat"].map(|path| stage.ask(host, "cat", &[path]));
        let shown_link = stage.ask(host, "ip", &["-s", "-j", "link", "show", "eth0"]);
        let link: Value = serde_json::from_str(&shown_link).expect("JSON of ip");
        let count = |way: &str| {
            let stats = &link[0]["stats64"][way];
            assert_eq!((&stats["dropped"], &stats["errors"]), (&0.into(), &0.into()), "{host}, {way}: {stats}");
            ["packets", "bytes"].map(|name| stats[name].as_u64().expect("a count"))
        };
        Host {
            sockets: Socket::all(&shown),
            counters: counters.iter().flat_map(|text| protocol_counters(text)).collect(),
            received: count("rx"),
            sent: count("tx"),
        }
    }

    /// Returns a protocol counter.
    pub(super) fn count(&self, name: &str) -> u64 {
        *self.counters.get(name).unwrap_or_else(|| panic!("the kernel does not count {name}"))
    }

    /// Returns the increase of a counter.
    pub(super) fn since(&self, before: &Host, name: &str) -> u64 {
        self.count(name) - before.count(name)
    }

    /// Returns segments sent including retransmissions, which `Tcp.OutSegs` excludes (RFC 4022).
    pub(super) fn segments_sent(&self, before: &Host) -> u64 {
        self.since(before, "Tcp.OutSegs") + self.since(before, "Tcp.RetransSegs")
    }

    /// Returns the segments retransmitted by closed connections.
    pub(super) fn retransmissions_of_closed(&self, before: &Host) -> u64 {
        self.since(before, "Tcp.RetransSegs") - self.sockets.iter().map(Socket::retransmissions).sum::<u64>()
    }

    /// Returns the open connection between these ports.
    pub(super) fn socket(&self, local_port: u64, peer_port: u64) -> &Socket {
        let found = self.sockets.iter().find(|socket| (socket.local_port, socket.peer_port) == (local_port, peer_port));
        found.unwrap_or_else(|| panic!("no connection from {local_port} to {peer_port}: {:?}", self.sockets))
    }
}

impl Socket {
    /// Returns a number, or 0 if `ss` omits it.
    pub(super) fn number(&self, name: &str) -> u64 {
        self.values.get(name).map_or(0, |value| value.parse().unwrap_or_else(|_| panic!("{name}: {value}")))
    }

    /// Returns true if `ss` prints this word or a value of this name.
    pub(super) fn says(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// Returns the two numbers of `NAME:ONE,OTHER`.
    pub(super) fn pair(&self, name: &str) -> Option<[u64; 2]> {
        let (one, other) = self.values.get(name)?.split_once(',')?;
        Some([one, other].map(|number| number.parse().unwrap_or_else(|_| panic!("{name}: {self:?}"))))
    }

    /// Returns a value in milliseconds as ns.
    pub(super) fn milliseconds(&self, name: &str) -> Option<u64> {
        let value = self.values.get(name)?;
        Some((value.parse::<f64>().unwrap_or_else(|_| panic!("{name}: {value}")) * 1e6) as u64)
    }

    /// Parses the output of `ss` with the arguments [`SHOW`].
    pub(super) fn all(shown: &str) -> Vec<Self> {
        shown.lines().map(Socket::parse).collect()
    }

    /// Returns the total of retransmitted segments: `retrans:NOW/ALL`.
    pub(super) fn retransmissions(&self) -> u64 {
        self.values.get("retrans").map_or(0, |value| value.rsplit('/').next().unwrap().parse().unwrap())
    }

    /// Parses a line of `ss -HtieO state established`: two queues, two ends, then `name:value` or bare words.
    fn parse(line: &str) -> Self {
        let mut words = line.split_whitespace().skip(2);
        let mut port = || words.next().and_then(|end| end.rsplit(':').next()?.parse().ok()).expect("an end");
        let (local_port, peer_port) = (port(), port());
        let values = words.map(|word| word.split_once(':').unwrap_or((word, "")));
        Socket { local_port, peer_port, values: values.map(|(name, value)| (name.into(), value.into())).collect() }
    }
}

/// Parses pairs of lines `Tcp: NAME...` and `Tcp: VALUE...`, without negative values.
fn protocol_counters(text: &str) -> Vec<(String, u64)> {
    let lines: Vec<&str> = text.lines().collect();
    let pairs = lines.chunks_exact(2).flat_map(|pair| {
        let protocol = pair[0].split(':').next().unwrap_or_default();
        let (names, values) = (pair[0].split_whitespace().skip(1), pair[1].split_whitespace().skip(1));
        names.zip(values).map(move |(name, value)| (format!("{protocol}.{name}"), value))
    });
    pairs.filter_map(|(name, value)| Some((name, value.parse().ok()?))).collect()
}
