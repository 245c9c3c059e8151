//! Segments of one connection, field by field.

use super::metered_frames;
use linerate_burst::{Desc, Nanos};
use linerate_headers::build::Frame;
use linerate_headers::options::Options;
use linerate_headers::{Link, MacAddr, ethernet, ipv4, tcp};
use linerate_meter::{Config, Flow, Level, Tcp};
use std::net::Ipv4Addr;

pub(crate) const FIN: u8 = 1;
pub(crate) const SYN: u8 = 2;
pub(crate) const RST: u8 = 4;
pub(crate) const ACK: u8 = 16;
pub(crate) const MS: u64 = 1_000_000;
/// A multiple of 1,024 ns.
pub(crate) const START: u64 = 1_700_000_000 * 1_024_000_000;
/// Ports of both ends.
pub(crate) const CLIENT: u16 = 1000;
pub(crate) const SERVER: u16 = 80;

/// One packet.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub time: u64,
    /// Sender: 0 the client, 1 the server.
    pub side: usize,
    pub sequence: u32,
    pub acknowledgement: u32,
    pub flags: u8,
    pub window: u16,
    pub identification: u16,
    pub payload: usize,
    pub options: Vec<u8>,
    pub is_bad: bool,
}

impl Segment {
    /// A pure acknowledgement, `millis` milliseconds after the start.
    pub(crate) fn at(millis: u64, side: usize, sequence: u32, acknowledgement: u32) -> Segment {
        Segment {
            time: START + millis * MS,
            side,
            sequence,
            acknowledgement,
            flags: ACK,
            window: 1000,
            identification: 0,
            payload: 0,
            options: Vec::new(),
            is_bad: false,
        }
    }

    pub(crate) fn flags(self, flags: u8) -> Segment {
        Segment { flags, ..self }
    }

    pub(crate) fn payload(self, payload: usize) -> Segment {
        Segment { payload, ..self }
    }

    pub(crate) fn window(self, window: u16) -> Segment {
        Segment { window, ..self }
    }

    pub(crate) fn identification(self, identification: u16) -> Segment {
        Segment { identification, ..self }
    }

    pub(crate) fn options(self, options: &[u8]) -> Segment {
        Segment { options: options.to_vec(), ..self }
    }

    /// Returns the frame; `turned` gives the client the higher address.
    fn frame(&self, turned: bool) -> Vec<u8> {
        let address = |side: usize| Ipv4Addr::new(10, 0, 0, if (side == 1) != turned { 2 } else { 1 });
        let ports = [CLIENT, SERVER];
        let link = ethernet::Header { source: MacAddr([2; 6]), destination: MacAddr([4; 6]), ether_type: 0 };
        let ip = ipv4::Header {
            source: address(self.side),
            destination: address(1 - self.side),
            identification: self.identification,
            ..ipv4::Header::new(6)
        };
        let header = tcp::Header {
            source_port: ports[self.side],
            destination_port: ports[1 - self.side],
            sequence: self.sequence,
            acknowledgement: self.acknowledgement,
            flags: tcp::Flags(self.flags.into()),
            window: self.window,
            options: Options::new(&self.options).unwrap(),
            ..tcp::Header::default()
        };
        let mut frame = Frame::new(&[&link, &ip, &header], &vec![0; self.payload]).to_vec().unwrap();
        frame[ethernet::LEN + ipv4::LEN + 16] ^= u8::from(self.is_bad);
        frame
    }
}

/// Level `tcp`, with checksums.
pub(crate) fn config() -> Config {
    Config { max_flows: 64, level: Level::Tcp, checksums: true, ..Config::default() }
}

/// Returns the records, in the order in which they end, of these segments in bursts of these sizes.
pub(crate) fn flows(segments: &[Segment], config: &Config, bursts: &[usize], turned: bool) -> Vec<Flow> {
    flows_with(segments, config, bursts, turned, |_, _, _| {})
}

/// Returns the records of modified frames.
pub(crate) fn flows_with(
    segments: &[Segment],
    config: &Config,
    bursts: &[usize],
    turned: bool,
    change: impl Fn(&Segment, &mut Desc, &mut [u8]),
) -> Vec<Flow> {
    let frames: Vec<(Desc, Vec<u8>)> = segments
        .iter()
        .map(|segment| {
            let mut frame = segment.frame(turned);
            let mut desc = Desc::new(Nanos(segment.time), 0, frame.len() as u32);
            change(segment, &mut desc, &mut frame);
            (desc, frame)
        })
        .collect();
    metered_frames(&frames, Link::Ethernet, config, bursts).0
}

/// Returns the analysis of the only record.
pub(crate) fn analysis(segments: &[Segment]) -> Tcp {
    let flows = flows(segments, &config(), &[32], false);
    assert_eq!(flows.len(), 1);
    flows.into_iter().next().and_then(|flow| flow.tcp).expect("level tcp")
}
