//! Packets quoted by ICMP errors.

use super::*;

/// Builds an ICMP error that quotes `quoted` bytes of a packet, sent by the packet's receiver; in a tunnel if the shape
/// has one.
fn error_about(values: &Values, shape: Shape, quoted: usize) -> Vec<u8> {
    let packet = build(values, Shape { tagged: false, in_tunnel: false, ..shape }, b"hello, world");
    error_quoting(values, shape, &packet[14..(14 + quoted).min(packet.len())])
}

/// Builds an ICMP error that quotes these bytes.
fn error_quoting(values: &Values, shape: Shape, quote: &[u8]) -> Vec<u8> {
    let outer = Values { v4: [values.v4[1], values.v4[0]], v6: [values.v6[1], values.v6[0]], ..*values };
    let mut all =
        if shape.in_tunnel { headers(&OUTER, Shape { is_v6: false, transport: 1, ..shape }) } else { Vec::new() };
    if shape.in_tunnel {
        all.push(Box::new(vxlan::Header::new(42)));
    }
    all.extend(headers(&outer, Shape { transport: 1, ..shape }));
    all.pop();
    let rest: &[u8] = if shape.is_v6 { &[0; 4] } else { &[] };
    all.push(match shape.is_v6 {
        true => Box::new(icmpv6::Header { kind: 1, code: 4 }),
        false => Box::new(icmp::Header { kind: 3, code: 3, rest: [0; 4] }),
    });
    let all: Vec<&dyn Header> = all.iter().map(|header| &**header).collect();
    let mut frame = Frame::new(&all, &[rest, quote].concat()).to_vec().unwrap();
    frame.resize(frame.len().max(60), 0);
    frame
}

/// Addresses and ports of a quoted packet are changed as on its own path.
#[test]
fn packets_quoted_by_icmp_errors_are_changed() {
    let rules = [
        "ip=10.0.0.0/8:172.0.0.0/8",
        "ip=2001::/16:fd00:1::/32",
        "src-port=20000-29999:40000-49999",
        "dst-port=20000-29999:31000",
    ];
    let values = Values {
        v4: [[10, 0, 0, 1].into(), [10, 0, 0, 2].into()],
        v6: ["2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap()],
        ports: [20_001, 20_002],
        ..OUTER
    };
    let moved = moved(&values);
    let moved =
        Values { v4: [[172, 0, 0, 1].into(), [172, 0, 0, 2].into()], macs: values.macs, ttl: values.ttl, ..moved };
    for (is_v6, transport, in_tunnel) in
        [false, true].into_iter().flat_map(|v6| (0..3).flat_map(move |kind| [(v6, kind, false), (v6, kind, true)]))
    {
        let (shape, network) = (Shape { is_v6, transport, tagged: false, in_tunnel }, if is_v6 { 40 } else { 20 });
        for quoted in [network + 8, network + 13, network + 18, 100] {
            let (frame, wanted) = (error_about(&values, shape, quoted), error_about(&moved, shape, quoted));
            let mut rewriter = rewriter(&rules);
            if in_tunnel {
                assert_eq!(rewritten(&mut rewriter, &frame), frame, "not requested");
                rewriter.rewriting.inner = true;
            }
            let found = rewritten(&mut rewriter, &frame);
            // Checksums over bytes that are not quoted are not quoted either.
            assert_eq!(found, wanted, "{shape:?} {quoted}");
        }
    }
    // Another time to live, and addresses without ports, at the end of the quote.
    let shape = Shape { is_v6: false, transport: 1, tagged: false, in_tunnel: false };
    let frame = error_about(&values, shape, 20);
    assert_eq!(rewritten(&mut rewriter(&rules), &frame), error_about(&moved, shape, 20));
    let aged = rewritten(&mut rewriter(&["ttl=77"]), &error_about(&values, shape, 100));
    assert_eq!((aged[22], aged[14 + 20 + 8 + 8]), (77, values.ttl));
}

/// Errors that quote errors: addresses of all are changed, and deeper quotes become zeros.
#[test]
fn packets_quoted_by_quoted_errors_are_changed() {
    let rules = ["ip=10.0.0.0/8:172.0.0.0/8", "ip=2001::/16:fd00:1::/32"];
    let (values, moved) = quoted_values();
    for is_v6 in [false, true] {
        let shape = Shape { is_v6, transport: 1, tagged: false, in_tunnel: false };
        let nested = |values: &Values, depth: usize, most: usize| {
            let mut frame = error_about(values, shape, 100);
            for _ in 1..depth {
                let end = (14 + most).min(frame.len());
                frame = error_quoting(values, shape, &frame[14..end]);
            }
            frame
        };
        for depth in 1..=MOST_QUOTES {
            let found = rewritten(&mut rewriter(&rules), &nested(&values, depth, 600));
            assert_eq!(found, nested(&moved, depth, 600), "IPv6 {is_v6}, {depth} errors");
        }
        let found = rewritten(&mut rewriter(&rules), &nested(&values, MOST_QUOTES + 2, 600));
        assert!(!reveals(&found, &values), "IPv6 {is_v6}: {found:02x?}");
        assert_eq!(found, rewritten(&mut rewriter(&rules), &nested(&moved, MOST_QUOTES + 2, 600)), "checksums fit");
    }
}

/// Wherever a quote ends, it has no byte of an address that rules change, nor a checksum that would reveal it.
#[test]
fn a_quote_that_ends_within_its_header_reveals_no_address() {
    let rules = ["ip=10.0.0.0/8:172.0.0.0/8", "ip=2001::/16:fd00:1::/32"];
    let (values, moved) = quoted_values();
    for is_v6 in [false, true] {
        let shape = Shape { is_v6, transport: 1, tagged: false, in_tunnel: false };
        let (header, addresses, length) = if is_v6 { (40, 8, 16) } else { (20, 12, 4) };
        for quoted in 1..header {
            let quote = build(&values, shape, b"hello, world")[14..14 + quoted].to_vec();
            let mut wanted = build(&moved, shape, b"hello, world")[14..14 + quoted].to_vec();
            let whole = addresses + quoted.saturating_sub(addresses) / length * length;
            wanted.iter_mut().skip(whole).for_each(|byte| *byte = 0);
            if !is_v6 {
                wanted.iter_mut().skip(10).take(2).for_each(|byte| *byte = 0);
            }
            let found = rewritten(&mut rewriter(&rules), &error_quoting(&values, shape, &quote));
            assert_eq!(found, error_quoting(&moved, shape, &wanted), "IPv6 {is_v6}, {quoted} bytes");
            let other = error_quoting(&values, shape, &quote);
            assert_eq!(rewritten(&mut rewriter(&["src-port=1:2"]), &other), other, "no rule changes addresses");
        }
    }
    // Truncated options, and malformed headers, have addresses nevertheless.
    let shape = Shape { is_v6: false, transport: 1, tagged: false, in_tunnel: false };
    for (at, byte) in [(0, 0x4f), (0, 0x41), (3, 1)] {
        let mut frame = error_about(&values, shape, 32);
        frame[14 + 28 + at] = byte;
        assert!(!reveals(&rewritten(&mut rewriter(&rules), &frame), &values), "{byte} at {at}");
    }
    // A quoted redirect has another address.
    let mut redirect = error_about(&values, shape, 100);
    redirect[14 + 20] = 5;
    redirect[14 + 24..14 + 28].copy_from_slice(&values.v4[1].octets());
    for end in [26, 28, 40, redirect.len() - 14] {
        let found = rewritten(&mut rewriter(&rules), &error_quoting(&values, shape, &redirect[14..14 + end]));
        assert!(!reveals(&found, &values) && !found.windows(2).any(|bytes| bytes == [10, 0]), "{end}: {found:02x?}");
    }
}

fn quoted_values() -> (Values, Values) {
    let values = Values {
        v4: [[10, 0, 0, 1].into(), [10, 0, 0, 2].into()],
        v6: ["2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap()],
        macs: [MacAddr([2, 1, 1, 1, 1, 1]), MacAddr([2, 1, 1, 1, 1, 2])],
        ports: [20_001, 20_002],
        ..OUTER
    };
    let moved = Values {
        v4: [[172, 0, 0, 1].into(), [172, 0, 0, 2].into()],
        v6: values.v6.map(|address| Ipv6Addr::from(0xfd00_0001 << 96 | u128::from(address) & (u128::MAX >> 32))),
        ..values
    };
    (values, moved)
}

/// Returns whether a frame contains one of these addresses.
fn reveals(frame: &[u8], values: &Values) -> bool {
    let addresses = values.v4.map(|address| address.octets().to_vec()).into_iter();
    let mut all = addresses.chain(values.v6.map(|address| address.octets()[..8].to_vec()));
    all.any(|address| frame.windows(address.len()).any(|bytes| bytes == address))
}

/// The packet is in an option, after others.
#[test]
fn packets_quoted_by_icmpv6_redirects_are_changed() {
    let values = Values { v6: ["2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap()], ..OUTER };
    let moved = Values { v6: ["fd00:1::1".parse().unwrap(), "fd00:1::2".parse().unwrap()], ..values };
    let shape = Shape { is_v6: true, transport: 1, tagged: false, in_tunnel: false };
    let redirect = |values: &Values, units: u8| {
        let quote = &build(values, shape, b"hello, world")[14..14 + 56];
        let addresses = [values.v6[0].octets(), values.v6[1].octets()].concat();
        let options = [&[2, 1, 2, 0, 0, 0, 0, 1, 4, units, 0, 0, 0, 0, 0, 0], quote].concat();
        let mut all = headers(values, shape);
        all.pop();
        all.push(Box::new(icmpv6::Header { kind: 137, code: 0 }));
        let all: Vec<&dyn Header> = all.iter().map(|header| &**header).collect();
        Frame::new(&all, &[&[0; 4], &addresses[..], &options].concat()).to_vec().unwrap()
    };
    let rules = ["ip=2001:db8::/32:fd00:1::/32"];
    for units in [8, 255] {
        assert_eq!(rewritten(&mut rewriter(&rules), &redirect(&values, units)), redirect(&moved, units));
    }
    // An option without a length ends the list.
    let odd = rewritten(&mut rewriter(&rules), &redirect(&values, 0));
    assert_ne!(odd, redirect(&moved, 0));
}

/// The first loop is the unchanged recording, although later ones shift its addresses.
#[test]
fn a_quote_that_ends_within_its_header_stays_in_the_first_loop() {
    let shape = Shape { is_v6: true, transport: 0, tagged: false, in_tunnel: false };
    let (values, _) = quoted_values();
    for quoted in 1..60 {
        let frame = error_about(&values, shape, quoted);
        let rewriting = Rewriting { shift: Some("77/20".parse().unwrap()), inner: true, ..Rewriting::default() };
        assert_eq!(rewritten(&mut Rewriter::new(rewriting), &frame), frame, "{quoted}");
    }
}
