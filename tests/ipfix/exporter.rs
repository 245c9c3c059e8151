//! IPFIX and NetFlow v9 compared with JSON of the same capture.

use super::{SEED, directions, flows_of, mix, python, sum};
use linerate_tests::support::program::{Ended, linerate, run, spawn};
use linerate_tests::support::{Scratch, files, has_tools, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};

/// Returns an unused local port below the ephemeral range.
pub(super) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    loop {
        let port = 12_000
            + (std::process::id() as u16).wrapping_mul(16) % 16_000
            + NEXT.fetch_add(1, Ordering::Relaxed) % 4000;
        let at = (Ipv4Addr::LOCALHOST, port);
        if UdpSocket::bind(at).is_ok() && TcpListener::bind(at).is_ok() {
            return port;
        }
    }
}

#[test]
fn ipfix_file_equals_json_in_every_profile() {
    let Some(capture) = mix().filter(|_| has_tools(&["python3"])) else { return };
    let scratch = Scratch::new();
    let file = scratch.file("flows.ipfix");
    for (profile, level) in
        [("uniflow", "counters"), ("biflow", "counters"), ("full", "tcp"), ("", "stats"), ("mtu=600", "tcp")]
    {
        let how = if profile.is_empty() { vec![] } else { vec!["--ipfix", profile] };
        let flows = flows_of(&capture, &[&["-w", &file, "--level", level][..], &how].concat());
        let found = python("decode.py", &[&file]);
        let two_way = directions(&flows) - flows.len() as u64;
        assert!(two_way > 100);
        let has_all = ["", "mtu=600"].contains(&profile);
        let is_biflow = has_all || profile == "biflow";
        assert_eq!(found["records"], if is_biflow { flows.len() as u64 } else { directions(&flows) }, "{profile}");
        assert_eq!(found["reverse"], if is_biflow { two_way } else { 0 }, "{profile}");
        assert_eq!(found["packets"], sum(&flows, "packets"), "{profile}");
        assert_eq!(found["bytes"], sum(&flows, "packet_bytes"), "{profile}");
        let times = |name: &str| -> u64 {
            let of = |flow: &Value, side| flow[side][name].as_u64().map_or(0, |time| time / 1_000_000);
            flows.iter().map(|flow| of(flow, "orig") + of(flow, "resp")).sum()
        };
        assert_eq!((&found["first"], &found["last"]), (&times("first_time_ns").into(), &times("last_time_ns").into()));
        let elements = found["elements"].as_array().unwrap();
        assert_eq!(
            elements.iter().any(|name| name.as_str().unwrap().starts_with("32473/")),
            has_all || profile == "full"
        );
    }
    let own = flows_of(&capture, &["-w", &file, "--ipfix", "full,enterprise=4711"]);
    let found = python("decode.py", &[&file]);
    let elements: Vec<&str> = found["elements"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    assert!(elements.contains(&"4711/2") && !elements.iter().any(|name| name.starts_with("32473/")), "{elements:?}");
    assert_eq!(found["records"], directions(&own));
}

#[test]
fn tshark_finds_nothing_wrong_in_a_file() {
    let Some(capture) = mix().filter(|_| has_tools(&["tshark"])) else { return };
    let scratch = Scratch::new();
    let file = scratch.file("flows.ipfix");
    let flows = flows_of(&capture, &["-w", &file, "--ipfix", "biflow,full", "--level", "tcp"]);
    let fields = ["-T", "fields", "-e", "cflow.packets", "-e", "_ws.malformed"];
    let output =
        Command::new("tshark").args(["-r", &file, "-o", "cflow.max_template_fields:0"]).args(fields).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let mut packets = 0;
    for line in text.lines() {
        let columns: Vec<&str> = line.split('\t').collect();
        assert!(columns[1..].iter().all(|column| column.is_empty()), "{line}");
        packets += columns[0].split(',').filter_map(|number| number.parse::<u64>().ok()).sum::<u64>();
    }
    assert_eq!(packets, sum(&flows, "packets"));
}

/// `nfcapd` on a port; `nfdump` reads its file after its end.
pub(super) struct Nfcapd {
    child: Child,
    pub port: u16,
    folder: String,
}

impl Nfcapd {
    pub(super) fn start(scratch: &Scratch) -> Nfcapd {
        let (folder, port) = (scratch.file("nfcapd"), free_port());
        std::fs::create_dir(&folder).unwrap();
        let mut command = Command::new("nfcapd");
        command.args(["-b", "127.0.0.1", "-p", &port.to_string(), "-w", &folder, "-B", "4194304", "-t", "3600"]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        wait_until("nfcapd listens", || waiting(port).is_some());
        Nfcapd { child, port, folder }
    }

    /// Stops `nfcapd` after it has read all datagrams, and returns its file.
    pub(super) fn end(mut self) -> String {
        wait_until("nfcapd has read everything", || waiting(self.port) == Some(0));
        kill_process(Pid::from_raw(self.child.id() as i32).unwrap(), Signal::INT).unwrap();
        assert!(self.child.wait().unwrap().success());
        let files = files(Path::new(&self.folder));
        assert_eq!(files.len(), 1, "{files:?}");
        files[0].to_str().unwrap().to_owned()
    }
}

impl Drop for Nfcapd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Bytes queued at a UDP port, from /proc/net/udp; `None` if no socket is bound.
pub(super) fn waiting(port: u16) -> Option<u64> {
    let tables = ["/proc/net/udp", "/proc/net/udp6"].map(|path| std::fs::read_to_string(path).unwrap_or_default());
    let mut lines = tables.iter().flat_map(|table| table.lines().skip(1));
    let line =
        lines.find(|line| line.split_whitespace().nth(1).is_some_and(|at| at.ends_with(&format!(":{port:04X}"))))?;
    let queues = line.split_whitespace().nth(4)?;
    u64::from_str_radix(queues.split_once(':')?.1, 16).ok()
}

/// Records, packets, bytes, reverse packets and reverse bytes of a file, and the line with nfcapd's sequence failures.
fn nfdump(file: &str) -> ([u64; 5], String) {
    let output =
        Command::new("nfdump").args(["-r", file, "-q", "-N", "-o", "fmt:%ipkt,%ibyt,%opkt,%obyt"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut sums = [0; 5];
    for line in text.lines().filter(|line| line.contains(',')) {
        sums[0] += 1;
        for (sum, number) in sums[1..].iter_mut().zip(line.split(',')) {
            *sum += number.trim().parse::<u64>().unwrap();
        }
    }
    let about = Command::new("nfdump").args(["-r", file, "-I"]).output().unwrap();
    let about = String::from_utf8(about.stdout).unwrap();
    let failures = about.lines().find(|line| line.starts_with("Sequence failures")).unwrap_or_default().to_owned();
    (sums, failures)
}

#[test]
fn nfcapd_has_the_same_sums() {
    let Some(capture) = mix().filter(|_| has_tools(&["nfcapd", "nfdump"])) else { return };
    for (scheme, profile) in
        [("ipfix+udp", "mtu=1400"), ("ipfix+udp", "biflow"), ("ipfix+udp", "full"), ("netflow9+udp", "domain=7")]
    {
        let profile = &format!("{profile},rate=20000");
        let scratch = Scratch::new();
        let nfcapd = Nfcapd::start(&scratch);
        let target = format!("{scheme}://127.0.0.1:{}", nfcapd.port);
        let flows = flows_of(&capture, &["-w", &target, "--ipfix", profile]);
        let ([records, packets, bytes, packets_reverse, bytes_reverse], failures) = nfdump(&nfcapd.end());
        let context = format!("{scheme} {profile}: {failures}");
        assert_eq!(packets + packets_reverse, sum(&flows, "packets"), "{context}");
        assert_eq!(bytes + bytes_reverse, sum(&flows, "packet_bytes"), "{context}");
        let is_biflow = profile.contains("biflow");
        assert_eq!(records, if is_biflow { flows.len() as u64 } else { directions(&flows) }, "{context}");
        assert_eq!(packets_reverse > 0, is_biflow, "{context}");
        assert!(failures.ends_with(" 0"), "{context}");
    }
}

/// Filters of `query` and nfdump match the same packets and bytes in both directions.
#[test]
fn query_filters_match_nfdump() {
    let Some(capture) = mix().filter(|_| has_tools(&["nfcapd", "nfdump"])) else { return };
    let scratch = Scratch::new();
    let nfcapd = Nfcapd::start(&scratch);
    let (target, stored) = (format!("ipfix+udp://127.0.0.1:{}", nfcapd.port), scratch.file("flows.parquet"));
    flows_of(&capture, &["-w", &target, "-w", &stored, "--ipfix", "mtu=1400,rate=20000"]);
    let file = nfcapd.end();
    for filter in [
        "any",
        "proto udp",
        "port 53",
        "net 10.0.0.0/8 and proto tcp",
        "proto tcp and port in [ 80 443 22 ]",
        "not (proto tcp or proto udp)",
        "(net 192.168.0.0/16 or port 443) and not port 53",
    ] {
        let arguments = ["-r", &file, "-q", "-N", "-o", "fmt:%ipkt,%ibyt", filter];
        let output = Command::new("nfdump").args(arguments).output().unwrap();
        let mut theirs = [0; 2];
        for line in String::from_utf8(output.stdout).unwrap().lines().filter(|line| line.contains(',')) {
            let numbers = line.split(',').map(|number| number.trim().parse::<u64>().unwrap());
            theirs.iter_mut().zip(numbers).for_each(|(sum, number)| *sum += number);
        }
        let words = ["query", &stored, "--json", "--by", "protocol", "--sum", "packets,packet_bytes", "-f", filter];
        let ended = run(&words).good();
        let summary: Value = serde_json::from_str(ended.output.lines().last().unwrap()).unwrap();
        let ours = ["packets", "packet_bytes"].map(|name| summary["query"]["total"][name].as_u64().unwrap());
        assert_eq!(ours, theirs, "{filter}");
        assert!(ours[0] > 0 || filter.starts_with("net") || filter.starts_with("not"), "{filter}: nothing is compared");
    }
}

/// Feeds the program one-packet flows, each of which ends the previous one.
pub(super) struct Feeder {
    running: linerate_tests::support::program::Running,
    input: std::process::ChildStdin,
    number: u32,
}

impl Feeder {
    fn start(target: &str) -> Feeder {
        Feeder::start_with(target, &[])
    }

    pub(super) fn start_with(target: &str, more: &[&str]) -> Feeder {
        let arguments = ["flows", "-r", "-", "--idle", "0.001", "-w", target, "--json", SEED[0], SEED[1]];
        let mut command = linerate(&arguments);
        command.args(more).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut running = spawn(&mut command);
        let mut input = running.take_input().unwrap();
        let head: Vec<u8> =
            [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 1].iter().flat_map(|word| word.to_le_bytes()).collect();
        input.write_all(&head).unwrap();
        Feeder { running, input, number: 0 }
    }

    /// Writes `count` flows, 10 ms apart.
    pub(super) fn feed(&mut self, count: u32) {
        let mut bytes = Vec::new();
        for number in self.number..self.number + count {
            let ends = [10u32 << 24 | number, 11 << 24].map(u32::to_be_bytes).concat();
            let headers = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0];
            let packet = [&headers[..], &ends, &[0, 1, 0, 2, 0, 8, 0, 0]].concat();
            let length = packet.len() as u32;
            for word in [1_700_000_000 + number / 100, number % 100 * 10_000, length, length] {
                bytes.extend(word.to_le_bytes());
            }
            bytes.extend(packet);
        }
        self.number += count;
        self.input.write_all(&bytes).unwrap();
        self.input.flush().unwrap();
    }

    /// Collects the error output.
    pub(super) fn collect_errors(&mut self) -> Arc<Mutex<String>> {
        self.running.collect_errors()
    }

    pub(super) fn end(self) -> Ended {
        drop(self.input);
        self.running.end()
    }
}

/// Sums of received bytes, computed by the decoder.
fn decoded(scratch: &Scratch, bytes: &[u8]) -> Value {
    let file = scratch.file("received.ipfix");
    std::fs::write(&file, bytes).unwrap();
    python("decode.py", &[&file])
}

fn export(summary: &Value) -> &Value {
    summary["accounts"].as_array().unwrap().iter().find(|account| account["stage"] == "export").unwrap()
}

/// Reads at least `least` bytes, or until the connection ends.
fn read_some(stream: &mut impl Read, least: usize, bytes: &mut Vec<u8>) {
    let mut buffer = [0; 4096];
    while bytes.len() < least {
        match stream.read(&mut buffer).unwrap() {
            0 => return,
            count => bytes.extend_from_slice(&buffer[..count]),
        }
    }
}

#[test]
fn restarted_tcp_collector_receives_all_records() {
    if !has_tools(&["python3"]) {
        return;
    }
    let (scratch, port) = (Scratch::new(), free_port());
    let at = (Ipv4Addr::LOCALHOST, port);
    let listener = TcpListener::bind(at).unwrap();
    let mut feeder = Feeder::start(&format!("ipfix+tcp://127.0.0.1:{port}"));
    let (mut stream, _) = listener.accept().unwrap();
    feeder.feed(5000);
    let mut before = Vec::new();
    read_some(&mut stream, 1000, &mut before);
    // Closes its sending side first, and still reads everything in flight.
    drop(listener);
    stream.shutdown(Shutdown::Write).unwrap();
    stream.read_to_end(&mut before).unwrap();
    drop(stream);
    feeder.feed(5000);
    let listener = TcpListener::bind(at).unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        bytes
    });
    let ended = feeder.end().good();
    let after = reader.join().unwrap();
    let [before, after] = [before, after].map(|bytes| decoded(&scratch, &bytes)["records"].as_u64().unwrap());
    let account = export(&ended.json()).clone();
    assert_eq!((before + after, &account["delivered"], &account["received"]), (10_000, &10_000.into(), &10_000.into()));
    assert!(before > 0 && after > 0, "{before} {after}");
    assert_eq!(account["notes"]["outages"], 1);
}

#[test]
fn records_lost_to_an_absent_collector_are_counted() {
    let port = free_port();
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
    let mut feeder = Feeder::start(&format!("ipfix+udp://127.0.0.1:{port}"));
    feeder.feed(1000);
    socket.recv(&mut [0; 2000]).unwrap();
    drop(socket);
    feeder.feed(1000);
    let ended = feeder.end();
    let account = export(&ended.json()).clone();
    let [received, delivered, lost] =
        [&account["received"], &account["delivered"], &account["drops"]["collector_unreachable"]]
            .map(|of| of.as_u64().unwrap());
    assert!(received == 2000 && received == delivered + lost && lost >= 500, "{account}");
    // Only the templates may have been delivered.
    assert_eq!(ended.status, i32::from(delivered == 0), "{account}");
    assert!(account["notes"]["outages"].as_u64() >= Some(1), "{account}");

    // Nothing is delivered.
    let Some(capture) = mix() else { return };
    let target = format!("ipfix+udp://127.0.0.1:{port}");
    run(&["flows", "-r", &capture, "-w", &target])
        .with_status(1)
        .says(&format!("{target}: collector unreachable; 4174 records lost, 0 written"));
    // Over TCP the collector must be reachable at the start.
    let target = format!("ipfix+tcp://127.0.0.1:{port}");
    run(&["flows", "-r", &capture, "-w", &target]).with_status(1).says("no collector is listening; start it first");
}

#[test]
fn returning_udp_collector_receives_held_records() {
    if !has_tools(&["python3"]) {
        return;
    }
    let (scratch, port) = (Scratch::new(), free_port());
    let at = (Ipv4Addr::LOCALHOST, port);
    let mut feeder = Feeder::start(&format!("ipfix+udp://127.0.0.1:{port}"));
    // No collector is bound yet.
    feeder.feed(3000);
    let socket = UdpSocket::bind(at).unwrap();
    socket.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
    // Buffer for all datagrams, if privileges allow it.
    let _ = rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, 4 << 20);
    // Reads all records; the final statistics have domain 0.
    let reader = std::thread::spawn(move || {
        let (mut bytes, mut buffer, mut records) = (Vec::new(), [0; 2000], 0_u64);
        while let Ok(count) = socket.recv(&mut buffer) {
            let is_of_domain = buffer[12..16] != [0; 4];
            if !is_of_domain {
                return (bytes, records);
            }
            records += 1;
            bytes.extend_from_slice(&buffer[..count]);
        }
        (bytes, records)
    });
    feeder.feed(3000);
    let ended = feeder.end().good();
    let (bytes, messages) = reader.join().unwrap();
    assert!(messages > 100);
    let account = export(&ended.json()).clone();
    let found = decoded(&scratch, &bytes);
    assert_eq!(
        (&found["records"], &account["delivered"], &account["received"]),
        (&6000.into(), &6000.into(), &6000.into()),
        "{account}"
    );
}

#[test]
fn invalid_targets_and_profiles_are_rejected() {
    let scratch = Scratch::new();
    let file = scratch.file("a.pcap");
    std::fs::write(&file, []).unwrap();
    for (more, error) in [
        (&["-w", "ipfix+udp://"][..], "SCHEME://HOST:PORT"),
        (&["-w", "ipfix+udp://[::1"], "SCHEME://HOST:PORT"),
        (&["-w", "netflow9+udp://127.0.0.1", "--ipfix", "biflow"], "NetFlow v9 does not support"),
        (&["-w", "ipfix+udp://127.0.0.1", "--format", "csv"], "collectors do not support csv"),
        (&["-w", "a.ipfix", "--ipfix", "bi-flow"], "\"bi-flow\": expected uniflow, biflow"),
        (&["-w", "a.ipfix", "--ipfix", "mtu=100"], "mtu=N, from 512 to"),
        (&["-w", "a.ipfix", "--ipfix", "domain=0"], "domain=N, from 1"),
        (&["-w", "a.jsonl", "--ipfix", "full"], "--ipfix needs an IPFIX target"),
        (&["-w", "ipfix+sctp://127.0.0.1"], "unsupported destination"),
    ] {
        run(&[&["flows", "-r", &file][..], more].concat()).with_status(2).says(error);
    }
}
