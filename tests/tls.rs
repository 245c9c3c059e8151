//! TLS in both directions: the real program against OpenSSL, with certificates of a test CA.

use crate::fleet::broker::Broker;
use crate::fleet::store::Store;
use linerate_tests::support::program::{Running, linerate, run, spawn};
use linerate_tests::support::wire::Wire;
use linerate_tests::support::{Scratch, corpus, has_tools, may_make_labs, wait_until};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

/// Creates the certificates in a scratch folder; `None` without openssl and python3.
fn certificates() -> Option<Scratch> {
    if !has_tools(&["openssl", "python3"]) {
        return None;
    }
    let scratch = Scratch::new();
    let folder = scratch.file("");
    let script = include_str!("tls/certificates.sh");
    let made = Command::new("bash").args(["-c", script]).current_dir(folder).stdout(Stdio::null()).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    Some(scratch)
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A child process that is killed on drop.
struct PeerProcess(Child);

impl Drop for PeerProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a TLS relay (OpenSSL) in front of a port and returns its own port.
fn relay(scratch: &Scratch, own: &str, port: u16) -> (PeerProcess, u16) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tls/relay.py");
    let [cert, key] = ["pem", "key"].map(|ending| scratch.file(&format!("{own}.{ending}")));
    let mut command = Command::new("python3");
    let mut child = command.args([script, &cert, &key, &port.to_string()]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (PeerProcess(child), line.trim().parse().unwrap())
}

fn files(scratch: &Scratch, ca: Option<&str>, own: Option<&str>) -> String {
    let ca = ca.map(|ca| format!("ca={}", scratch.file(&format!("{ca}.pem"))));
    let own = own
        .map(|own| format!("cert={},key={}", scratch.file(&format!("{own}.pem")), scratch.file(&format!("{own}.key"))));
    [ca, own].into_iter().flatten().collect::<Vec<_>>().join(",")
}

fn lines(path: &str) -> usize {
    std::fs::read_to_string(path).map_or(0, |text| text.lines().count())
}

/// Starts `linerate collect` with TLS; returns it with its log and its target.
fn collector(scratch: &Scratch, tls: &str, write: &str) -> (Running, Arc<Mutex<String>>, String) {
    let arguments = ["collect", "ipfix+tls://127.0.0.1:0", "--tls", tls, "-w", &scratch.file(write)];
    let mut running = spawn(linerate(&arguments).stdout(Stdio::null()));
    let log = running.collect_errors();
    let target = || {
        let log = log.lock().unwrap();
        Some(log.split("collecting from ").nth(1)?.split_once('\n')?.0.to_owned())
    };
    wait_until("the collector listens", || target().is_some());
    let target = target().unwrap();
    (running, log, target)
}

#[test]
fn records_are_accepted_only_with_a_client_certificate() {
    let (Some(scratch), Some(capture)) = (certificates(), corpus("real-mix.pcap")) else { return };
    let capture = capture.to_str().unwrap();
    let (running, log, target) = collector(&scratch, &files(&scratch, Some("ca"), Some("good")), "back.jsonl");
    let own = scratch.file("own.jsonl");
    let client = files(&scratch, Some("ca"), Some("client"));
    run(&["flows", "-r", capture, "-w", &target, "-w", &own, "--ipfix", "biflow", "--tls", &client]).good();
    let back = scratch.file("back.jsonl");
    let is_back = |name: &String| name.contains("back.jsonl") && lines(&scratch.file(name)) >= lines(&own);
    wait_until("all records are collected", || scratch.names().iter().any(is_back));
    // Rejected: no certificate, a self-signed one, and no TLS at all.
    let none = files(&scratch, Some("ca"), None);
    let self_signed = files(&scratch, Some("ca"), Some("self"));
    for (tls, error) in [(&none, "requires a client certificate"), (&self_signed, "rejected our certificate")] {
        run(&["flows", "-r", capture, "-w", &target, "--tls", tls]).with_status(1).says(error);
    }
    let mut plain = TcpStream::connect(target.rsplit_once('/').unwrap().1).unwrap();
    plain.write_all(b"\0\x0a\0\x14not TLS, but IPFIX").unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    wait_until("the rejection is logged", || log.lock().unwrap().contains(": connection rejected: "));
    drop(running.interrupt());
    assert_eq!(lines(&back), lines(&own), "no other records");
}

#[test]
fn exporter_sends_only_to_trusted_collectors() {
    let (Some(scratch), Some(capture)) = (certificates(), corpus("real-mix.pcap")) else { return };
    let capture = capture.to_str().unwrap();
    let tls = files(&scratch, Some("ca"), None);
    let target = |port: u16| format!("ipfix+tls://localhost:{port}");
    for (own, error) in [("self", "not signed by a trusted CA"), ("other", "for another name"), ("old", "has expired")]
    {
        let (_relay, port) = relay(&scratch, own, 1);
        run(&["flows", "-r", capture, "-w", &target(port), "--tls", &tls]).with_status(1).says(error);
    }
    let (_relay, port) = relay(&scratch, "good", 1);
    run(&["flows", "-r", capture, "-w", &target(port)]).with_status(1).says("not signed by a trusted CA");
    // A server without TLS.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
            let _ = std::io::copy(&mut stream, &mut std::io::sink());
        }
    });
    run(&["flows", "-r", capture, "-w", &target(port), "--tls", &tls]).with_status(1).says("does not speak TLS");
    // The bytes that OpenSSL receives form an IPFIX file.
    let port = free_port();
    let taken = scratch.file("taken.ipfix");
    let mut command = Command::new("openssl");
    let [cert, key] = ["good.pem", "good.key"].map(|name| scratch.file(name));
    command.args(["s_server", "-accept", &port.to_string(), "-cert", &cert, "-key", &key, "-quiet", "-naccept", "1"]);
    let mut server = PeerProcess(command.stdout(File::create(&taken).unwrap()).stdin(Stdio::piped()).spawn().unwrap());
    let own = scratch.file("own.jsonl");
    let mut tries = 0;
    loop {
        let ended = run(&["flows", "-r", capture, "-w", &target(port), "-w", &own, "--tls", &tls, "--ipfix", "biflow"]);
        if !ended.errors.contains("no collector is listening") || tries == 200 {
            drop(ended.good());
            break;
        }
        tries += 1;
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    drop(server.0.stdin.take());
    let _ = server.0.wait();
    let back = scratch.file("back.jsonl");
    run(&["collect", &taken, "-w", &back]).good();
    assert_eq!(lines(&back), lines(&own));
}

#[test]
fn broker_and_database_accept_tls_with_a_password() {
    let (Some(scratch), Some(capture)) = (certificates(), corpus("real-mix.pcap")) else { return };
    let capture = capture.to_str().unwrap();
    let store = Store::start(|| crate::fleet::store::Mood::Good);
    let (_relay, port) = relay(&scratch, "good", store.port);
    let [spool, secret, wrong] = ["spool", "secret", "wrong"].map(|name| scratch.file(name));
    std::fs::write(&secret, "to be kept\n").unwrap();
    std::fs::write(&wrong, "another\n").unwrap();
    [&secret, &wrong].iter().for_each(|file| std::fs::set_permissions(file, PermissionsExt::from_mode(0o600)).unwrap());
    let tls = files(&scratch, Some("ca"), None);
    let send = |target: &str, ship: &str, tls: &str| {
        run(&["flows", "-r", capture, "-w", target, "--ship", &format!("spool={spool},{ship}"), "--tls", tls, "--json"])
    };
    let database = format!("clickhouse+https://ann@localhost:{port}/flows");
    let summary = send(&database, &format!("rows=500,end=60,password={secret}"), &tls).good().json();
    let sum = |summary: &serde_json::Value| {
        let of = summary["accounts"].as_array().unwrap().iter().find(|account| account["stage"] == "deliver").unwrap();
        (of["received"].as_u64().unwrap(), of["delivered"].as_u64().unwrap())
    };
    let (received, delivered) = sum(&summary);
    assert!(received > 1000 && received == delivered, "{summary}");
    assert!(
        store.inserts().len() > 2
            && store.inserts().iter().all(|insert| insert.password.as_deref() == Some("to be kept"))
    );
    // With an untrusted certificate no record is sent, and the error gives the cause.
    let untrusted = files(&scratch, Some("self"), None);
    drop(
        send(&database, &format!("end=60,password={secret}"), &untrusted)
            .with_status(1)
            .says("not signed by a trusted CA"),
    );
    // The broker advertises its plain-text port; the relay's port is advertised instead.
    let broker = Broker::start("t", 2, |_| crate::fleet::broker::Mood::Good);
    broker.require_login("bob", "to be kept");
    let (_relay, port) = relay(&scratch, "good", broker.port);
    broker.advertise(port);
    let target = format!("kafka+tls://bob@localhost:{port}/t");
    let ship = format!("rows=500,end=60,sasl=plain,password={secret}");
    let summary = send(&target, &ship, &tls).good().json();
    let (received, delivered) = sum(&summary);
    assert!(received > 1000 && received == delivered && broker.problems().is_empty(), "{summary}");
    drop(send(&target, &ship.replace(&secret, &wrong), &tls).with_status(1).says("check the password"));
    drop(send(&target, &ship.replace("sasl=plain", "sasl=scram-sha-256"), &tls).with_status(1).says("only PLAIN"));
}

#[test]
fn page_is_served_over_https() {
    let Some(scratch) = certificates() else { return };
    if !has_tools(&["curl"]) || !may_make_labs() {
        return;
    }
    let [cert, key, ca] = ["good.pem", "good.key", "ca.pem"].map(|name| scratch.file(name));
    let wire = Wire::new();
    let port = format!("p1={}", wire.port("a", "eth0", ""));
    let arguments = ["serve", "--port", &port, "--listen", "127.0.0.1:0", "--tls-cert", &cert, "--tls-key", &key];
    let mut running = spawn(linerate(&arguments).stdout(Stdio::piped()));
    let log = running.collect_errors();
    let mut output = BufReader::new(running.take_output().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("listening on https://").expect(&line).to_owned();
    let mut token = String::new();
    output.read_line(&mut token).unwrap();
    let token = token.split(',').next().unwrap().trim_start_matches("token ").to_owned();
    let curl = |more: &[&str]| {
        let output = Command::new("curl").args(["-sS", "--cacert", &ca, "-m", "20"]).args(more).output().unwrap();
        (String::from_utf8_lossy(&output.stdout).into_owned(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let port = address.rsplit_once(':').unwrap().1;
    let url = format!("https://localhost:{port}");
    let (page, errors) = curl(&[&format!("{url}/")]);
    assert!(page.contains("<html") && errors.is_empty(), "{page} {errors}");
    let user = format!(":{token}");
    let status_of =
        |more: &[&str]| curl(&[&["-u", &user, "-o", "/dev/null", "-w", "%{http_code}"][..], more].concat()).0;
    let version = format!("{url}/capabilities/version");
    assert_eq!(status_of(&[&version]), "200");
    assert_eq!(status_of(&["-H", &format!("Origin: {url}"), &version]), "200");
    assert_eq!(
        status_of(&["-H", &format!("Origin: http://localhost:{port}"), &version]),
        "403",
        "a page loaded over HTTP"
    );
    // A client without TLS gets no answer and is logged; so is a client that trusts no CA.
    let (answer, _) = curl(&[&format!("http://localhost:{port}/")]);
    assert!(!answer.contains("<html"), "{answer}");
    wait_until("the rejection is logged", || log.lock().unwrap().contains("does not speak TLS"));
    let _ = Command::new("curl").args(["-sS", "-m", "20", &url]).output().unwrap();
    wait_until("the rejection is logged", || log.lock().unwrap().matches("refused: ").count() >= 2);
    drop(running.interrupt());
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(&key, PermissionsExt::from_mode(0o644)).unwrap();
    run(&arguments).with_status(1).says("key is readable by all users");
}
