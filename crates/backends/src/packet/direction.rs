//! Direction of captured packets: those that the interface receives, those that the host sends, or both.

use crate::inventory::{ETHERNET_HARDWARE, uses};
use crate::sys::packet_socket::PacketSocket;
use linerate_filter::Insn;
use linerate_filter::program::code;
use linerate_port::{InterfaceInfo, PortError, RxOptions, Spec};
use std::io;

/// `PACKET_OUTGOING` (linux/if_packet.h).
const OUTGOING: u32 = 4;
/// Loads the packet type (`SKF_AD_OFF + SKF_AD_PKTTYPE`, linux/filter.h), rejects all but outgoing packets, and resets
/// the accumulator for the filter.
const OUTGOING_ONLY: [Insn; 4] = [
    Insn::new(code::LD_B_ABS, 0xffff_f000_u32.wrapping_add(4)),
    Insn::jump(code::JEQ_K, OUTGOING, 1, 0),
    Insn::ret(0),
    Insn::new(code::LD_IMM, 0),
];

/// Direction of the packets that a port captures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    In,
    Out,
    InOut,
}

impl Direction {
    /// Returns the requested direction. The default is both for ports that watch the traffic of the host, as in
    /// tcpdump, and inbound for ports that send on the interface or answer: a tester does not receive its own frames.
    pub(super) fn read(spec: &Spec, options: &RxOptions) -> Result<Self, PortError> {
        match spec.option("direction") {
            None if options.outgoing => Ok(Direction::InOut),
            None | Some("in") => Ok(Direction::In),
            Some("out") => Ok(Direction::Out),
            Some("inout") => Ok(Direction::InOut),
            Some(other) => Err(PortError::wrong(
                spec.to_string(),
                format!("direction={other}: unknown direction; expected in, out or inout"),
            )),
        }
    }

    /// Returns the direction at this interface: packets sent on loopback are received there too, and are captured once.
    pub(super) fn at(self, found: &InterfaceInfo) -> Self {
        if self == Direction::InOut && is_loopback(found) { Direction::In } else { self }
    }

    /// Makes a socket capture packets of this direction that match `program`; inbound is an option of the socket.
    pub(super) fn attach(self, socket: &PacketSocket, program: &[Insn]) -> io::Result<()> {
        match self {
            Direction::In | Direction::InOut => socket.attach(program),
            Direction::Out => socket.attach(&[&OUTGOING_ONLY, program].concat()),
        }
    }

    /// Returns a note if an interface that the host uses is captured in one direction only.
    pub(super) fn note(self, found: &InterfaceInfo) -> Option<String> {
        let note = match self {
            Direction::InOut => return None,
            Direction::In => "packets that this host sends are not captured (direction=in)",
            Direction::Out => "only packets that this host sends are captured (direction=out)",
        };
        let is_used = !is_loopback(found) && uses(found).is_ok_and(|uses| !uses.is_empty());
        is_used.then(|| note.to_owned())
    }
}

fn is_loopback(found: &InterfaceInfo) -> bool {
    found.hardware == ETHERNET_HARDWARE[1]
}
