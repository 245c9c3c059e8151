//! The reader in C sees the frames, numbers and layout that the program shares.

use crate::share::fixtures::{
    Feed, SANITIZERS, accounts, assert_all, cat_into, compile, frames, into_file, number, ring_cat, ring_name, root,
    share_file, wait_for_frames,
};
use linerate_burst::slot::Header;
use linerate_burst::{Desc, Flags, Layout};
use linerate_tests::support::frames::sample;
use linerate_tests::support::records::{self, Record};
use linerate_tests::support::{Scratch, corpus, has_tools, skip, tool};
use std::mem::offset_of;
use std::process::Command;

/// Shares `file`; returns the file that the program wrote and the copy by the reader in C.
fn written_by_both(scratch: &Scratch, file: &str) -> (Vec<u8>, Vec<u8>) {
    let (name, own, copy) = (ring_name(), scratch.file("own.pcap"), scratch.file("copy.pcap"));
    let writer = share_file(file, &name, 1, &["-w", &own]);
    cat_into(&copy, &["-l", "-w", &name]).end().good().says("0 skipped, 0 bad: the writer has ended");
    let json = writer.end().good().json();
    assert_eq!(accounts(&json)[0].finished, json["frames"].as_u64().unwrap());
    (std::fs::read(own).unwrap(), std::fs::read(copy).unwrap())
}

#[test]
fn pcap_output_equals_the_input() {
    let scratch = Scratch::new();
    let file = scratch.file("in.pcap");
    for sample in [sample(), frames(0..40_000)] {
        records::write(&file, &sample);
        let (own, copy) = written_by_both(&scratch, &file);
        assert!(copy == std::fs::read(&file).unwrap() && copy == own);
    }
}

#[test]
fn pcap_output_of_real_traffic_equals_the_program() {
    let Some(file) = corpus("real-mix.pcap") else { return };
    let (own, copy) = written_by_both(&Scratch::new(), file.to_str().unwrap());
    assert!(own == copy && own.len() > 1 << 20);
}

/// The reader writes blocks unchanged after a file header.
#[test]
fn tcpdump_reads_the_body_of_a_block() {
    if !has_tools(&["tcpdump"]) {
        return;
    }
    let scratch = Scratch::new();
    let (file, again) = (scratch.file("in.pcap"), scratch.file("again.pcap"));
    records::write(&file, &sample());
    let (_, copy) = written_by_both(&scratch, &file);
    let body = scratch.file("copy.pcap");
    tool("tcpdump", &["-r", &body, "--time-stamp-precision=nano", "-Z", "root", "-w", &again]);
    assert_eq!(records::read(&again), sample());
    assert!(std::fs::read(&again).unwrap()[24..] == copy[24..]);
}

#[test]
fn text_output_has_each_frame_and_its_flow_hash() {
    let scratch = Scratch::new();
    let (name, file, output) = (ring_name(), scratch.file("in.pcap"), scratch.file("lines"));
    // Sorted by time, so that no frame is late.
    let sample: Vec<Record> = [frames(0..500), sample().split_off(1)].concat();
    records::write(&file, &sample);
    let writer = share_file(&file, &name, 1, &["--slice", "64"]);
    cat_into(&output, &["-l", &name]).end().good();
    writer.end().good();
    let text = std::fs::read_to_string(output).unwrap();
    let mut hashes = std::collections::BTreeMap::new();
    for (line, record) in text.lines().zip(&sample) {
        let (seconds, nanos) = (record.time / 1_000_000_000, record.time % 1_000_000_000);
        let captured = record.bytes.len().min(64);
        let flags = if captured < record.bytes.len() { 0x100 } else { 0 };
        let head =
            format!("{seconds}.{nanos:09} - captured {captured} wire {} flags {flags:#06x} hash 0x", record.wire);
        let hash = line.strip_prefix(&head).unwrap_or_else(|| panic!("{line:?} does not begin with {head:?}"));
        if record.bytes.len() >= 60 && record.bytes[26] == 10 && record.bytes[34..38].contains(&53) {
            let mut ends = [&record.bytes[26..30], &record.bytes[30..34]];
            ends.sort();
            assert_eq!(hashes.entry((ends.concat(), record.bytes[13])).or_insert(hash.to_owned()), hash, "{line}");
        }
    }
    assert_eq!(text.lines().count(), sample.len());
    assert!(hashes.len() >= 61 && hashes.values().all(|hash| hash != "00000000"));
}

#[test]
fn lossy_c_reader_reports_skipped_frames() {
    let scratch = Scratch::new();
    let (name, output) = (ring_name(), scratch.file("out.pcap"));
    let mut feed = Feed::start(&name, 1, &["--share-memory", "2MiB", "--share-block", "512KiB"]);
    let reader = cat_into(&output, &["-w", "-q", "2", &name]);
    feed.send(10);
    wait_for_frames(&output, 10);
    reader.signal(rustix::process::Signal::STOP);
    feed.send(60_000);
    reader.signal(rustix::process::Signal::CONT);
    let pid = reader.pid();
    let json = feed.end().good().json();
    let ended = reader.end().good();
    let account = crate::share::fixtures::account_of(&json, pid);
    let got = records::read(&output);
    assert!(account.skipped > 10_000 && account.waits == 0, "{account:?}");
    assert_eq!(got.len() as u64 + account.skipped, 60_010);
    assert!(ended.errors.contains(&format!("{} frames, {} skipped", got.len(), account.skipped)), "{}", ended.errors);
    assert!(got.windows(2).all(|pair| number(&pair[0]) < number(&pair[1])));
    assert!(got.iter().all(|record| *record == crate::share::fixtures::frame(number(record))));
    assert_all("before the stop", &got[..10], 0..10);
}

#[test]
fn layout_of_blocks_equals_the_library() {
    macro_rules! lines {
        ($kind:ident, $name:literal, $($field:ident)+) => {
            [vec![format!("{} {}", $name, size_of::<$kind>())],
             vec![$(format!("{}.{} {}", $name, stringify!($field), offset_of!($kind, $field))),+]].concat()
        };
    }
    let header = lines!(Header, "block", magic version header_bytes sequence first_time first_index descs body link flags
        committed used last_time horizon drops late duplicates sliced closed);
    let desc = lines!(Desc, "desc", time offset captured wire interface flags l3 l4 note hash);
    let layout = tool(ring_cat().to_str().unwrap(), &["-L"]);
    assert_eq!(layout.lines().collect::<Vec<_>>(), [header, desc].concat());
}

/// The document of the format, the C header, and the Python package list the same flags.
#[test]
fn documented_flags_equal_the_library() {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).unwrap();
    type Row = fn(&str, u16) -> String;
    let rows: [(&str, Row); 3] = [
        ("docs/block-ring.md", |name, bit| format!("\n| {bit} | `{name}` | ")),
        ("c/linerate_ring.h", |name, bit| {
            format!("\n    LINERATE_{} = 1 << {},", name.to_uppercase(), bit.trailing_zeros())
        }),
        ("python/linerate/layout.py", |name, bit| format!("\n    \"{name}\": 1 << {},", bit.trailing_zeros())),
    ];
    for (path, row) in rows {
        let text = read(path);
        let missing =
            Flags::NAMES.iter().map(|(flag, name)| row(name, flag.0)).find(|row| !text.contains(row.as_str()));
        assert_eq!(missing, None, "{path}");
    }
}

#[test]
fn short_example_counts_frames() {
    let scratch = Scratch::new();
    let (name, file, output) = (ring_name(), scratch.file("in.pcap"), scratch.file("counts"));
    records::write(&file, &frames(0..10_000));
    let Ok(program) = compile("ring_count", "ring_count.c", &SANITIZERS) else {
        return skip("the compiler has no sanitizers");
    };
    let writer = share_file(&file, &name, 1, &["--share-memory", "64MiB"]);
    into_file(Command::new(program), &output, &[&name]).end().good();
    writer.end().good();
    let bytes: usize = frames(0..10_000).iter().map(|record| record.bytes.len()).sum();
    assert_eq!(std::fs::read_to_string(output).unwrap(), format!("a file: 10000 frames, {bytes} bytes\n0 skipped\n"));
    let source = std::fs::read_to_string(root().join("examples/c/ring_count.c")).unwrap();
    assert!(source.lines().count() < 60);
}

/// Checks the layout outside of blocks in a live ring.
#[test]
fn layout_of_a_live_ring_is_read() {
    let scratch = Scratch::new();
    let (name, file) = (ring_name(), scratch.file("some.pcap"));
    records::write(&file, &frames(0..10));
    let mut feed = Feed::start(&name, 0, &["--share-memory", "6MiB", "--share-block", "1MiB", "--share-small-pages"]);
    feed.send(5);
    let look = || tool(ring_cat().to_str().unwrap(), &["-i", &name]);
    linerate_tests::support::wait_until("frames are committed", || look().contains("interface 0"));
    let shown = look();
    let value = |field: &str| -> u64 {
        let line = shown.lines().find_map(|line| line.strip_prefix(&format!("arena.{field} ")));
        line.unwrap_or_else(|| panic!("no {field} in {shown}")).parse().unwrap()
    };
    let layout = Layout::slot(1 << 20).unwrap();
    let (mib, pid) = (1 << 20, u64::from(feed.running.pid()));
    for (field, wanted) in [
        ("byte_order", 0x0102_0304),
        ("major", 1),
        ("minor", 1),
        ("header_bytes", 4096),
        ("interface_offset", 4096),
        ("interface_bytes", 512),
        ("interface_room", 1024),
        ("slots", 6),
        ("slots_offset", 2 * mib),
        ("slot_bytes", mib),
        ("arena_bytes", 8 * mib),
        ("frames", layout.frames() as u64),
        ("body", layout.body() as u64),
        ("page_bytes", 4096),
        ("node", u64::from(u32::MAX)),
        ("writer", pid),
        ("drops", 0),
        ("state", 1),
        ("interfaces", 1),
    ] {
        assert_eq!(value(field), wanted, "{field}");
    }
    let now = linerate_engine::clock::now().0;
    assert!(value("start") <= value("heartbeat") && value("heartbeat") <= now && now - value("start") < 60_000_000_000);
    assert_eq!(value("horizon"), crate::share::fixtures::frame(4).time);
    assert!(shown.contains("interface 0 link 1 stamp 4 snap 262144 name "), "{shown}");
    feed.end().good();
}

#[test]
fn errors_name_the_cause() {
    let program = ring_cat().to_str().unwrap();
    for (arguments, status, part) in [
        (&["nobody-shares-this"][..], 1, "no writer shares it"),
        (&["/nowhere/ring"], 1, "no writer shares it"),
        (&[], 2, "usage"),
        (&["-x", "ring"], 2, "usage"),
    ] {
        let ended = Command::new(program).args(arguments).output().unwrap();
        let errors = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.code() == Some(status) && errors.contains(part), "{arguments:?}: {errors}");
    }
}

#[test]
fn header_compiles_as_cpp() {
    if !has_tools(&["c++"]) {
        return;
    }
    let scratch = Scratch::new();
    let (source, object) = (scratch.file("user.cc"), scratch.file("user.o"));
    std::fs::write(
        &source,
        "#include \"linerate_ring.h\"\nint f(linerate_ring *ring) { return linerate_end(ring); }\n",
    )
    .unwrap();
    let folder = root().join("c");
    let flags = ["-std=c++11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-c", "-I", folder.to_str().unwrap()];
    tool("c++", &[&flags[..], &["-o", &object, &source]].concat());
}
