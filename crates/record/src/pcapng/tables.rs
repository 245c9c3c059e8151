//! Blocks about a whole file: names of addresses, and secrets to decrypt traffic with. They are carried from
//! file to file as they are, but for the byte order.

use super::block::{HEAD, Order, TRAILER};
use super::option::{options, push, push_end};

pub(super) const NAME_RESOLUTION: u32 = 4;
pub(super) const DECRYPTION_SECRETS: u32 = 10;

const IPV4_RECORD: u16 = 1;
const IPV6_RECORD: u16 = 2;

/// A block of either kind in native byte order, without its options; `None` where there is nothing in it. And how much of
/// it makes no sense, and is left out: programs refuse files with such.
pub(super) fn copy(kind: u32, body: &[u8], order: Order) -> (Option<Vec<u8>>, u64) {
    let mut block = vec![0; HEAD];
    let mut senseless = 0;
    if kind == NAME_RESOLUTION {
        // Records are laid out as options are, and end as they do.
        for (kind, record) in options(body, order) {
            if makes_sense(kind, record) {
                push(&mut block, kind, record);
            } else {
                senseless += 1;
            }
        }
        if block.len() == HEAD {
            return (None, senseless);
        }
        push_end(&mut block);
    } else {
        let head = order.words::<2>(body);
        let secrets = |length: u32| body.get(8..)?.get(..length as usize);
        let Some(([kind, length], secrets)) = head.and_then(|head| Some((head, secrets(head[1])?))) else {
            return (None, 1);
        };
        block.extend(kind.to_ne_bytes());
        block.extend(length.to_ne_bytes());
        block.extend(secrets);
        block.resize(block.len().next_multiple_of(4), 0);
    }
    let length = ((block.len() + TRAILER) as u32).to_ne_bytes();
    block[..4].copy_from_slice(&kind.to_ne_bytes());
    block[4..HEAD].copy_from_slice(&length);
    block.extend(length);
    block.shrink_to_fit();
    (Some(block), senseless)
}

/// Whether a record has an address, and names that end.
fn makes_sense(kind: u16, record: &[u8]) -> bool {
    let address = match kind {
        IPV4_RECORD => 4,
        IPV6_RECORD => 16,
        _ => return true,
    };
    record.get(address..).is_some_and(|names| names.last().is_none_or(|last| *last == 0))
}
