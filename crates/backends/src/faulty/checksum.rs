//! Completion of a transport checksum that the sender had left to hardware.

use linerate_headers::{Layers, Link, Protocol, Sum, dissect};

/// Bytes from the start of the header to the checksum: RFC 9293 section 3.1, RFC 768.
const TCP_CHECKSUM: usize = 16;
const UDP_CHECKSUM: usize = 6;

/// Completes the checksum of TCP or UDP over IP. The kernel has stored the sum of the pseudo-header in its place
/// (networking/checksum-offloads), so the sum over the message is the whole sum. Returns false for other packets.
pub(super) fn fill(frame: &mut [u8], layers: &mut Layers) -> bool {
    dissect(Link::Ethernet, frame, layers);
    let (Some(network), Some(transport)) = (layers.network(), layers.transport()) else { return false };
    let at = match transport.protocol {
        Protocol::Tcp => TCP_CHECKSUM,
        Protocol::Udp => UDP_CHECKSUM,
        _ => return false,
    };
    let (network, start) = (network.offset as usize, transport.offset as usize);
    let Some(end) = packet_end(frame, network) else { return false };
    let Some(message) = frame.get_mut(start..end).filter(|message| message.len() >= at + 2) else { return false };
    let sum = match Sum::of(message).checksum() {
        // In UDP zero means that no checksum is present.
        0 if transport.protocol == Protocol::Udp => 0xffff,
        sum => sum,
    };
    message[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    true
}

/// Returns the end of the IP packet; a length of 0, as in super-frames, means the end of the frame.
fn packet_end(frame: &[u8], network: usize) -> Option<usize> {
    let word = |at: usize| Some(usize::from(u16::from_be_bytes(frame.get(at..at + 2)?.try_into().ok()?)));
    let length = match frame.get(network)? >> 4 {
        4 => word(network + 2)?,
        _ => word(network + 4)?.checked_add(40).filter(|length| *length > 40).unwrap_or(0),
    };
    Some(if length == 0 { frame.len() } else { network + length })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ethernet, IP and transport header, ten bytes, and padding that is not summed.
    fn frame(version: u8, protocol: u8) -> (Vec<u8>, usize) {
        let header = if protocol == 6 { 20 } else { 8 };
        let mut bytes = vec![2; 12];
        bytes.extend(if version == 4 { [0x08, 0x00] } else { [0x86, 0xdd] });
        let message = header + 10u16;
        if version == 4 {
            bytes.extend([0x45, 0]);
            bytes.extend((20 + message).to_be_bytes());
            bytes.extend([0, 0, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        } else {
            bytes.extend([0x60, 0, 0, 0]);
            bytes.extend(message.to_be_bytes());
            bytes.extend([protocol, 64]);
            bytes.extend([0xfd; 16].iter().chain(&[0xfe; 16]));
        }
        let start = bytes.len();
        bytes.extend([0x12, 0x34, 0, 9]);
        bytes.extend(if protocol == 6 { [0, 0, 0, 1] } else { [0, message as u8, 0, 0] });
        if protocol == 6 {
            bytes.extend([0, 0, 0, 2, 0x50, 0x10, 0, 9, 0, 0, 0, 0]);
        }
        bytes.extend(0..10);
        bytes.extend([0xee; 7]);
        (bytes, start)
    }

    /// Verifies the sum over pseudo-header and message, as a receiver does.
    fn verifies(frame: &[u8], start: usize, version: u8, protocol: u8) -> bool {
        let addresses = if version == 4 { &frame[26..34] } else { &frame[22..54] };
        let message = &frame[start..frame.len() - 7];
        let length = message.len() as u16;
        Sum::of(addresses).with_word(protocol.into()).with_word(length).with(message).checksum() == 0
    }

    #[test]
    fn offloaded_checksum_is_completed() {
        for (version, protocol) in [(4, 6), (4, 17), (6, 6), (6, 17)] {
            let (mut bytes, start) = frame(version, protocol);
            let addresses = if version == 4 { 26..34 } else { 22..54 };
            let length = (bytes.len() - 7 - start) as u16;
            let pseudo = Sum::of(&bytes[addresses]).with_word(protocol.into()).with_word(length).folded();
            let at = start + if protocol == 6 { 16 } else { 6 };
            bytes[at..at + 2].copy_from_slice(&pseudo.to_be_bytes());
            assert!(!verifies(&bytes, start, version, protocol));
            assert!(fill(&mut bytes, &mut Layers::new()));
            assert!(verifies(&bytes, start, version, protocol), "IPv{version}, protocol {protocol}");
        }
    }

    #[test]
    fn other_protocols_are_unchanged() {
        let (whole, start) = frame(4, 6);
        let mut sctp = whole.clone();
        sctp[23] = 132;
        for bytes in [&sctp[..], &whole[..start + 15], &whole[..20], &[]] {
            let mut after = bytes.to_vec();
            assert!(!fill(&mut after, &mut Layers::new()));
            assert_eq!(after, bytes);
        }
    }
}
