//! Synthetic frames, and the expected counters of a side.

#![allow(dead_code, reason = "each test uses a part")]

pub(crate) mod captures;
pub(crate) mod naive_tcp;
pub(crate) mod segments;

use linerate_burst::{Burst, Desc, Nanos, TAIL};
use linerate_headers::build::{Frame, Header};
use linerate_headers::{Link, MacAddr, ethernet, icmp, ipv4, ipv6, tcp, udp, vlan};
use linerate_meter::{Config, Counts, End, Flow, Meter, Side};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// One packet.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub time: u64,
    pub source: (u8, u16),
    pub destination: (u8, u16),
    pub protocol: u8,
    pub flags: u8,
    pub payload: usize,
    pub ttl: u8,
    pub tos: u8,
    pub v6: bool,
    pub vlan: u16,
    pub padding: usize,
}

impl Sent {
    pub(crate) fn udp(time: u64) -> Sent {
        Sent {
            time,
            source: (1, 1),
            destination: (2, 2),
            protocol: 17,
            flags: 0,
            payload: 10,
            ttl: 64,
            tos: 0,
            v6: false,
            vlan: 0,
            padding: 0,
        }
    }

    pub(crate) fn tcp(time: u64, flags: u8) -> Sent {
        Sent { protocol: 6, flags, ..Sent::udp(time) }
    }

    pub(crate) fn turned(&self) -> Sent {
        Sent { source: self.destination, destination: self.source, ..self.clone() }
    }

    fn is_icmp(&self) -> bool {
        self.protocol == 1
    }

    fn has_ports(&self) -> bool {
        matches!(self.protocol, 6 | 17)
    }

    pub(crate) fn protocol_number(&self) -> u8 {
        if self.is_icmp() && self.v6 { 58 } else { self.protocol }
    }

    fn address(&self, host: u8) -> IpAddr {
        if self.v6 {
            Ipv6Addr::from(0x2001_0db8 << 96 | u128::from(host)).into()
        } else {
            Ipv4Addr::new(10, 0, 0, host).into()
        }
    }

    /// Source and destination as records have them: for ICMP, always echo requests, type and code.
    pub(crate) fn ends(&self) -> [End; 2] {
        let ports = match (self.is_icmp(), self.v6) {
            (true, true) => [128, 0],
            (true, false) => [8, 0],
            _ if self.has_ports() => [self.source.1, self.destination.1],
            _ => [0, 0],
        };
        [
            End { address: self.address(self.source.0), port: ports[0] },
            End { address: self.address(self.destination.0), port: ports[1] },
        ]
    }

    pub(crate) fn is_higher(&self) -> bool {
        let [source, destination] = self.ends();
        source > destination
    }

    /// Returns whether the receiver is the higher end; both are the lower one where they are equal and a host answers
    /// itself.
    pub(crate) fn is_other_higher(&self) -> bool {
        !self.is_higher()
    }

    /// Returns the ends of the flow, starting with the higher or the lower one.
    pub(crate) fn ends_from(&self, higher: bool) -> [End; 2] {
        let mut ends = self.ends();
        // Only the requester is the originator of ICMP.
        if self.is_higher() != higher && !self.is_icmp() {
            ends.swap(0, 1);
        }
        ends
    }

    pub(crate) fn key(&self, vlans: bool) -> (Vec<IpAddr>, Vec<u16>, u8, u16) {
        let mut ends = self.ends();
        if self.is_higher() {
            ends.swap(0, 1);
        }
        let vlan = if vlans { self.vlan } else { 0 };
        (ends.map(|end| end.address).to_vec(), ends.map(|end| end.port).to_vec(), self.protocol_number(), vlan)
    }

    /// Returns the bytes of the IP header, of the transport header.
    fn headers(&self) -> [usize; 2] {
        let transport = match self.protocol {
            6 => tcp::LEN,
            17 | 1 => 8,
            _ => 0,
        };
        [if self.v6 { ipv6::LEN } else { ipv4::LEN }, transport]
    }

    pub(crate) fn frame(&self) -> Vec<u8> {
        let link = ethernet::Header { source: MacAddr([2; 6]), destination: MacAddr([4; 6]), ether_type: 0 };
        let tag = vlan::Header { id: self.vlan, priority: 0, drop_eligible: false, ether_type: 0 };
        let (from, to) = (self.address(self.source.0), self.address(self.destination.0));
        let number = self.protocol_number();
        let network: Box<dyn Header> = match (from, to) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => Box::new(ipv4::Header {
                source,
                destination,
                ttl: self.ttl,
                traffic_class: self.tos,
                ..ipv4::Header::new(number)
            }),
            (IpAddr::V6(source), IpAddr::V6(destination)) => Box::new(ipv6::Header {
                source,
                destination,
                hop_limit: self.ttl,
                traffic_class: self.tos,
                ..ipv6::Header::new(number)
            }),
            _ => unreachable!("one family"),
        };
        let ports = (self.source.1, self.destination.1);
        let transport: Option<Box<dyn Header>> = match self.protocol {
            6 => Some(Box::new(tcp::Header {
                source_port: ports.0,
                destination_port: ports.1,
                flags: tcp::Flags(self.flags.into()),
                ..tcp::Header::default()
            })),
            17 => Some(Box::new(udp::Header { source_port: ports.0, destination_port: ports.1 })),
            _ => None,
        };
        let mut payload = vec![0; self.payload];
        if self.is_icmp() {
            let kind = if self.v6 { 128 } else { icmp::ECHO_REQUEST };
            payload.splice(..0, [kind, 0, 0, 0, 0, 1, 0, 1]);
        }
        let mut headers: Vec<&dyn Header> = vec![&link];
        if self.vlan != 0 {
            headers.push(&tag);
        }
        headers.push(&*network);
        headers.extend(transport.as_deref());
        let mut frame = Frame::new(&headers, &payload).to_vec().unwrap();
        frame.resize(frame.len() + self.padding, 0);
        frame
    }
}

/// Returns the expected side of a record of these packets.
pub(crate) fn side(packets: &[&&Sent]) -> Side {
    let Some(first) = packets.first() else { return Side::default() };
    let headers = |one: &Sent| one.headers().iter().sum::<usize>();
    Side {
        packets: packets.len() as u64,
        frame_bytes: packets.iter().map(|one| one.frame().len() as u64).sum(),
        packet_bytes: packets.iter().map(|one| (headers(one) + one.payload) as u64).sum(),
        payload_bytes: packets.iter().map(|one| one.payload as u64).sum(),
        first: Nanos(packets.iter().map(|one| one.time).min().unwrap()),
        last: Nanos(packets.iter().map(|one| one.time).max().unwrap()),
        tcp_flags: packets.iter().filter(|one| one.protocol == 6).fold(0, |flags, one| flags | one.flags),
        ttl: [packets.iter().map(|one| one.ttl).min().unwrap(), packets.iter().map(|one| one.ttl).max().unwrap()],
        tos: first.tos,
        dscp_changed: packets.iter().any(|one| one.tos >> 2 != first.tos >> 2),
        ect: packets.iter().any(|one| matches!(one.tos & 3, 1 | 2)),
        ce: packets.iter().any(|one| one.tos & 3 == 3),
    }
}

/// Returns the records of these frames in bursts of these sizes, cyclically; without ids.
pub(crate) fn metered(sent: &[Sent], config: &Config, bursts: &[usize]) -> Vec<Flow> {
    let frames: Vec<(Desc, Vec<u8>)> = sent
        .iter()
        .map(|one| {
            let frame = one.frame();
            (Desc::new(Nanos(one.time), 0, frame.len() as u32), frame)
        })
        .collect();
    let (mut flows, counts) = metered_with(&frames, Link::Ethernet, config, bursts, true);
    assert_eq!(counts.frames, sent.len() as u64);
    assert_eq!(flows.iter().map(Flow::packets).sum::<u64>(), sent.len() as u64);
    flows.iter_mut().for_each(|flow| flow.id = 0);
    flows
}

/// Returns the records of any frames.
pub(crate) fn metered_frames(
    frames: &[(Desc, Vec<u8>)],
    link: Link,
    config: &Config,
    bursts: &[usize],
) -> (Vec<Flow>, Counts) {
    metered_with(frames, link, config, bursts, false)
}

/// Returns the records; with `expire`, idle flows are expired after each burst.
fn metered_with(
    frames: &[(Desc, Vec<u8>)],
    link: Link,
    config: &Config,
    bursts: &[usize],
    expire: bool,
) -> (Vec<Flow>, Counts) {
    let mut flows = Vec::new();
    let mut meter = Meter::new(config);
    let mut sizes = bursts.iter().cycle();
    let mut rest = frames;
    while !rest.is_empty() {
        let (burst, behind) = rest.split_at(rest.len().min(*sizes.next().unwrap()));
        let mut memory = Vec::new();
        let mut descs = Vec::new();
        for (desc, frame) in burst {
            descs.push(Desc { offset: memory.len() as u32, captured: frame.len() as u32, ..*desc });
            memory.extend_from_slice(frame);
        }
        memory.resize(memory.len() + TAIL, 0);
        let burst = Burst::over(&memory, &descs).unwrap();
        meter.take(burst, &[Some(link)], &mut |flow: &Flow| flows.push(flow.clone()));
        if expire {
            meter.expire(descs.last().unwrap().time, &mut |flow: &Flow| flows.push(flow.clone()));
        }
        rest = behind;
    }
    meter.finish(meter.latest(), &mut |flow: &Flow| flows.push(flow.clone()));
    assert_eq!(meter.flows(), 0);
    (flows, *meter.counts())
}

pub(crate) fn sorted(mut flows: Vec<Flow>) -> Vec<Flow> {
    let key = |flow: &Flow| (flow.first(), flow.ends, flow.protocol, flow.vlans, flow.last());
    flows.sort_by(|one, other| key(one).cmp(&key(other)).then_with(|| format!("{one:?}").cmp(&format!("{other:?}"))));
    flows
}

/// Meters arbitrary bytes with unrelated times and lengths; every frame and byte is accounted for.
pub(crate) fn take_bytes(frames: &[(Vec<u8>, u64, u32)], config: &Config) {
    for link in Link::ALL {
        let frames: Vec<(Desc, Vec<u8>)> = frames
            .iter()
            .map(|(bytes, time, more)| {
                let wire = bytes.len() as u32 + more;
                (Desc { wire, ..Desc::new(Nanos(*time), 0, 0) }, bytes.clone())
            })
            .collect();
        let (flows, counts) = metered_frames(&frames, link, config, &[7]);
        accounted(&flows, &counts, &frames, config);
    }
}

/// Checks that packets and bytes of outermost records and of frames in no record add up to all frames.
pub(crate) fn accounted(flows: &[Flow], counts: &Counts, frames: &[(Desc, Vec<u8>)], config: &Config) {
    let inner = config.tunnels == linerate_meter::Tunnels::Inner;
    let outermost = || flows.iter().filter(|flow| inner || flow.tunnel.is_none());
    let bytes: u64 = frames.iter().map(|(desc, _)| u64::from(desc.wire)).sum();
    let packets = outermost().map(Flow::packets).sum::<u64>() + counts.in_no_record().0;
    assert_eq!(packets, frames.len() as u64);
    let found = outermost().map(Flow::frame_bytes).sum::<u64>() + counts.in_no_record().1;
    assert_eq!(found, bytes);
}

/// Returns the records of a part of the frames, the last of which has the time `now`; without ids.
pub(crate) fn metered_until(sent: &[Sent], config: &Config, now: Nanos) -> Vec<Flow> {
    let mut flows = Vec::new();
    let mut meter = Meter::new(config);
    for one in sent {
        let mut memory = one.frame();
        let desc = [Desc::new(Nanos(one.time), 0, memory.len() as u32)];
        memory.resize(memory.len() + TAIL, 0);
        let burst = Burst::over(&memory, &desc).unwrap();
        meter.take(burst, &[Some(Link::Ethernet)], &mut |flow: &Flow| flows.push(Flow { id: 0, ..flow.clone() }));
    }
    meter.finish(now, &mut |flow: &Flow| flows.push(Flow { id: 0, ..flow.clone() }));
    flows
}
