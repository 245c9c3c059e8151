//! Any bytes give one line of printable ASCII within the length limit; their dump follows in lines that start with a
//! tab.

use linerate_headers::Link;
use linerate_print::{Bytes, Frame, MAX_LINE, Options, Printer, Time};
use proptest::prelude::*;

fn options() -> impl Strategy<Value = Options> {
    let times = [Time::Clock, Time::None, Time::Epoch, Time::Delta, Time::Date, Time::First];
    (any::<[bool; 8]>(), prop::sample::select(times.to_vec())).prop_map(|(flags, time)| {
        let [link, verbose, brief, absolute, nanos, hex, ascii, all] = flags;
        Options {
            link,
            verbose,
            unverified: absolute,
            brief,
            absolute,
            nanos,
            time,
            bytes: Bytes { hex, ascii, link: all },
        }
    })
}

/// Bytes that are likely to be known headers: a packet over Ethernet, with ports and plausible payload.
fn likely() -> impl Strategy<Value = Vec<u8>> {
    let ports = vec![53u16, 5353, 67, 68, 123, 500, 4500, 443, 4789, 2152, 6081, 80];
    let numbers = vec![1u8, 2, 6, 6, 17, 17, 17, 41, 47, 50, 51, 58, 88, 89, 103, 112, 132, 0, 44, 60];
    let starts: Vec<&[u8]> = vec![
        b"",
        b"GET /\x1b[2J HTTP/1.1\r\n",
        &[22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3],
        &[1, 1, 6, 0],
        &[0, 1, 0x81, 0x80, 0, 1, 0, 9, 0, 1, 0, 1, 1, b'a', 0xc0, 12],
        &[0xc3, 0, 0, 0, 1, 8],
    ];
    let small = prop::collection::vec(prop_oneof![2 => 0u8..4, 1 => any::<u8>(), 1 => Just(0xc0)], 0..400);
    (any::<bool>(), prop::sample::select(numbers), prop::sample::select(ports), prop::sample::select(starts), small)
        .prop_map(|(is_v6, number, port, start, rest)| {
            let mut message = [&port.to_be_bytes()[..], &port.to_be_bytes(), &[0; 4]].concat();
            if number == 6 {
                message.extend_from_slice(&[0, 0, 0, 1, 0x50 | rest.len() as u8 & 0xf0, 0x18, 1, 1, 0, 0, 0, 0]);
            }
            message.extend_from_slice(start);
            message.extend_from_slice(&rest);
            let length = (message.len() as u16 + if is_v6 { 0 } else { 20 }).to_be_bytes();
            let link = [&[2; 12][..], if is_v6 { &[0x86, 0xdd] } else { &[8, 0] }].concat();
            let ip = match is_v6 {
                true => [&[0x60, 0, 0, 0, length[0], length[1], number, 64][..], &[0x20; 32]].concat(),
                false => [&[0x45, 0, length[0], length[1], 0, 0, 0, 0, 64, number, 0, 0][..], &[10; 8]].concat(),
            };
            [link, ip, message].concat()
        })
}

fn check(printer: &mut Printer, options: Options, link: u16, wire: u32, interface: &str, bytes: &[u8]) {
    let mut out = b"before\n".to_vec();
    printer.line(&Frame { time: 1, interface, link, bytes, wire }, &mut out);
    assert!(out.starts_with(b"before\n") && out.ends_with(b"\n"));
    let text = out.split_off(b"before\n".len());
    let lines: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
    assert!(lines[0].len() <= MAX_LINE && lines[0][0] != b'\t');
    assert!(options.bytes.hex || options.bytes.ascii || lines.len() == 1);
    for (place, line) in lines.iter().enumerate() {
        assert_eq!(place > 0, line[0] == b'\t');
        let visible = &line[usize::from(place > 0)..line.len() - 1];
        assert!(visible.iter().all(|byte| (b' '..=b'~').contains(byte)), "{}", String::from_utf8_lossy(line));
    }
    assert!(text.len() <= MAX_LINE + 8 * bytes.len() + 2, "output exceeds its bound");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_give_one_line(
        options in options(),
        wire: u32,
        interface in ".{0,80}",
        frames in prop::collection::vec(prop_oneof![
            prop::collection::vec(any::<u8>(), 0..200), likely(), likely(), likely()], 1..4),
    ) {
        let mut printer = Printer::new(options);
        for bytes in &frames {
            for link in Link::ALL {
                check(&mut printer, options, link.linktype(), wire, &interface, bytes);
            }
            check(&mut printer, options, 105, wire, &interface, bytes);
            check(&mut printer, options, 1, bytes.len() as u32, "", bytes);
        }
    }
}

/// Output stops at the end of the line, whatever the message contains.
#[test]
fn messages_with_thousands_of_answers_end_with_the_line() {
    let answer = [&[1, b'\x1b', 0, 0, 16, 0, 1, 0, 0, 0, 0, 0, 200, 199][..], &[0xff; 199]].concat();
    let dns = [&[0, 1, 0x81, 0x80, 0, 0, 1, 44, 0, 0, 0, 0][..], &answer.repeat(300)].concat();
    let length = ((dns.len() + 8) as u16).to_be_bytes();
    let udp = [&[0, 53, 0, 53, length[0], length[1], 0, 0][..], &dns].concat();
    let total = ((udp.len() + 20) as u16).to_be_bytes();
    let packet = [&[0x45, 0, total[0], total[1], 0, 0, 0, 0, 64, 17, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8][..], &udp].concat();
    let mut out = Vec::new();
    let frame = Frame { time: 0, interface: "", link: 101, bytes: &packet, wire: packet.len() as u32 };
    Printer::new(Options::default()).line(&frame, &mut out);
    assert_eq!((out.len(), out.ends_with(b" [...]\n")), (MAX_LINE, true));
    assert!(out.capacity() < 4 * MAX_LINE, "what is cut was hardly written: {}", out.capacity());
}
