//! Addresses and sets of networks.

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;

/// A set of networks with fast lookup of an address.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Networks(BTreeMap<(bool, u8), HashSet<u128>>);

/// An address and its prefix length.
pub type Network = (IpAddr, u8);

impl Networks {
    /// Adds a network.
    pub fn add(&mut self, (address, bits): Network) {
        self.0.entry((address.is_ipv6(), bits)).or_default().insert(masked(address, bits));
    }

    /// Returns whether an address is in one of them.
    pub fn contains(&self, address: IpAddr) -> bool {
        let is_wide = address.is_ipv6();
        self.0.iter().any(|((wide, bits), all)| *wide == is_wide && all.contains(&masked(address, *bits)))
    }

    /// Returns the addresses, if all networks are single addresses.
    pub(crate) fn hosts(&self) -> Option<Vec<IpAddr>> {
        let is_whole = |(wide, bits): &(bool, u8)| *bits == if *wide { 128 } else { 32 };
        self.0.keys().all(is_whole).then(|| {
            let of = |((wide, _), all): (&(bool, u8), &HashSet<u128>)| {
                let wide = *wide;
                all.iter().map(move |bits| address(wide, *bits)).collect::<Vec<_>>()
            };
            self.0.iter().flat_map(of).collect()
        })
    }
}

fn bits_of(address: IpAddr) -> (u128, u8) {
    match address {
        IpAddr::V4(address) => (address.to_bits().into(), 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    }
}

fn address(is_wide: bool, bits: u128) -> IpAddr {
    if is_wide { IpAddr::V6(bits.into()) } else { IpAddr::V4((bits as u32).into()) }
}

fn masked(address: IpAddr, bits: u8) -> u128 {
    let (number, width) = bits_of(address);
    let low = u32::from(width.saturating_sub(bits));
    number.checked_shr(low).and_then(|kept| kept.checked_shl(low)).unwrap_or(0)
}

/// Returns an address with the bits after its prefix cleared.
pub(crate) fn network(of: IpAddr, bits: u8) -> IpAddr {
    address(of.is_ipv6(), masked(of, bits))
}
