//! Endless runs: packets with current timestamps, written to the standard input of the program.

use linerate_tests::support::program::{Running, linerate, spawn};
use linerate_tests::support::records::{Record, body, header};
use linerate_tests::support::wait_until;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

/// A run and the writer of its input; both end on drop.
pub(super) struct Fed {
    pub run: Running,
    is_over: Arc<AtomicBool>,
}

impl Fed {
    /// Starts a verb that reads standard input (`-r -`) and serves metrics at this path or address.
    pub(super) fn start(arguments: &[&str], path: &str) -> Fed {
        let mut command = linerate(arguments);
        command.args(["-r", "-", "--metrics", path]);
        let mut run = spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
        let mut input = run.take_input().unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&is_over);
        std::thread::spawn(move || {
            let mut number: u32 = 0;
            // The run may end first.
            let _ = input.write_all(&header());
            while !ended.load(Ordering::Relaxed) {
                let frames: Vec<Record> = (0..10).map(|place| record(number + place)).collect();
                number += 10;
                if input.write_all(&body(&frames)).and_then(|()| input.flush()).is_err() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        wait_until("the run answers", || match path.parse::<SocketAddr>() {
            Ok(address) => TcpStream::connect(address).is_ok(),
            Err(_) => UnixStream::connect(path).is_ok(),
        });
        Fed { run, is_over }
    }
}

impl Drop for Fed {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// UDP of six hosts: 10.9.0.1 sends half of all packets, to 10.9.1.1 port 53; the others send to a port of their own.
fn record(number: u32) -> Record {
    let (host, payload) = if number.is_multiple_of(2) { (1, 1000) } else { (2 + number / 2 % 5, 100) };
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let bytes = udp(host as u8, if host == 1 { 53 } else { 5000 + host as u16 }, payload);
    Record { time: now.as_nanos() as u64, wire: bytes.len() as u32, bytes }
}

fn udp(host: u8, port: u16, payload: usize) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    let length = (20 + 8 + payload) as u16;
    frame.extend([0x45, 0]);
    frame.extend(length.to_be_bytes());
    frame.extend([0, 0, 0, 0, 64, 17, 0, 0, 10, 9, 0, host, 10, 9, 1, host]);
    for word in [40_000 + u16::from(host), port, length - 20, 0] {
        frame.extend(word.to_be_bytes());
    }
    frame.resize(14 + usize::from(length), 0);
    frame
}
