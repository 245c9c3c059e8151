//! Frames of a measurement: packets as text, of one size, with trailers; and their schedule.

use crate::exit::usage;
use crate::signals::read_text;
use linerate_generate::packet::{self, Setup};
use linerate_generate::rate::{FCS, L1_OVERHEAD};
use linerate_generate::stream::{IndexSelection, Mark, Order, Selector, Shape, Span, Stream, StreamSet, Variant};
use linerate_generate::trailer::Key;
use linerate_generate::{Rate, Shares, TextError, file};
use linerate_headers::{Layers, Link, Protocol, dissect};
use std::path::Path;

/// Default packet, with benchmark addresses (RFC 2544, appendix C).
pub(super) const USUAL: &str =
    "eth(src=02:00:00:00:00:01,dst=02:00:00:00:00:02)/ip(src=198.18.0.1,dst=198.19.0.1)/udp(sport=49152,dport=7)";
/// Default packet for IPv6 (RFC 5180, section 8).
pub(super) const USUAL_IP6: &str = "eth(src=02:00:00:00:00:01,dst=02:00:00:00:00:02)\
     /ip6(src=2001:2::1,dst=2001:2:0:8000::1)/udp(sport=49152,dport=7)";

/// Schedule of the frames of a trial.
#[derive(Clone, Debug)]
pub(super) enum Frames {
    /// One rate, for a duration in seconds.
    Paced(Rate, f64),
    /// Number of frames at a rate.
    Burst(u64, Rate),
    /// Phases in sequence, with packets in turn.
    Phases(Vec<Phase>),
}

/// Number of frames at a rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Phase {
    /// Frames per second.
    pub load: f64,
    pub frames: u64,
}

impl Phase {
    /// Creates a phase of a duration, with at least one frame.
    pub(super) fn with_duration(load: f64, seconds: f64) -> Self {
        Phase { load, frames: ((load * seconds).round() as u64).max(1) }
    }

    /// Returns the duration in seconds.
    pub(super) fn seconds(&self) -> f64 {
        self.frames as f64 / self.load
    }
}

impl Frames {
    /// Returns the streams of a trial.
    pub(super) fn of(&self, set: &StreamSet) -> StreamSet {
        let mut set = set.clone();
        match self {
            Frames::Paced(Rate::Top, _) => {
                set.rate = None;
                set.streams.iter_mut().for_each(|stream| stream.rate = Rate::Top);
            }
            // Services have rates of their own.
            Frames::Paced(_, _) if set.rate.is_none() => {}
            Frames::Paced(rate, _) => set.rate = Some(*rate),
            Frames::Burst(frames, rate) => {
                let stream = Stream { count: Some(*frames), rate: *rate, ..merged(&set) };
                set = StreamSet { streams: vec![stream], rate: None, ..set };
            }
            Frames::Phases(phases) => {
                let all = merged(&set);
                let stream = |(id, phase): (usize, &Phase)| Stream {
                    id: id as u32,
                    count: Some(phase.frames),
                    rate: Rate::Frames(phase.load),
                    ..all.clone()
                };
                let streams = phases.iter().enumerate().map(stream).collect();
                set = StreamSet { streams, order: Order::Sequential, rate: None, ..set };
            }
        }
        set
    }

    /// Returns the number of frames to send in a direction, if limited.
    pub(super) fn intended(&self, set: &StreamSet) -> Option<u64> {
        match self {
            Frames::Paced(Rate::Frames(load), seconds) => Some((load * seconds).ceil() as u64),
            Frames::Paced(_, seconds) => {
                let rates = set.streams.iter().map(|stream| match stream.rate {
                    Rate::Frames(load) => Some(load),
                    _ => None,
                });
                rates.sum::<Option<f64>>().map(|load| (load * seconds).ceil() as u64)
            }
            Frames::Burst(frames, _) => Some(*frames),
            Frames::Phases(phases) => Some(phases.iter().map(|phase| phase.frames).sum()),
        }
    }

    /// Returns the packets per second of one direction; infinite at the maximum rate.
    pub(super) fn load(&self, set: &StreamSet) -> f64 {
        match (self, self.seconds(), self.intended(set)) {
            (Frames::Burst(_, Rate::Frames(load)), ..) => *load,
            (_, Some(seconds), Some(frames)) if seconds > 0.0 => frames as f64 / seconds,
            _ => f64::INFINITY,
        }
    }

    /// Returns the duration in seconds, if known.
    pub(super) fn seconds(&self) -> Option<f64> {
        match self {
            Frames::Paced(_, seconds) => Some(*seconds),
            Frames::Burst(frames, Rate::Frames(load)) => Some(*frames as f64 / load),
            Frames::Burst(..) => None,
            Frames::Phases(phases) => Some(phases.iter().map(Phase::seconds).sum()),
        }
    }
}

/// Returns streams of frames of one size; a trial sets their rate and key. If a packet has no room for a trailer,
/// frames are only counted.
pub(super) fn streams(texts: &[String], size: u64, seed: u64) -> anyhow::Result<StreamSet> {
    let all = |mark| -> anyhow::Result<Vec<Stream>> {
        texts.iter().enumerate().map(|(id, text)| stream(id as u32, text, size, seed, mark)).collect()
    };
    let streams = all(Mark::Trailer).or_else(|error| all(Mark::Count).map_err(|_| error))?;
    let set = StreamSet { streams, order: Order::Interleaved, rate: Some(Rate::Frames(1.0)), key: Key::default() };
    set.check().map_err(usage)?;
    Ok(set)
}

/// Reads the streams of a file, which share a load in proportion to their rates.
pub(super) fn of_file(path: &Path) -> anyhow::Result<StreamSet> {
    let name = path.display().to_string();
    let text = read_text(path).map_err(|error| usage(format!("cannot read {name}: {error}")))?;
    let mut set = file::streams(&name, &text, &file::Setup::default()).map_err(usage)?;
    if set.order != Order::Interleaved || set.rate.is_some() {
        let why = "a measurement sends all streams together and sets their rate; remove order and rate above";
        return Err(usage(format!("{name}: {why} [[stream]]")));
    }
    let (top, paced) = set.streams.iter().partition::<Vec<_>, _>(|stream| stream.rate == Rate::Top);
    if !top.is_empty() && !paced.is_empty() {
        return Err(usage(format!(
            "{name}: some streams have no rate, so their share of the load is unknown; set a rate for all or none"
        )));
    }
    for stream in &set.streams {
        let odd = [
            (stream.count.is_some(), "remove count: trials set the number of packets"),
            (stream.span != Span::ALWAYS, "remove start and for: trials set the times"),
            (stream.shape != Shape::Even, "remove burst and poisson: the gaps of a load are equal"),
            (stream.mark == Mark::None, "remove check = \"no\": packets must be recognised to be counted"),
        ];
        if let Some((_, why)) = odd.iter().find(|(is, _)| *is) {
            return Err(usage(format!("{name}: stream {:?}: {why}", stream.name)));
        }
    }
    set.rate = Some(Rate::Frames(1.0));
    set.check().map_err(usage)?;
    Ok(set)
}

/// Returns the mean frame size in bytes, with FCS.
pub(super) fn mean_size(set: &StreamSet) -> u64 {
    Shares::of(set).map_or(0, |shares| shares.mean_length().round() as u64 + FCS)
}

/// Returns the frames of the reverse direction, with source and destination of the outermost headers swapped.
pub(super) fn turned(set: &StreamSet) -> StreamSet {
    let mut set = set.clone();
    for variant in set.streams.iter_mut().flat_map(|stream| &mut stream.variants) {
        turn(variant);
    }
    set
}

/// Returns the line rate in frames per second for a frame size with FCS, given the bits per second.
pub(super) fn of_line(bits: f64, size: u64) -> f64 {
    bits / (8 * (size - FCS + L1_OVERHEAD)) as f64
}

/// Returns a stream of frames of one size.
pub(super) fn stream(id: u32, text: &str, size: u64, seed: u64, mark: Mark) -> anyhow::Result<Stream> {
    let seed = seed.wrapping_add(id.into());
    let wrong = |wrong: TextError| usage(format!("--packet {text:?} of {size} bytes: {}", wrong.what));
    let sizes = packet::sizes(&size.to_string(), seed).map_err(wrong)?;
    let no_files = |path: &str, _: u64| Err(format!("{path}: packets of files are not supported by measure"));
    let setup = Setup { link: Link::Ethernet, sizes, mark, seed, files: &no_files };
    Ok(packet::frames(text, &setup).map_err(wrong)?.stream(id, mark))
}

/// Merges all streams into one, with their frames in turn.
fn merged(set: &StreamSet) -> Stream {
    let mut all = set.streams[0].clone();
    for stream in &set.streams[1..] {
        let before = all.selectors.len();
        let mut variants = stream.variants.clone();
        for change in variants.iter_mut().flat_map(|variant| &mut variant.changes) {
            change.selector += before;
        }
        all.variants.extend(variants);
        all.selectors.extend(stream.selectors.iter().cloned());
    }
    if set.streams.len() > 1 {
        all.size = Selector { count: all.variants.len() as u64, pick: IndexSelection::InTurn { every: 1 } };
    }
    all
}

/// Swaps source and destination. Checksums over both stay valid.
fn turn(variant: &mut Variant) {
    let mut layers = Layers::new();
    dissect(Link::Ethernet, &variant.frame, &mut layers);
    let mut pairs = Vec::new();
    let mut is_network_done = false;
    for layer in layers.as_slice() {
        let at = layer.offset as usize;
        match layer.protocol {
            Protocol::Ethernet if at == 0 => pairs.push((0, 6, 6)),
            Protocol::Ipv4 if !is_network_done => {
                pairs.push((at + 12, at + 16, 4));
                is_network_done = true;
            }
            Protocol::Ipv6 if !is_network_done => {
                pairs.push((at + 8, at + 24, 16));
                is_network_done = true;
            }
            _ => {}
        }
    }
    if let Some(layer) = layers.transport().filter(|layer| is_ported(layer.protocol)) {
        pairs.push((layer.offset as usize, layer.offset as usize + 2, 2));
    }
    for (one, other, length) in pairs {
        let (front, back) = variant.frame.split_at_mut(other);
        front[one..one + length].swap_with_slice(&mut back[..length]);
        for change in &mut variant.changes {
            let is_within = |start: usize| change.offset >= start && change.offset + change.width <= start + length;
            if is_within(one) {
                change.offset += other - one;
            } else if is_within(other) {
                change.offset -= other - one;
            }
        }
    }
}

fn is_ported(protocol: Protocol) -> bool {
    matches!(protocol, Protocol::Udp | Protocol::Tcp | Protocol::UdpLite | Protocol::Sctp)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Frames swapped twice are unchanged; swapped once they equal those of the swapped text.
    #[test]
    fn swapped_frames_have_valid_checksums() {
        for (forward, reverse) in [
            (
                USUAL,
                "eth(src=02:00:00:00:00:02,dst=02:00:00:00:00:01)/ip(src=198.19.0.1,dst=198.18.0.1)/udp(sport=7,dport=49152)",
            ),
            (
                "ip(src=10.0.0.1..10.0.0.9,dst=10.1.0.1)/tcp(sport=1000..1100,dport=80)",
                "eth(src=02:00:00:00:00:02,dst=02:00:00:00:00:01)/ip(dst=10.0.0.1..10.0.0.9,src=10.1.0.1)/tcp(dport=1000..1100,sport=80)",
            ),
            (
                USUAL_IP6,
                "eth(src=02:00:00:00:00:02,dst=02:00:00:00:00:01)/ip6(src=2001:2:0:8000::1,dst=2001:2::1)/udp(sport=7,dport=49152)",
            ),
        ] {
            let [forward, reverse] = [forward, reverse].map(|text| streams(&[text.to_owned()], 128, 1).unwrap());
            let turned_once = turned(&forward);
            for number in [0, 1, 7, 12] {
                let frame = |set: &StreamSet| set.streams[0].frame(number, 5, &set.key);
                assert_eq!(frame(&turned_once), frame(&reverse), "frame {number}");
                assert_eq!(frame(&turned(&turned_once)), frame(&forward));
            }
        }
    }

    #[test]
    fn phases_and_bursts_send_packets_in_turn() {
        let texts = ["ip(dst=10.0.0.1..10.0.0.2)/udp", "ip(dst=10.9.0.1)/udp(sport=5..6)"].map(str::to_owned);
        let set = streams(&texts, 100, 1).unwrap();
        let phases = [Phase { load: 1000.0, frames: 3 }, Phase { load: 10.0, frames: 2 }];
        let frames = Frames::Phases(phases.to_vec());
        let made = frames.of(&set);
        made.check().unwrap();
        assert_eq!((frames.intended(&set), made.streams.len()), (Some(5), 2));
        assert!((frames.seconds().unwrap() - 0.203).abs() < 1e-9);
        let bytes: Vec<u8> = (0..4).map(|number| made.streams[0].frame(number, 0, &made.key)[31]).collect();
        assert_eq!(bytes, [0, 9, 0, 9], "they take turns");
        let burst = Frames::Burst(7, Rate::Top).of(&set);
        assert_eq!((burst.streams[0].count, burst.streams[0].rate, burst.streams.len()), (Some(7), Rate::Top, 1));
    }

    #[test]
    fn streams_of_a_file_keep_their_shares() {
        let path = std::env::temp_dir().join(format!("linerate-measured-{}.toml", std::process::id()));
        let good = "[[stream]]\npacket = \"ip/udp(dport=1)\"\nsize = 100\nrate = \"3kpps\"\n\
                    [[stream]]\npacket = \"ip/udp(dport=2)\"\nsize = 500\nrate = \"1kpps\"\n";
        std::fs::write(&path, good).unwrap();
        let set = of_file(&path).unwrap();
        assert_eq!(mean_size(&set), (3 * 100 + 500) / 4);
        let made = Frames::Paced(Rate::Frames(8000.0), 1.0).of(&set);
        let shares = Shares::of(&made).unwrap();
        assert_eq!([0, 1].map(|place| shares.rate(made.rate.unwrap(), place)), [6000.0, 2000.0].map(Rate::Frames));
        for (from, to, text) in [
            ("\"3kpps\"", "\"3kpps\"\ncount = 5", "remove count: trials set"),
            ("\"3kpps\"", "\"3kpps\"\nfor = \"1s\"", "trials set the times"),
            ("\"3kpps\"", "\"3kpps\"\npoisson = true", "gaps of a load are equal"),
            ("\"3kpps\"", "\"3kpps\"\ncheck = \"no\"", "recognised to be counted"),
            ("rate = \"3kpps\"\n", "", "need all a rate or all \"max\""),
            (
                "[[stream]]\npacket = \"ip/udp(dport=1)",
                "rate = \"1kpps\"\n[[stream]]\npacket = \"ip/udp(dport=1)",
                "remove order and rate",
            ),
            ("dport=1", "dprt=1", "did you mean"),
        ] {
            std::fs::write(&path, good.replacen(from, to, 1)).unwrap();
            let error = of_file(&path).unwrap_err().to_string();
            assert!(error.contains(text), "{to}: {error}");
        }
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn frames_without_room_for_a_trailer_are_counted() {
        let counted = streams(&[USUAL_IP6.to_owned()], 70, 1).unwrap();
        assert_eq!(counted.streams[0].mark, Mark::Count);
        assert_eq!(streams(&[USUAL_IP6.to_owned()], 82, 1).unwrap().streams[0].mark, Mark::Trailer);
    }
}
