//! The kernel's TCP behind a tun interface, with a consumer that can stop reading its socket.
//!
//! The kernel processes a packet before the write to the interface returns; a ping after it confirms that nothing is
//! pending. Delayed acknowledgements are disabled (`TCP_QUICKACK`), and so are limits on their rate.

use crate::oracle::peer::{PORT, Reply, Seg, read_packet, v4, v6};
use linerate::port::{RxOptions, RxPort, Spec, TxOptions, TxPort, open_rx, open_tx};
use linerate_burst::{Block, Desc, LinkType, Nanos};
use linerate_engine::clock::now;
use linerate_headers::{Sum, registry};
use linerate_lab::within;
use linerate_tests::support::wire::Wire;
use linerate_tests::support::{may_make_labs, tool};
use linerate_transport::stream_memory::Ending;
use rustix::net::sockopt::{set_socket_linger, set_socket_oobinline, set_tcp_quickack};
use std::io::{ErrorKind, Read};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Settings that make the kernel answer at once and always: no rate limit of challenges, no compressed SACK, no pacing.
const PROMPT: [&str; 5] = [
    "net.ipv4.tcp_invalid_ratelimit=0",
    "net.ipv4.tcp_comp_sack_nr=0",
    "net.ipv4.tcp_congestion_control=reno",
    "net.ipv6.conf.all.disable_ipv6=0",
    "net.ipv6.conf.default.disable_ipv6=0",
];
/// Slightly more than the minimum delay of an acknowledgement in Linux.
const DELAYED: Duration = Duration::from_millis(45);
const PATIENCE: Duration = Duration::from_secs(10);

/// Network namespace with one connection.
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
    replies: Vec<Reply>,
    _wire: Wire,
}

impl Kernel {
    /// Starts it; reports a skip and returns `None` where no network namespaces can be created.
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
        let tx =
            open_tx(&spec, &TxOptions { link: LinkType::RAW, ..TxOptions::default() }).expect("its other direction");
        let bind = || {
            [v4(1), v6(1)].map(|ip| {
                let listener = TcpListener::bind((ip, PORT)).expect("a listening socket");
                listener.set_nonblocking(true).expect("a socket");
                listener
            })
        };
        let listeners = within(&host, bind).expect("listening sockets");
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
            replies: Vec::new(),
            _wire: wire,
        })
    }

    /// Resets the previous connection, and prepares for one from this port.
    pub(super) fn start(&mut self, port: u16) {
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

    /// Waits for delayed acknowledgements, which the kernel sends for unread bytes.
    pub(super) fn wait(&mut self) -> Vec<Reply> {
        std::thread::sleep(DELAYED);
        self.step(None)
    }

    /// Processes a segment, if any, and returns all answers.
    pub(super) fn step(&mut self, segment: Option<&Seg>) -> Vec<Reply> {
        self.replies.clear();
        if let Some(segment) = segment {
            self.send(&segment.packet());
        }
        self.ping();
        self.consume();
        self.ping();
        std::mem::take(&mut self.replies)
    }

    /// Returns the bytes read so far, and how the stream ended.
    pub(super) fn got(&self) -> (Vec<u8>, Option<Ending>) {
        (self.got.clone(), self.ending)
    }

    /// Accepts and reads the connection, and closes it after its end.
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
        // May fail, depending on the state of the socket.
        let _ = set_tcp_quickack(&*stream, true);
        if self.ending.is_some() {
            // A process that another test starts has a copy of the socket until its exec, which delays the close.
            let _ = stream.shutdown(Shutdown::Both);
            self.stream = None;
        }
    }

    fn send(&mut self, packet: &[u8]) {
        let mut block = Block::new(1 << 17, 1);
        assert!(block.push(&Desc::new(Nanos::ZERO, 0, packet.len() as u32), packet));
        assert_eq!(self.tx.queues[0].send(block.burst()).expect("the interface"), 1);
        assert!(self.tx.queues[0].flush(Nanos::ZERO).expect("the interface"));
    }

    /// Waits until all packets are processed: the kernel answers an echo request after them.
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
        self.send(&packet);
        let start_time = Instant::now();
        while !self.receive() {
            assert!(start_time.elapsed() < PATIENCE, "the kernel does not answer a ping");
        }
    }

    /// Receives packets from the kernel; returns true if the reply to the last ping was one of them.
    fn receive(&mut self) -> bool {
        let head = self.rx.queues[0].fill(now()).expect("the interface");
        let (shown, mut is_answered) = (head.burst.len(), false);
        for (_, packet) in head.burst.iter() {
            let protocol = if packet[0] >> 4 == 4 { packet[9] } else { packet[6] };
            if protocol == registry::ICMP && packet[20] == 0 {
                is_answered |= packet[26..28] == self.pings.to_be_bytes();
            } else if protocol == registry::TCP {
                let reply = read_packet(&[], packet);
                if reply.to.1 == self.port {
                    self.replies.push(reply);
                }
            }
        }
        self.rx.queues[0].consume(shown);
        is_answered
    }
}
