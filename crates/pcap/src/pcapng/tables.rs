//! Blocks about a whole file: name resolution, decryption secrets, systemd journal entries, custom blocks. They are
//! copied from file to file unchanged, except for the byte order.

use super::block::{HEAD, Order, TRAILER};
use super::option::{self, KnownOption, after_fin, are_complete, options, push, push_end};

const NAME_RESOLUTION: u32 = 4;
const SYSTEMD_JOURNAL: u32 = 9;
const DECRYPTION_SECRETS: u32 = 10;
/// Custom block that may be copied; those of type 0x40000BAD may not.
const CUSTOM: u32 = 0xbad;

/// Returns whether a block has one of these types.
#[inline]
pub(super) fn is_one(kind: u32) -> bool {
    matches!(kind, NAME_RESOLUTION | SYSTEMD_JOURNAL | DECRYPTION_SECRETS | CUSTOM)
}

const IPV4_RECORD: u16 = 1;
const IPV6_RECORD: u16 = 2;

/// Options of name resolution: name and addresses of the DNS server.
const OF_NAMES: [KnownOption; 3] = [(2, 1), (3, 1), (4, 1)];

/// Returns such a block in native byte order, or `None` if it is empty; and the number of invalid items left out,
/// since programs refuse files with them.
pub(super) fn copy(kind: u32, body: &[u8], order: Order) -> (Option<Vec<u8>>, u64) {
    let mut block = vec![0; HEAD];
    let mut invalid = 0;
    if kind == NAME_RESOLUTION {
        // Records have the layout of options, and the same end mark.
        for (kind, record) in options(body, order) {
            if is_valid(kind, record) {
                push(&mut block, kind, record);
            } else {
                invalid += 1;
            }
        }
        if block.len() == HEAD {
            return (None, invalid);
        }
        push_end(&mut block);
        invalid += u64::from(!are_complete(body, order));
        invalid += copy_options(after_fin(body, order), order, &OF_NAMES, &mut block);
    } else if kind == CUSTOM {
        // The enterprise number is in the byte order of the file, the rest in an order that only the enterprise knows.
        let Some(([enterprise], rest)) = order.words::<1>(body).zip(body.get(4..)) else { return (None, 1) };
        block.extend(enterprise.to_ne_bytes());
        block.extend(rest);
    } else if kind == SYSTEMD_JOURNAL {
        if body.is_empty() {
            return (None, 1);
        }
        block.extend(body);
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
        let options = body.get(8 + (length as usize).next_multiple_of(4)..).unwrap_or_default();
        invalid += copy_options(options, order, &[], &mut block);
    }
    let length = ((block.len() + TRAILER) as u32).to_ne_bytes();
    block[..4].copy_from_slice(&kind.to_ne_bytes());
    block[4..HEAD].copy_from_slice(&length);
    block.extend(length);
    block.shrink_to_fit();
    (Some(block), invalid)
}

/// Appends options with an end mark, if any. Returns the number left out.
fn copy_options(options: &[u8], order: Order, kept: &[KnownOption], block: &mut Vec<u8>) -> u64 {
    let start = block.len();
    let left_out = option::copy(options, order, kept, block);
    if block.len() > start {
        push_end(block);
    }
    left_out
}

/// Returns whether a record has an address, and terminated names.
fn is_valid(kind: u16, record: &[u8]) -> bool {
    let address = match kind {
        IPV4_RECORD => 4,
        IPV6_RECORD => 16,
        _ => return true,
    };
    record.get(address..).is_some_and(|names| names.last().is_none_or(|last| *last == 0))
}
