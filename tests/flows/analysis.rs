//! TCP analysis by tshark: counts of its verdicts, and round trips by our definition, computed from the header fields
//! that it prints.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::process::{Command, Stdio};

/// Names of the counters, in the order of [`Counts`].
pub(super) const NAMES: [&str; 10] = [
    "packets",
    "retransmitted",
    "fast",
    "spurious",
    "out of order",
    "keep-alives",
    "zero windows",
    "window probes",
    "gaps",
    "duplicate acks",
];

/// Count per name in [`NAMES`]; `retransmitted` is the total, including fast and spurious ones.
pub(super) type Counts = [u64; NAMES.len()];

/// Addresses and ports of one direction, sender first.
pub(super) type Way = [(String, u64); 2];

/// TCP analysis of a capture.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Analysis {
    pub counts: Counts,
    /// Times from SYN to ACK in µs, sorted.
    pub handshakes: Vec<u64>,
    /// Round trips of segments by direction.
    pub round_trips: BTreeMap<Way, RoundTrips>,
}

/// Times in units of 1,024 ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RoundTrips {
    pub count: u64,
    pub min: u64,
    pub max: u64,
    pub sum: u64,
}

const FIELDS: [&str; 24] = [
    "tcp.stream",
    "tcp.analysis.initial_rtt",
    "tcp.analysis.retransmission",
    "tcp.analysis.fast_retransmission",
    "tcp.analysis.spurious_retransmission",
    "tcp.analysis.out_of_order",
    "tcp.analysis.keep_alive",
    "tcp.analysis.zero_window",
    "tcp.analysis.zero_window_probe",
    "tcp.analysis.lost_segment",
    "tcp.analysis.duplicate_ack",
    "frame.time_epoch",
    "ip.src",
    "ip.dst",
    "ipv6.src",
    "ipv6.dst",
    "tcp.srcport",
    "tcp.dstport",
    "tcp.seq_raw",
    "tcp.ack_raw",
    "tcp.len",
    "tcp.flags",
    "tcp.window_size_value",
    "ip.version",
];

const FIN: u64 = 1;
const SYN: u64 = 2;
const RST: u64 = 4;
const ACK: u64 = 16;

/// Runs tshark; of several headers in a frame the innermost counts.
pub(super) fn analyse(capture: &Path) -> Analysis {
    let output = Command::new("tshark")
        .args(["-n", "-o", "tcp.check_checksum:FALSE", "-o", "ip.defragment:FALSE", "-o", "ipv6.defragment:FALSE"])
        .args(["-T", "fields", "-E", "occurrence=l", "-r"])
        .arg(capture)
        .args(FIELDS.iter().flat_map(|field| ["-e", field]))
        .stdin(Stdio::null())
        .output()
        .expect("tshark");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "tshark: {}: {}: {errors}", capture.display(), output.status);
    let mut analysis = Analysis::default();
    let (mut handshakes, mut streams) = (HashMap::new(), HashMap::new());
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let words: Vec<&str> = line.split('\t').collect();
        let words: [&str; FIELDS.len()] = words.try_into().unwrap_or_else(|_| panic!("tshark printed {line:?}"));
        let [stream, handshake, verdicts @ ..] = words;
        if stream.is_empty() {
            continue;
        }
        analysis.counts[0] += 1;
        for (count, verdict) in analysis.counts[1..].iter_mut().zip(verdicts) {
            *count += u64::from(!verdict.is_empty());
        }
        if !handshake.is_empty() {
            handshakes.insert(stream.to_owned(), nanoseconds(handshake) / 1000);
        }
        let segment = Segment::of(&words);
        streams.entry(stream.to_owned()).or_insert_with(Stream::default).take(&segment, &mut analysis.round_trips);
    }
    analysis.handshakes = handshakes.into_values().collect();
    analysis.handshakes.sort();
    analysis
}

impl RoundTrips {
    /// Merges other round trips.
    pub(super) fn add(&mut self, other: RoundTrips) {
        let (min, max) = (self.min.min(other.min), self.max.max(other.max));
        *self = RoundTrips { count: self.count + other.count, min, max, sum: self.sum + other.sum };
    }
}

/// Fields of a segment.
struct Segment {
    way: Way,
    /// In units of 1,024 ns.
    time: u64,
    sequence: u32,
    acknowledgement: u32,
    payload: u32,
    flags: u64,
    window: u64,
}

impl Segment {
    fn of(words: &[&str; FIELDS.len()]) -> Self {
        let word = |name: &str| words[FIELDS.iter().position(|field| *field == name).expect("a field")];
        let number = |name: &str| -> u64 {
            let text = word(name);
            let number = match text.strip_prefix("0x") {
                Some(digits) => u64::from_str_radix(digits, 16),
                None => text.parse(),
            };
            number.unwrap_or_else(|_| panic!("tshark printed {name} as {text:?}: {words:?}"))
        };
        let end = |address: &str, port: &str| {
            let [old, new] = ["ip", "ipv6"].map(|version| word(&format!("{version}.{address}")));
            ((if old.is_empty() { new } else { old }).to_owned(), number(port))
        };
        Segment {
            way: [end("src", "tcp.srcport"), end("dst", "tcp.dstport")],
            time: nanoseconds(word("frame.time_epoch")) >> 10,
            sequence: number("tcp.seq_raw") as u32,
            acknowledgement: number("tcp.ack_raw") as u32,
            payload: number("tcp.len") as u32,
            flags: number("tcp.flags"),
            window: number("tcp.window_size_value"),
        }
    }
}

/// State of a connection by direction.
#[derive(Default)]
struct Stream(HashMap<Way, Side>);

#[derive(Default)]
struct Side {
    next: Option<u32>,
    /// End and time of the timed segment; true if it carries data.
    timed: Option<(u32, u64, bool)>,
    window: Option<u64>,
    has_probed: bool,
}

impl Stream {
    /// `rtt` of `docs/flows.md`: one segment at a time, in order or after a gap, cancelled by one below *next*.
    fn take(&mut self, segment: &Segment, found: &mut BTreeMap<Way, RoundTrips>) {
        let has = |flag: u64| segment.flags & flag != 0;
        if has(RST) {
            return;
        }
        let [from, to] = &segment.way;
        let back = [to.clone(), from.clone()];
        let peer = self.0.entry(back.clone()).or_default();
        if has(ACK)
            && let Some(took) = peer.acknowledge(segment)
        {
            let one = RoundTrips { count: 1, min: took, max: took, sum: took };
            found.entry(back).and_modify(|all| all.add(one)).or_insert(one);
        }
        let is_shut = peer.window == Some(0);
        let me = self.0.entry(segment.way.clone()).or_default();
        me.send(segment, is_shut);
        if !has(SYN) {
            me.window = Some(segment.window);
        }
    }
}

impl Side {
    /// Returns the round-trip time, if the timed segment was data.
    fn acknowledge(&mut self, answer: &Segment) -> Option<u64> {
        if self.has_probed && self.next.is_some_and(|next| answer.acknowledgement == next.wrapping_add(1)) {
            (self.next, self.has_probed) = (Some(answer.acknowledgement), false);
        }
        let (end, time, is_data) = self.timed?;
        if (answer.acknowledgement.wrapping_sub(end) as i32) < 0 {
            return None;
        }
        self.timed = None;
        answer.time.checked_sub(time).filter(|_| is_data)
    }

    fn send(&mut self, segment: &Segment, is_shut: bool) {
        let flag = |flag: u64| u32::from(segment.flags & flag != 0);
        let length = segment.payload + flag(SYN) + flag(FIN);
        let end = segment.sequence.wrapping_add(length);
        let Some(next) = self.next.filter(|_| length > 0) else {
            if length > 0 && flag(SYN) != 0 {
                self.timed = Some((end, segment.time, false));
            }
            self.next.get_or_insert(end);
            return;
        };
        let beyond = segment.sequence.wrapping_sub(next) as i32;
        if beyond < 0 {
            self.timed = None;
        } else if beyond == 0 && (segment.payload, length) == (1, 1) && is_shut {
            self.has_probed = true;
            return;
        } else {
            self.timed.get_or_insert((end, segment.time, true));
            self.has_probed = false;
        }
        if end.wrapping_sub(next) as i32 > 0 {
            self.next = Some(end);
        }
    }
}

/// Parses decimal seconds.
fn nanoseconds(text: &str) -> u64 {
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    format!("{seconds}{fraction:0<9}").parse().unwrap_or_else(|_| panic!("{text:?} is not a time"))
}
