//! What a receiver said after a step, without what may differ: first sequence numbers, its clock, how wide its window is, in how
//! many segments it said it.

use crate::oracle::peer::Reply;
use crate::oracle::script::View;
use linerate_wire::tcp::Flags;

/// A range of the stream.
pub(super) type Block = (i64, i64);

/// Answers to one step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Said {
    /// What its SYN agrees to: MSS, SACK, timestamps, window scale.
    pub syn: Option<(Option<u16>, bool, bool, bool)>,
    /// How far the stream is there, a FIN counted, by its last acknowledgement.
    pub ack: Option<i64>,
    /// What is there behind gaps by that, in its order.
    pub blocks: Vec<Block>,
    /// What came again (D-SACK), by any acknowledgement.
    pub again: Vec<Block>,
    /// The timestamp that was echoed last.
    pub echo: Option<u32>,
    /// Whether the window is closed.
    pub is_closed: bool,
    /// Whether it has ended its own stream, for the first time.
    pub fin: bool,
    /// Resets: their numbers, and what they acknowledge.
    pub resets: Vec<(i64, Option<i64>)>,
}

/// What a receiver has said once, and may say again without being asked.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Told {
    fin: bool,
}

impl Said {
    /// What these answers say; the peer's view goes on with them.
    pub(super) fn of(replies: &[Reply], view: &mut View, told: &mut Told) -> Said {
        let mut said = Said::default();
        for reply in replies {
            if reply.flags.contains(Flags::RST) {
                let ack = reply.flags.contains(Flags::ACK).then(|| view.offset(reply.ack) - view.base);
                said.resets.push((i64::from(reply.seq.wrapping_sub(view.peer) as i32), ack));
                continue;
            }
            if reply.flags.contains(Flags::SYN) {
                view.peer = reply.seq.wrapping_add(1);
                (view.scale, view.has_stamps) = (reply.scale.unwrap_or(0), reply.stamps.is_some());
                said.syn = Some((reply.mss, reply.sack_ok, reply.stamps.is_some(), reply.scale.is_some()));
            }
            if reply.flags.contains(Flags::FIN) {
                if told.fin {
                    // By its timer, whenever that was.
                    continue;
                }
                (told.fin, said.fin) = (true, true);
            }
            said.take(reply, view);
        }
        said
    }

    fn take(&mut self, reply: &Reply, view: &mut View) {
        let scale = if reply.flags.contains(Flags::SYN) { 0 } else { view.scale };
        let ack = view.offset(reply.ack);
        view.next = view.next.max(ack);
        view.edge = view.edge.max(ack + (i64::from(reply.window) << scale));
        // Half-open, Linux takes the timestamps of its SYN alone (`tcp_check_req`, from 6.14 on), not that of a challenge a tick later.
        if ack > 0 || reply.flags.contains(Flags::SYN) {
            view.echo = reply.stamps.map_or(view.echo, |(value, _)| value);
        }
        let place = |sequence: u32| view.offset(sequence) - view.base;
        let mut blocks: Vec<Block> = reply.blocks.iter().map(|(start, end)| (place(*start), place(*end))).collect();
        let ack = ack - view.base;
        if let Some((start, end)) = blocks.first().copied() {
            let is_inside = blocks.get(1).is_some_and(|(from, to)| *from <= start && end <= *to);
            if end <= ack || is_inside {
                self.again.push(blocks.remove(0));
            }
        }
        self.echo = reply.stamps.map(|(_, echo)| echo);
        (self.ack, self.blocks, self.is_closed) = (Some(ack), blocks, reply.window == 0);
    }
}
