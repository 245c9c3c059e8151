//! The frames of a measurement: packets as text, of one size, with trailers; and how they lie in time.

use crate::exit::usage;
use crate::signals::read_text;
use linerate_generate::packet::{self, Setup};
use linerate_generate::rate::{FCS, L1_OVERHEAD};
use linerate_generate::stream::{Mark, Order, Pick, Selector, Shape, Span, Stream, StreamSet, Variant};
use linerate_generate::trailer::Key;
use linerate_generate::{Rate, Shares, Wrong, file};
use linerate_wire::{Layers, Link, Protocol, dissect};
use std::path::Path;

/// What is sent where nobody says what: addresses for benchmarks (RFC 2544, appendix C).
pub(super) const USUAL: &str =
    "eth(src=02:00:00:00:00:01,dst=02:00:00:00:00:02)/ip(src=198.18.0.1,dst=198.19.0.1)/udp(sport=49152,dport=7)";
/// The same of IPv6 (RFC 5180, section 8).
pub(super) const USUAL_IP6: &str = "eth(src=02:00:00:00:00:01,dst=02:00:00:00:00:02)\
     /ip6(src=2001:2::1,dst=2001:2:0:8000::1)/udp(sport=49152,dport=7)";

/// How the frames of a trial lie in time.
#[derive(Clone, Debug)]
pub(super) enum Frames {
    /// At one rate, for so many seconds.
    Paced(Rate, f64),
    /// So many, as far apart as the rate says, and no more.
    Burst(u64, Rate),
    /// One after the other, packets in turn.
    Phases(Vec<Phase>),
}

/// So many frames at a rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Phase {
    /// Frames a second.
    pub load: f64,
    /// Frames.
    pub frames: u64,
}

impl Phase {
    /// For so long, a frame at least.
    pub(super) fn lasting(load: f64, seconds: f64) -> Self {
        Phase { load, frames: ((load * seconds).round() as u64).max(1) }
    }

    /// How long it takes.
    pub(super) fn seconds(&self) -> f64 {
        self.frames as f64 / self.load
    }
}

impl Frames {
    /// The streams of a trial.
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

    /// How many frames are to be sent in a direction, and how many of them are not missed: a sender has to stop somewhere.
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

    /// Packets per second of one direction; without end where they go as fast as they can.
    pub(super) fn load(&self, set: &StreamSet) -> f64 {
        match (self, self.seconds(), self.intended(set)) {
            (Frames::Burst(_, Rate::Frames(load)), ..) => *load,
            (_, Some(seconds), Some(frames)) if seconds > 0.0 => frames as f64 / seconds,
            _ => f64::INFINITY,
        }
    }

    /// How long they take; nothing where that is not known.
    pub(super) fn seconds(&self) -> Option<f64> {
        match self {
            Frames::Paced(_, seconds) => Some(*seconds),
            Frames::Burst(frames, Rate::Frames(load)) => Some(*frames as f64 / load),
            Frames::Burst(..) => None,
            Frames::Phases(phases) => Some(phases.iter().map(Phase::seconds).sum()),
        }
    }
}

/// The streams of frames of one size; their rate, and the key, are those of a trial. Where a packet leaves no room for a trailer its
/// frames are counted.
pub(super) fn streams(texts: &[String], size: u64, seed: u64) -> anyhow::Result<StreamSet> {
    let all = |mark| -> anyhow::Result<Vec<Stream>> {
        texts.iter().enumerate().map(|(id, text)| stream(id as u32, text, size, seed, mark)).collect()
    };
    let streams = all(Mark::Trailer).or_else(|error| all(Mark::Count).map_err(|_| error))?;
    let set = StreamSet { streams, order: Order::Interleaved, rate: Some(Rate::Frames(1.0)), key: Key::default() };
    set.check().map_err(usage)?;
    Ok(set)
}

/// The streams of a file, which share a load as their rates have it there.
pub(super) fn of_file(path: &Path) -> anyhow::Result<StreamSet> {
    let name = path.display().to_string();
    let text = read_text(path).map_err(|error| usage(format!("cannot read {name}: {error}")))?;
    let mut set = file::streams(&name, &text, &file::Setup::default()).map_err(usage)?;
    if set.order != Order::Interleaved || set.rate.is_some() {
        let why =
            "streams of a measurement go together, and the rate of all is what is measured: no order, no rate above";
        return Err(usage(format!("{name}: {why} [[stream]]")));
    }
    let (top, paced) = set.streams.iter().partition::<Vec<_>, _>(|stream| stream.rate == Rate::Top);
    if !top.is_empty() && !paced.is_empty() {
        return Err(usage(format!("{name}: some streams have no rate: what they have of a load is not known")));
    }
    for stream in &set.streams {
        let odd = [
            (stream.count.is_some(), "count: trials say how many"),
            (stream.span != Span::ALWAYS, "start and for: trials say when"),
            (stream.shape != Shape::Even, "burst and poisson: frames of a load are evenly apart"),
            (stream.mark == Mark::None, "check = \"no\": what is not known again is not counted"),
        ];
        if let Some((_, why)) = odd.iter().find(|(is, _)| *is) {
            return Err(usage(format!("{name}: stream {:?}: {why}", stream.name)));
        }
    }
    set.rate = Some(Rate::Frames(1.0));
    set.check().map_err(usage)?;
    Ok(set)
}

/// Bytes of a frame with FCS, on average.
pub(super) fn mean_size(set: &StreamSet) -> u64 {
    Shares::of(set).map_or(0, |shares| shares.mean_length().round() as u64 + FCS)
}

/// The same frames on their way back: the addresses of their outermost headers, and ports, have changed sides.
pub(super) fn turned(set: &StreamSet) -> StreamSet {
    let mut set = set.clone();
    for variant in set.streams.iter_mut().flat_map(|stream| &mut stream.variants) {
        turn(variant);
    }
    set
}

/// Frames a second of this size, FCS included, that fill a line of so many bits per second.
pub(super) fn of_line(bits: f64, size: u64) -> f64 {
    bits / (8 * (size - FCS + L1_OVERHEAD)) as f64
}

/// Streams of a service.
pub(super) fn stream(id: u32, text: &str, size: u64, seed: u64, mark: Mark) -> anyhow::Result<Stream> {
    let seed = seed.wrapping_add(id.into());
    let wrong = |wrong: Wrong| usage(format!("--packet {text:?} of {size} bytes: {}", wrong.what));
    let sizes = packet::sizes(&size.to_string(), seed).map_err(wrong)?;
    let no_files = |path: &str, _: u64| Err(format!("frames of files are none of a measurement: {path}"));
    let setup = Setup { link: Link::Ethernet, sizes, mark, seed, files: &no_files };
    Ok(packet::frames(text, &setup).map_err(wrong)?.stream(id, mark))
}

/// One stream of the frames of all, in turn.
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
        all.size = Selector { count: all.variants.len() as u64, pick: Pick::InTurn { every: 1 } };
    }
    all
}

/// Exchanges where it comes from and where it goes to. Sums over both stay what they are.
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

    /// Frames turned twice are what they were, and turned once what the text with its sides exchanged makes.
    #[test]
    fn frames_turned_have_their_sides_exchanged_and_right_checksums() {
        for (there, back) in [
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
            let [there, back] = [there, back].map(|text| streams(&[text.to_owned()], 128, 1).unwrap());
            let turned_once = turned(&there);
            for number in [0, 1, 7, 12] {
                let frame = |set: &StreamSet| set.streams[0].frame(number, 5, &set.key);
                assert_eq!(frame(&turned_once), frame(&back), "frame {number}");
                assert_eq!(frame(&turned(&turned_once)), frame(&there));
            }
        }
    }

    #[test]
    fn packets_take_turns_where_frames_are_counted_out() {
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
    fn streams_of_a_file_keep_what_they_have_of_one_another() {
        let path = std::env::temp_dir().join(format!("linerate-measured-{}.toml", std::process::id()));
        let good = "[[stream]]\npacket = \"ip/udp(dport=1)\"\nsize = 100\nrate = \"3kpps\"\n\
                    [[stream]]\npacket = \"ip/udp(dport=2)\"\nsize = 500\nrate = \"1kpps\"\n";
        std::fs::write(&path, good).unwrap();
        let set = of_file(&path).unwrap();
        assert_eq!(mean_size(&set), (3 * 100 + 500) / 4);
        let made = Frames::Paced(Rate::Frames(8000.0), 1.0).of(&set);
        let shares = Shares::of(&made).unwrap();
        assert_eq!([0, 1].map(|place| shares.rate(made.rate.unwrap(), place)), [6000.0, 2000.0].map(Rate::Frames));
        for (from, to, said) in [
            ("\"3kpps\"", "\"3kpps\"\ncount = 5", "count: trials say how many"),
            ("\"3kpps\"", "\"3kpps\"\nfor = \"1s\"", "trials say when"),
            ("\"3kpps\"", "\"3kpps\"\npoisson = true", "evenly apart"),
            ("\"3kpps\"", "\"3kpps\"\ncheck = \"no\"", "is not counted"),
            ("rate = \"3kpps\"\n", "", "have either all a rate or none"),
            (
                "[[stream]]\npacket = \"ip/udp(dport=1)",
                "rate = \"1kpps\"\n[[stream]]\npacket = \"ip/udp(dport=1)",
                "go together",
            ),
            ("dport=1", "dprt=1", "did you mean"),
        ] {
            std::fs::write(&path, good.replacen(from, to, 1)).unwrap();
            let error = of_file(&path).unwrap_err().to_string();
            assert!(error.contains(said), "{to}: {error}");
        }
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn what_has_no_room_for_a_trailer_is_counted() {
        let counted = streams(&[USUAL_IP6.to_owned()], 70, 1).unwrap();
        assert_eq!(counted.streams[0].mark, Mark::Count);
        assert_eq!(streams(&[USUAL_IP6.to_owned()], 82, 1).unwrap().streams[0].mark, Mark::Trailer);
    }
}
