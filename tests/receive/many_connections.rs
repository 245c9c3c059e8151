//! A thousand connections at once with different lengths; every byte is compared.

use crate::receive::testbed::{OWN, OWN6, Stage, Way, sound, streams};
use linerate_tests::support::has_tools;

/// Opens all connections before it sends a byte, then writes to each what it accepts, in any order. Each has its own
/// length and content: 8-byte counters with its number, because the pattern without a key is the same for all.
const MANY: &str = "
import selectors, socket, sys
host, count = sys.argv[1], int(sys.argv[2])
sel, left = selectors.DefaultSelector(), {}
socks = []
for n in range(count):
    s = socket.create_connection((host, 5001))
    s.setblocking(False)
    socks.append(s)
for n, s in enumerate(socks):
    size = 1 + n * n * 7919 % 100003
    left[s] = memoryview(b''.join((n << 32 | at).to_bytes(8, 'big') for at in range(size // 8 + 1))[:size])
    sel.register(s, selectors.EVENT_WRITE)
while left:
    for key, _ in sel.select():
        s = key.fileobj
        sent = s.send(left[s][:20011])
        left[s] = left[s][sent:]
        if not left[s]:
            sel.unregister(s)
            s.shutdown(socket.SHUT_WR)
            del left[s]
for s in socks:
    s.setblocking(True)
    assert s.recv(1) == b'', 'nothing is sent back'
";
const COUNT: usize = 1000;

#[test]
fn thousand_connections_receive_their_own_bytes() {
    let Some(stage) = Stage::up(true).filter(|_| has_tools(&["python3"])) else { return };
    let script = stage.scratch.file("many.py");
    std::fs::write(&script, MANY).expect("a file");
    for to in [OWN, OWN6] {
        let folder = stage.scratch.file("many");
        let count = COUNT.to_string();
        let frames = ["--frames", "1100", "--frame-size", "64KiB", "--streams", &count];
        let running = stage.receive(&stage.port(Way::Packet, ""), &[&["-w", &folder], &frames[..]].concat());
        let client = stage.command("client", "sh", &["-c", &format!("ulimit -n 4096; python3 {script} {to} {count}")]);
        let output = { client }.output().expect("python3");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let report = sound(running.end());
        let mut got: Vec<(String, u64)> = streams(&report);
        let mut wanted: Vec<(String, u64)> = (0..COUNT).map(|n| ("complete".to_owned(), size(n))).collect();
        got.sort();
        wanted.sort();
        assert_eq!(got, wanted, "{to}");
        let mut numbers: Vec<u64> =
            crate::receive::clients::written(&folder).iter().map(|stream| number(stream)).collect();
        numbers.sort_unstable();
        assert!(numbers.iter().copied().eq(0..COUNT as u64), "{to}: every connection once");
        std::fs::remove_dir_all(&folder).expect("a folder");
    }
}

#[test]
fn send_opens_a_thousand_connections() {
    let Some(stage) = Stage::up(true) else { return };
    let frames = ["--frames", "1100", "--frame-size", "64KiB", "--streams", "1000"];
    let running = stage.receive(&stage.port(Way::Packet, ""), &[&["--check"], &frames[..]].concat());
    stage.send(&format!("{OWN}:5001"), &["--size", "100KiB", "--connections", "1000"]).good();
    assert_eq!(streams(&sound(running.end())), vec![("complete".to_owned(), 100 << 10); 1000]);
}

fn size(number: usize) -> u64 {
    let number = number as u64;
    1 + number * number * 7919 % 100_003
}

/// Returns the number of the connection whose bytes these are; connection 0 has a single byte.
fn number(stream: &[u8]) -> u64 {
    let number = stream.get(..4).map_or(0, |bytes| u64::from(u32::from_be_bytes(bytes.try_into().expect("4 bytes"))));
    let is_right = |(at, bytes): (u64, &[u8])| (number << 32 | at).to_be_bytes().starts_with(bytes);
    assert!((0..).zip(stream.chunks(8)).all(is_right), "connection {number} has other bytes");
    number
}
