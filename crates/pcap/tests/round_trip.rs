//! Random frames in both formats, with all variants of files, and all kinds of damage.

use crate::common::{Frame, Slow, read, read_bytes, write};
use linerate_burst::{Flags, Interface, LinkType, Nanos, StampSource};
use linerate_pcap::{Format, ReadError};
use proptest::prelude::*;
use std::io::Cursor;

/// Encodes integers in one byte order.
#[derive(Clone, Copy, Debug)]
struct Endian {
    big: bool,
}

impl Endian {
    fn u16(self, value: u16) -> [u8; 2] {
        if self.big { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    fn u32(self, value: u32) -> [u8; 4] {
        if self.big { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    fn words(self, words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| self.u32(*word)).collect()
    }
}

fn naive_pcap(frames: &[Frame], magic: u32, endian: Endian) -> Vec<u8> {
    let unit = if magic == 0xa1b2_3c4d { 1 } else { 1000 };
    let mut file = endian.u32(magic).to_vec();
    file.extend([endian.u16(2), endian.u16(4)].concat());
    file.extend(endian.words(&[0, 0, 0, 1]));
    for frame in frames {
        let [sec, frac] = [(frame.time.0 / 1_000_000_000) as u32, (frame.time.0 % 1_000_000_000 / unit) as u32];
        file.extend(endian.words(&[sec, frac, frame.bytes.len() as u32, frame.wire]));
        if magic == 0xa1b2_cd34 {
            let kind = if frame.flags.contains(Flags::OUTGOING) { 4 } else { 0 };
            file.extend([0, 0, 0, 1, 8, 0, kind, 0]);
        }
        file.extend(&frame.bytes);
    }
    file
}

fn naive_block(endian: Endian, kind: u32, body: &[u8]) -> Vec<u8> {
    let mut body = body.to_vec();
    body.resize(body.len().next_multiple_of(4), 0);
    let length = endian.u32(body.len() as u32 + 12);
    [&endian.u32(kind)[..], &length, &body, &length].concat()
}

/// Returns a section with one interface per entry of `resolutions`, a frame's interface taken modulo their number, and
/// a block of unknown type between all others.
fn naive_section(frames: &[Frame], endian: Endian, resolutions: &[(u8, u64)], obsolete: bool) -> Vec<u8> {
    let unknown = naive_block(endian, 0x0bad, b"whatever");
    let header = [endian.words(&[0x1a2b_3c4d]), endian.u16(1).to_vec(), endian.u16(0).to_vec(), vec![0xff; 8]].concat();
    let mut file = naive_block(endian, 0x0a0d_0d0a, &header);
    for (resolution, _) in resolutions {
        let resolution = [&endian.u16(9)[..], &endian.u16(1), &[*resolution, 0, 0, 0]].concat();
        let body = [&endian.u16(1)[..], &endian.u16(0), &endian.words(&[0]), &resolution].concat();
        file.extend(naive_block(endian, 1, &body));
        file.extend(&unknown);
    }
    for frame in frames {
        let id = frame.interface as usize % resolutions.len();
        let ticks = frame.time.0 / resolutions[id].1;
        let id =
            if obsolete { [endian.u16(id as u16), endian.u16(7)].concat() } else { endian.u32(id as u32).to_vec() };
        let rest = endian.words(&[(ticks >> 32) as u32, ticks as u32, frame.bytes.len() as u32, frame.wire]);
        let body = [&id[..], &rest, &frame.bytes].concat();
        file.extend(naive_block(endian, if obsolete { 2 } else { 6 }, &body));
        file.extend(&unknown);
    }
    file
}

/// Frames whose times are whole microseconds below 2^32 seconds, so that every format can hold them.
fn frames(interfaces: u16) -> impl Strategy<Value = Vec<Frame>> {
    let length = prop_oneof![8 => 0..100usize, 2 => 100..3000usize, 1 => 60_000..80_000usize];
    let micros = 0..u64::from(u32::MAX) * 1_000_000;
    let frame = (micros, length, any::<u8>(), any::<u32>(), 0..interfaces, any::<bool>());
    let frame = frame.prop_map(|(micros, length, fill, wire, interface, outgoing)| Frame {
        time: Nanos(micros * 1000),
        wire,
        interface,
        flags: if outgoing { Flags::OUTGOING } else { Flags::NONE },
        bytes: (0..length).map(|n| fill.wrapping_add(n as u8)).collect(),
    });
    proptest::collection::vec(frame, 0..40)
}

fn interfaces() -> Vec<Interface> {
    let mut first = Interface::new("left ü", LinkType::ETHERNET, StampSource::File);
    first.snap = 9000;
    let mut second = Interface::new("", LinkType::RAW, StampSource::File);
    second.description = "an unnamed one".into();
    vec![first, second, Interface::new("x", LinkType(65_535), StampSource::File)]
}

/// Returns what a format without flags and interfaces keeps.
fn bare(frames: &[Frame]) -> Vec<Frame> {
    frames.iter().map(|frame| Frame { flags: Flags::NONE, interface: 0, ..frame.clone() }).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn pcapng_round_trips(frames in frames(3), most in 1..50usize, odd in 0..1000u64) {
        let frames: Vec<Frame> =
            frames.into_iter().map(|frame| Frame { time: Nanos(frame.time.0 + odd), ..frame }).collect();
        let content = read_bytes(&write(&frames, &interfaces(), Format::Pcapng, most));
        prop_assert!(content.error.is_none());
        prop_assert_eq!(content.frames.len(), frames.len());
        for (found, written) in content.frames.iter().zip(&frames) {
            let interface = &content.interfaces[usize::from(found.interface)];
            prop_assert_eq!(interface, &interfaces()[usize::from(written.interface)]);
            prop_assert_eq!(&Frame { interface: written.interface, ..found.clone() }, written);
        }
    }

    #[test]
    fn pcap_round_trips(frames in frames(1), most in 1..50usize, odd in 0..1000u64) {
        let frames: Vec<Frame> =
            frames.into_iter().map(|frame| Frame { time: Nanos(frame.time.0 + odd), ..frame }).collect();
        let content = read_bytes(&write(&frames, &interfaces(), Format::Pcap, most));
        prop_assert!(content.error.is_none());
        prop_assert_eq!(content.frames, bare(&frames));
    }

    #[test]
    fn every_kind_of_pcap_reads_the_same(frames in frames(1), big: bool, step in 1..100usize) {
        let endian = Endian { big };
        for magic in [0xa1b2_c3d4, 0xa1b2_3c4d] {
            let content = read(Cursor::new(naive_pcap(&frames, magic, endian)), step);
            prop_assert!(content.error.is_none());
            prop_assert_eq!(content.frames, bare(&frames));
        }
        let content = read(Cursor::new(naive_pcap(&frames, 0xa1b2_cd34, endian)), step);
        prop_assert_eq!(content.frames, frames);
    }

    #[test]
    fn every_kind_of_pcapng_reads_the_same(frames in frames(4), big: bool, obsolete: bool, step in 1..100usize) {
        let resolutions = [(6, 1000), (9, 1), (7, 100)];
        let first = naive_section(&frames, Endian { big }, &resolutions, obsolete);
        let second = naive_section(&frames, Endian { big: !big }, &resolutions[..1], !obsolete);
        let content = read(Cursor::new([first, second].concat()), step);
        prop_assert!(content.error.is_none(), "{:?}", content.error);
        prop_assert_eq!(content.interfaces.len(), 4);
        prop_assert_eq!(bare(&content.frames), bare(&[frames.clone(), frames.clone()].concat()));
        let expected = frames.iter().map(|frame| frame.interface % 3).chain(frames.iter().map(|_| 3));
        prop_assert!(content.frames.iter().map(|frame| frame.interface).eq(expected));
    }

    #[test]
    fn a_slow_source_reads_the_same(frames in frames(3), step in 1..200usize, classic: bool) {
        let format = if classic { Format::Pcap } else { Format::Pcapng };
        let bytes = write(&frames, &interfaces()[..1], format, 9);
        let at_once = read_bytes(&bytes);
        let slowly = read(Slow { bytes: Cursor::new(bytes), step }, step);
        prop_assert!(slowly.error.is_none() && at_once.error.is_none());
        prop_assert_eq!(slowly.frames, at_once.frames);
    }

    #[test]
    fn truncation_leaves_the_complete_frames(frames in frames(2), big: bool, share in 0.0..1.0f64) {
        let file = naive_pcap(&frames, 0xa1b2_c3d4, Endian { big });
        let cut = 24 + ((file.len() - 24) as f64 * share) as usize;
        let mut end = 24;
        let ends: Vec<usize> = frames.iter().map(|frame| { end += 16 + frame.bytes.len(); end }).collect();
        let complete = ends.iter().filter(|end| **end <= cut).count();
        let content = read_bytes(&file[..cut]);
        prop_assert_eq!(content.frames, bare(&frames[..complete]));
        let clean = cut == 24 || ends.contains(&cut);
        prop_assert_eq!(matches!(content.error, Some(ReadError::CutOff { .. })), !clean);
    }

    #[test]
    fn any_damage_ends_without_panic(
        frames in frames(3),
        kind in 0..6u8,
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
        cut in any::<prop::sample::Index>(),
        step in 1..5000usize,
    ) {
        let endian = Endian { big: kind % 2 == 0 };
        let mut file = match kind {
            0 | 1 => naive_pcap(&frames, 0xa1b2_cd34, endian),
            2 | 3 => naive_section(&frames, endian, &[(0x86, 1), (255, 1)], false),
            4 => write(&frames, &interfaces(), Format::Pcapng, 5),
            _ => naive_section(&frames, endian, &[(6, 1)], true),
        };
        for (place, value) in damage {
            // Most of a file is frames: half of the damage goes to its first bytes.
            let reach = if value % 2 == 0 { file.len() } else { file.len().min(300) };
            let at = place.index(reach);
            file[at] = value;
        }
        file.truncate(file.len() - cut.index(file.len()) / 4);
        let length = file.len();
        let content = read(Slow { bytes: Cursor::new(file), step: step.max(length / 200) }, 1 + step % 7);
        prop_assert!(content.frames.len() <= length / 16);
    }
}

#[test]
fn simple_packet_has_the_time_of_the_previous_frame() {
    let endian = Endian { big: true };
    let frame = Frame { time: Nanos(5_000), wire: 3, interface: 0, flags: Flags::NONE, bytes: b"abc".to_vec() };
    let mut file = naive_section(&[], endian, &[(6, 1000)], false);
    let simple = naive_block(endian, 3, &[&endian.words(&[4])[..], b"wxyz"].concat());
    file.extend(&simple);
    file.extend(&naive_section(std::slice::from_ref(&frame), endian, &[(6, 1000)], false)[28..]);
    let mut content = read_bytes(&file);
    assert_eq!(content.error.map(|error| error.to_string()), None);
    assert_eq!((content.frames[0].time, content.frames[0].bytes.as_slice()), (Nanos::ZERO, &b"wxyz"[..]));
    file.extend(&simple);
    content = read_bytes(&file);
    assert_eq!((content.frames[1].time, content.frames[2].time), (Nanos(5_000), Nanos(5_000)));
}

#[test]
fn oversized_unknown_block_is_skipped_or_reported_truncated() {
    let endian = Endian { big: false };
    let frame = Frame { time: Nanos(0), wire: 3, interface: 0, flags: Flags::NONE, bytes: b"abc".to_vec() };
    let mut file = naive_section(std::slice::from_ref(&frame), endian, &[(6, 1000)], false);
    let whole = file.len();
    file.extend(naive_block(endian, 0x0bad, &vec![0; 3 << 20]));
    file.extend(naive_section(&[frame], endian, &[(6, 1000)], false));
    assert_eq!(read_bytes(&file).frames.len(), 2);
    file.truncate(whole);
    file.extend(endian.words(&[0x0bad, 0xffff_fff0]));
    let content = read_bytes(&[file, vec![0; 100]].concat());
    assert_eq!(content.frames.len(), 1);
    let cut =
        matches!(content.error, Some(ReadError::CutOff { frames: 1, needed, present: 0, .. }) if needed > 4 << 29);
    assert!(cut, "{:?}", content.error);
}

#[test]
fn a_frame_longer_than_its_block_is_damage() {
    let endian = Endian { big: true };
    let start = naive_section(&[], endian, &[(6, 1)], false);
    let enhanced = |captured| naive_block(endian, 6, &[endian.words(&[0, 0, 5, captured, 9]), vec![7; 8]].concat());
    let simple = |wire| naive_block(endian, 3, &[endian.words(&[wire]), vec![7; 8]].concat());
    let obsolete = |captured| naive_block(endian, 2, &[endian.words(&[0, 0, 5, captured, 9]), vec![7; 8]].concat());
    for (block, whole) in [
        (enhanced(8), true),
        (enhanced(9), false),
        (simple(8), true),
        (simple(9), false),
        (obsolete(8), true),
        (obsolete(9), false),
    ] {
        let content = read_bytes(&[&start[..], &block, &enhanced(1)].concat());
        assert_eq!(content.frames.len(), if whole { 2 } else { 0 });
        let text = content.error.map(|error| error.to_string()).unwrap_or_default();
        let place = format!("damaged at byte {}: packet of 9 bytes in a block with room for 8", start.len());
        assert_eq!(text.contains(&place), !whole, "{text}");
    }
    let stray = naive_block(endian, 6, &[endian.words(&[1, 0, 5, 8, 9]), vec![7; 8]].concat());
    let error = read_bytes(&[start, stray].concat()).error.unwrap().to_string();
    assert!(error.contains("packet of interface 1 in a section with 1 interfaces"), "{error}");
}
