//! `memif:`: the suite over both roles and rings of all shapes, and error messages.

use crate::conformance::backends::{Can, Harness, receive, transmit, unique};
use crate::conformance::checks::run;
use crate::conformance::errors::assert_refused;
use crate::conformance::faulty::run_faulty;
use crate::conformance::wire::Wire;
use linerate_engine::clock::now;
use linerate_port::{RxOptions, RxPort, TxPort};
use std::time::Duration;

/// Memif connection with both ends in this process.
pub(super) struct Memif {
    name: String,
    receives: &'static str,
    rings: usize,
    options: &'static str,
}

impl Memif {
    /// Creates one with the receiver in this role, this number of rings to it, and options of both ends.
    pub(super) fn new(receives: &'static str, rings: usize, options: &'static str) -> Self {
        Memif { name: format!("memif, {receives} receives, {rings} rings{options}"), receives, rings, options }
    }
}

/// Services both ends until they are connected.
fn connect(rx: &mut RxPort, tx: &mut TxPort) {
    let mut time = now();
    for _ in 0..100 {
        time = time.after(Duration::from_millis(1));
        rx.queues.iter_mut().for_each(|queue| assert!(queue.fill(time).unwrap().burst.is_empty()));
        tx.queues.iter_mut().for_each(|queue| assert!(queue.flush(time).unwrap()));
    }
}

impl Harness for Memif {
    fn name(&self) -> &str {
        &self.name
    }

    fn can(&self) -> Can {
        Can {
            senders: self.rings,
            keeps_times: false,
            ordered_lanes: true,
            longest: linerate_burst::MAX_FRAME,
            cuts: Some(0),
            idle_horizon: true,
            live: true,
            reopens: false,
            back_pressure: true,
            restores_vlan: false,
        }
    }

    fn open(&self, options: &RxOptions) -> Wire {
        let name = format!("linerate-conformance-{}-{}", std::process::id(), unique());
        let sends = if self.receives == "server" { "client" } else { "server" };
        let (rings, more) = (self.rings, self.options);
        let from = format!("memif:{name}?role={}&rings-in={rings}{more}", self.receives);
        let to = format!("memif:{name}?role={sends}&rings-out={rings}{more}");
        // The server first: a client without a server retries after a while.
        let (mut rx, mut tx) = if self.receives == "server" {
            let rx = receive(&from, options);
            (rx, transmit(&to, rings))
        } else {
            let tx = transmit(&to, rings);
            (receive(&from, options), tx)
        };
        connect(&mut rx, &mut tx);
        // The other direction keeps the connection open after the sender closes.
        Wire::live(tx, rx).keeping(receive(&to, &RxOptions::default()))
    }
}

#[test]
fn memif_with_a_sending_client() {
    run(&Memif::new("server", 1, ""));
}

#[test]
fn memif_with_a_sending_server() {
    run(&Memif::new("client", 1, ""));
}

#[test]
fn memif_with_four_rings() {
    run(&Memif::new("server", 4, ""));
    run(&Memif::new("client", 4, ""));
}

#[test]
fn memif_with_short_buffers() {
    run(&Memif::new("server", 1, "&buffer=256&ring=4096"));
    run(&Memif::new("client", 1, "&buffer=256&ring=4096&chains=any"));
}

#[test]
fn faulty_memif() {
    run_faulty(|| Some(Memif::new("server", 1, "")));
}

#[test]
fn invalid_memif_ports_are_reported() {
    for (text, parts) in [
        ("memif:x@0-1", &["rings-in"][..]),
        ("memif:x?role=master", &["role=master", "client or server"]),
        ("memif:x?rings-in=0", &["rings-in", "1 to 64"]),
        ("memif:x?ring=1000", &["ring=", "power of two"]),
        ("memif:x?ring=32768", &["ring=", "16384"]),
        ("memif:x?buffer=100", &["buffer=", "multiple of 64"]),
        ("memif:x?secret=more-than-twenty-four-bytes", &["secret=...", "24 bytes"]),
        ("memif:x?id=4294967296", &["id=", "32-bit"]),
        ("memif:x?users=root", &["users=", "user IDs"]),
        ("memif:x?chains=some", &["chains=some", "full or any"]),
        ("memif:x?trust=maybe", &["trust=maybe", "no or yes"]),
        ("memif:x?speed=1", &["speed", "role, id, secret"]),
        ("memif:/nowhere/at/all?role=server", &["/nowhere/at/all", "socket"]),
    ] {
        for sends in [false, true] {
            assert_refused(text, sends, parts);
        }
    }
    let error = linerate_backends::open_rx(
        &linerate_port::Spec::parse("memif:/nowhere/x?role=server&secret=hush").unwrap(),
        &RxOptions::default(),
    );
    let error = error.err().unwrap().to_string();
    assert!(!error.contains("hush") && error.contains("secret=..."), "{error}");
}
