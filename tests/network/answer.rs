//! ARP, neighbour discovery and echo replies, and next hop resolution, with kernels of a router and a host as peers.

use linerate_tests::support::program::{Ended, Running, run, start};
use linerate_tests::support::records::{self, Record};
use linerate_tests::support::wire::{ROOMY, Wire};
use linerate_tests::support::{Scratch, may_make_labs, tool, wait_until};
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use rustix::net::{AddressFamily, Protocol, SocketType, ipproto, socket};
use serde_json::Value;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

const MAC: &str = "02:00:00:00:00:01";

/// The addresses of one family.
struct Family {
    /// The sender, the router on its side, the far host; and the prefix and an address that the sender answers for.
    sender: &'static str,
    router: &'static str,
    host: &'static str,
    others: &'static str,
    other: &'static str,
    /// An unused address of the network.
    unused: &'static str,
}

const FAMILIES: [Family; 2] = [
    Family {
        sender: "10.9.0.7",
        router: "10.9.0.1",
        host: "10.9.1.2",
        others: "10.9.0.64/28",
        other: "10.9.0.70",
        unused: "10.9.0.99",
    },
    Family {
        sender: "fd09::7",
        router: "fd09::1",
        host: "fd09:1::2",
        others: "fd09::64:0/112",
        other: "fd09::64:70",
        unused: "fd09::99",
    },
];

/// Host `a` without addresses, a forwarding router `r`, and a host `h` on its other side.
struct Scene(Wire);

impl Scene {
    fn new() -> Self {
        let wire = Wire::of(&[
            "a:eth0,r:p0=10.9.0.1/24+fd09::1/64,queues=2,offloads=off",
            "r:p1=10.9.1.1/24+fd09:1::1/64,h:eth0=10.9.1.2/24+fd09:1::2/64,offloads=off",
        ]);
        let scene = Scene(wire);
        scene.within("r", || {
            set("ipv4/ip_forward", "1");
            set("ipv6/conf/all/forwarding", "1");
        });
        // The router sends neighbour solicitations for forwarded packets only from a link-local address.
        for port in ["p0", "p1"] {
            scene.0.ip("r", &["address", "add", "fe80::1/64", "dev", port, "nodad"]);
        }
        scene.0.ip("h", &["route", "add", "10.9.0.0/24", "via", "10.9.1.1"]);
        scene.0.ip("h", &["route", "add", "fd09::/64", "via", "fd09:1::1"]);
        scene
    }

    fn within<T: Send>(&self, host: &str, work: impl FnOnce() -> T + Send) -> T {
        linerate_lab::within(&self.0.namespace(host), work).expect("a host")
    }

    /// A UDP socket of a host.
    fn udp(&self, host: &str, ip: &str, port: u16) -> UdpSocket {
        let ip: IpAddr = ip.parse().unwrap();
        let socket = self.within(host, || UdpSocket::bind((ip, port))).unwrap();
        // Room for all datagrams: this process may have to wait for a processor.
        set_socket_recv_buffer_size_force(&socket, 8 << 20).unwrap();
        timed(socket)
    }

    /// A ping socket of a host, connected to `to`: the kernel decides which replies are valid.
    fn ping_socket(&self, host: &str, to: &str) -> UdpSocket {
        let (family, protocol) = match to.parse::<IpAddr>().unwrap() {
            IpAddr::V4(_) => (AddressFamily::INET, ipproto::ICMP),
            IpAddr::V6(_) => (AddressFamily::INET6, ipproto::ICMPV6),
        };
        let open = |protocol: Protocol| socket(family, SocketType::DGRAM, Some(protocol));
        let socket = self.within(host, || {
            set("ipv4/ping_group_range", "0 0");
            open(protocol)
        });
        let socket = timed(UdpSocket::from(socket.expect("a ping socket")));
        socket.connect(SocketAddr::new(to.parse().unwrap(), 0)).unwrap();
        socket
    }

    /// The router's entry of a neighbour on the sender's side.
    fn neighbor(&self, ip: &str) -> String {
        tool("ip", &["-n", &self.0.namespace("r"), "neigh", "show", ip, "dev", "p0"])
    }

    /// Starts to answer, while sending 1 packet per second, until it is stopped.
    fn answering(&self, arguments: &[&str]) -> Running {
        let to = self.0.port("a", "eth0", "");
        start(
            &[
                &["generate", "--to", &to, "--udp", "--duration", "60", "--rate", "1pps", "--size", "100", "--json"],
                arguments,
            ]
            .concat(),
        )
    }
}

fn set(name: &str, value: &str) {
    std::fs::write(format!("/proc/sys/net/{name}"), value).unwrap_or_else(|error| panic!("{name}: {error}"));
}

fn timed(socket: UdpSocket) -> UdpSocket {
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    socket
}

/// Sends an echo request; returns true if the reply matches it.
fn ping(socket: &UdpSocket, length: usize) -> bool {
    let kind = if socket.local_addr().unwrap().is_ipv4() { 8 } else { 128 };
    // The kernel fills in checksum and identifier; the sequence number is set here.
    let message: Vec<u8> = [kind, 0, 0, 0, 0, 0, 0, 42].into_iter().chain((0..length).map(|at| at as u8)).collect();
    socket.send(&message).unwrap();
    let mut back = vec![0; 4096];
    receive(socket, &mut back).is_ok_and(|count| count == message.len() && back[6..count] == message[6..])
}

/// Retries after EINTR: a wait with a timeout ends early if the process was stopped (signal(7)).
fn receive(socket: &UdpSocket, data: &mut [u8]) -> io::Result<usize> {
    loop {
        match socket.recv(data) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

fn noted(json: &Value, name: &str) -> u64 {
    let account = json["accounts"].as_array().unwrap().iter().find(|one| one["stage"] == "answer").expect("answers");
    account["notes"][name].as_u64().unwrap_or(0)
}

#[test]
fn datagrams_and_replies_cross_a_resolved_router() {
    if !may_make_labs() {
        return;
    }
    let scene = Scene::new();
    tool("ip", &["netns", "exec", &scene.0.namespace("r"), "ethtool", "-K", "p0", "gro", "on"]);
    for (at, Family { sender, router, host, others, other, .. }) in FAMILIES.iter().enumerate() {
        for (number, scheme) in ["packet:", "xdp:", "xdp-live:"].iter().enumerate() {
            let port = 7000 + 10 * at as u16 + number as u16;
            let socket = scene.udp("h", host, port);
            // A connected socket receives only from this sender.
            socket.connect((*sender, 49152)).unwrap();
            let to = scene.0.port("a", "eth0", "").replace("packet:", scheme);
            let others = format!("{others}@{MAC}");
            let port = port.to_string();
            let sent = start(
                &[
                    &["generate", "--json", "--to", &to, "--udp", "--src-ip", sender, "--dst-ip", host][..],
                    &["--dst-port", &port, "--size", "100", "-c", "1000", "--rate", "1kpps"],
                    &["--gateway", router, "--answer", "--answer-for", &others],
                ]
                .concat(),
            );
            let asked = scene.ping_socket("h", other);
            assert!(ping(&asked, 100), "{scheme} {other}");
            let mut got = 0;
            while got < 1000 {
                match receive(&socket, &mut [0; 2000]) {
                    Ok(length) => assert_eq!(length, if at == 0 { 54 } else { 34 }),
                    Err(error) => panic!("{scheme} {host}: {got} datagrams: {error}"),
                }
                got += 1;
            }
            let json = sent.end().good().json();
            assert_eq!((&json["frames"], &json["lost"], &json["balanced"]), (&1000.into(), &0.into(), &true.into()));
            assert!(
                noted(&json, "resolved") == 1 && (1..=3).contains(&noted(&json, "requests_sent")),
                "{scheme}: {json}"
            );
            assert!(
                noted(&json, "arp") + noted(&json, "neighbor") >= 1 && noted(&json, "echo") == 1,
                "{scheme}: {json}"
            );
            let known = scene.neighbor(other);
            assert!(known.contains(MAC) && known.contains("REACHABLE"), "{scheme}: {known}");
            socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
            assert!(receive(&socket, &mut [0; 2000]).is_err(), "{scheme}: more datagrams than were sent");
            // The next run has to resolve addresses again.
            scene.0.ip("r", &["neigh", "flush", "dev", "p0"]);
        }
    }
}

#[test]
fn arp_neighbour_and_echo_requests_are_answered() {
    if !may_make_labs() {
        return;
    }
    let scene = Scene::new();
    for Family { sender, router, others, other, unused, .. } in &FAMILIES {
        let others = format!("{others}@{MAC}");
        let mut options = vec!["--src-ip", *sender, "--dst-ip", *router, "--resolve", "--answer-for", others.as_str()];
        let answered_for = scene.answering(&options);
        let socket = scene.ping_socket("r", other);
        for length in [0, 56, 1400] {
            assert!(ping(&socket, length), "{other} {length}");
        }
        assert!(scene.neighbor(other).contains("REACHABLE"), "{}", scene.neighbor(other));
        let silent = scene.ping_socket("r", unused);
        silent.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        assert!(!ping(&silent, 56), "{unused} is not answered for");
        let json = answered_for.interrupt().good().json();
        assert_eq!((noted(&json, "resolved"), noted(&json, "echo")), (1, 3), "{json}");
        assert!(json["balanced"] == true && json["lost"] == 0, "{json}");

        // The rate limit allows a few answers, and none in the rest of the second.
        options.extend(["--answer-rate", "2"]);
        let limited = scene.answering(&options);
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let started = Instant::now();
        let answers = (0..20).filter(|_| ping(&socket, 56)).count();
        let most = 2 + 2 * (1 + started.elapsed().as_secs() as usize);
        assert!((1..=most).contains(&answers), "{answers} answers in {:?}", started.elapsed());
        assert!(limited.interrupt().good().json()["drops"]["rate_limited"].as_u64() > Some(0));
    }
}

#[test]
fn answered_address_fails_duplicate_address_detection() {
    if !may_make_labs() {
        return;
    }
    let scene = Scene::new();
    let answering = scene.answering(&["--answer-for", &format!("fd09::64:0/112@{MAC}")]);
    scene.within("r", || {
        set("ipv6/conf/p0/accept_dad", "1");
        set("ipv6/conf/p0/dad_transmits", "1");
    });
    for (address, taken) in [("fd09::64:5", true), ("fd09::65:5", false)] {
        scene.0.ip("r", &["address", "add", &format!("{address}/64"), "dev", "p0"]);
        let show = || tool("ip", &["-n", &scene.0.namespace("r"), "-6", "address", "show", "dev", "p0", "to", address]);
        wait_until("duplicate address detection has ended", || {
            show().contains("dadfailed") || !show().contains("tentative")
        });
        assert_eq!(show().contains("dadfailed"), taken, "{}", show());
    }
    let json = answering.interrupt().good().json();
    assert_eq!(noted(&json, "neighbor"), 1, "{json}");
}

#[test]
fn silent_next_hop_is_an_error() {
    if !may_make_labs() {
        return;
    }
    let scene = Scene::new();
    let to = scene.0.port("a", "eth0", "");
    let ask = |Family { sender, host, unused, .. }: &Family| {
        let started = Instant::now();
        let udp = ["generate", "--to", &to, "--udp", "--size", "100", "--src-ip", sender, "--dst-ip", host];
        run(&[&udp[..], &["--gateway", unused]].concat()).with_status(1).says(unused).says("packet:eth0").says(sender);
        let waited = started.elapsed().as_secs_f64();
        assert!((2.9..20.0).contains(&waited), "{waited} s");
    };
    std::thread::scope(|scope| FAMILIES.iter().for_each(|family| drop(scope.spawn(|| ask(family)))));
}

/// The tag is in the sent frame; the kernel strips it before the answering socket.
#[test]
fn tagged_requests_get_tagged_replies() {
    if !may_make_labs() {
        return;
    }
    let (scene, scratch) = (Scene::new(), Scratch::new());
    let (file, output) = (scratch.file("asked.pcap"), scratch.file("out.pcap"));
    let ask = |tags: &[[u8; 4]], last: u8| {
        let head =
            [[0xff; 6].as_slice(), &[2, 0, 0, 0, 0, 9], &tags.concat(), &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1]].concat();
        let mut bytes = [&head[..], &[2, 0, 0, 0, 0, 9, 10, 9, 5, 1], &[0; 6], &[10, 9, 5, last]].concat();
        bytes.resize(60, 0);
        Record { time: 0, wire: bytes.len() as u32, bytes }
    };
    let (one, two) = ([0x81, 0, 0, 100], [0x88, 0xa8, 0, 7]);
    let asked = [ask(&[one], 2), ask(&[two, one], 3), ask(&[[0x81, 0, 0, 101]], 2), ask(&[], 2), ask(&[one], 4)];
    records::write(&file, &asked);
    let answering = scene.answering(&[
        "--answer-for",
        "10.9.5.2@02:00:00:00:00:01@100",
        "--answer-for",
        "10.9.5.3@02:00:00:00:00:02@7.100",
    ]);
    let port = scene.0.port("r", "p0", ROOMY);
    let capture = start(&[
        "capture",
        "-i",
        &port,
        "-w",
        &output,
        "-c",
        "2",
        "--duration",
        "20",
        "--json",
        "ether dst 02:00:00:00:00:09",
    ]);
    run(&["replay", "--to", &scene.0.port("r", "p0", ""), "-r", &file, "--rate", "max"]).good();
    assert_eq!(capture.end().good().json()["frames"], 2);
    let got = records::read(&output);
    for (number, (answer, tags)) in got.iter().zip([&[one][..], &[two, one]]).enumerate() {
        let after_tags = 12 + 4 * tags.len();
        let own = [2, 0, 0, 0, 0, 1 + number as u8];
        let head =
            [[2, 0, 0, 0, 0, 9].as_slice(), &own, &tags.concat(), &[8, 6, 0, 1, 8, 0, 6, 4, 0, 2], &own].concat();
        assert_eq!(answer.bytes[..after_tags + 16], head[..], "{number}");
        assert_eq!(answer.bytes[after_tags + 16..after_tags + 20], [10, 9, 5, 2 + number as u8]);
    }
    let json = answering.interrupt().good().json();
    assert_eq!((noted(&json, "arp"), json["drops"]["other"].as_u64()), (2, Some(3)), "{json}");
}

#[test]
fn invalid_answer_and_gateway_options_are_rejected() {
    for (arguments, text) in [
        (&["--to", "pcap:x.pcap", "--udp", "--answer"][..], "not an interface"),
        (&["--to", "eth7", "--udp", "--gateway", "fd00::1"], "eth7"),
        (&["--to", "eth7", "--udp", "--gateway", "10.0.0.1", "--resolve"], "cannot be used with"),
        (&["--to", "eth7", "--udp", "--resolve", "--dst-mac", MAC], "cannot be used with"),
        (&["--to", "eth7", "--udp", "--answer-for", "10.0.0.0/33@02:00:00:00:00:01"], "PREFIX@MAC"),
        (
            &["--to", "eth7", "--udp", "--answer", "--answer-for", "198.18.0.0/24@02:00:00:00:00:09"],
            "198.18.0.1 is assigned to both",
        ),
    ] {
        let ended: Ended = run(&[&["generate"], arguments].concat());
        assert!(ended.status != 0, "{arguments:?}");
        ended.says(text);
    }
}
