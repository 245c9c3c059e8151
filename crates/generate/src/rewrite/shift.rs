//! Different addresses in each loop of a replay.

use super::prefix::{low_bits, number};
use std::str::FromStr;

/// Shift of addresses from one loop to the next, and the number of bits that change.
///
/// It is a function of only the address and the loop, so both directions of a flow stay together, and addresses that
/// differ in the first loop differ in every loop. The upper bits of an address stay: a host keeps its network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shift {
    step: u64,
    bits: u32,
}

/// Maximum and default number of bits that change: the first byte of an IPv4 address determines its kind.
const BITS: u32 = 24;

impl Shift {
    /// Shifts an address, in network byte order, for loop `turn`, from 0. Groups, broadcasts, loopback and unspecified
    /// addresses stay.
    pub fn of(&self, address: &[u8], turn: u64) -> u128 {
        let old = number(address);
        let stays = match address {
            [first, ..] if address.len() == 4 => matches!(first, 0 | 127 | 224..),
            [first, ..] => *first == 0xff || old >> BITS == 0,
            [] => true,
        };
        let mask = low_bits(self.bits);
        if stays { old } else { old & !mask | old.wrapping_add(u128::from(self.step.wrapping_mul(turn))) & mask }
    }
}

/// Invalid shift.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid shift {0:?}; expected N, or N/BITS with 1 to 24 changing bits, such as 256/16")]
pub struct BadShift(String);

impl FromStr for Shift {
    type Err = BadShift;

    fn from_str(text: &str) -> Result<Self, BadShift> {
        let bad = || BadShift(text.to_owned());
        let (step, bits) = text.split_once('/').map_or((text, None), |(step, bits)| (step, Some(bits)));
        let step = step.parse::<u32>().map_err(|_| bad())?;
        let bits = bits.map_or(Ok(BITS), str::parse).map_err(|_| bad())?;
        if (1..=BITS).contains(&bits) { Ok(Shift { step: step.into(), bits }) } else { Err(bad()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;
    use std::net::Ipv4Addr;

    fn shifted(shift: &str, address: &str, turn: u64) -> String {
        let address: Ipv4Addr = address.parse().unwrap();
        Ipv4Addr::from(shift.parse::<Shift>().unwrap().of(&address.octets(), turn) as u32).to_string()
    }

    #[test]
    fn addresses_move_within_their_block() {
        assert_eq!(shifted("1", "10.0.0.1", 0), "10.0.0.1");
        assert_eq!(shifted("1", "10.0.0.1", 3), "10.0.0.4");
        assert_eq!(shifted("256", "10.255.255.7", 1), "10.0.0.7");
        assert_eq!(shifted("256/16", "10.1.255.7", 1), "10.1.0.7");
        for stays in ["224.0.0.251", "255.255.255.255", "127.0.0.1", "0.0.0.0"] {
            assert_eq!(shifted("9", stays, 5), stays);
        }
        for wrong in ["", "-1", "1/0", "1/25", "a", "4294967296"] {
            assert!(wrong.parse::<Shift>().is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn shifted_addresses_stay_distinct(
            addresses in proptest::collection::hash_set(any::<[u8; 16]>(), 1..40),
            near in any::<[u8; 15]>(),
            step: u32, bits in 1u32..=24, turn: u64,
        ) {
            let shift = format!("{step}/{bits}").parse::<Shift>().unwrap();
            let close = (0..40).map(|last| { let mut all = [last; 16]; all[..15].copy_from_slice(&near); all });
            let all: HashSet<[u8; 16]> = addresses.into_iter().chain(close).collect();
            let moved: HashSet<u128> = all.iter().map(|address| shift.of(address, turn)).collect();
            prop_assert_eq!(moved.len(), all.len());
        }
    }
}
