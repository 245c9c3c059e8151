//! Level `tcp` of one connection, compared with the sockets at its ends.

use crate::flows::kernel::Socket;
use crate::flows::metered::Record;
use serde_json::Value;

/// Bytes of the timestamp option in each segment.
const TIMESTAMPS: u64 = 12;

/// Checks that the options in use match the offers of both ends.
pub(super) fn check_negotiated(record: &Record, client: &Socket, server: &Socket) {
    let sides = sides(record);
    let what = format!("{:#}\n{client:?}\n{server:?}", record.json);
    // The client always offers timestamps and SACK.
    let offered = |name: &str| sides.map(|side| side[name] == true);
    for socket in [client, server] {
        assert_eq!(offered("timestamps"), [true, socket.says("ts")], "timestamps: {what}");
        assert_eq!(offered("sack_permitted"), [true, socket.says("sack")], "SACK: {what}");
    }
    let scales = sides.map(|side| side["window_scale"].as_u64());
    let [orig, resp] = scales;
    // `ss` prints the scale of the other end first.
    assert_eq!(resp.zip(orig).map(<[u64; 2]>::from), client.pair("wscale"), "window scale: {what}");
    assert_eq!(orig.zip(resp).map(<[u64; 2]>::from), server.pair("wscale"), "window scale: {what}");
    let taken = if client.says("ts") { TIMESTAMPS } else { 0 };
    for (socket, [mine, other]) in [(client, sides), (server, [sides[1], sides[0]])] {
        let offered = [mine, other].map(|side| number(side, "mss"));
        assert_eq!(socket.number("advmss"), offered[0] - taken, "MSS: {what}");
        assert_eq!(socket.number("mss"), offered[1] - taken, "MSS: {what}");
    }
    // The window that an end knows of its peer is one that the peer announced.
    for (socket, other) in [(client, sides[1]), (server, sides[0])] {
        let [least, most] = ["window_min", "window_max"].map(|name| number(other, name));
        assert!((least..=most).contains(&socket.number("snd_wnd")), "windows: {what}");
    }
}

/// Checks retransmitted segments and bytes, and all bytes, against the socket, for a sensor at its sender.
pub(super) fn check_retransmissions(record: &Record, side: usize, socket: &Socket) {
    let (tcp, what) = (sides(record)[side], format!("side {side}: {:#}\n{socket:?}", record.json));
    assert_eq!([number(tcp, "gaps"), number(tcp, "gap_bytes"), number(tcp, "out_of_order")], [0; 3], "{what}");
    assert_eq!(retransmissions_seen(record, side), socket.retransmissions(), "segments: {what}");
    assert_eq!(number(tcp, "retransmitted_bytes"), socket.number("bytes_retrans"), "bytes: {what}");
    assert_eq!(record.sides[side].payload_bytes, socket.number("bytes_sent"), "bytes in all: {what}");
}

/// Counts segments that are retransmitted or late. A retransmission of only the last byte looks like a keep-alive, and
/// these connections send no keep-alives.
pub(super) fn retransmissions_seen(record: &Record, side: usize) -> u64 {
    let (tcp, classified) = (sides(record)[side], &sides(record)[side]["retransmitted"]);
    let classes = ["timeout", "fast", "spurious", "unseen"].map(|name| number(classified, name));
    classes.iter().sum::<u64>()
        + ["copies", "out_of_order", "keep_alives"].map(|name| number(tcp, name)).iter().sum::<u64>()
}

/// Returns level `tcp` of originator and responder.
pub(super) fn sides(record: &Record) -> [&Value; 2] {
    ["orig", "resp"].map(|name| &record.json[name]["tcp"])
}

/// Returns a number of them.
pub(super) fn number(tcp: &Value, name: &str) -> u64 {
    tcp[name].as_u64().unwrap_or_else(|| panic!("no {name}: {tcp}"))
}
