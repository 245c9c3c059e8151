//! Real clients, and their own counts.

use crate::flows::kernel::Host;
use crate::flows::testbed::{DNS, FILES, HTTP, IPERF_TCP, IPERF_UDP, SERVER, Stage};
use linerate_tests::support::program::{Running, spawn};
use linerate_tests::support::wait_until;
use rustix::process::Signal;
use serde_json::Value;
use std::process::Stdio;

/// Results of the clients on a host.
pub(super) struct Clients {
    pub datagrams: Datagrams,
    pub downloads: Vec<Download>,
    /// Bytes of each DNS answer.
    pub answers: Vec<u64>,
    /// Stopped iperf3 with open connections; killed on drop.
    _stopped: Running,
}

/// Datagrams that iperf3 reports as sent over UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Datagrams {
    pub local_port: u64,
    pub count: u64,
    pub bytes: u64,
}

/// Download as reported by curl.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Download {
    /// Local port of the connection.
    pub local_port: u64,
    /// Bytes of the request, and of the headers and content of the answer.
    pub asked: u64,
    pub got: u64,
}

const QUERIES: usize = 20;
/// Bytes and rate of iperf3 over TCP, low enough that the meter loses nothing.
const AMOUNT: u64 = 15_000_000;
const RATE: &str = "100M";

impl Clients {
    /// Runs the clients one by one; returns with the connections of the last one open and idle.
    pub(super) fn run(stage: &Stage) -> Self {
        let datagrams = send_datagrams(stage);
        let downloads = download(stage);
        let answers = (0..QUERIES).map(|number| query(stage, number)).collect();
        let port = IPERF_TCP.to_string();
        let client = spawn(&mut stage.exec("client", "iperf3", &["-c", SERVER, "-p", &port, "-t", "60", "-b", RATE]));
        let most = || Host::look(stage, "client").sockets.iter().map(|socket| socket.number("bytes_sent")).max();
        wait_until("iperf3 has sent enough", || most() > Some(AMOUNT));
        client.signal(Signal::STOP);
        stage.settle();
        Clients { datagrams, downloads, answers, _stopped: client }
    }
}

/// Runs iperf3 over UDP, up to three times: on a busy machine it can time out waiting for its server.
fn send_datagrams(stage: &Stage) -> Datagrams {
    let port = IPERF_UDP.to_string();
    let arguments = ["10", "iperf3", "-c", SERVER, "-p", &port, "-u", "-b", "20M", "-t", "1", "-J"];
    let mut said = Value::Null;
    for _ in 0..3 {
        let output = stage.exec("client", "timeout", &arguments).stdout(Stdio::piped()).output().expect("timeout");
        said = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let sent = &said["end"]["sum_sent"];
        if let (Some(local_port), Some(count), Some(bytes)) =
            (said["start"]["connected"][0]["local_port"].as_u64(), sent["packets"].as_u64(), sent["bytes"].as_u64())
        {
            return Datagrams { local_port, count, bytes };
        }
    }
    panic!("iperf3 printed {said:#}");
}

/// Downloads each file of the server over its own connection.
fn download(stage: &Stage) -> Vec<Download> {
    let format = "%{local_port} %{size_request} %{size_header} %{size_download}\n";
    let one = |length: usize| {
        let url = format!("http://{SERVER}:{HTTP}/{length}");
        let output = stage.scratch.file("downloaded");
        let said = stage.ask("client", "curl", &["-sS", "--fail", "-o", &output, "-w", format, &url]);
        let numbers: Vec<u64> = said.split_whitespace().map(|word| word.parse().expect("a number")).collect();
        let [local_port, asked, header, content] = numbers[..] else { panic!("curl printed {said:?}") };
        assert_eq!(content, length as u64, "curl got another file");
        Download { local_port, asked, got: header + content }
    };
    FILES.into_iter().map(one).collect()
}

/// Sends a DNS query and returns the bytes of the answer.
fn query(stage: &Stage, number: usize) -> u64 {
    let name = format!("{}{number}.example.net", "host-".repeat(number % 5));
    let (server, port) = (format!("@{SERVER}"), DNS.to_string());
    let said = stage.ask("client", "drill", &["-p", &port, &server, &name, "A"]);
    assert!(said.contains("192.0.2.7"), "drill printed {said}");
    let size = said.lines().find_map(|line| line.strip_prefix(";; MSG SIZE  rcvd: "));
    size.and_then(|size| size.trim().parse().ok()).unwrap_or_else(|| panic!("drill printed {said}"))
}
