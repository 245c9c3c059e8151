//! `top` with ports of its own.

use crate::top::pty::Pty;
use linerate_tests::support::program::run;
use linerate_tests::support::{has_tools, is_root, skip};
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A sender of datagrams on the loopback interface, until it is dropped.
struct DatagramSender(Arc<AtomicBool>);

impl DatagramSender {
    /// Starts to send to an unused port, which is returned.
    fn start() -> (DatagramSender, u16) {
        let (from, to) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        let port = to.local_addr().unwrap().port();
        let is_over = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&is_over);
        std::thread::spawn(move || {
            let _to = &to;
            while !ended.load(Ordering::Relaxed) {
                let _ = from.send_to(&[0; 1000], ("127.0.0.1", port));
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        (DatagramSender(is_over), port)
    }
}

impl Drop for DatagramSender {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn port_is_opened_metered_and_closed() {
    if !is_root() {
        return skip("not root");
    }
    if !has_tools(&["setsid"]) {
        return;
    }
    let (_sender, port) = DatagramSender::start();
    let filter = format!("udp port {port}");
    let pty = Pty::start(&["top", "lo", "--interval", "0.3", &filter], 100, 30);
    pty.wait_raw_mode();
    let responder = format!("127.0.0.1:{port}");
    let screen = pty.wait("the flow is shown", |screen| screen.contains(&responder) && screen.contains("packet:lo"));
    assert!(screen.contains("bits/s") && screen.contains(" L1"), "{screen}");
    pty.press("z");
    pty.wait("only flows are shown", |screen| {
        // Only in the first line.
        screen.matches("packet:lo").count() == 1 && screen.contains(&responder)
    });
    pty.press("z");
    pty.wait("only ports are shown, with a sparkline", |screen| {
        !screen.contains(&responder) && screen.contains('\u{2588}')
    });
    pty.press("\x03");
    let (status, screen) = pty.end();
    assert!(status.success(), "{status}: {screen}");
    // The view is removed; only the message about dropped privileges remains.
    assert!(!screen.contains("packets/s"), "{screen}");
    let table = run(&["top", "lo", "--once", "--by", "resp_port", &filter]).with_status(0).output;
    let row = table.lines().find(|line| line.starts_with(&port.to_string())).unwrap_or_else(|| panic!("{table}"));
    assert!(row.contains("100.0 %"), "{table}");
}

#[test]
fn failed_start_is_reported_on_a_restored_terminal() {
    if !has_tools(&["setsid"]) {
        return;
    }
    let pty = Pty::start(&["top", "packet:no-such-port"], 80, 24);
    let (status, screen) = pty.end();
    assert!(!status.success() && screen.contains("no-such-port"), "{screen}");
}
