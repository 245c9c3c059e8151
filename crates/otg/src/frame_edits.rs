//! Changes to frames that the packet language cannot express: wrong checksums, and room for the FCS of inner frames.

use linerate_generate::packet::Frames;
use linerate_generate::stream::{ChecksumKind, Variant};
use linerate_headers::coverage::{self, Coverage, HeaderSpan};
use linerate_headers::{Layers, Link, Protocol, dissect};

/// Length of the FCS of an inner Ethernet frame. RFC 7348 (VXLAN) and RFC 2784 (GRE) omit it, but Open Traffic
/// Generators include it: its bytes are zeros, and the inner packet ends before them.
const INNER_FCS: usize = 4;

/// Makes checksums wrong in all frames: `bad` is true for each header, outermost first, with a wrong checksum.
pub(crate) fn spoil(frames: &mut Frames, bad: &[bool]) {
    for variant in &mut frames.variants {
        let placed = headers(&variant.frame);
        let all = coverage::checksums(&variant.frame, &placed);
        let wrong: Vec<usize> =
            placed.iter().zip(bad).filter(|(_, is_bad)| **is_bad).filter_map(|(at, _)| field(at)).collect();
        let mut spoilt: Vec<(usize, usize)> = Vec::new();
        for mut sum in all {
            let is_wrong = wrong.contains(&sum.offset);
            let covers = spoilt.iter().any(|place| covered(&sum, place.0));
            if is_wrong {
                miss(&mut sum);
            }
            if !is_wrong && !covers {
                continue;
            }
            // For checksums computed per frame the rule is changed, for all others the value.
            match variant.checksums.iter_mut().find(|known| known.offset == sum.offset) {
                Some(known) if is_wrong => miss(known),
                Some(_) => {}
                None => sum.fill(&mut variant.frame),
            }
            spoilt.push((sum.offset, sum.length()));
        }
    }
}

/// Makes the sum wrong by one: one's complement sums that differ by 1 are never equal.
fn miss(sum: &mut Coverage) {
    if let ChecksumKind::Internet { plus, .. } = &mut sum.kind {
        *plus = if *plus == u16::MAX { 1 } else { *plus + 1 };
    }
}

fn covered(sum: &Coverage, offset: usize) -> bool {
    sum.offset != offset && sum.parts.iter().any(|(start, end)| (*start..*end).contains(&offset))
}

/// Returns the offset of the checksum of a header.
fn field(at: &HeaderSpan) -> Option<usize> {
    let within = match at.protocol {
        Protocol::Ipv4 => 10,
        Protocol::Tcp => 16,
        Protocol::Udp => 6,
        Protocol::Icmp | Protocol::Icmpv6 => 2,
        Protocol::Gre => 4,
        _ => return None,
    };
    Some(at.offset + within)
}

fn headers(frame: &[u8]) -> Vec<HeaderSpan> {
    let mut layers = Layers::new();
    dissect(Link::Ethernet, frame, &mut layers);
    coverage::placed(frame, &layers)
}

/// Shortens the packet of the inner Ethernet frame, if any, by the FCS of that frame. Such frames must have no trailer.
pub(crate) fn omit_fcs(frames: &mut Frames) {
    frames.variants.iter_mut().for_each(shorten);
}

fn shorten(variant: &mut Variant) {
    let placed = headers(&variant.frame);
    let inner = placed.iter().rposition(|at| at.protocol == Protocol::Ethernet).filter(|index| *index > 0);
    let Some(inner) = inner else { return };
    let end = variant.frame.len();
    for at in &placed[inner + 1..] {
        let field = match at.protocol {
            Protocol::Ipv4 => at.offset + 2,
            Protocol::Ipv6 => at.offset + 4,
            Protocol::Udp => at.offset + 4,
            _ => continue,
        };
        // Bytes after the packet are not part of it.
        if at.end != end || variant.changes.iter().any(|change| change.offset.abs_diff(field) < 2) {
            continue;
        }
        if let Some([high, low]) = variant.frame.get_mut(field..field + 2) {
            let length = u16::from_be_bytes([*high, *low]).saturating_sub(INNER_FCS as u16);
            [*high, *low] = length.to_be_bytes();
        }
    }
    variant.frame[end - INNER_FCS..].fill(0);
    let sums = coverage::checksums(&variant.frame, &headers(&variant.frame));
    for sum in &mut variant.checksums {
        if let Some(now) = sums.iter().find(|now| now.offset == sum.offset) {
            *sum = now.clone();
        }
    }
    sums.iter().for_each(|sum| sum.fill(&mut variant.frame));
}
