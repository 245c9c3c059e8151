//! Answers of a receiver to a step, normalised: no first sequence numbers, clock, window size or number of segments.

use crate::oracle::peer::Reply;
use crate::oracle::script::View;
use linerate_headers::tcp::Flags;

/// Range of the stream.
pub(super) type Block = (i64, i64);

/// Answers to one step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Answers {
    /// Options of its SYN: MSS, SACK, timestamps, window scale.
    pub syn: Option<(Option<u16>, bool, bool, bool)>,
    /// Last acknowledged offset, including a FIN.
    pub ack: Option<i64>,
    /// SACK blocks of that acknowledgement, in their order.
    pub blocks: Vec<Block>,
    /// Duplicates (D-SACK), of any acknowledgement.
    pub duplicates: Vec<Block>,
    /// Last echoed timestamp.
    pub echo: Option<u32>,
    /// True if the window is closed.
    pub is_closed: bool,
    /// True for the first FIN of the receiver.
    pub fin: bool,
    /// Sequence numbers of resets, and their acknowledgements.
    pub resets: Vec<(i64, Option<i64>)>,
}

/// FIN of a receiver, which may be retransmitted at any time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FinState {
    fin: bool,
}

impl Answers {
    /// Normalises the answers, and updates the peer's view.
    pub(super) fn of(replies: &[Reply], view: &mut View, fin_state: &mut FinState) -> Answers {
        let mut answers = Answers::default();
        for reply in replies {
            if reply.flags.contains(Flags::RST) {
                let ack = reply.flags.contains(Flags::ACK).then(|| view.offset(reply.ack) - view.base);
                answers.resets.push((i64::from(reply.seq.wrapping_sub(view.peer) as i32), ack));
                continue;
            }
            if reply.flags.contains(Flags::SYN) {
                view.peer = reply.seq.wrapping_add(1);
                (view.scale, view.has_stamps) = (reply.scale.unwrap_or(0), reply.stamps.is_some());
                answers.syn = Some((reply.mss, reply.sack_ok, reply.stamps.is_some(), reply.scale.is_some()));
            }
            if reply.flags.contains(Flags::FIN) {
                if fin_state.fin {
                    // A retransmission by timer, which may happen at any step.
                    continue;
                }
                (fin_state.fin, answers.fin) = (true, true);
            }
            answers.add(reply, view);
        }
        answers
    }

    fn add(&mut self, reply: &Reply, view: &mut View) {
        let scale = if reply.flags.contains(Flags::SYN) { 0 } else { view.scale };
        let ack = view.offset(reply.ack);
        view.next = view.next.max(ack);
        view.edge = view.edge.max(ack + (i64::from(reply.window) << scale));
        // While half-open, Linux uses only timestamps of its SYN (`tcp_check_req`, from 6.14), not that of a challenge.
        if ack > 0 || reply.flags.contains(Flags::SYN) {
            view.echo = reply.stamps.map_or(view.echo, |(value, _)| value);
        }
        let offset = |sequence: u32| view.offset(sequence) - view.base;
        let mut blocks: Vec<Block> = reply.blocks.iter().map(|(start, end)| (offset(*start), offset(*end))).collect();
        let ack = ack - view.base;
        if let Some((start, end)) = blocks.first().copied() {
            let is_inside = blocks.get(1).is_some_and(|(from, to)| *from <= start && end <= *to);
            if end <= ack || is_inside {
                self.duplicates.push(blocks.remove(0));
            }
        }
        self.echo = reply.stamps.map(|(_, echo)| echo);
        (self.ack, self.blocks, self.is_closed) = (Some(ack), blocks, reply.window == 0);
    }
}
