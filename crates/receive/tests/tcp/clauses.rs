//! What RFC 9293 and its companions ask of a receiver, clause by clause.

use super::peer::*;
use linerate_burst::Count;
use linerate_receive::place::Ending;
use linerate_wire::tcp::Flags;

const ACK: Flags = Flags::ACK;

#[test]
fn a_connection_from_beginning_to_end() {
    for is_plain in [false, true] {
        let mut rig = Rig::new(config());
        let mut conn = rig.connect(77, is_plain);
        let replies = rig.send(&conn.data(0, b"hello"));
        assert_eq!((replies.len(), replies[0].ack), (1, conn.seq(5)));
        let replies = rig.send(&conn.seg(ACK | Flags::FIN, 5, b" world"));
        assert_eq!(replies.len(), 1);
        assert!(replies[0].is(ACK | Flags::FIN));
        assert_eq!((replies[0].seq, replies[0].ack), (conn.peer, conn.seq(12)));
        assert_eq!(rig.memory.one().ending, Some(Ending::Complete));
        assert_eq!(rig.memory.one().bytes, b"hello world");
        conn.peer += 1;
        assert_eq!(rig.send(&conn.data(12, &[])), []);
        assert!(rig.endpoint.is_idle() && rig.endpoint.deadline().is_none());
        assert_eq!(rig.count(Count::TcpComplete), 1);
    }
}
