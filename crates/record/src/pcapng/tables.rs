//! Blocks about a whole file: names of addresses, and secrets to decrypt traffic with. They are carried from
//! file to file as they are, but for the byte order.

use super::block::{HEAD, Order, TRAILER};
use super::option::{options, push, push_end};

pub(super) const NAME_RESOLUTION: u32 = 4;
pub(super) const DECRYPTION_SECRETS: u32 = 10;

/// A block of either kind in native byte order, without its options; `None` where it makes no sense.
pub(super) fn copy(kind: u32, body: &[u8], order: Order) -> Option<Vec<u8>> {
    let mut block = vec![0; HEAD];
    if kind == NAME_RESOLUTION {
        // Records are laid out as options are, and end as they do.
        options(body, order).for_each(|(kind, record)| push(&mut block, kind, record));
        push_end(&mut block);
    } else {
        let [kind, length] = order.words::<2>(body)?;
        let secrets = body.get(8..)?.get(..length as usize)?;
        block.extend(kind.to_ne_bytes());
        block.extend(length.to_ne_bytes());
        block.extend(secrets);
        block.resize(block.len().next_multiple_of(4), 0);
    }
    let length = ((block.len() + TRAILER) as u32).to_ne_bytes();
    block[..4].copy_from_slice(&kind.to_ne_bytes());
    block[4..HEAD].copy_from_slice(&length);
    block.extend(length);
    Some(block)
}
