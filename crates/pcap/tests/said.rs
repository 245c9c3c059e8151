//! Metadata of packets survives a copy: FCS, direction, errors, options, blocks.

use crate::common::{Memory, read_bytes};
use linerate_burst::{Block, Flags, Ledger, Nanos, Sink};
use linerate_pcap::{Format, Output, ReadError, Reader, Writer};
use std::io::Cursor;

/// Byte order of a section.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    Little,
    Big,
}

impl Order {
    fn u16(self, value: u16) -> [u8; 2] {
        if self == Order::Big { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    fn u32(self, value: u32) -> [u8; 4] {
        if self == Order::Big { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    fn block(self, kind: u32, body: &[u8]) -> Vec<u8> {
        let padded = body.len().next_multiple_of(4);
        let length = self.u32(12 + padded as u32);
        [&self.u32(kind)[..], &length, body, &[0; 3][..padded - body.len()], &length].concat()
    }

    fn option(self, code: u16, value: &[u8]) -> Vec<u8> {
        let padded = value.len().next_multiple_of(4) - value.len();
        [&self.u16(code)[..], &self.u16(value.len() as u16), value, &[0; 3][..padded]].concat()
    }

    /// Returns a section header and an interface with these options.
    fn head(self, options: &[u8]) -> Vec<u8> {
        let fixed = [&self.u32(0x1a2b_3c4d)[..], &self.u16(1), &self.u16(0), &[0xff; 8]].concat();
        let interface = [&self.u16(1)[..], &[0; 6], options].concat();
        [self.block(0x0a0d_0d0a, &fixed), self.block(1, &interface)].concat()
    }

    fn frame(self, bytes: &[u8], wire: u32, options: &[u8]) -> Vec<u8> {
        let words = [0, 0, 1, bytes.len() as u32, wire].map(|word| self.u32(word)).concat();
        let padded = bytes.len().next_multiple_of(4) - bytes.len();
        self.block(6, &[&words, bytes, &[0; 3][..padded], options].concat())
    }
}

/// Copies a file. Also returns the number of items omitted, and of times changed.
fn copy(file: &[u8], format: Format) -> (Vec<u8>, u64, u64) {
    let mut reader = Reader::new(Box::new(Cursor::new(file.to_vec())), "x").unwrap();
    let memory = Memory::default();
    let mut writer = Writer::new(Output::to(Box::new(memory.clone()), "copy"), format);
    let mut block = Block::new(1 << 20, 512);
    while let shown @ 1.. = reader.fill().unwrap().len() {
        let burst = reader.shown();
        assert!((0..shown).all(|index| block.push_stored(&burst.descs()[index], burst, index)));
        writer.accept(block.view(0, reader.interfaces())).unwrap();
        block.clear();
        reader.consume(shown);
    }
    writer.finish(&Ledger::new()).unwrap();
    let bytes = memory.0.lock().unwrap().clone();
    (bytes, reader.left_out(), reader.times_changed())
}

/// Returns whether a file contains these bytes.
fn has(file: &[u8], bytes: &[u8]) -> bool {
    file.windows(bytes.len()).any(|window| window == bytes)
}

/// Returns lengths, flags and bytes of frames.
fn frames(file: &[u8]) -> Vec<(u32, Flags, Vec<u8>)> {
    let content = read_bytes(file);
    assert!(content.error.is_none(), "{:?}", content.error);
    content.frames.into_iter().map(|frame| (frame.wire, frame.flags, frame.bytes)).collect()
}

#[test]
fn fcs_is_not_part_of_a_frame_and_is_kept_in_copies() {
    let record = |bytes: &[u8], wire: u32| {
        let words = [1, 0, bytes.len() as u32, wire].map(u32::to_ne_bytes).concat();
        [&words[..], bytes].concat()
    };
    let mut classic = [[0xa1b2_3c4d, 0x0004_0002, 0, 0, 65_535, 0x2400_0001].map(u32::to_ne_bytes).concat()].concat();
    for (bytes, wire) in [(&b"frame!FCS!"[..], 10), (b"frame!FC", 10), (b"fra", 10), (b"ab", 2)] {
        classic.extend(record(bytes, wire));
    }
    let cut = Flags::FCS_4 | Flags::FCS_CUT;
    let expected = [
        (6, Flags::FCS_4, b"frame!".to_vec()),
        (6, cut, b"frame!".to_vec()),
        (6, Flags::FCS_4, b"fra".to_vec()),
        (2, Flags::NONE, b"ab".to_vec()),
    ];
    assert_eq!(frames(&classic), expected);
    for format in [Format::Pcap, Format::PcapMicros, Format::Pcapng] {
        let (copied, left_out, _) = copy(&classic, format);
        assert_eq!((frames(&copied), left_out), (expected.to_vec(), 0), "{format:?}");
        assert!(has(&copied, b"frame!FCS!"), "{format:?}");
        let again = copy(&copied, Format::Pcap).0;
        assert_eq!((frames(&again), &again[20..24]), (expected.to_vec(), &0x2400_0001u32.to_ne_bytes()[..]));
    }
}

#[test]
fn pcapng_frame_may_have_its_own_fcs_length() {
    for order in [Order::Little, Order::Big] {
        let flags = |word| order.option(2, &order.u32(word));
        let plain = [&order.head(&[])[..], &order.frame(b"frame!FCS!", 10, &flags(0x81))].concat();
        let expected = [(6, Flags::FCS_4 | Flags::INCOMING, b"frame!".to_vec())];
        assert_eq!(frames(&plain), expected);
        let copied = copy(&plain, Format::Pcapng).0;
        assert_eq!(frames(&copied), expected);
        let option = |word: u32| [&2u16.to_ne_bytes()[..], &4u16.to_ne_bytes(), &word.to_ne_bytes()].concat();
        assert!(has(&copied, &option(0x81)) && has(&copied, b"frame!FCS!"));
        assert_eq!(copy(&plain, Format::Pcap).0[20..24], 0x2400_0001u32.to_ne_bytes());
        // The interface has an FCS length, and one frame repeats it; an impossible length is kept.
        let head = order.head(&order.option(13, &[4]));
        let options = [&[][..], &flags(0x81), &flags(0x0100_0000), &flags(0x61)];
        let file = [head, options.map(|options| order.frame(b"frame!FCS!", 10, options)).concat()].concat();
        let lengths: Vec<u32> = frames(&file).iter().map(|frame| frame.0).collect();
        assert_eq!(lengths, [6, 6, 6, 10]);
        let copied = copy(&file, Format::Pcapng).0;
        assert_eq!(frames(&copied), frames(&file));
        assert!(has(&copied, &option(0x81)) && has(&copied, &option(0x61)));
    }
}

#[test]
fn flags_round_trip() {
    let little = Order::Little;
    // Directions, kinds of reception, errors, and undefined bits.
    let words = [1, 2, 3, 5, 9, 0x0d, 0x11, 0x12, 0x0100_0001, 0x8000_0000, 0x0080_0000, 0x0300_0000, 0x0000_8000];
    let file = words.map(|word: u32| little.frame(b"frame", 5, &little.option(2, &word.to_le_bytes())));
    let (copied, left_out, _) = copy(&[little.head(&[]), file.concat()].concat(), Format::Pcapng);
    let option = |word: u32| [&2u16.to_ne_bytes()[..], &4u16.to_ne_bytes(), &word.to_ne_bytes()].concat();
    assert_eq!((words.into_iter().find(|word| !has(&copied, &option(*word))), left_out), (None, 0));
    assert!(copy(&copied, Format::Pcapng).0 == copied);
}

#[test]
fn options_and_blocks_are_kept_or_counted() {
    let order = Order::Big;
    let number = 0x0102_0304_0506_0708u64;
    let of_frame = [
        order.option(3, b"\x02hash"),
        order.option(7, &[&[1][..], &number.to_be_bytes()].concat()),
        order.option(8, &[7u32.to_be_bytes(), 9u32.to_be_bytes()].concat()),
        order.option(2988, &[&order.u32(5)[..], b"text"].concat()),
    ];
    let of_interface =
        [order.option(10, &order.u32(3600)), order.option(18, b"Europe/Berlin"), order.option(11, b"\0udp")];
    let custom = |kind| order.block(kind, &[&order.u32(5)[..], b"custom data "].concat());
    let file = |last: &[u8], options: &[u8]| {
        let blocks = [custom(0xbad), order.block(9, b"MESSAGE=hello\n"), last.to_vec()].concat();
        [order.head(&of_interface.concat()), blocks, order.frame(b"frame", 5, options)].concat()
    };
    let (copied, left_out, _) = copy(&file(&[], &of_frame.concat()), Format::Pcapng);
    assert_eq!(left_out, 0);
    let verdict = [&[1][..], &number.to_ne_bytes()].concat();
    let (five, zone) = (5u32.to_ne_bytes(), 3600u32.to_ne_bytes());
    let pair = [7u32.to_ne_bytes(), 9u32.to_ne_bytes()].concat();
    let custom_data = [&five[..], b"custom data "].concat();
    let texts: [&[u8]; 9] =
        [b"\x02hash", &verdict, &pair, &custom_data, b"text", &zone, b"Europe/Berlin", b"\0udp", b"MESSAGE=hello\n"];
    assert_eq!(texts.into_iter().find(|text| !has(&copied, text)), None);
    // Not to be copied, unknown, and invalid.
    for (last, options) in [
        (custom(0x4000_0bad), Vec::new()),
        (order.block(0xabcd, b"data"), Vec::new()),
        (order.block(0xbad, b""), Vec::new()),
        (order.block(9, b""), Vec::new()),
        (order.block(5, &[0xff; 12]), Vec::new()),
        (Vec::new(), order.option(19_372, b"data")),
        (Vec::new(), order.option(77, b"data")),
        (Vec::new(), order.option(2, b"ab")),
        (Vec::new(), [&order.u16(1)[..], &order.u16(400), b"data"].concat()),
        (Vec::new(), [order.u16(1), order.u16(2)].concat()),
    ] {
        assert_eq!(copy(&file(&last, &options), Format::Pcapng).1, 1, "{last:?} {options:?}");
    }
}

#[test]
fn options_of_names_secrets_and_old_drop_counts_are_kept() {
    let order = Order::Big;
    let names = [order.option(1, b"\x0a\0\0\x02peer.\0"), order.option(0, &[]), order.option(2, b"server")].concat();
    let secrets = [&order.u32(7)[..], &order.u32(3), b"key\0", &order.option(1, b"a comment")].concat();
    let words = [&order.u16(0)[..], &order.u16(3), &[0; 8], &order.u32(5), &order.u32(5)].concat();
    let old = order.block(2, &[&words[..], b"frame\0\0\0"].concat());
    let file = [order.head(&[]), order.block(4, &names), order.block(10, &secrets), old].concat();
    let (copied, left_out, _) = copy(&file, Format::Pcapng);
    let drops = [&4u16.to_ne_bytes()[..], &8u16.to_ne_bytes(), &3u64.to_ne_bytes()].concat();
    let texts: [&[u8]; 4] = [b"peer.\0", b"server", b"a comment", &drops];
    assert_eq!((texts.into_iter().find(|text| !has(&copied, text)), left_out), (None, 0));
    assert!(copy(&copied, Format::Pcapng).0 == copied);
}

#[test]
fn an_interface_with_damaged_options_is_an_error() {
    for order in [Order::Little, Order::Big] {
        let beyond = [&order.u16(2)[..], &order.u16(400), b"data"].concat();
        for options in [order.option(9, &[6, 6]), order.option(9, &[]), order.option(14, &[0; 4]), beyond] {
            let file = [order.head(&options), order.frame(b"frame", 5, &[])].concat();
            let found = read_bytes(&file);
            assert!(matches!(found.error, Some(ReadError::Damaged { .. })), "{options:?}: {:?}", found.error);
        }
        let mut later = order.head(&[]);
        later[14..16].copy_from_slice(&order.u16(3));
        assert!(matches!(read_bytes(&later).error, Some(ReadError::Unsupported { .. })));
        // An end mark is not required, and nothing follows it.
        for options in [order.option(2, b"eth0"), [order.option(0, &[]), beyond_end(order)].concat()] {
            let file = [order.head(&options), order.frame(b"frame", 5, &[])].concat();
            assert_eq!(frames(&file).len(), 1, "{options:?}");
        }
    }
}

fn beyond_end(order: Order) -> Vec<u8> {
    [order.u16(2), order.u16(400)].concat()
}

#[test]
fn unrepresentable_times_are_counted() {
    let order = Order::Little;
    let words = |ticks: u64| [0, (ticks >> 32) as u32, ticks as u32, 5, 5].map(u32::to_le_bytes).concat();
    let frame = |ticks| order.block(6, &[&words(ticks)[..], b"frame\0\0\0"].concat());
    for (offset, ticks, changed, times) in [
        (-3600i64, [0, 3_600_000_000, 3_601_000_000], 1, [0, 0, 1]),
        (0, [0, u64::MAX / 1000, u64::MAX / 1000 + 1], 1, [0, 18_446_744_073, 18_446_744_073]),
    ] {
        let head = order.head(&order.option(14, &offset.to_le_bytes()));
        let file = [head, ticks.map(frame).concat()].concat();
        let (copied, _, counted) = copy(&file, Format::Pcapng);
        let seconds: Vec<u64> = read_bytes(&copied).frames.iter().map(|frame| frame.time.seconds()).collect();
        assert_eq!((seconds, counted), (times.to_vec(), changed));
        assert_eq!(read_bytes(&copied).frames[0].time, Nanos::ZERO);
    }
}
