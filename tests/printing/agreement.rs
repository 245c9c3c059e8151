//! Lines compared with tcpdump's for every frame of the corpus: time, addresses, ports, ARP requests, flags, numbers,
//! window, options and length of TCP, length of UDP. Text for upper protocols is not compared; for protocols that
//! linerate does not print, only addresses and ports are.
//!
//! `LINERATE_CORPUS` is the corpus; without it, or without tcpdump, the test is skipped with a note.

use linerate_tests::support::program::linerate;
use linerate_tests::support::records::{self, Record};
use linerate_tests::support::{Scratch, corpus, files, has_peers, has_tools};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

/// Minimum number of lines compared.
const AT_LEAST: usize = 95_000;

/// Captures for which both programs print different frames, and why.
const OTHER_FRAMES: &[(&str, &str)] = &[
    ("atm-oam-loopback-print-overrun", "tcpdump prints a frame of ATM without its time"),
    ("bgp_vpn_rt-oobr", SHOWN_BEFORE),
    ("icmp-icmp_print-oobr-2", SHOWN_BEFORE),
    ("icmp6_mobileprefix_asan", SHOWN_BEFORE),
    ("olsr-oobr-2", SHOWN_BEFORE),
    ("pim_header_asan-2", SHOWN_BEFORE),
    ("rsvp-rsvp_obj_print-oobr", SHOWN_BEFORE),
    ("rx_serviceid_oobr", SHOWN_BEFORE),
    ("vtp_asan", SHOWN_BEFORE),
    ("timestamp_invalid", SHOWN_BEFORE),
    ("time_20", BEYOND),
    ("time_2106", BEYOND),
];
/// Captures whose times tcpdump cannot print, or prints with more than 999,999 microseconds.
const OTHER_TIMES: [&str; 2] = ["time_21", "timestamp_invalid"];
const SHOWN_BEFORE: &str =
    "captured lengths exceed wire lengths, or times are invalid: tcpdump prints an error instead";
const BEYOND: &str = "tcpdump prints times from 2038 on as negative, and those from 2106 on without their upper bits";

/// Text in tcpdump's line, text in linerate's line, and the reason for the difference.
const DIFFERENCES: &[(&str, &str, &str)] = &[
    ("bad-len 0", "", "segmentation offload leaves a length of 0, which means all remaining bytes"),
    ("[|udp]", "", "the same for IPv6: a jumbogram or offload"),
    ("[|tcp]", "", "tcpdump prints the available part of a truncated header; linerate prints only the truncation"),
    ("bad opt", "", "tcpdump prints no length after a bad option, and decodes options beyond RFC 9293"),
    ("Unknown (", "operation ", "unknown ARP operation"),
    ("(len ", "ARP, hardware type ", "ARP for networks other than Ethernet and IPv4"),
    ("", "e]", "linerate prints the AE flag of accurate ECN, as tcpdump 5 does"),
];

/// Every file of this many is compared in `make test`.
const SOME: usize = 8;

#[test]
fn corpus_lines_match_tcpdump() {
    let Some(folder) = corpus(".") else { return };
    if !has_tools(&["tcpdump"]) {
        return;
    }
    let mut tally = Tally::default();
    let each = if has_peers() { 1 } else { SOME };
    for path in files(&folder).into_iter().step_by(each) {
        if path.extension().is_some_and(|end| end == "pcap" || end == "pcapng" || end == "cap") {
            tally.compare(&path);
        }
    }
    let Tally { compared, same, wrong, counts } = &tally;
    println!("{compared} lines compared, {same} of them identical");
    assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong[..wrong.len().min(30)].join("\n"));
    if each > 1 {
        return println!("make test-peers compares all files");
    }
    assert!(*compared > AT_LEAST, "only {compared} lines were compared");
    let unused: Vec<_> = DIFFERENCES.iter().enumerate().filter(|(row, _)| !counts.contains_key(row)).collect();
    assert!(unused.is_empty(), "rows without a difference: {unused:?}");
}

/// LLC headers with all access points and control fields, and BPDUs and DNS messages of many lengths: all lines are
/// identical.
#[test]
fn short_and_rare_frames_match_tcpdump() {
    if !has_tools(&["tcpdump"]) {
        return;
    }
    let scratch = Scratch::new();
    let file = scratch.file("rare.pcap");
    let records = rare_frames().into_iter().map(|bytes| Record {
        time: 1_700_000_000_000_000_000,
        wire: bytes.len() as u32,
        bytes,
    });
    records::write(&file, &records.collect::<Vec<_>>());
    for options in [&["-tt", "-n", "-r"][..], &["-tt", "-n", "-e", "-r"]] {
        let theirs = lines(Command::new("tcpdump").args(options).arg(&file));
        let ours = lines(&mut linerate(&[&["capture"], options, &[&file]].concat()));
        assert_eq!(theirs.len(), ours.len());
        // tcpdump does not name a BPDU without a complete header.
        let named = |line: &str| line.replace("  (invalid)", " STP (invalid)");
        for (their, our) in theirs.iter().zip(&ours) {
            assert_eq!(named(their), *our);
        }
    }
}

fn rare_frames() -> Vec<Vec<u8>> {
    let llc = |content: &[u8]| {
        let length = (content.len() as u16).to_be_bytes();
        let mut frame = [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1], &length[..], content].concat();
        frame.resize(frame.len().max(60), 0);
        frame
    };
    // Skips the SAP of IP, which is IP with any control field; two bytes of 0xff are IPX without LLC.
    let points = (0..=254).filter(|point| point & 0xfe != 6);
    let mut frames: Vec<_> =
        points.flat_map(|point| [llc(&[point, point, 1, 2]), llc(&[point, point, 0x7f])]).collect();
    for control in 0..=255 {
        frames.push(llc(&[0xf0, 0x81, control, 0x13, 0x81, 1, 2]));
        frames.push(llc(&[0xbc, 0xbd, control, 0x12, 1]));
    }
    for (version, kind) in (0..6).flat_map(|version| [0, 2, 0x80, 3].map(|kind| (version, kind))) {
        let unit = [&[0, 0, version, kind, 0x72][..], &[1; 30], &[0, 0, 64], &[1; 80]].concat();
        // The bytes after the MST instances are mandatory in IEEE 802.1aq.
        let lengths = [0, 3, 4, 5, 34, 35, 36, 101, 102, 110];
        let lengths = lengths.iter().filter(|length| version != 4 || **length < 102);
        frames.extend(lengths.map(|length| llc(&[&[0x42, 0x42, 3][..], &unit[..*length]].concat())));
        frames.push(llc(&[&[0x42, 0x43, 3, 1][..], &unit[1..36]].concat()));
    }
    let message = [0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for (ports, length) in
        [[40_000u16, 53], [53, 40_000], [5353, 5353]].into_iter().flat_map(|ports| (0..12).map(move |n| (ports, n)))
    {
        let [total, udp_length] = [28 + length as u16, 8 + length as u16].map(u16::to_be_bytes);
        let ip = [&[0x45, 0], &total[..], &[0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]].concat();
        let udp = [&ports.map(u16::to_be_bytes).concat()[..], &udp_length, &[0, 0]].concat();
        frames.push([&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0], &ip[..], &udp, &message[..length]].concat());
    }
    frames
}

#[derive(Default)]
struct Tally {
    compared: usize,
    same: usize,
    wrong: Vec<String>,
    /// Number of matches of each row of [`DIFFERENCES`].
    counts: BTreeMap<usize, usize>,
}

impl Tally {
    fn compare(&mut self, path: &Path) {
        let name = path.to_string_lossy();
        let theirs = lines(Command::new("tcpdump").args(["-tt", "-n", "-r", &name]));
        let ours = lines(&mut linerate(&["capture", "-tt", "-n", "-r", &name]));
        if theirs.len() != ours.len() {
            if !OTHER_FRAMES.iter().any(|(known, _)| name.contains(known)) {
                self.wrong.push(format!("{name}: {} lines of tcpdump, {} of ours", theirs.len(), ours.len()));
            }
            return;
        }
        for (their, our) in theirs.iter().zip(&ours) {
            self.same += usize::from(their == our);
            let (Some(theirs), Some(ours)) = (Fields::of(their), Fields::of(our)) else { continue };
            self.compared += 1;
            if theirs.agrees(&ours) {
                continue;
            }
            let explains = |(one, other, _): &(&str, &str, &str)| their.contains(one) && our.contains(other);
            match DIFFERENCES.iter().position(explains) {
                Some(row) => *self.counts.entry(row).or_default() += 1,
                None if OTHER_TIMES.iter().any(|known| name.contains(known)) => {}
                None => self.wrong.push(format!("{name}\n  {their}\n  {our}")),
            }
        }
    }
}

/// Runs a command and returns its lines that begin with a time.
fn lines(command: &mut Command) -> Vec<String> {
    let output = command.stdin(Stdio::null()).output().expect("a running program");
    let text = String::from_utf8_lossy(&output.stdout);
    let has_time = |line: &&str| {
        let (second, rest) = line.split_once('.').unwrap_or_default();
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        digits(second) && rest.get(..6).is_some_and(digits)
    };
    text.lines().filter(has_time).map(|line| line.trim_end().to_owned()).collect()
}

/// Compared parts of a line.
#[derive(Debug, PartialEq)]
struct Fields<'a> {
    time: &'a str,
    network: &'a str,
    /// Both addresses, or the rest of an ARP line.
    ends: &'a str,
    /// TCP text up to the length, or the UDP length.
    transport: Option<String>,
}

impl<'a> Fields<'a> {
    fn of(line: &'a str) -> Option<Self> {
        let (time, rest) = line.split_once(' ')?;
        // An interface name may be between them.
        let (network, rest) = ["IP ", "IP6 ", "ARP, "].into_iter().find_map(|network| {
            let inside = format!(" {network}");
            let rest = rest.strip_prefix(network).or_else(|| {
                let (interface, rest) = rest.split_once(&inside)?;
                (!interface.contains(' ')).then_some(rest)
            })?;
            Some((network, rest))
        })?;
        if network == "ARP, " {
            return Some(Fields { time, network, ends: rest, transport: None });
        }
        let rest = match rest.strip_prefix("truncated-ip").and_then(|rest| rest.split_once(" bytes missing!")) {
            Some((_, rest)) => rest.trim_start(),
            None => rest,
        };
        let ends = rest.find(": ").map_or(rest, |at| &rest[..at]).trim_end_matches(':');
        let rest_of_line = rest[ends.len()..].trim_start_matches(':').trim();
        let transport = match () {
            () if rest_of_line.starts_with("Flags [") => Some(tcp(rest_of_line)),
            () if rest_of_line.starts_with("UDP, ") => {
                Some(rest_of_line.split(':').next().unwrap_or_default().to_owned())
            }
            () => None,
        };
        Some(Fields { time, network, ends, transport })
    }

    fn agrees(&self, other: &Self) -> bool {
        let heads = |this: &Self| (this.time.to_owned(), this.network.to_owned(), this.ends.to_owned());
        let transports = match (&self.transport, &other.transport) {
            (Some(one), Some(other)) => one == other,
            // Only one program prints the upper protocol.
            (one, other) => [one, other].into_iter().flatten().all(|text| text.starts_with("UDP, ")),
        };
        heads(self) == heads(other) && transports
    }
}

/// Flags, numbers, window, options and length, without options that only tcpdump decodes.
fn tcp(text: &str) -> String {
    let (head, rest) = text.split_once(", options [").unwrap_or((text, ""));
    let end = |text: &str| {
        let at = text.find(", length ").map_or(text.len(), |at| at + ", length ".len());
        let digits = text[at..].find(|c: char| !c.is_ascii_digit()).map_or(text.len(), |more| at + more);
        text[..digits].to_owned()
    };
    let Some((options, rest)) = rest.split_once("], length ") else { return end(head) };
    let own = ["mptcp", "exp-", "tfo", "unknown", "tcp-ao", "uto", "md5", "scps"];
    let options = if own.iter().any(|name| options.contains(name)) { "" } else { options };
    format!("{head} [{options}]{}", end(&format!(", length {rest}")))
}
