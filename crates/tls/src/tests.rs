//! A client and a server, with certificates created by openssl.

use super::*;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Creates a CA, certificates signed by it (`good`, `other`: of another name, `old`: expired, `client`) and a
/// self-signed one (`self`); `None` without openssl.
fn certificates(name: &str) -> Option<PathBuf> {
    let folder = std::env::temp_dir().join(format!("linerate-tls-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let script = include_str!("../../../tests/tls/certificates.sh");
    let quiet = |name: &str, arguments: &[&str]| {
        let mut command = Command::new(name);
        command.args(arguments).current_dir(&folder).stderr(Stdio::null()).stdout(Stdio::null());
        command.status()
    };
    let is_made =
        quiet("openssl", &["version"]).is_ok() && quiet("bash", &["-c", script]).is_ok_and(|status| status.success());
    is_made.then_some(folder)
}

fn files(folder: &Path, ca: Option<&str>, own: Option<&str>) -> Files {
    Files {
        ca: ca.map(|ca| folder.join(format!("{ca}.pem"))),
        cert: own.map(|own| folder.join(format!("{own}.pem"))),
        key: own.map(|own| folder.join(format!("{own}.key"))),
    }
}

/// Connects a client that sends `hello` to a server. Returns the client's result, and the data received.
fn meet(server: &Files, client: &Files, host: &str) -> (std::io::Result<()>, Vec<u8>) {
    let (server, client) = (Server::new(server).unwrap(), Client::new(client).unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let taken = std::thread::spawn(move || {
        let (socket, _) = listener.accept().unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let (mut session, mut bytes) = (server.session().unwrap(), Vec::new());
        while session.take(&socket, &mut bytes).is_ok_and(|goes_on| goes_on) {}
        bytes
    });
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let begun = Instant::now();
    let done = client.connect(host, socket, || begun.elapsed() < Duration::from_secs(20)).and_then(|mut stream| {
        stream.write_all(b"hello")?;
        stream.flush()?;
        stream.end();
        // The server's rejection of our certificate arrives later.
        match stream.read(&mut [0; 16]) {
            Err(error) if !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::UnexpectedEof) => Err(error),
            _ => Ok(()),
        }
    });
    (done, taken.join().unwrap())
}

#[test]
fn only_trusted_peers_are_accepted_and_others_get_the_reason() {
    let Some(folder) = certificates("meet") else {
        return eprintln!("SKIPPED: openssl is not installed: no certificates");
    };
    let of = |ca, own| files(&folder, ca, own);
    for host in ["localhost", "127.0.0.1"] {
        let (done, received) = meet(&of(None, Some("good")), &of(Some("ca"), None), host);
        done.unwrap();
        assert_eq!(received, b"hello");
    }
    let (done, received) = meet(&of(Some("ca"), Some("good")), &of(Some("ca"), Some("client")), "localhost");
    done.unwrap();
    assert_eq!(received, b"hello");
    for (server, client, host, expected) in [
        (of(None, Some("self")), of(Some("ca"), None), "localhost", "not signed by a trusted CA"),
        (of(None, Some("good")), of(None, None), "localhost", "not signed by a trusted CA"),
        (of(None, Some("other")), of(Some("ca"), None), "localhost", "another name"),
        (of(None, Some("old")), of(Some("ca"), None), "localhost", "has expired"),
        (of(Some("ca"), Some("good")), of(Some("ca"), None), "localhost", "requires a client certificate"),
        (of(Some("ca"), Some("good")), of(Some("ca"), Some("self")), "localhost", "rejected our certificate"),
    ] {
        if client.ca.is_none() && Client::new(&client).is_err() {
            continue;
        }
        let (done, received) = meet(&server, &client, host);
        let error = done.expect_err(expected);
        assert!(error.to_string().contains(expected), "{expected}: {error}");
        assert_eq!((error.kind(), received), (ErrorKind::PermissionDenied, vec![]), "{error}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

/// A write after the peer has closed returns the reason that the peer sent.
#[test]
fn a_write_after_the_end_returns_the_reason() {
    let Some(folder) = certificates("late") else {
        return eprintln!("SKIPPED: openssl is not installed: no certificates");
    };
    let server = Server::new(&files(&folder, Some("ca"), Some("good"))).unwrap();
    let client = Client::new(&files(&folder, Some("ca"), Some("self"))).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let taken = std::thread::spawn(move || {
        let (socket, _) = listener.accept().unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let (mut session, mut bytes) = (server.session().unwrap(), Vec::new());
        while session.take(&socket, &mut bytes).is_ok_and(|goes_on| goes_on) {}
    });
    let mut stream = client.connect("localhost", socket, || true).unwrap();
    taken.join().unwrap();
    // The server answers the first one with a RST.
    let error = (0..100).find_map(|_| stream.write_all(b"hello").and_then(|()| stream.flush()).err()).unwrap();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_peer_without_tls_fails_the_handshake() {
    let Some(folder) = certificates("plain") else {
        return eprintln!("SKIPPED: openssl is not installed: no certificates");
    };
    let client = Client::new(&files(&folder, Some("ca"), None)).unwrap();
    for (answer, expected) in [(&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], "does not speak TLS"), (b"", "timed out")] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let taken = std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            socket.write_all(answer).unwrap();
            let _ = std::io::copy(&mut socket, &mut std::io::sink());
        });
        let socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
        let mut left = 10;
        let error = client.connect("localhost", socket, || {
            left -= 1;
            left > 0
        });
        let error = error.err().unwrap();
        assert!(error.to_string().contains(expected), "{error}");
        taken.join().unwrap();
    }
    // A client that does not speak TLS, at a server.
    let server = Server::new(&files(&folder, None, Some("good"))).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut plain = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    plain.write_all(b"\0\x0a\0\x10not TLS, but IPFIX").unwrap();
    let (socket, _) = listener.accept().unwrap();
    let (mut session, mut bytes) = (server.session().unwrap(), Vec::new());
    let error = session.take(&socket, &mut bytes).unwrap_err();
    assert!(error.to_string().contains("does not speak TLS") && bytes.is_empty(), "{error}");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn invalid_files_are_rejected_with_the_reason() {
    use std::os::unix::fs::PermissionsExt;
    let Some(folder) = certificates("files") else {
        return eprintln!("SKIPPED: openssl is not installed: no certificates");
    };
    let of = |ca, own| files(&folder, ca, own);
    let assert_refused = |files: &Files, expected: &str| {
        for error in [Client::new(files).err(), Server::new(files).err()].into_iter().flatten() {
            assert!(error.to_string().contains(expected), "{expected}: {error}");
        }
        assert!(Server::new(files).is_err(), "{expected}");
    };
    std::fs::write(folder.join("empty.pem"), "nothing\n").unwrap();
    std::fs::write(folder.join("empty.key"), "nothing\n").unwrap();
    std::fs::set_permissions(folder.join("empty.key"), PermissionsExt::from_mode(0o600)).unwrap();
    assert_refused(&of(Some("empty"), Some("good")), "no certificate found");
    assert_refused(&of(Some("nowhere"), Some("good")), "cannot read");
    assert_refused(&of(Some("ca"), Some("empty")), "no certificate found");
    assert_refused(
        &Files { key: Some(folder.join("empty.key")), ..of(Some("ca"), Some("good")) },
        "no unencrypted PEM key",
    );
    assert_refused(&Files { key: None, ..of(Some("ca"), Some("good")) }, "set both");
    assert_refused(
        &Files { key: Some(folder.join("other.key")), ..of(Some("ca"), Some("good")) },
        "key does not match the certificate",
    );
    assert!(Server::new(&of(None, None)).unwrap_err().to_string().contains("needs a certificate"));
    std::fs::set_permissions(folder.join("good.key"), PermissionsExt::from_mode(0o644)).unwrap();
    assert_refused(&of(None, Some("good")), "key is readable by all users; run chmod o=");
    std::fs::remove_dir_all(folder).unwrap();
}
