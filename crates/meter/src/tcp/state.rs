//! Connection states of Zeek, by the rules in `docs/flows.md`.

use super::ConnState;
use super::record::mark;

/// State of an endpoint, as in Zeek (`TCP_ENDPOINT_*`).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Endpoint {
    /// Nothing was sent.
    Inactive,
    SynSent,
    /// Anything but a SYN was sent.
    Partial,
    Established,
    /// A FIN was sent.
    Closed,
    Reset,
}

use Endpoint::{Closed, Established, Inactive, Partial, Reset, SynSent};

/// Returns the state from the marks of originator and responder.
pub(crate) fn state_of(marks: [u16; 2]) -> ConnState {
    let but_reset = mark::SYN | mark::SYN_ACK | mark::ACK | mark::FIN;
    match endpoints(marks) {
        [SynSent, Reset] => ConnState::Rej,
        [Reset, Reset] if (marks[0] | marks[1]) & mark::DATA == 0 => ConnState::Rej,
        [Inactive | Partial, Reset] => ConnState::Rstrh,
        [_, Reset] => ConnState::Rstr,
        [Reset, Inactive | Partial] if marks[0] & but_reset == mark::SYN => ConnState::Rstos0,
        [Reset, Inactive | Partial] => ConnState::Oth,
        [Reset, _] => ConnState::Rsto,
        [Closed, Closed] => ConnState::Sf,
        [Closed, Inactive | Partial] => ConnState::Sh,
        [Closed, _] => ConnState::S2,
        [Inactive | Partial, Closed] => ConnState::Shr,
        [_, Closed] => ConnState::S3,
        [SynSent, Inactive] => ConnState::S0,
        [Established, Established] => ConnState::S1,
        _ => ConnState::Oth,
    }
}

/// Returns whether both ends are established, and neither ended the connection.
pub(crate) fn is_established(marks: [u16; 2]) -> bool {
    endpoints(marks) == [Established; 2]
}

fn endpoints([originator, responder]: [u16; 2]) -> [Endpoint; 2] {
    let is_answered = responder & (mark::SYN | mark::SYN_ACK) != 0;
    let first = match originator {
        marks if marks & mark::RST != 0 => Reset,
        marks if marks & mark::FIN != 0 => Closed,
        marks if marks & mark::SYN != 0 => {
            if is_answered {
                Established
            } else {
                SynSent
            }
        }
        marks if marks & (mark::ACK | mark::DATA) != 0 && is_answered => Established,
        marks if marks & mark::ALL_SENT != 0 => Partial,
        _ => Inactive,
    };
    let second = match responder {
        marks if marks & mark::RST != 0 => Reset,
        marks if marks & mark::FIN != 0 => Closed,
        _ if is_answered => Established,
        // Some hosts acknowledge a SYN before they answer it.
        marks if marks & mark::DATA == 0 && originator & mark::SYN != 0 => Inactive,
        marks if marks & mark::ALL_SENT != 0 => Partial,
        _ => Inactive,
    };
    [first, second]
}
