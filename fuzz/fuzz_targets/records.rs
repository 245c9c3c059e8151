//! Any frames become records that are written in every format: one JSON line each, with the counts of the flow, and
//! Parquet rows equal to the lines.
#![no_main]

use libfuzzer_sys::fuzz_target;
use linerate_burst::{Block, Desc, Nanos};
use linerate_export::encode;
use linerate_headers::Link;
use linerate_meter::{Config, Flow, Level, Meter, Tunnels};
use rustix::fs::{MemfdFlags, memfd_create};
use serde_json::Value;
use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::AsRawFd;
use std::path::PathBuf;

#[path = "../../tests/columns/rows.rs"]
#[allow(dead_code)]
mod rows;

fuzz_target!(|bytes: &[u8]| {
    let Some((frames, &[choice, more])) = bytes.split_last_chunk::<2>() else { return };
    let flows = metered(frames, choice, more);
    let lines = lines("jsonl", &flows);
    for (line, flow) in lines.iter().zip(&flows) {
        assert_eq!(line["orig"]["packets"], flow.sides[0].packets);
        assert_eq!(line["resp"]["frame_bytes"], flow.sides[1].frame_bytes);
        assert_eq!(line["id"], format!("{:016x}", flow.id));
    }
    for (line, flow) in self::lines("zeek", &flows).iter().zip(&flows) {
        assert_eq!(line["orig_pkts"], flow.sides[0].packets);
        assert_eq!(line["id.resp_h"], flow.ends[1].address.to_string());
    }
    // Slow, so only for some inputs.
    if more & 7 == 0 && !flows.is_empty() {
        let file = File::from(memfd_create("rows", MemfdFlags::CLOEXEC).unwrap());
        encode("parquet", &flows, Box::new(file.try_clone().unwrap())).unwrap();
        let rows = rows::read(&PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd())));
        let lines = lines.iter().map(rows::flat);
        assert_eq!(lines.map(rounded).collect::<Vec<_>>(), rows.into_iter().map(rounded).collect::<Vec<_>>());
    }
});

/// Returns the records of the frame unchanged, reversed, changed, truncated, and at other times.
fn metered(frame: &[u8], choice: u8, more: u8) -> Vec<Flow> {
    let level = [Level::Counters, Level::Tcp, Level::Stats][usize::from(choice % 3)];
    let tunnels = [Tunnels::Outer, Tunnels::Inner, Tunnels::Both][usize::from(choice / 3 % 3)];
    let (macs, vlans, checksums) = (choice & 64 != 0, choice & 128 != 0, more & 8 != 0);
    let timed = Config::default().with_timeouts(Nanos(3_000_000_000), Nanos(9_000_000_000));
    let config = Config { max_flows: 4, level, tunnels, macs, vlans, checksums, packets: more.into(), ..timed };
    let mut block = Block::new(1 << 16, 16);
    let mut time = 1_700_000_000_000_000_000u64;
    for (number, byte) in frame.iter().take(16).enumerate() {
        let mut changed = frame.to_vec();
        if number % 3 == 1 {
            changed[usize::from(*byte) % frame.len()] ^= 1 << (number % 8);
        }
        if number % 2 == 1 && changed.len() >= 38 {
            // The reverse direction, if this is plain IPv4.
            (26..30).for_each(|place| changed.swap(place, place + 4));
            (34..36).for_each(|place| changed.swap(place, place + 2));
        }
        let captured = if number % 7 == 6 { changed.len().div_ceil(2) } else { changed.len() };
        // Sometimes at the end of time, which in Parquet is in 2262.
        let far = if *byte == 0x80 { 5 << 60 } else { 0 };
        time = (time + far).saturating_add_signed(i64::from(*byte as i8) * 40_000_000).min(i64::MAX as u64);
        let desc = Desc { wire: changed.len() as u32, ..Desc::new(Nanos(time), 0, captured as u32) };
        block.push(&desc, &changed[..captured]);
    }
    let (mut meter, mut flows) = (Meter::new(&config), Vec::new());
    meter.take(block.burst(), &[Some(Link::Ethernet)], &mut |flow: &Flow| flows.push(flow.clone()));
    let latest = meter.latest();
    meter.finish(latest, &mut |flow: &Flow| flows.push(flow.clone()));
    flows
}

/// Rounds fractions, since JSON does not keep their last bit.
fn rounded(mut row: rows::Row) -> rows::Row {
    for value in row.values_mut().filter(|value| value.is_f64()) {
        *value = format!("{:.9e}", value.as_f64().unwrap_or_default()).into();
    }
    row
}

/// Returns the lines of a format, one per record.
fn lines(form: &str, flows: &[Flow]) -> Vec<Value> {
    let mut file = File::from(memfd_create("lines", MemfdFlags::CLOEXEC).unwrap());
    encode(form, flows, Box::new(file.try_clone().unwrap())).unwrap();
    let mut text = String::new();
    file.rewind().unwrap();
    file.read_to_string(&mut text).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), flows.len());
    lines
}
