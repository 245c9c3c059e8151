//! Connection states of Zeek, by the rules in `docs/flows.md`.

use super::ConnState;
use super::record::mark;

/// Returns the state from the marks of originator and responder; `first_reset` is the one that sent the first RST.
pub(crate) fn state_of(marks: [u16; 2], first_reset: usize) -> ConnState {
    let [originator, responder] = marks;
    let either = originator | responder;
    let has_syn = either & mark::SYN != 0;
    let has_syn_ack = either & mark::SYN_ACK != 0;
    let has_reset = either & mark::RST != 0;
    if is_established(marks) {
        return match (has_reset, first_reset, originator & mark::FIN != 0, responder & mark::FIN != 0) {
            (true, 0, ..) => ConnState::Rsto,
            (true, ..) => ConnState::Rstr,
            (_, _, true, true) => ConnState::Sf,
            (_, _, true, false) => ConnState::S2,
            (_, _, false, true) => ConnState::S3,
            _ => ConnState::S1,
        };
    }
    let is_silent = originator & mark::ALL_SENT == 0;
    match (has_syn, has_syn_ack) {
        (false, true) if is_silent && responder & mark::RST != 0 => ConnState::Rstrh,
        (false, true) if is_silent && responder & mark::FIN != 0 => ConnState::Shr,
        (false, _) => ConnState::Oth,
        (true, _) if has_reset && first_reset == 1 => ConnState::Rej,
        (true, _) if has_reset => ConnState::Rstos0,
        (true, _) if originator & mark::FIN != 0 => ConnState::Sh,
        (true, _) => ConnState::S0,
    }
}

/// Returns whether SYN and SYN with ACK were seen, or either and data or an ACK both ways.
pub(crate) fn is_established(marks: [u16; 2]) -> bool {
    let either = marks[0] | marks[1];
    let opened = mark::SYN | mark::SYN_ACK;
    let both_talked = marks.iter().all(|marks| marks & (mark::ACK | mark::DATA) != 0);
    either & opened == opened || (either & opened != 0 && both_talked)
}
