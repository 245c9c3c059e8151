//! Prometheus metrics of a run (`--metrics`).

use linerate_tests::support::program::{Running, launch, linerate, run, spawn};
use linerate_tests::support::{Scratch, frames, records, wait_until};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::time::Duration;

/// Text before the chosen address.
const PREFIX: &str = "metrics at http://";

/// Starts a run with metrics on a free port; returns its address.
fn start(arguments: &[&str], input: Stdio) -> (Running, String) {
    let mut command = linerate(arguments);
    command.args(["--metrics", "127.0.0.1:0"]);
    let mut running = spawn(command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped()));
    let errors = running.collect_errors();
    let address = || {
        let errors = errors.lock().unwrap();
        let rest = errors.split(PREFIX).nth(1)?;
        Some(rest.split_once("/metrics\n")?.0.to_owned())
    };
    wait_until("the address is printed", || address().is_some());
    let address = address().unwrap();
    (running, address)
}

/// Sends a request; returns the status line and the body of the response.
fn ask(address: &str, request: &str) -> (String, String) {
    let mut connection = TcpStream::connect(address).unwrap();
    connection.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    // A request that is too long is answered before it has been read completely.
    let _ = connection.write_all(request.as_bytes());
    let mut answer = Vec::new();
    let _ = connection.read_to_end(&mut answer);
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    (head.lines().next().unwrap_or_default().to_owned(), body.to_owned())
}

/// Checks the format of the metrics page and returns its samples.
fn scrape(address: &str) -> BTreeMap<String, f64> {
    let (status, page) = ask(address, "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert_eq!(status, "HTTP/1.1 200 OK", "{page}");
    let (mut samples, mut family, mut families) = (BTreeMap::new(), String::new(), Vec::new());
    for line in page.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            family = help.split(' ').next().unwrap().to_owned();
            assert!(help.len() > family.len() + 10, "{line}");
            continue;
        }
        if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap();
            assert!(name == family && ["counter", "gauge"].contains(&kind), "{line}");
            assert!(!families.contains(&family), "{family} appears twice");
            families.push(family.clone());
            continue;
        }
        let (name, value) = line.rsplit_once(' ').unwrap();
        assert_eq!(name.split('{').next().unwrap(), family, "{line}");
        assert!(samples.insert(name.to_owned(), value.parse().unwrap()).is_none(), "{name} appears twice");
    }
    samples
}

#[test]
fn generate_exports_sent_packets() {
    let packet = "ip(dst=192.0.2.1)/udp";
    let arguments = ["generate", "--to", "null:x", "-k", packet, "--rate", "2kpps", "-c", "0", "--interval", "0"];
    let (running, address) = start(&arguments, Stdio::null());
    let sent = "linerate_send_delivered_total{subject=\"null:x@0\"}";
    wait_until("frames are sent", || scrape(&address).get(sent).is_some_and(|frames| *frames > 0.0));
    let (before, after) = (scrape(&address), scrape(&address));
    assert!(after[sent] >= before[sent], "{before:?}\n{after:?}");
    let info = after.keys().find(|name| name.starts_with("linerate_info{")).unwrap();
    assert!(info.contains("verb=\"generate\""), "{info}");
    wait_until("they are counted for the run too", || scrape(&address)["linerate_frames_total{done=\"sent\"}"] > 0.0);

    // Idle connections and malformed requests block neither the run nor other clients.
    let silent: Vec<TcpStream> = (0..3).map(|_| TcpStream::connect(&address).unwrap()).collect();
    assert_eq!(
        ask(&address, "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").0,
        "HTTP/1.1 404 Not Found"
    );
    let posted = "POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    assert_eq!(ask(&address, posted).0, "HTTP/1.1 405 Method Not Allowed");
    assert!(ask(&address, "\0\0\0 nonsense\r\n\r\n").0.contains("400"));
    assert!(ask(&address, &format!("GET /metrics HTTP/1.1\r\nX: {}\r\n\r\n", "y".repeat(100_000))).0.contains("431"));
    assert!(scrape(&address)[sent] >= after[sent]);
    drop(silent);
    running.signal(Signal::TERM);
    let ended = running.end().good();
    drop(ended.shows("none dropped by this host"));
    assert!(TcpStream::connect(&address).is_err(), "the port is still open after the run");
}

#[test]
fn capture_exports_packet_accounting() {
    let scratch = Scratch::new();
    let (mut running, address) =
        start(&["capture", "-r", "-", "-w", &scratch.file("out.pcap"), "--filter", "udp"], Stdio::piped());
    let mut input = running.take_input().unwrap();
    input.write_all(&records::header()).unwrap();
    input.write_all(&records::body(&frames::sample())).unwrap();
    let count = frames::sample().len() as f64;
    let received = |samples: &BTreeMap<String, f64>| {
        let of = samples.iter().filter(|(name, _)| name.starts_with("linerate_receive_received_total{"));
        of.map(|(_, value)| *value).sum::<f64>()
    };
    wait_until("all frames are counted", || received(&scrape(&address)) >= count);
    let samples = scrape(&address);
    assert_eq!(received(&samples), count);
    let selected = samples["linerate_select_delivered_total"] + samples["linerate_select_filtered_total"];
    assert_eq!(selected, count, "{samples:#?}");
    let lost = samples.iter().filter(|(name, _)| name.starts_with("linerate_lost_total{"));
    assert!(lost.map(|(_, value)| *value).sum::<f64>() == 0.0 && samples.contains_key("linerate_start_time_seconds"));
    drop(input);
    running.end().good();
}

/// The sum of a family.
fn sum(samples: &BTreeMap<String, f64>, family: &str) -> f64 {
    let of = |name: &str| name.strip_prefix(family).is_some_and(|rest| rest.is_empty() || rest.starts_with('{'));
    samples.iter().filter(|(name, _)| of(name)).map(|(_, value)| *value).sum()
}

#[test]
fn measure_exports_sent_and_received_packets() {
    let ends = ["--to", "mem:metrics", "--check", "mem:metrics", "--size", "128", "--max", "1kpps", "--settle", "0"];
    let (running, address) = start(&[&["measure"][..], &ends].concat(), Stdio::null());
    let names = ["linerate_send_delivered_total", "linerate_receive_received_total", "linerate_check_received_total"];
    wait_until("frames are sent and received", || {
        let samples = scrape(&address);
        names.iter().all(|name| sum(&samples, name) > 0.0)
    });
    running.interrupt().with_status(1);
}

#[test]
fn send_exports_sent_bytes() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap().to_string();
    let (running, address) = start(&["send", &to, "--size", "64MiB", "--interval", "0"], Stdio::null());
    let (mut stream, _) = listener.accept().unwrap();
    let mut received = vec![0; 1 << 20];
    stream.read_exact(&mut received).unwrap();
    // The kernel has accepted at least as many bytes as were read.
    let counted = || sum(&scrape(&address), "linerate_sent_bytes_total");
    wait_until("received bytes are counted", || counted() >= received.len() as f64);
    std::io::copy(&mut stream, &mut std::io::sink()).unwrap();
    drop(stream);
    running.end().good();
}

#[test]
fn inspect_exports_verdicts() {
    let name = format!("metrics-{}", std::process::id());
    let inline = launch(&["inline", "null:a", "null:b", "--share", &name, "-q"]);
    inline.wait_until_open();
    let (running, address) = start(&["inspect", &format!("shm:{name}"), "--drop", "udp"], Stdio::null());
    let samples = scrape(&address);
    for family in
        ["linerate_receive_received_total", "linerate_receive_skipped_total", "linerate_verdict_blocked_total"]
    {
        let sample = format!("{family}{{subject=\"shm:{name}\"}}");
        assert_eq!(samples.get(&sample), Some(&0.0), "{sample}: {samples:?}");
    }
    running.interrupt().good();
    inline.interrupt().good();
}

#[test]
fn metrics_address_in_use_is_an_error_before_any_open() {
    let scratch = Scratch::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let file = scratch.file("out.pcap");
    let ended = run(&["generate", "--to", &format!("pcap:{file}"), "-k", "ip/udp", "-c", "1", "--metrics", &address]);
    drop(ended.with_status(1).says("--metrics").says("cannot listen"));
    assert!(!std::path::Path::new(&file).exists());
    drop(run(&["count", "-r", &file, "--metrics", "here"]).with_status(2));
}
