//! Connection floods: threads of another user connect to the acceptor of a ring and hang up.

use crate::share::fixtures::{Feed, assert_all, read_ring, ring_name};
use linerate_tests::support::program::launch;
use linerate_tests::support::records;
use linerate_tests::support::{Scratch, has_tools, may_change_user};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Longer than any test, so that a run that waits for its end fails.
const LIFE: Duration = Duration::from_secs(30);
const THREADS: u32 = 128;

/// A process of user 65534.
struct Flood(Child);

impl Flood {
    /// Returns once the acceptor is busy; `None` without rights to change the user.
    fn start(name: &str) -> Option<Flood> {
        if !may_change_user() || !has_tools(&["setpriv"]) {
            return None;
        }
        // The test checks how long the acceptor serves the flood, not how processors are scheduled.
        let mut command = Command::new("nice");
        command.args(["-n", "19", "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]);
        command.arg(std::env::current_exe().unwrap());
        command
            .args(["--exact", "share::flood::connection_flood", "--ignored", "--nocapture"])
            .env("LINERATE_RING", name);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let flood = Flood(child);
        assert!(lines.into_iter().any(|line| line.contains("connecting")), "the flood does not start");
        Some(flood)
    }

    fn is_running(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
#[ignore = "run by the tests below, as another user"]
fn connection_flood() {
    let Ok(name) = std::env::var("LINERATE_RING") else { return };
    let address = SocketAddrUnix::new_abstract_name(format!("linerate/{name}").as_bytes()).unwrap();
    let connect_once = || {
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        connect(&socket, &address).is_ok()
    };
    let started = Instant::now();
    thread::scope(|scope| {
        for number in 0..THREADS {
            scope.spawn(move || {
                for attempt in 0_u64.. {
                    connect_once();
                    if attempt == 50 && number == 0 {
                        println!("connecting");
                    }
                    if started.elapsed() > LIFE {
                        return;
                    }
                }
            });
        }
    });
}

#[test]
fn flood_blocks_neither_readers_nor_the_end() {
    let (scratch, name) = (Scratch::new(), ring_name());
    let output = scratch.file("out.pcap");
    let mut feed = Feed::start(&name, 1, &[]);
    let Some(mut flood) = Flood::start(&name) else { return };
    let reader = read_ring(&format!("shm:{name}"), &output, &[]);
    feed.send(1000);
    feed.end().good();
    assert!(flood.is_running(), "the run waited for the end of the flood");
    reader.end().good();
    assert_all("during the flood", &records::read(&output), 0..1000);
}

/// A sender to a ring accepts connections in its own thread.
#[test]
fn flood_does_not_slow_a_sender() {
    let name = ring_name();
    let port = format!("shm:{name}");
    let sender = launch(&["generate", "--to", &port, "--udp", "--rate", "1000pps", "--duration", "3", "--json"]);
    linerate_tests::support::wait_until("the ring exists", || {
        std::fs::read_to_string("/proc/net/unix").unwrap().contains(&name)
    });
    let Some(mut flood) = Flood::start(&name) else { return };
    let json = sender.end().good().json();
    assert!(flood.is_running(), "the run waited for the end of the flood");
    // 3000 are due; a busy machine may lose some.
    assert!(json["frames"].as_u64().is_some_and(|frames| frames > 2000), "{json:#}");
}
