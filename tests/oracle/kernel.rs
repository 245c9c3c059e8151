//! The kernel's TCP behind a tun interface, and a consumer that reads its socket or does not.
//!
//! What is written to the interface is dealt with before the write returns; a ping behind it shows that nothing is left all the same.
//! Delayed acknowledgements are asked for (`TCP_QUICKACK`), and nothing is limited in time.

use crate::oracle::peer::{PORT, Reply, Seg, read_packet, v4, v6};
use linerate::port::{RxOptions, RxPort, Spec, TxOptions, TxPort, open_rx, open_tx};
use linerate_burst::{Block, Desc, LinkType, Nanos};
use linerate_engine::clock::now;
use linerate_lab::within;
use linerate_receive::place::Ending;
use linerate_tests::support::wire::Wire;
use linerate_tests::support::{may_make_labs, tool};
use linerate_wire::{Sum, registry};
use rustix::net::sockopt::{set_socket_linger, set_socket_oobinline, set_tcp_quickack};
use std::io::{ErrorKind, Read};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// What the kernel says at once, as often as it is asked: how often it answers what may be forged, how it gathers blocks,
/// and how it paces what it sends.
const PROMPT: [&str; 5] = [
    "net.ipv4.tcp_invalid_ratelimit=0",
    "net.ipv4.tcp_comp_sack_nr=0",
    "net.ipv4.tcp_congestion_control=reno",
    "net.ipv6.conf.all.disable_ipv6=0",
    "net.ipv6.conf.default.disable_ipv6=0",
];
/// The least that Linux delays an acknowledgement, and a little more.
const DELAYED: Duration = Duration::from_millis(45);
const PATIENCE: Duration = Duration::from_secs(10);

/// A host of its own, and one connection to it.
pub(super) struct Kernel {
    rx: RxPort,
    tx: TxPort,
    listeners: [TcpListener; 2],
    /// The peer's port.
    port: u16,
    stream: Option<TcpStream>,
    reads: bool,
    got: Vec<u8>,
    ending: Option<Ending>,
    pings: u16,
    heard: Vec<Reply>,
    _wire: Wire,
}

impl Kernel {
    /// `None`, said aloud, where hosts cannot be made.
    pub(super) fn up() -> Option<Kernel> {
        if !may_make_labs() {
            return None;
        }
        let wire = Wire::of(&["host:eth0,other:eth0"]);
        let host = wire.namespace("host");
        tool("ip", &[&["netns", "exec", &host, "sysctl", "-qw"], &PROMPT[..]].concat());
        let text = format!("tun:t0?netns={host}&address={}/24,{}/64&mtu=1500&offloads=no", v4(1), v6(1));
        let spec = Spec::parse(&text).expect("a port");
        let rx = open_rx(&spec, &RxOptions { lanes: 1, ..RxOptions::default() }).expect("a tun interface");
        let tx = open_tx(&spec, &TxOptions { link: LinkType::RAW, ..TxOptions::default() }).expect("its other way");
        let listen = || {
            [v4(1), v6(1)].map(|ip| {
                let listener = TcpListener::bind((ip, PORT)).expect("a listening socket");
                listener.set_nonblocking(true).expect("a socket");
                listener
            })
        };
        let listeners = within(&host, listen).expect("a host");
        Some(Kernel {
            rx,
            tx,
            listeners,
            port: 0,
            stream: None,
            reads: true,
            got: Vec::new(),
            ending: None,
            pings: 0,
            heard: Vec::new(),
            _wire: wire,
        })
    }

    /// Forgets the connection there was, for one from this port.
    pub(super) fn begin(&mut self, port: u16) {
        if let Some(stream) = self.stream.take() {
            let _ = set_socket_linger(&stream, Some(Duration::ZERO));
        }
        while self.listeners.iter().any(|listener| listener.accept().is_ok()) {}
        (self.port, self.reads, self.ending) = (port, true, None);
        self.got.clear();
    }

    pub(super) fn read(&mut self, reads: bool) {
        self.reads = reads;
    }

    /// Lets time go by: of what nobody has read acknowledgements are delayed.
    pub(super) fn wait(&mut self) -> Vec<Reply> {
        std::thread::sleep(DELAYED);
        self.step(None)
    }

    /// Takes a segment, or none, and says all that it has to say.
    pub(super) fn step(&mut self, segment: Option<&Seg>) -> Vec<Reply> {
        self.heard.clear();
        if let Some(segment) = segment {
            self.give(&segment.packet());
        }
        self.ping();
        self.consume();
        self.ping();
        std::mem::take(&mut self.heard)
    }

    /// The stream as far as it was read, and how it ended.
    pub(super) fn got(&self) -> (Vec<u8>, Option<Ending>) {
        (self.got.clone(), self.ending)
    }

    /// Does what a consumer does, and closes where its stream has ended.
    fn consume(&mut self) {
        if self.stream.is_none() && self.ending.is_none() {
            self.stream = self.listeners.iter().find_map(|listener| listener.accept().ok()).map(|(stream, _)| stream);
            if let Some(stream) = &self.stream {
                stream.set_nonblocking(true).expect("a socket");
                set_socket_oobinline(stream, true).expect("a socket");
            }
        }
        let Some(stream) = &mut self.stream else { return };
        let mut buffer = [0; 1 << 14];
        while self.reads && self.ending.is_none() {
            match stream.read(&mut buffer) {
                Ok(0) => self.ending = Some(Ending::Complete),
                Ok(count) => self.got.extend(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => self.ending = Some(Ending::Reset),
            }
        }
        // Whatever state the socket is in by now.
        let _ = set_tcp_quickack(&*stream, true);
        if self.ending.is_some() {
            self.stream = None;
        }
    }

    fn give(&mut self, packet: &[u8]) {
        let mut block = Block::new(1 << 17, 1);
        assert!(block.push(&Desc::new(Nanos::ZERO, 0, packet.len() as u32), packet));
        assert_eq!(self.tx.queues[0].send(block.burst()).expect("the interface"), 1);
        assert!(self.tx.queues[0].flush(Nanos::ZERO).expect("the interface"));
    }

    /// Has all that was given been dealt with: an echo request is answered behind it.
    fn ping(&mut self) {
        self.pings = self.pings.wrapping_add(1);
        let mut packet = vec![0x45, 0, 0, 28, 0, 0, 0x40, 0, 64, registry::ICMP, 0, 0, 10, 0, 0, 2, 10, 0, 0, 1];
        let sum = Sum::of(&packet).checksum().to_be_bytes();
        packet[10..12].copy_from_slice(&sum);
        let mut echo = [8, 0, 0, 0, 7, 7, 0, 0];
        echo[6..].copy_from_slice(&self.pings.to_be_bytes());
        let sum = Sum::of(&echo).checksum().to_be_bytes();
        echo[2..4].copy_from_slice(&sum);
        packet.extend(echo);
        self.give(&packet);
        let began = Instant::now();
        while !self.listen() {
            assert!(began.elapsed() < PATIENCE, "the kernel does not answer a ping");
        }
    }

    /// Takes what the kernel has sent; whether the answer to the last ping was among it.
    fn listen(&mut self) -> bool {
        let head = self.rx.queues[0].fill(now()).expect("the interface");
        let (shown, mut is_answered) = (head.burst.len(), false);
        for (_, packet) in head.burst.iter() {
            let protocol = if packet[0] >> 4 == 4 { packet[9] } else { packet[6] };
            if protocol == registry::ICMP && packet[20] == 0 {
                is_answered |= packet[26..28] == self.pings.to_be_bytes();
            } else if protocol == registry::TCP {
                let reply = read_packet(&[], packet);
                if reply.to.1 == self.port {
                    self.heard.push(reply);
                }
            }
        }
        self.rx.queues[0].consume(shown);
        is_answered
    }
}
