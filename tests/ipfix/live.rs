//! Metrics and log lines during a run.

use super::exporter::{Feeder, free_port, waiting};
use super::{directions, flows_of, lines_of, mix, sum};
use linerate_tests::support::program::{linerate, run, spawn, start};
use linerate_tests::support::{Scratch, skip, wait_until};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Fetches the metrics page; empty without an answer.
fn page(mut connection: impl Read + Write) -> String {
    let mut page = String::new();
    let _ = connection.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let _ = connection.read_to_string(&mut page);
    page
}

fn page_at(port: u16) -> String {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).map_or_else(|_| String::new(), page)
}

/// Sum of all samples whose line starts with `name`.
fn figure(page: &str, name: &str) -> u64 {
    let samples = page.lines().filter(|line| line.starts_with(name));
    samples.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum()
}

#[test]
fn collector_reports_metrics_while_running() {
    let Some(capture) = mix() else { return };
    let scratch = Scratch::new();
    let (back, socket) = (scratch.file("back.jsonl"), scratch.file("run.sock"));
    let (port, metrics) = (free_port(), free_port());
    for place in [format!("127.0.0.1:{metrics}"), socket.clone()] {
        let from = format!("ipfix://127.0.0.1:{port}");
        let arguments = ["collect", &from, "-w", &back, "--metrics", &place, "--interval", "0.1"];
        let mut running = spawn(linerate(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()));
        let log = running.collect_errors();
        running.wait_until_open();
        wait_until("the metrics address is printed", || log.lock().unwrap().contains("metrics at"));
        let flows = flows_of(&capture, &["-w", &format!("ipfix+tcp://127.0.0.1:{port}")]);
        let look = || match UnixStream::connect(&socket) {
            Ok(connection) if place == socket => page(connection),
            _ => page_at(metrics),
        };
        wait_until("all records are counted", || {
            figure(&look(), "linerate_collect_received_total{") >= directions(&flows)
        });
        wait_until("all records are written", || {
            figure(&look(), "linerate_export_delivered_total{") >= directions(&flows)
        });
        let page = look();
        for (name, least) in [("collect_messages", 10), ("collect_exporters", 1), ("export_received", 100)] {
            assert!(figure(&page, &format!("linerate_{name}_total{{")) >= least, "{name}: {page}");
        }
        running.signal(Signal::USR1);
        wait_until("SIGUSR1 prints the progress", || log.lock().unwrap().contains("so far "));
        wait_until("an interval line is printed", || log.lock().unwrap().contains("/s  1 exporters"));
        running.interrupt().good();
        assert!(!Path::new(&socket).exists(), "the socket is removed");
    }
    let stored = scratch.file("flows.parquet");
    flows_of(&capture, &["-w", &stored]);
    run(&["query", &stored, "--metrics", &socket]).with_status(2).says("--metrics: no such option");
    let nowhere = scratch.file("nowhere/x.jsonl");
    run(&["flows", "-r", &capture, "-w", &nowhere, "--metrics", &socket]).with_status(1).says("nowhere");
    assert!(!Path::new(&socket).exists(), "a failed start leaves no socket");
}

#[test]
fn collector_outage_and_return_are_reported_at_once() {
    let (port, metrics) = (free_port(), free_port());
    let at = (Ipv4Addr::LOCALHOST, port);
    let socket = UdpSocket::bind(at).unwrap();
    let target = format!("ipfix+udp://127.0.0.1:{port}");
    let mut feeder = Feeder::start_with(&target, &["--metrics", &format!("127.0.0.1:{metrics}")]);
    let log = feeder.collect_errors();
    feeder.feed(1000);
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    socket.recv(&mut [0; 2000]).unwrap();
    wait_until("packets are metered", || figure(&page_at(metrics), "linerate_meter_metered_total") >= 100);
    wait_until("records are sent", || figure(&page_at(metrics), "linerate_export_delivered_total{") > 0);
    drop(socket);
    wait_until("the outage is reported", || {
        feeder.feed(1000);
        log.lock().unwrap().contains("collector unreachable")
    });
    wait_until("the outage is counted", || figure(&page_at(metrics), "linerate_export_outages_total{") == 1);
    let lost = "linerate_lost_total{stage=\"export\",cause=\"collector_unreachable\"";
    assert!(page_at(metrics).contains(lost), "{}", page_at(metrics));
    let socket = UdpSocket::bind(at).unwrap();
    wait_until("the return is reported", || log.lock().unwrap().contains("collector reachable again after"));
    drop(feeder.end().good());
    drop(socket);
}

/// A collector that pauses reading delays records, and loses none.
#[test]
fn paused_tcp_collector_receives_everything() {
    let (scratch, port) = (Scratch::new(), free_port());
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
    rustix::net::sockopt::set_socket_recv_buffer_size(&listener, 4096).unwrap();
    let mut feeder = Feeder::start_with(&format!("ipfix+tcp://127.0.0.1:{port}"), &["--ipfix", "full"]);
    let (mut stream, _) = listener.accept().unwrap();
    rustix::net::sockopt::set_socket_recv_buffer_size(&stream, 4096).unwrap();
    let reader = std::thread::spawn(move || {
        // Longer than any write timeout.
        std::thread::sleep(Duration::from_secs(3));
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).map(|_| bytes).unwrap()
    });
    feeder.feed(60_000);
    let summary = feeder.end().good().json();
    let file = scratch.file("received.ipfix");
    std::fs::write(&file, reader.join().unwrap()).unwrap();
    let account =
        summary["accounts"].as_array().unwrap().iter().find(|account| account["stage"] == "export").unwrap().clone();
    let back = run(&["collect", &file, "--json"]).good().json();
    assert!(std::fs::metadata(&file).unwrap().len() > 8 << 20, "more data than the buffers hold");
    assert_eq!(
        (&account["delivered"], &back["records"], &back["malformed"]),
        (&60_000.into(), &60_000.into(), &0.into())
    );
    assert_eq!(account["notes"]["outages"].as_u64().unwrap_or(0), 0, "{account}");
}

/// Exported statistics count the frames that were not metered.
#[test]
fn statistics_count_ignored_packets() {
    let Some(capture) = mix() else { return };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let target = format!("ipfix+tcp://{}", listener.local_addr().unwrap());
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        listener.accept().unwrap().0.read_to_end(&mut bytes).map(|_| bytes).unwrap()
    });
    let summary = run(&["flows", "-r", &capture, "-w", &target, "--json"]).good().json();
    let account =
        summary["accounts"].as_array().unwrap().iter().find(|account| account["stage"] == "meter").unwrap().clone();
    let refused = account["received"].as_u64().unwrap() - account["delivered"].as_u64().unwrap();
    assert!(refused > 0, "nothing is compared");
    let bytes = reader.join().unwrap();
    // The statistics set, id 512, has 76 bytes; the last 24 start with ignoredPacketTotalCount (164).
    let set = bytes.windows(4).rposition(|set| set == [2, 0, 0, 76]).unwrap();
    let ignored = bytes[set + 4 + 44..][..8].try_into().map(u64::from_be_bytes).unwrap();
    assert_eq!(ignored, refused);
}

/// Path of softflowd, as `scripts/peers` unpacks it.
fn softflowd() -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/peers/usr/sbin/softflowd");
    if !path.exists() {
        skip("no softflowd: scripts/peers unpacks it");
        return None;
    }
    Some(path)
}

#[test]
fn softflowd_records_are_collected() {
    let (Some(capture), Some(softflowd)) = (mix(), softflowd()) else { return };
    let scratch = Scratch::new();
    let back = scratch.file("back.jsonl");
    for version in ["9", "10"] {
        let (port, pid) = (free_port(), scratch.file("pid"));
        let from = format!("ipfix://127.0.0.1:{port}");
        let running = start(&["collect", &from, "-w", &back, "--json"]);
        wait_until("the collector listens", || waiting(port) == Some(0));
        let to = format!("127.0.0.1:{port}");
        let arguments = ["-r", &capture, "-n", &to, "-v", version, "-d", "-a", "-6", "-p", &pid, "-c", "none"];
        // softflowd can hang on its control socket.
        let output = Command::new("timeout").arg("60").arg(&softflowd).args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        wait_until("all datagrams are read", || waiting(port) == Some(0));
        running.interrupt().good();
        // Per protocol: bytes, packets, and the longest flow in units of 10 ms.
        let mut ours: BTreeMap<u64, [u64; 3]> = BTreeMap::new();
        for flow in lines_of(&back) {
            let [bytes, packets, longest] = ours.entry(flow["protocol"].as_u64().unwrap()).or_default();
            *bytes += sum(std::slice::from_ref(&flow), "packet_bytes");
            *packets += sum(std::slice::from_ref(&flow), "packets");
            *longest = (*longest).max(flow["duration_ns"].as_u64().unwrap() / 10_000_000);
            assert_eq!((&flow["exporter"]["address"], &flow["exporter"]["domain"]), (&"127.0.0.1".into(), &0.into()));
            // Version 9 exports the clock in whole seconds.
            let off = flow["first_time_ns"].as_u64().unwrap().abs_diff(1_700_000_000_000_000_000);
            assert!(off < 120_000_000_000, "{flow}");
        }
        let statistics = String::from_utf8(output.stdout).unwrap();
        let lines = statistics.split("Per-protocol statistics:").nth(1).unwrap().lines().skip(1);
        let theirs = lines.filter_map(|line| {
            let (_, rest) = line.split_once('(')?;
            let (protocol, figures) = rest.split_once("):")?;
            let figures: Vec<&str> = figures.split_whitespace().collect();
            let longest = figures[3].trim_end_matches('s').replace('.', "");
            let sums = [figures[0], figures[1], &longest].map(|figure| figure.parse::<u64>().unwrap());
            Some((protocol.parse::<u64>().unwrap(), sums))
        });
        let theirs: BTreeMap<u64, [u64; 3]> = theirs.collect();
        assert!(theirs.len() > 5 && theirs.keys().eq(ours.keys()), "{statistics}\n{ours:?}");
        for (protocol, [bytes, packets, longest]) in theirs {
            let own = ours[&protocol];
            // softflowd rounds the duration.
            assert!(
                own[..2] == [bytes, packets] && own[2].abs_diff(longest) <= 1,
                "{version}, {protocol}: {own:?}\n{statistics}"
            );
        }
    }
}
