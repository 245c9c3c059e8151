//! Records of two hosts' real clients match the counters of the kernels and the clients.

use crate::flows::clients::Clients;
use crate::flows::kernel::{Host, Socket};
use crate::flows::metered::{Metered, Record, Side, TCP, UDP, sums};
use crate::flows::socket_counters::{check_negotiated, check_retransmissions};
use crate::flows::testbed::{CLIENT, DNS, HTTP, IPERF_TCP, IPERF_UDP, Meter, SERVER, Stage, Way};

#[test]
fn records_by_packet_match_the_kernels() {
    check_records(Way::Packet);
}

#[test]
fn records_by_xdp_match_the_kernels() {
    check_records(Way::Xdp);
}

#[test]
fn records_by_shm_match_the_kernels() {
    check_records(Way::Shm);
}

fn check_records(way: Way) {
    let Some(stage) = Stage::up(false) else { return };
    let before = Hosts::look(&stage);
    let meter = Meter::start(&stage, way, &["--level", "tcp"]);
    let clients = Clients::run(&stage);
    let after = Hosts::look(&stage);
    let Some(metered) = meter.end() else { return };
    assert!(metered.records.iter().all(|record| record.flows == 1 && record.end != "evicted"));
    check_interface(&metered, &before, &after);
    check_protocols(&metered, &before, &after);
    check_sockets(&metered, &after);
    for (record, client, server) in connections(&metered, &after) {
        check_negotiated(record, client, server);
        check_retransmissions(record, 0, client);
        check_retransmissions(record, 1, server);
    }
    check_clients(&metered, &clients, &before, &after);
}

/// With offloads, a packet on the wire can be up to 64 KiB of segments in the socket counters: bytes agree.
#[test]
fn super_frames_have_the_bytes_of_their_segments() {
    let Some(stage) = Stage::up(true) else { return };
    let before = Hosts::look(&stage);
    let meter = Meter::start(&stage, Way::Packet, &[]);
    let clients = Clients::run(&stage);
    let after = Hosts::look(&stage);
    let Some(metered) = meter.end() else { return };
    check_interface(&metered, &before, &after);
    check_clients(&metered, &clients, &before, &after);
    let mut joined = 0;
    for (record, client, server) in connections(&metered, &after) {
        let [orig, resp] = record.sides;
        assert_eq!(orig.payload_bytes, client.number("bytes_sent"), "{record:?}: {client:?}");
        assert_eq!(resp.payload_bytes, server.number("bytes_sent"), "{record:?}: {server:?}");
        let segments = client.number("segs_out");
        assert!(orig.packets <= segments, "{record:?}: {client:?}");
        let is_joined = record.quality.iter().any(|name| name == "super_frames");
        assert_eq!(is_joined, orig.packets < segments, "{record:?}: {client:?}");
        joined += segments - orig.packets;
    }
    assert!(joined > 1000, "only {joined} segments were part of super-frames");
}

/// Counters of both kernels.
pub(super) struct Hosts {
    pub client: Host,
    pub server: Host,
}

impl Hosts {
    pub(super) fn look(stage: &Stage) -> Self {
        Hosts { client: Host::look(stage, "client"), server: Host::look(stage, "server") }
    }
}

/// Returns the records of the hosts, which are all between them and started by the client.
pub(super) fn of_hosts(metered: &Metered) -> Vec<&Record> {
    let of_them = |record: &&Record| record.resp.0 == SERVER || record.resp.0 == CLIENT;
    let records: Vec<&Record> = metered.records.iter().filter(of_them).collect();
    for record in &records {
        assert_eq!((record.orig.0.as_str(), record.resp.0.as_str()), (CLIENT, SERVER), "{record:?}");
    }
    records
}

/// Checks that every frame on the client's interface is in a record or counted as non-IP.
fn check_interface(metered: &Metered, before: &Hosts, after: &Hosts) {
    let nothing = [before.client.received, before.client.sent];
    assert_eq!(nothing, [[0; 2]; 2], "frames before the meter was started");
    let [orig, resp] = sums(of_hosts(metered));
    let both = |packets: u64, bytes: u64| [packets, bytes];
    assert_eq!(metered.number("malformed"), 0);
    let counted = [0, 1].map(|at| after.client.received[at] + after.client.sent[at]);
    let metered = both(
        orig.packets + resp.packets + metered.number("not_ip"),
        orig.frame_bytes + resp.frame_bytes + metered.number("not_ip_bytes"),
    );
    assert_eq!(metered, counted, "frames and bytes, metered and on the client's interface");
}

/// Checks the IP, TCP and UDP counters of both hosts.
pub(super) fn check_protocols(metered: &Metered, before: &Hosts, after: &Hosts) {
    let records = of_hosts(metered);
    let (client, server) = (&after.client, &after.server);
    let of = |protocol: u64| sums(records.iter().copied().filter(|record| record.protocol == protocol));
    let [all, tcp, udp] = [sums(records.iter().copied()), of(TCP), of(UDP)];
    let grown = |name: &str| [server.since(&before.server, name), client.since(&before.client, name)];
    let packets = |sides: [Side; 2]| sides.map(|side| side.packets);
    assert_eq!(packets(all), grown("Ip.InReceives"), "packets received by server and client");
    assert_eq!(all.map(|side| side.packet_bytes), grown("IpExt.InOctets"), "their bytes");
    assert_eq!(packets(tcp), grown("Tcp.InSegs"), "segments received by server and client");
    let sent = [client.segments_sent(&before.client), server.segments_sent(&before.server)];
    assert_eq!(packets(tcp), sent, "segments sent by client and server");
    // Datagrams that no program has read are not counted.
    let read = grown("Udp.InDatagrams");
    assert!(packets(udp).iter().zip(read).all(|(seen, read)| *seen >= read), "{udp:?}, {read:?} read");
    let sent = [client.since(&before.client, "Udp.OutDatagrams"), server.since(&before.server, "Udp.OutDatagrams")];
    assert_eq!(packets(udp), sent, "datagrams sent by client and server");
    assert!(packets(tcp).iter().chain(&packets(udp)).all(|count| *count > 20), "{tcp:?} {udp:?}");
}

/// Checks open connections: segments and bytes.
pub(super) fn check_sockets(metered: &Metered, after: &Hosts) {
    for (record, client, server) in connections(metered, after) {
        let [orig, resp] = record.sides;
        let what = format!("{record:?}\n{client:?}\n{server:?}");
        assert_eq!(record.end, "forced", "{what}");
        assert_eq!([orig.packets; 2], [client.number("segs_out"), server.number("segs_in")], "{what}");
        // The SYN-ACK is sent before its socket exists.
        assert_eq!([resp.packets; 2], [client.number("segs_in"), server.number("segs_out") + 1], "{what}");
        assert_eq!([orig.payload_bytes, resp.payload_bytes], [client, server].map(|end| end.number("bytes_sent")));
        let fresh = [client, server].map(|end| end.number("bytes_sent") - end.number("bytes_retrans"));
        assert_eq!(fresh, [server, client].map(|end| end.number("bytes_received")), "{what}");
    }
}

/// Returns the record and both sockets of each open connection: iperf3 has one for control and one for data.
fn connections<'a>(metered: &'a Metered, after: &'a Hosts) -> Vec<(&'a Record, &'a Socket, &'a Socket)> {
    let sockets = after.client.sockets.iter();
    let connections: Vec<_> = sockets
        .map(|client| {
            let record = metered.only(TCP, client.local_port, client.peer_port);
            (record, client, after.server.socket(client.peer_port, client.local_port))
        })
        .collect();
    assert_eq!(connections.len(), 2, "connections that are open");
    let most = connections.iter().map(|(record, ..)| record.sides[0].payload_bytes).max();
    assert!(most > Some(5_000_000), "iperf3 sent {most:?} bytes");
    assert_eq!(connections[0].1.peer_port, u64::from(IPERF_TCP));
    connections
}

/// Checks the counts of the clients.
pub(super) fn check_clients(metered: &Metered, clients: &Clients, before: &Hosts, after: &Hosts) {
    let datagrams = &clients.datagrams;
    let record = metered.only(UDP, datagrams.local_port, IPERF_UDP.into());
    let sides = record.sides.map(|side| [side.packets, side.payload_bytes]);
    // Iperf3 starts with four bytes in each direction.
    assert_eq!(sides, [[datagrams.count + 1, datagrams.bytes + 4], [1, 4]], "{record:?}");

    assert_eq!(metered.to(TCP, HTTP.into()).count(), clients.downloads.len(), "connections for as many files");
    let spare =
        after.client.retransmissions_of_closed(&before.client) + after.server.retransmissions_of_closed(&before.server);
    for download in &clients.downloads {
        let record = metered.only(TCP, download.local_port, HTTP.into());
        let [asked, got] = record.sides.map(|side| side.payload_bytes);
        assert_eq!(record.end, "end", "{record:?}");
        if spare == 0 {
            assert_eq!([asked, got], [download.asked, download.got], "{record:?}");
        } else {
            // The kernel no longer reports which of the closed connections retransmitted.
            let more = [asked - download.asked, got - download.got];
            assert!(more.iter().sum::<u64>() <= spare * 65_536, "{record:?}: {download:?}, {spare} retransmissions");
        }
    }

    // Two queries from the same port are one record.
    let sum = |of: fn(&Side) -> u64| metered.to(UDP, DNS.into()).map(|record| of(&record.sides[1])).sum::<u64>();
    assert_eq!(sum(|side| side.packets), clients.answers.len() as u64, "answers: {:?}", clients.answers);
    assert_eq!(sum(|side| side.payload_bytes), clients.answers.iter().sum::<u64>(), "bytes of the answers");
    let one = metered.to(UDP, DNS.into()).all(|record| record.sides[0].packets == record.sides[1].packets);
    assert!(one, "a query for each answer");
}
