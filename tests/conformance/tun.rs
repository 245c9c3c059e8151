//! `tun:`: the suite over an interface created by the test, with Ethernet frames, and tests with IP packets and a host
//! at the other end.

use crate::conformance::backends::{Can, Harness, Veth, receive, transmit, unique};
use crate::conformance::checks::run;
use crate::conformance::errors::assert_refused;
use crate::conformance::faulty::run_faulty;
use crate::conformance::wire::{PATIENCE, Wire};
use linerate_backends::{open_rx, open_tx};
use linerate_burst::{Block, Count, Desc, Flags, Horizon, Ledger, LinkType, Nanos};
use linerate_engine::clock::now;
use linerate_lab::within;
use linerate_port::{RxOptions, RxPort, Spec, TxOptions, TxPort};
use std::io::{IoSliceMut, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// Tap in a namespace, and AF_PACKET at the host's end of it.
struct Tap {
    name: String,
    veth: Veth,
}

impl Tap {
    fn up() -> Option<Self> {
        Veth::up(1, None).map(|veth| Tap { name: "tun, mode=tap".to_owned(), veth })
    }
}

impl Harness for Tap {
    fn name(&self) -> &str {
        &self.name
    }

    fn can(&self) -> Can {
        Can {
            senders: 1,
            keeps_times: false,
            ordered_lanes: true,
            longest: 65_535,
            cuts: Some(0),
            idle_horizon: true,
            live: true,
            reopens: false,
            back_pressure: false,
            restores_vlan: false,
        }
    }

    fn open(&self, options: &RxOptions) -> Wire {
        let (interface, netns) = (format!("tap{}", unique()), self.veth.lab().host("left").unwrap());
        let rx = receive(&format!("tun:{interface}?mode=tap&netns={netns}&mtu=65521&queue=8000"), options);
        Wire::live(transmit(&format!("packet:{interface}?netns={netns}"), 1), rx).with_window(2000)
    }
}

#[test]
fn tun_with_ethernet_frames() {
    if let Some(tap) = Tap::up() {
        run(&tap);
    }
}

#[test]
fn faulty_tun() {
    run_faulty(Tap::up);
}

/// Host at the end with 10.98.0.1 and fd98::1; this process is its peer.
struct Host {
    veth: Veth,
    text: String,
    rx: RxPort,
    tx: TxPort,
}

impl Host {
    fn up(options: &RxOptions) -> Option<Host> {
        let veth = Veth::up(1, None)?;
        let switches = ["net.ipv6.conf.all.disable_ipv6=0", "net.ipv6.conf.default.disable_ipv6=0"];
        let on = veth.lab().exec("left", "sysctl").unwrap().arg("-qw").args(switches).status().unwrap();
        assert!(on.success());
        let netns = veth.lab().host("left").unwrap();
        let text = format!("tun:t0?netns={netns}&address=10.98.0.1/24,fd98::1/64&mtu=1500");
        let rx = receive(&text, options);
        let link = TxOptions { link: LinkType::RAW, ..TxOptions::default() };
        let tx = open_tx(&Spec::parse(&text).unwrap(), &link).unwrap();
        Some(Host { veth, text, rx, tx })
    }

    /// Runs this in the host's namespace.
    fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        within(self.veth.lab().host("left").unwrap(), work).unwrap()
    }

    /// Returns the next packet from the host that matches.
    fn next(&mut self, matches_packet: impl Fn(&[u8]) -> bool) -> (Desc, Vec<u8>) {
        let start_time = Instant::now();
        while start_time.elapsed() < PATIENCE {
            let head = self.rx.queues[0].fill(now()).unwrap();
            let shown = head.burst.len();
            let found = head
                .burst
                .iter()
                .find(|(_, packet)| matches_packet(packet))
                .map(|(desc, bytes)| (*desc, bytes.to_vec()));
            self.rx.queues[0].consume(shown);
            if let Some(found) = found {
                return found;
            }
            thread::sleep(Duration::from_millis(1));
        }
        panic!("no matching packet");
    }

    fn send(&mut self, packet: &[u8]) {
        let mut block = Block::new(1 << 20, 1);
        assert!(block.push(&Desc::new(Nanos::ZERO, 0, packet.len() as u32), packet));
        assert_eq!(self.tx.queues[0].send(block.burst()).unwrap(), 1);
        assert!(self.tx.queues[0].flush(Nanos::ZERO).unwrap());
    }
}

fn is_of(protocol: u8) -> impl Fn(&[u8]) -> bool {
    move |packet| packet[0] >> 4 == 4 && packet[9] == protocol
}

/// Swaps the source and destination addresses.
fn swap_addresses(packet: &mut [u8]) {
    let (from, to) = packet[12..20].split_at_mut(4);
    from.swap_with_slice(to);
}

/// Returns the Internet checksum of these bytes plus a partial sum.
fn checksum(bytes: &[u8], more: u32) -> [u8; 2] {
    let words = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0)));
    let mut sum = words.sum::<u32>() + more;
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!(sum as u16)).to_be_bytes()
}

#[test]
fn datagram_is_sent_and_answered() {
    let Some(mut host) = Host::up(&RxOptions::default()) else { return };
    let socket = host.within(|| UdpSocket::bind("10.98.0.1:0").unwrap());
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.send_to(b"hello", "10.98.0.2:7").unwrap();
    let (desc, mut packet) = host.next(is_of(17));
    assert_eq!((desc.captured, desc.wire, &packet[28..]), (33, 33, &b"hello"[..]));
    assert!(desc.flags.contains(Flags::CHECKSUM_PARTIAL), "{:?}", desc.flags);
    let interfaces = host.rx.queues[0].fill(now()).unwrap().interfaces.to_vec();
    assert_eq!((interfaces[0].link, interfaces.len()), (LinkType::RAW, 1));
    swap_addresses(&mut packet);
    packet.copy_within(20..22, 24);
    packet.copy_within(22..24, 20);
    packet.copy_within(24..26, 22);
    packet[24..26].copy_from_slice(&13_u16.to_be_bytes());
    // No checksum, which IPv4 permits.
    packet[26..28].fill(0);
    host.send(&packet);
    let mut buffer = [0; 99];
    let (got, from) = socket.recv_from(&mut buffer).unwrap();
    assert_eq!((&buffer[..got], from), (&b"hello"[..], "10.98.0.2:7".parse::<SocketAddr>().unwrap()));
    // Not an IP packet: the kernel rejects it, and it is counted.
    host.send(&[0; 60]);
    let mut ledger = Ledger::new();
    host.tx.queues[0].counters(&mut ledger);
    assert_eq!((ledger.total(Count::Sent), ledger.total(Count::SendRefused)), (1, 1));
    host.rx.queues[0].detach();
    while host.rx.queues[0].fill(now()).unwrap().horizon != Horizon::Ended {
        let shown = host.rx.queues[0].fill(now()).unwrap().burst.len();
        host.rx.queues[0].consume(shown);
    }
    host.rx.queues[0].counters(&mut ledger);
    assert_eq!((ledger.imbalances(), ledger.losses()), (vec![], vec![(Count::SendRefused, 1)]));
}

#[test]
fn ping_is_answered() {
    let Some(mut host) = Host::up(&RxOptions::default()) else { return };
    if Command::new("ping").arg("-V").output().is_err() {
        eprintln!("SKIPPED: needs ping");
        return;
    }
    let mut command = host.veth.lab().exec("left", "ping").unwrap();
    let ping = thread::spawn(move || command.args(["-c", "1", "-W", "10", "10.98.0.2"]).output().unwrap());
    let (_, mut packet) = host.next(is_of(1));
    swap_addresses(&mut packet);
    packet[20] = 0;
    packet[22..24].fill(0);
    let sum = checksum(&packet[20..], 0);
    packet[22..24].copy_from_slice(&sum);
    host.send(&packet);
    let output = ping.join().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

/// Returns the SYN-ACK for this SYN.
fn syn_ack(syn: &[u8]) -> Vec<u8> {
    let mut packet = syn[..44].to_vec();
    packet[2..4].copy_from_slice(&44_u16.to_be_bytes());
    swap_addresses(&mut packet);
    packet[10..12].fill(0);
    let sum = checksum(&packet[..20], 0);
    packet[10..12].copy_from_slice(&sum);
    packet[20..22].copy_from_slice(&syn[22..24]);
    packet[22..24].copy_from_slice(&syn[20..22]);
    packet[24..28].copy_from_slice(&1000_u32.to_be_bytes());
    let next = u32::from_be_bytes(syn[24..28].try_into().unwrap()).wrapping_add(1);
    packet[28..32].copy_from_slice(&next.to_be_bytes());
    // Data offset 24, SYN and ACK, window, no urgent data; MSS option.
    packet[32..44].copy_from_slice(&[0x60, 0x12, 0xff, 0xff, 0, 0, 0, 0, 2, 4, 0x05, 0xb4]);
    let pseudo =
        packet[12..20].chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum::<u32>() + 6 + 24;
    let sum = checksum(&packet[20..], pseudo);
    packet[36..38].copy_from_slice(&sum);
    packet
}

/// Each frame is read directly to its destination: headers and payload apart, with flags from the kernel.
#[test]
fn super_frames_are_read_into_separate_buffers() {
    let Some(mut host) = Host::up(&RxOptions { scatter: true, ..RxOptions::default() }) else { return };
    let netns = host.veth.lab().host("left").unwrap().to_owned();
    let data: Vec<u8> = (0..14_000_u32).map(|at| (at * 7 / 3) as u8).collect();
    let sent = data.clone();
    let client = thread::spawn(move || {
        let mut stream = within(&netns, || TcpStream::connect("10.98.0.2:80").unwrap()).unwrap();
        stream.write_all(&sent).unwrap();
        stream
    });
    let (mut headers, mut payload) = ([0; 40], vec![0; 70_000]);
    let (mut got, mut max_len, mut first) = (Vec::new(), 0, None);
    let start_time = Instant::now();
    while got.len() < data.len() && start_time.elapsed() < PATIENCE {
        let queue = host.rx.queues[0].scatter().expect("opened with scatter");
        let mut pieces = [IoSliceMut::new(&mut headers), IoSliceMut::new(&mut payload)];
        let Some(read) = queue.read(&mut pieces).unwrap() else { continue };
        if headers[0] >> 4 != 4 || headers[9] != 6 {
            continue;
        }
        if headers[33] & 2 != 0 {
            let whole = [&headers[..], &payload[..read.len - 40]].concat();
            assert_eq!(read.flags, Flags::CHECKSUM_PARTIAL, "a SYN");
            host.send(&syn_ack(&whole));
            continue;
        }
        // No options: the SYN-ACK had no timestamps.
        let (sequence, len) = (u32::from_be_bytes(headers[24..28].try_into().unwrap()), read.len - 40);
        let start = *first.get_or_insert(sequence);
        if len > 0 && sequence.wrapping_sub(start) as usize == got.len() {
            got.extend_from_slice(&payload[..len]);
        }
        max_len = max_len.max(len);
        assert_eq!(read.flags.contains(Flags::SUPER_FRAME), len > 1460, "{read:?}");
        assert_eq!(read.segment, if len > 1460 { 1460 } else { 0 }, "{read:?}");
    }
    assert!(got == data, "{} of {} bytes", got.len(), data.len());
    assert!(max_len > 1460, "no super-frame was received");
    drop(client.join().unwrap());
    let mut ledger = Ledger::new();
    host.rx.queues[0].detach();
    host.rx.queues[0].counters(&mut ledger);
    assert_eq!((ledger.imbalances(), ledger.lost()), (vec![], 0));
    assert!(ledger.total(Count::SuperFrames) > 0 && ledger.total(Count::ChecksumPartial) > 1, "{ledger:#?}");
}

#[test]
fn full_queue_drops_are_counted_and_detach_ends_under_traffic() {
    let Some(veth) = Veth::up(1, None) else { return };
    let netns = veth.lab().host("left").unwrap();
    let text = format!("tun:t1@0-1?netns={netns}&address=10.98.0.1/24&queue=50");
    let mut rx = receive(&text, &RxOptions::default());
    assert_eq!(rx.queues.len(), 2);
    let socket = within(netns, || UdpSocket::bind("10.98.0.1:0").unwrap()).unwrap();
    for _ in 0..1000 {
        socket.send_to(b"x", "10.98.0.2:7").unwrap();
    }
    rx.queues.iter_mut().for_each(|queue| queue.detach());
    let mut ledger = Ledger::new();
    for queue in &mut rx.queues {
        for _ in 0..1000 {
            // Traffic continues; the detach does not wait for it.
            socket.send_to(b"y", "10.98.0.2:7").unwrap();
            let head = queue.fill(now()).unwrap();
            let (shown, ended) = (head.burst.len(), head.horizon == Horizon::Ended);
            queue.consume(shown);
            if ended {
                break;
            }
        }
        assert_eq!(queue.fill(now()).unwrap().horizon, Horizon::Ended);
        queue.counters(&mut ledger);
    }
    assert_eq!(ledger.imbalances(), []);
    let (lost, delivered) = (ledger.total(Count::RingFull), ledger.total(Count::Delivered));
    assert!(lost > 800 && (50..=101).contains(&delivered), "{lost} lost, {delivered} delivered");
}

#[test]
fn both_directions_share_one_interface() {
    let Some(veth) = Veth::up(1, None) else { return };
    let netns = veth.lab().host("left").unwrap();
    let text = format!("tun:t2?netns={netns}&mtu=9000");
    let rx = receive(&text, &RxOptions::default());
    assert!(veth.ip("left", "link show t2").contains("mtu 9000"));
    let again = open_rx(&Spec::parse(&text).unwrap(), &RxOptions::default()).err().unwrap().to_string();
    assert!(again.contains("already open for receiving"), "{again}");
    assert_refused(&format!("tun:t2@0-1?netns={netns}"), true, &["t2", "already open with 1 queues"]);
    assert_refused(&format!("tun:t2?mode=tap&netns={netns}"), true, &["t2", "another mode="]);
    assert_refused(&format!("tun:t2?mtu=1400&netns={netns}"), true, &["t2", "already open without mtu=1400"]);
    let tx = transmit(&text, 1);
    drop(rx);
    let rx = receive(&text, &RxOptions::default());
    drop((rx, tx));
    let removed = veth.lab().exec("left", "ip").unwrap().args(["link", "show", "t2"]).output().unwrap();
    assert!(!removed.status.success(), "the interface was not removed");
    // An interface created by another program is kept.
    veth.ip("left", "tuntap add t3 mode tun");
    drop(receive(&format!("tun:t3?netns={netns}"), &RxOptions::default()));
    assert!(veth.ip("left", "link show t3").contains("t3"));
    assert_refused(&format!("tun:t3?mode=tap&netns={netns}"), false, &["t3", "with another type"]);
    assert_refused(&format!("tun:t3@0-3?netns={netns}"), false, &["t3", "one queue"]);
    assert_refused(&format!("tun:eth0?netns={netns}"), false, &["eth0", "with another type"]);
}

/// Sending Ethernet frames on a tun interface sends their packets.
#[test]
fn packets_are_extracted_from_frames() {
    let Some(host) = Host::up(&RxOptions::default()) else { return };
    let socket = host.within(|| UdpSocket::bind("10.98.0.1:9").unwrap());
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let Host { text, rx, tx, .. } = &host;
    assert_eq!((rx.queues.len(), tx.queues.len()), (1, 1));
    let mut frames = transmit(text, 1);
    let mut packet = vec![0x45, 0, 0, 30, 0, 0, 0, 0, 64, 17, 0, 0, 10, 98, 0, 2, 10, 98, 0, 1];
    let sum = checksum(&packet, 0);
    packet[10..12].copy_from_slice(&sum);
    packet.extend([0, 7, 0, 9, 0, 10, 0, 0, b'h', b'i']);
    let mut block = Block::new(1 << 20, 2);
    for kind in [[8, 0], [8, 6]] {
        let frame = [&[2; 12][..], &kind, &packet, &[0; 16]].concat();
        assert!(block.push(&Desc::new(Nanos::ZERO, 0, frame.len() as u32), &frame));
    }
    assert_eq!(frames.queues[0].send(block.burst()).unwrap(), 2);
    let mut buffer = [0; 99];
    let (got, from) = socket.recv_from(&mut buffer).unwrap();
    assert_eq!((&buffer[..got], from.to_string()), (&b"hi"[..], "10.98.0.2:7".to_owned()));
    let mut ledger = Ledger::new();
    frames.queues[0].counters(&mut ledger);
    assert_eq!((ledger.total(Count::Sent), ledger.total(Count::SendRefused)), (1, 1), "ARP is not an IP packet");
    assert_eq!(frames.queues[0].sent().bytes, packet.len() as u64, "only the packet counts");
}

#[test]
fn invalid_ports_are_reported() {
    for (text, parts) in [
        ("tun:t9?mode=tum", &["mode=tum", "tun (IP packets)"][..]),
        ("tun:t9?address=10.0.0", &["address=", "10.98.0.1/24"]),
        ("tun:t9?mtu=20", &["mtu=", "68"]),
        ("tun:t9?offloads=some", &["offloads=some", "yes or no"]),
        ("tun:t9@2-3", &["queues start at 0"]),
        ("tun:t9?speed=1", &["speed", "netns, address"]),
    ] {
        assert_refused(text, false, parts);
        assert_refused(text, true, parts);
    }
    let link = TxOptions { link: LinkType(113), ..TxOptions::default() };
    let message = open_tx(&Spec::parse("tun:t9").unwrap(), &link).err().unwrap().to_string();
    assert!(message.contains("link type 113") || message.contains("linux cooked"), "{message}");
}
