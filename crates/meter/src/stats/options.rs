//! Kinds of TCP options (RFC 9293, 3.1).

use linerate_headers::tcp;

/// Two NOP and timestamps, the usual options of segments after the handshake (RFC 7323, appendix A).
pub(crate) const TIMESTAMPS: u64 = 1 << NOP | 1 << 8;
const TIMESTAMPS_HEAD: [u8; 4] = [1, 1, 8, 10];
const TIMESTAMPS_LEN: usize = 12;

const END: u8 = 0;
const NOP: u8 = 1;

/// Returns the kinds of options in a segment, a bit each; up to the first with an invalid length.
#[inline(always)]
pub(crate) fn kinds_of(segment: &[u8]) -> u64 {
    let header = segment.get(12).map_or(0, |offset| usize::from(offset >> 4) * 4);
    if header <= tcp::LEN { 0 } else { segment.get(tcp::LEN..header.min(segment.len())).map_or(0, kinds) }
}

#[inline(always)]
fn kinds(options: &[u8]) -> u64 {
    if options.len() == TIMESTAMPS_LEN && options[..4] == TIMESTAMPS_HEAD { TIMESTAMPS } else { walk(options) }
}

fn walk(mut options: &[u8]) -> u64 {
    let mut kinds = 0;
    while let [kind, behind @ ..] = options {
        let length = match (*kind, behind.first()) {
            (END, _) => options.len(),
            (NOP, _) => 1,
            (_, Some(length)) => usize::from(*length),
            (_, None) => 0,
        };
        if length == 0 || length > options.len() || (length == 1 && *kind > NOP) {
            break;
        }
        kinds |= 1u64.checked_shl(u32::from(*kind)).unwrap_or(0);
        options = &options[length..];
    }
    kinds
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn option_kinds_are_listed_up_to_the_end() {
        let syn = [2, 4, 5, 180, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7];
        for (options, expected) in [
            (&syn[..], vec![1, 2, 3, 4, 8]),
            (&[0, 2, 4, 0], vec![0]),
            (&[1, 200, 2, 5, 2, 1], vec![1, 5]),
            (&[1, 5, 0, 2, 4, 0, 0], vec![1]),
            (&[2, 5, 0, 0], vec![]),
            (&[3], vec![]),
        ] {
            assert_eq!(kinds(options), expected.iter().fold(0, |bits, kind| bits | 1 << kind), "{options:?}");
        }
    }

    proptest! {
        #[test]
        fn fast_option_parser_agrees_with_the_general_one(values in any::<[u8; 8]>(), any in prop::collection::vec(any::<u8>(), 0..41)) {
            let usual = [&TIMESTAMPS_HEAD[..], &values].concat();
            prop_assert_eq!(kinds(&usual), walk(&usual));
            prop_assert_eq!(kinds(&any), walk(&any));
        }
    }
}
