//! What level `tcp` says of one connection, beside the sockets at its ends.

use crate::flows::kernel::Socket;
use crate::flows::metered::Record;
use serde_json::Value;

/// What timestamps take of each segment.
const TIMESTAMPS: u64 = 12;

/// What both ends offered is what their sockets use.
pub(super) fn check_negotiated(record: &Record, client: &Socket, server: &Socket) {
    let sides = sides(record);
    let what = format!("{:#}\n{client:?}\n{server:?}", record.json);
    // The client always offers both.
    let offered = |name: &str| sides.map(|side| side[name] == true);
    for socket in [client, server] {
        assert_eq!(offered("timestamps"), [true, socket.says("ts")], "timestamps: {what}");
        assert_eq!(offered("sack_permitted"), [true, socket.says("sack")], "SACK: {what}");
    }
    let scales = sides.map(|side| side["window_scale"].as_u64());
    let [orig, resp] = scales;
    // `ss` has that of the other end first.
    assert_eq!(resp.zip(orig).map(<[u64; 2]>::from), client.pair("wscale"), "window scale: {what}");
    assert_eq!(orig.zip(resp).map(<[u64; 2]>::from), server.pair("wscale"), "window scale: {what}");
    let taken = if client.says("ts") { TIMESTAMPS } else { 0 };
    for (socket, [mine, other]) in [(client, sides), (server, [sides[1], sides[0]])] {
        let offered = [mine, other].map(|side| number(side, "mss"));
        assert_eq!(socket.number("advmss"), offered[0] - taken, "MSS: {what}");
        assert_eq!(socket.number("mss"), offered[1] - taken, "MSS: {what}");
    }
    // The window that each end knows of the other is one of those it was told.
    for (socket, other) in [(client, sides[1]), (server, sides[0])] {
        let [least, most] = ["window_min", "window_max"].map(|name| number(other, name));
        assert!((least..=most).contains(&socket.number("snd_wnd")), "windows: {what}");
    }
}

/// Segments and bytes sent again, and all bytes, are those that the socket counts: for a sensor that sees all it sends.
pub(super) fn check_sent_again(record: &Record, side: usize, socket: &Socket) {
    let (tcp, what) = (sides(record)[side], format!("side {side}: {:#}\n{socket:?}", record.json));
    assert_eq!([number(tcp, "gaps"), number(tcp, "gap_bytes"), number(tcp, "out_of_order")], [0; 3], "{what}");
    assert_eq!(seen_again(record, side), socket.retransmissions(), "segments: {what}");
    assert_eq!(number(tcp, "retransmitted_bytes"), socket.number("bytes_retrans"), "bytes: {what}");
    assert_eq!(record.sides[side].payload_bytes, socket.number("bytes_sent"), "bytes in all: {what}");
}

/// Segments that are not the first ones with their bytes, or late. The last byte sent again alone looks like a keep-alive, of which there
/// are none here.
pub(super) fn seen_again(record: &Record, side: usize) -> u64 {
    let (tcp, again) = (sides(record)[side], &sides(record)[side]["retransmitted"]);
    let classes = ["timeout", "fast", "spurious", "unseen"].map(|name| number(again, name));
    classes.iter().sum::<u64>()
        + ["copies", "out_of_order", "keep_alives"].map(|name| number(tcp, name)).iter().sum::<u64>()
}

/// Level `tcp` of the originator and the responder.
pub(super) fn sides(record: &Record) -> [&Value; 2] {
    ["orig", "resp"].map(|name| &record.json[name]["tcp"])
}

/// A number of them.
pub(super) fn number(tcp: &Value, name: &str) -> u64 {
    tcp[name].as_u64().unwrap_or_else(|| panic!("no {name}: {tcp}"))
}
