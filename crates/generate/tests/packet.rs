//! Packets as text: the frame has the given values, the others are valid, and no text causes a panic.

use linerate_generate::packet::{Frames, SMALLEST, Setup, Sizes, express, frames, sizes};
use linerate_generate::stream::{Mark, Stream};
use linerate_generate::trailer::Key;
use linerate_generate::{Rate, TextError, describe};
use linerate_headers::named::{Format, Kind};
use linerate_headers::{Layers, Link, Protocol, coverage, dissect, tcp, udp, vlan};
use proptest::prelude::*;

fn exact() -> Setup<'static> {
    Setup { sizes: Sizes::Natural(0), ..Setup::default() }
}

fn stream(frames: Frames) -> Stream {
    Stream { name: "test".to_owned(), rate: Rate::Top, ..frames.stream(7, Mark::None) }
}

fn one(text: &str) -> Vec<u8> {
    let made = frames(text, &exact()).unwrap_or_else(|wrong| panic!("{text}: {wrong}"));
    made.variants[0].frame.clone()
}

fn many(text: &str, setup: &Setup<'_>, count: u64) -> Vec<Vec<u8>> {
    let made = frames(text, setup).unwrap_or_else(|wrong| panic!("{text}: {wrong}"));
    let stream = stream(made);
    (0..count).map(|n| stream.frame(n, 5, &Key::default())).collect()
}

fn wrong(text: &str, setup: &Setup<'_>) -> TextError {
    frames(text, setup).err().unwrap_or_else(|| panic!("{text} is right"))
}

fn protocols(frame: &[u8]) -> Vec<Protocol> {
    let mut layers = Layers::new();
    dissect(Link::Ethernet, frame, &mut layers);
    layers.as_slice().iter().map(|layer| layer.protocol).collect()
}

/// Returns whether every checksum of a frame is right.
fn is_right(frame: &[u8]) -> bool {
    let mut layers = Layers::new();
    dissect(Link::Ethernet, frame, &mut layers);
    let mut filled = frame.to_vec();
    coverage::checksums(frame, &coverage::placed(frame, &layers)).iter().for_each(|sum| sum.fill(&mut filled));
    filled == frame
}

#[test]
fn implied_layers_are_added() {
    use Protocol::*;
    for (text, expected) in [
        ("payload", &[Ethernet, Ipv4, Udp][..]),
        ("tcp", &[Ethernet, Ipv4, Tcp]),
        ("vlan(id=5)/ip6/udp", &[Ethernet, Vlan, Ipv6, Udp]),
        ("eth/qinq/vlan/ip", &[Ethernet, Vlan, Vlan, Ipv4]),
        ("vxlan/eth/ip/udp", &[Ethernet, Ipv4, Udp, Vxlan, Ethernet, Ipv4, Udp]),
        ("ip6/vxlan/ip", &[Ethernet, Ipv6, Udp, Vxlan, Ethernet, Ipv4]),
        ("mpls/mpls(label=17)/ip", &[Ethernet, Mpls, Ipv4]),
        ("ppp/ip", &[Ethernet, Pppoe, Ppp, Ipv4]),
        ("erspan/eth/ip", &[Ethernet, Ipv4, Gre, Erspan, Ethernet, Ipv4]),
        ("hbh/udp", &[Ethernet, Ipv6, HopByHop, Udp]),
        ("icmp6", &[Ethernet, Ipv6, Icmpv6]),
    ] {
        let frame = one(&format!("{text}/payload(len=20)").replace("payload/payload", "payload"));
        assert_eq!(protocols(&frame), expected, "{text}");
        assert!(is_right(&frame), "{text}");
    }
    let usual = one("udp");
    let packet = linerate_headers::ipv4::View::parse(&usual[14..]).unwrap();
    assert_eq!((packet.source(), packet.destination()), ([198, 18, 0, 1].into(), [198, 18, 0, 2].into()));
    assert_eq!(udp::View::parse(packet.payload()).unwrap().destination_port(), 9);
}

#[test]
fn fields_have_the_given_values() {
    for kind in Kind::all() {
        let (parts, rest) = match kind.protocol {
            Protocol::Teredo => ("nonce, origin", "/ip6(src=2001:0:c000:201:0:efff:3fff:fdfe)"),
            _ => ("", ""),
        };
        let text = format!("{}({parts}){rest}/payload(hex=99989796959493929190)", kind.name());
        let made = frames(&text, &exact()).unwrap_or_else(|wrong| panic!("{text}: {wrong}"));
        let plain = &made.variants[0].frame;
        let mut layers = Layers::new();
        let link = match kind.protocol {
            Protocol::Null => Link::Null,
            Protocol::Sll => Link::Sll,
            Protocol::Sll2 => Link::Sll2,
            Protocol::Chdlc => Link::Chdlc,
            _ => Link::Ethernet,
        };
        dissect(link, plain, &mut layers);
        let layer = layers.as_slice().iter().find(|layer| layer.protocol == kind.protocol);
        let layer = *layer.unwrap_or_else(|| panic!("{text}: {:?}", layers.as_slice()));
        let span = layer.offset as usize..layer.end() as usize;
        assert_eq!(Kind::of(kind.protocol, &plain[span.clone()]).map(|of| of.protocol), Some(kind.protocol));
        for field in kind.fields.iter().filter(|field| field.start(&plain[span.clone()]).is_some()) {
            for value in [0, 1, field.most(), field.most() / 3] {
                let shown = field.format.show(value);
                let given = format!("{parts}{}{}={shown}", if parts.is_empty() { "" } else { ", " }, field.name);
                let text = format!("{}({given}){rest}/payload(hex=99989796959493929190)", kind.name());
                // A part that determines the form may refuse it.
                let Ok(made) = frames(&text, &exact()) else { continue };
                let frame = &made.variants[0].frame;
                if frame.len() == plain.len()
                    && kind.field(field.name, &plain[span.clone()]).is_some_and(|it| std::ptr::eq(it, field))
                {
                    let start = field.start(&plain[span.clone()]).unwrap();
                    let mut again = plain[span.clone()].to_vec();
                    field.set(&mut again, value);
                    let bits = start / 8..(start + field.bits as usize).div_ceil(8);
                    assert_eq!(frame[span.clone()][bits.clone()], again[bits], "{text}");
                }
            }
        }
    }
}

#[test]
fn deliberately_wrong_values_are_kept() {
    let frame = one("ip(len=5, checksum=0x1234)/udp(checksum=0)/payload(\"hello\")");
    assert_eq!((&frame[16..18], &frame[24..26], &frame[40..42]), (&[0, 5][..], &[0x12, 0x34][..], &[0, 0][..]));
    let frame = one("ip(version=7)/udp/payload(\"hello\", +1:8=0x55)");
    assert_eq!((frame[14], &frame[42..]), (0x75, &b"h\x55llo"[..]));
    let tagged = one("eth/qinq(id=7, prio=3)/vlan(id=8, dei)/ip");
    assert_eq!(tagged[12..14], vlan::SERVICE.to_be_bytes());
    assert_eq!(vlan::View::parse(&tagged[14..]).unwrap().id(), 7);
    assert!(vlan::View::parse(&tagged[18..]).unwrap().drop_eligible());
    let syn = one("tcp(flags=syn, mss=1400, wscale=9, sack_ok)");
    let segment = tcp::View::parse(&syn[34..]).unwrap();
    assert_eq!((segment.flags(), segment.header_len()), (tcp::Flags::SYN, 32));
    assert_eq!(segment.header().options.as_bytes()[..4], [2, 4, 0x05, 0x78]);
    assert!(is_right(&syn));
}

#[test]
fn fields_vary_and_checksums_follow() {
    let text =
        "eth/ip(src=10.0.0.1..10.0.0.9, dst=random)/udp(sport=1024..65535 random, dport=[53:3, 80])/payload(noise)";
    let setup = Setup { sizes: sizes("[64, 594, 1518]", 1).unwrap(), mark: Mark::Trailer, seed: 3, ..Setup::default() };
    let frames = many(text, &setup, 60);
    assert_eq!(frames.iter().take(3).map(Vec::len).collect::<Vec<_>>(), [60, 590, 1514]);
    for (n, frame) in frames.iter().enumerate() {
        assert!(is_right(frame), "{n}");
        assert_eq!(frame[29], 1 + (n % 9) as u8, "{n}");
        assert_eq!(frame[frame.len() - 16..][..8], [0, 0, 7, 0, 0, 0, 0, n as u8], "{n}");
    }
    assert_ne!(frames[0][30..34], frames[1][30..34]);
    assert_ne!(frames[1][42..100], frames[4][42..100], "noise");
    assert_eq!(frames, many(text, &setup, 60), "not reproducible");
    for text in [
        "ip6(src=2001:2::/64 random)/routing(segments=2, segleft=1, addr1=2001:2::9..2001:2::99)/tcp(seq=random)",
        "ip/sctp(tag=random)/payload(noise)",
        "vxlan(vni=1..100)/eth/ip(src=10.0.0.0/24)/icmp(seq=0..65535)",
        "mpls(label=16..1000)/mpls/ip(dst=10.0.0.0/8 random)/udplite(sport=1..9)",
        "ip/gre(checksum, key=1..9)/ip6/icmp6(id=4, seq=1..99)",
        "ip(src&0.0.255.0=0..255, id=random)/igmp(group=239.0.0.1..239.0.0.99)",
    ] {
        let frames = many(text, &Setup { seed: 1, ..Setup::default() }, 40);
        assert!(frames.iter().all(|frame| is_right(frame)), "{text}");
        assert!(frames[0] != frames[1], "{text}");
    }
}

#[test]
fn whole_frames_are_unchanged() {
    let bytes = one("ip6/udp/payload(\"hello\")");
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(one(&format!("raw({hex})")), bytes);
    let files = |name: &str, number: u64| match (name, number) {
        ("a.pcap", 3) => Ok(bytes.clone()),
        _ => Err(format!("{name} has no frame {number}")),
    };
    let setup = Setup { files: &files, mark: Mark::None, ..exact() };
    assert_eq!(frames("file(a.pcap#3)", &setup).unwrap().variants[0].frame, bytes);
    assert!(wrong("file(a.pcap#4)", &setup).what.contains("no frame 4"));
    let long = one("ip/udp/payload(len=40)");
    let hex: String = long.iter().map(|byte| format!("{byte:02x}")).collect();
    let sent = many(&format!("raw({hex})/padding(0000)"), &Setup { mark: Mark::Trailer, ..exact() }, 3);
    assert!(sent.iter().all(|frame| is_right(frame) && frame.len() == long.len() + 2));
    assert_eq!(sent[2][long.len() - 16..][..8], [0, 0, 7, 0, 0, 0, 0, 2], "the padding is after the trailer");
}

#[test]
fn errors_name_the_part_and_the_remedy() {
    let small = Setup { sizes: sizes("64", 0).unwrap(), mark: Mark::Trailer, ..Setup::default() };
    assert!(frames("ip/udp", &small).is_ok(), "a trailer fits into 64 bytes of UDP over IPv4");
    for (text, setup, at, expected_part) in [
        ("eth/ipp/udp", &exact(), "ipp", "did you mean ip?"),
        ("ip/udp(dprt=5)", &exact(), "dprt", "did you mean dport?"),
        ("ip(ttl=256)", &exact(), "256", "at most 255"),
        ("ip(src=10.0.0)", &exact(), "10.0.0", "an IPv4 address such as"),
        ("udp/tcp", &exact(), "udp", "udp: cannot carry tcp"),
        ("pppoe/ip", &exact(), "pppoe", "pppoe: cannot carry ip; use pppoe/ppp/ip"),
        ("IP/udp", &exact(), "IP", "did you mean ip?"),
        ("dhcp", &exact(), "dhcp", "no such layer; expected one of "),
        ("ip(src=10.0.0.1-10.0.0.9)", &exact(), "10.0.0.1-10.0.0.9", "did you mean 10.0.0.1..10.0.0.9?"),
        ("udp(dport=1-9)", &exact(), "1-9", "did you mean 1..9?"),
        ("llc/snap/ip", &exact(), "llc", "llc: cannot carry snap, which is another form of llc; remove llc"),
        ("mpls/ach/pw", &exact(), "ach", "remove ach"),
        ("ip6/udp", &small, "ip6/udp", "64 bytes are too small: this packet needs 82"),
        ("ip/udp(dport)", &exact(), "dport", "dport=VALUE"),
        ("ip(dscp=1..9, tos=1..9)", &exact(), "tos", "overlaps"),
        ("udp/payload(noise, len=20, +2:8=1..9)", &exact(), "+2:8", "overlaps"),
        ("udplite(coverage=8..20)", &exact(), "8..20", "a single number"),
        ("udp/payload(\"abc\")/ip", &exact(), "payload", "only padding may follow"),
        ("ip(pattern=maesh)", &exact(), "maesh", "mesh, lockstep"),
        ("raw", &exact(), "raw", "invalid frame length 0; expected 1 to 262144 bytes"),
        ("udp/payload(\"a\", +9:8=1)", &exact(), "+9:8", "beyond the end"),
        ("ip(src&0.255.0.255=1)", &exact(), "src&0.255.0.255", "one run of bits"),
    ] {
        let wrong = wrong(text, setup);
        assert!(wrong.what.contains(expected_part), "{text}: {wrong}");
        assert_eq!(&text[wrong.at.clone()], at, "{text}: {wrong}");
    }
}

#[test]
fn frames_are_described() {
    let text =
        "vlan(id=1..9)/ip(src=10.0.0.1..10.0.0.9/2 random, checksum=1)/udp(dport=[53, 80])/payload(\"hi\", +0:8=1..3)";
    let stream = stream(frames(text, &Setup { mark: Mark::Trailer, ..Setup::default() }).unwrap());
    let described = describe(&stream, 1, 5, &Key::default());
    let expected = "\
frame 1 of test: 64 bytes, 68 with FCS
  eth        dst=02:00:00:00:00:02 src=02:00:00:00:00:01 type=0x8100
  vlan       prio=0 dei=0 id=2 {1..9 in turn} type=0x0800
  ip         version=4 ihl=5 dscp=0 ecn=0 len=46 id=0 rf=0 df=0 mf=0 frag_offset=0 ttl=64 proto=17 checksum=0x0001 (wrong) src=10.0.0.X {10.0.0.1..10.0.0.9/2 random} dst=198.18.0.2
  udp        sport=49152 dport=80 {[53, 80] in turn} len=26 checksum=0xXXXX
  payload    2 bytes: 0269 \".i\"
  trailer    stream=7 sequence=1 at byte 48
  bytes      +46:8 0x0001..0x0003 in turn
";
    let mask = |text: &str| {
        let start = text.find("src=10.0.0.").map(|at| at + 11).unwrap();
        let text = format!("{}X{}", &text[..start], &text[start + 1..]);
        let sum = text.rfind("checksum=0x").map(|at| at + 11).unwrap();
        format!("{}XXXX{}", &text[..sum], &text[sum + 4..])
    };
    assert_eq!(mask(&described), expected);
}

/// Dissected again, its PPP header has no byte.
#[test]
fn empty_headers_are_described() {
    for text in ["eth(dst=22:00:00:00:00:02)/vlan(prio=3, id=4095)/ppp(proto=0x79fd)", "ppp(proto=0x79fd)/payload"] {
        for mark in [Mark::None, Mark::Trailer, Mark::Count] {
            for least in [0, 64, 300] {
                let setup = Setup { mark, sizes: Sizes::Natural(least), ..Setup::default() };
                let stream = stream(frames(text, &setup).unwrap());
                let frame = stream.frame(0, 5, &Key::default());
                assert!(describe(&stream, 0, 5, &Key::default()).contains("ppp "));
                assert_eq!(one(&express(Link::Ethernet, &frame)), frame);
            }
        }
    }
}

#[test]
fn frames_are_expressed_as_text() {
    for text in [
        "eth(src=02:00:00:00:00:09)/vlan(id=7)/ip(ttl=1, checksum=0x0001)/udp(dport=53)/payload(\"a \\\"b\\\\\\n\")/padding(0001)",
        "eth/mpls(label=9)/mpls(ttl=3)/ip/gre(key, seq, key=7)/ip6/tcp(options=02040578, flags=syn)",
        "eth/arp(op=2)/padding(000000)",
        "eth/ip6/routing(data=04010000000020010db8000000000000000000000009)/udp/payload(hex=0001)",
    ] {
        let frame = one(text);
        let described = express(Link::Ethernet, &frame);
        assert_eq!(one(&described), frame, "{text}: {described}");
        assert!(
            !described.contains("raw(") && described.matches('/').count() <= text.matches('/').count(),
            "{described}"
        );
    }
    assert_eq!(express(Link::Ethernet, &[1, 2, 3]), "raw(010203)");
}

/// Returns text that is often a valid packet.
fn likely() -> impl Strategy<Value = String> {
    let names: Vec<&str> = Kind::all().map(Kind::name).chain(["payload", "raw", "padding", "x"]).collect();
    let value = prop::sample::select(vec![
        "1",
        "0x1f",
        "1..9",
        "9..1/3",
        "random",
        "10.0.0.1",
        "10.0.0.0/8",
        "::1",
        "[1,2:3]",
        "zipf(1..9,1)",
        "\"a\"",
        "",
        "[",
        "1..9 @a",
    ]);
    let fields: Vec<&str> = Kind::all().flat_map(|kind| kind.fields.iter().map(|field| field.name)).collect();
    let parts =
        Kind::all().flat_map(|kind| kind.parts.iter().map(|part| part.name)).chain(["pattern", "+2:12", "src&0xff"]);
    let fields: Vec<&str> = fields.into_iter().chain(parts).collect();
    let argument = (prop::sample::select(fields), value).prop_map(|(name, value)| match value {
        "" => name.to_owned(),
        _ => format!("{name}={value}"),
    });
    let layer = (prop::sample::select(names), prop::collection::vec(argument, 0..3))
        .prop_map(|(name, arguments)| format!("{name}({})", arguments.join(",")));
    prop::collection::vec(layer, 1..6).prop_map(|layers| layers.join("/"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_parsed_without_panic(text in prop_oneof![likely(), ".*", "[a-z/()=.,0-9\\[\\]\" @+:&]{0,60}"], size in "[a-z0-9.:/,()\\[\\]]{0,20}") {
        for mark in [Mark::None, Mark::Trailer] {
            if let Ok(made) = frames(&text, &Setup { mark, ..exact() }) {
                let stream = stream(made);
                for n in [0, 1, u64::MAX] {
                    stream.frame(n, 0, &Key::default());
                }
            }
        }
        let _ = sizes(&size, 1);
        for format in [Format::Mac, Format::Ipv6, Format::Flags(&["a"])] {
            let _ = format.parse(&text);
        }
    }
}

/// Like scapy and any host: the datagram has the given bytes, and padding follows it.
#[test]
fn a_payload_has_the_given_length() {
    let made = |text: &str, link, mark| {
        let setup = Setup { link, mark, sizes: Sizes::Natural(SMALLEST), ..Setup::default() };
        stream(frames(text, &setup).unwrap()).frame(0, 1, &Key::default())
    };
    for (text, length) in [
        ("ip/udp/payload(\"hello\")", 13),
        ("ip/udp/payload(\"hello\", len=5)", 13),
        ("ip/udp/payload(hex=0102, len=7)", 15),
        ("ip/udp/payload(random, len=3)", 11),
        ("ip/udp/payload(\"\")", 8),
        ("ip/udp/payload(\"hello\")/padding(0708)", 13),
        ("ip/udp", 8),
        ("ip/udp/payload(pattern=0a)", 26),
    ] {
        let frame = made(text, Link::Ethernet, Mark::None);
        assert_eq!((frame.len(), &frame[38..40]), (60, &u16::to_be_bytes(length)[..]), "{text}");
        assert_eq!(frame[16..18], u16::to_be_bytes(length + 20), "{text}");
    }
    // A SYN has no data, and an echo request none after its header.
    for (text, length) in [("ip/tcp(flags=syn)", 40), ("ip/icmp", 28)] {
        let frame = made(text, Link::Ethernet, Mark::None);
        assert_eq!((frame.len(), &frame[16..18]), (60, &u16::to_be_bytes(length)[..]), "{text}");
    }
    // No link that pads.
    for (text, link, length) in [
        ("ip/udp/payload(\"hello\")", Link::RawIp, 33),
        ("ip/udp", Link::RawIp, 28),
        ("null/ip/udp", Link::Ethernet, 32),
        ("ip/udp/raw(0a0b)", Link::RawIp, 30),
    ] {
        assert_eq!(made(text, link, Mark::None).len(), length, "{text}");
    }
    // A trailer is at the end of payload and frame.
    let marked = made("ip/udp/payload(\"a\")", Link::Ethernet, Mark::Trailer);
    assert_eq!((marked.len(), marked[39]), (60, 26));
}
