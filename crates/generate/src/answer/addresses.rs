//! Addresses to answer for.

use linerate_headers::{MacAddr, vlan};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// VLAN identifiers of a frame, outermost first; at most two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Vlans {
    ids: [u16; Vlans::MOST],
    count: usize,
}

impl Vlans {
    /// Maximum number of tags of a frame that is answered.
    pub const MOST: usize = 2;
    /// No tags.
    pub const NONE: Vlans = Vlans { ids: [0; Vlans::MOST], count: 0 };

    /// Creates a list of VLANs, outermost first; `None` if it is too long, or if an identifier is not 1 to 4094 (IEEE
    /// 802.1Q clause 9.6).
    pub fn new(ids: &[u16]) -> Option<Self> {
        let mut vlans = Vlans::NONE;
        vlans.ids.get_mut(..ids.len())?.copy_from_slice(ids);
        vlans.count = ids.len();
        ids.iter().all(|id| (1..vlan::MAX_ID).contains(id)).then_some(vlans)
    }

    /// Returns the identifiers, outermost first.
    pub fn as_slice(&self) -> &[u16] {
        &self.ids[..self.count]
    }
}

/// Range of addresses and their MAC address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRange {
    /// First address.
    pub first: IpAddr,
    /// Last address, of the same family.
    pub last: IpAddr,
    /// MAC address of the station.
    pub mac: MacAddr,
    /// VLANs of the station.
    pub vlans: Vlans,
}

/// Invalid addresses to answer for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadAddresses {
    /// Invalid syntax.
    #[error(
        "invalid addresses {0:?}; expected PREFIX@MAC or FIRST..LAST@MAC, then @VLAN or @OUTER.INNER if tagged, \
         such as 10.0.0.0/24@02:00:00:00:00:01"
    )]
    Text(String),
    /// The last address precedes the first, or has another family.
    #[error("invalid range {0}..{1}; expected ascending addresses of one family")]
    Range(IpAddr, IpAddr),
    /// MAC address of a group or of no station.
    #[error("invalid MAC address {0}; expected that of one station (unicast)")]
    Mac(MacAddr),
    /// One address with two MAC addresses.
    #[error("{ip} is assigned to both {one} and {other}")]
    Twice {
        /// IP address.
        ip: IpAddr,
        /// One MAC address.
        one: MacAddr,
        /// Other MAC address.
        other: MacAddr,
    },
}

impl AddressRange {
    /// Returns a range of one address, not in a VLAN.
    pub fn one(ip: IpAddr, mac: MacAddr) -> Self {
        AddressRange { first: ip, last: ip, mac, vlans: Vlans::NONE }
    }

    fn check(&self) -> Result<(), BadAddresses> {
        if self.first.is_ipv4() != self.last.is_ipv4() || self.first > self.last {
            return Err(BadAddresses::Range(self.first, self.last));
        }
        if is_station(self.mac) { Ok(()) } else { Err(BadAddresses::Mac(self.mac)) }
    }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}@{}", self.first, self.last, self.mac)?;
        for (index, id) in self.vlans.as_slice().iter().enumerate() {
            write!(f, "{}{id}", if index == 0 { '@' } else { '.' })?;
        }
        Ok(())
    }
}

impl FromStr for AddressRange {
    type Err = BadAddresses;

    /// Parses `PREFIX@MAC`, `FIRST..LAST@MAC` or `ADDRESS@MAC`, then optionally `@VLAN` or `@OUTER.INNER`.
    ///
    /// ```
    /// use linerate_generate::answer::AddressRange;
    /// let own: AddressRange = "10.0.0.0/24@02:00:00:00:00:01@100".parse()?;
    /// assert_eq!(own.to_string(), "10.0.0.0..10.0.0.255@02:00:00:00:00:01@100");
    /// # Ok::<(), linerate_generate::answer::BadAddresses>(())
    /// ```
    fn from_str(text: &str) -> Result<Self, BadAddresses> {
        let own = read(text).ok_or_else(|| BadAddresses::Text(text.to_owned()))?;
        own.check().map(|()| own)
    }
}

/// All addresses to answer for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// Ranges ascending by VLANs and address, without overlaps.
    runs: Vec<AddressRange>,
}

impl Addresses {
    /// Merges ranges, which may overlap if their MAC addresses agree.
    pub fn new(mut all: Vec<AddressRange>) -> Result<Self, BadAddresses> {
        all.sort_by_key(|own| (own.vlans, own.first));
        let mut runs: Vec<AddressRange> = Vec::with_capacity(all.len());
        for own in all {
            own.check()?;
            match runs.last_mut().filter(|last| last.vlans == own.vlans && own.first <= last.last) {
                None => runs.push(own),
                Some(last) if last.mac == own.mac => last.last = last.last.max(own.last),
                Some(last) => return Err(BadAddresses::Twice { ip: own.first, one: last.mac, other: own.mac }),
            }
        }
        Ok(Addresses { runs })
    }

    /// Returns the MAC address of an own address.
    pub fn find(&self, ip: IpAddr, vlans: Vlans) -> Option<MacAddr> {
        let end = self.runs.partition_point(|run| (run.vlans, run.first) <= (vlans, ip));
        let run = self.runs.get(end.checked_sub(1)?)?;
        (run.vlans == vlans && ip <= run.last).then_some(run.mac)
    }

    pub(super) fn runs(&self) -> &[AddressRange] {
        &self.runs
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }
}

/// Returns whether a MAC address can belong to a single station.
pub(super) fn is_station(mac: MacAddr) -> bool {
    !mac.is_multicast() && mac != MacAddr::default()
}

/// Returns whether an address can belong to a single host on a link.
pub(super) fn is_host(ip: IpAddr) -> bool {
    match ip {
        // 0/8 and 127/8 (RFC 1122 section 3.2.1.3), multicast, and class E with the limited broadcast.
        IpAddr::V4(ip) => !matches!(ip.octets()[0], 0 | 127 | 224..),
        IpAddr::V6(ip) => !ip.is_unspecified() && !ip.is_loopback() && !ip.is_multicast(),
    }
}

fn read(text: &str) -> Option<AddressRange> {
    let mut parts = text.split('@');
    let (first, last) = read_run(parts.next()?)?;
    let mac = parts.next()?.parse().ok()?;
    let vlans = match parts.next() {
        None => Vlans::NONE,
        Some(ids) => Vlans::new(&ids.split('.').map(|id| id.parse().ok()).collect::<Option<Vec<u16>>>()?)?,
    };
    parts.next().is_none().then_some(AddressRange { first, last, mac, vlans })
}

fn read_run(text: &str) -> Option<(IpAddr, IpAddr)> {
    if let Some((first, last)) = text.split_once("..") {
        return Some((first.parse().ok()?, last.parse().ok()?));
    }
    let Some((ip, bits)) = text.split_once('/') else {
        let ip = text.parse().ok()?;
        return Some((ip, ip));
    };
    let bits: u32 = bits.parse().ok()?;
    Some(match ip.parse().ok()? {
        IpAddr::V4(ip) => {
            let host = u32::MAX.checked_shr(bits).unwrap_or(0);
            let first = ip.to_bits() & !host;
            (bits <= 32).then_some((Ipv4Addr::from(first).into(), Ipv4Addr::from(first | host).into()))?
        }
        IpAddr::V6(ip) => {
            let host = u128::MAX.checked_shr(bits).unwrap_or(0);
            let first = ip.to_bits() & !host;
            (bits <= 128).then_some((Ipv6Addr::from(first).into(), Ipv6Addr::from(first | host).into()))?
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);

    #[test]
    fn addresses_are_parsed() {
        for (text, shown) in [
            ("10.0.0.7@02:00:00:00:00:01", "10.0.0.7..10.0.0.7@02:00:00:00:00:01"),
            ("10.0.0.7/30@02:00:00:00:00:01", "10.0.0.4..10.0.0.7@02:00:00:00:00:01"),
            ("0.0.0.0/0@02:00:00:00:00:01", "0.0.0.0..255.255.255.255@02:00:00:00:00:01"),
            ("10.0.0.7/32@02:00:00:00:00:01", "10.0.0.7..10.0.0.7@02:00:00:00:00:01"),
            ("10.0.0.7..10.0.1.2@02:00:00:00:00:01@4094", "10.0.0.7..10.0.1.2@02:00:00:00:00:01@4094"),
            ("fd00::5/127@02:00:00:00:00:01@7.100", "fd00::4..fd00::5@02:00:00:00:00:01@7.100"),
        ] {
            let own: AddressRange = text.parse().unwrap();
            assert_eq!(own.to_string(), shown);
            assert_eq!(shown.parse(), Ok(own));
        }
        let mac = "@02:00:00:00:00:01";
        for text in ["", "10.0.0", "10.0.0/8", "10.0.0.1/33", "10.0.0.1..", "fd00::/129", "10.0.0.2..10.0.0.1"] {
            assert!(
                format!("{text}{mac}").parse::<AddressRange>().is_err() && text.parse::<AddressRange>().is_err(),
                "{text}"
            );
        }
        for text in ["@0", "@4095", "@1.2.3", "@x", "@1@2", "@"] {
            assert!(format!("10.0.0.1{mac}{text}").parse::<AddressRange>().is_err(), "{text}");
        }
        for text in ["10.0.0.1..fd00::1@02:00:00:00:00:01", "10.0.0.1@01:00:00:00:00:01", "10.0.0.1@00:00:00:00:00:00"]
        {
            assert!(text.parse::<AddressRange>().is_err(), "{text}");
        }
    }

    #[test]
    fn address_cannot_have_two_owners() {
        let own = |text: &str| text.parse::<AddressRange>().unwrap();
        let one = own("10.0.0.0/24@02:00:00:00:00:01");
        let error = Addresses::new(vec![one, own("10.0.0.255@02:00:00:00:00:02")]).unwrap_err();
        assert_eq!(error.to_string(), "10.0.0.255 is assigned to both 02:00:00:00:00:01 and 02:00:00:00:00:02");
        assert!(Addresses::new(vec![one, own("10.0.0.255@02:00:00:00:00:02@5")]).is_ok(), "another VLAN");
        assert!(Addresses::new(vec![one, own("10.0.1.0@02:00:00:00:00:02")]).is_ok());
    }

    #[test]
    fn groups_and_martians_are_not_hosts() {
        for (ip, is) in [
            ("10.0.0.1", true),
            ("223.255.255.255", true),
            ("fe80::1", true),
            ("0.0.0.0", false),
            ("0.1.2.3", false),
            ("127.0.0.1", false),
            ("224.0.0.1", false),
            ("240.0.0.1", false),
            ("255.255.255.255", false),
            ("::", false),
            ("::1", false),
            ("ff02::1", false),
        ] {
            assert_eq!(is_host(ip.parse().unwrap()), is, "{ip}");
        }
    }

    proptest! {
        /// Compared with a linear search of all ranges.
        #[test]
        fn address_is_found_at_its_port(
            runs in prop::collection::vec((0u8..60, 0u8..9, 0u16..3), 0..12), asked in 0u8..70, vlan in 0u16..3,
        ) {
            let vlans = |id: u16| if id == 0 { Vlans::NONE } else { Vlans::new(&[id]).unwrap() };
            let ip = |last: u8| IpAddr::from([10, 0, 0, last]);
            let own = |&(first, more, id): &(u8, u8, u16)| {
                AddressRange { first: ip(first), last: ip(first + more), mac: MAC, vlans: vlans(id) }
            };
            let all: Vec<AddressRange> = runs.iter().map(own).collect();
            let naive = all.iter().any(|own| own.vlans == vlans(vlan) && (own.first..=own.last).contains(&ip(asked)));
            let addresses = Addresses::new(all).unwrap();
            prop_assert_eq!(addresses.find(ip(asked), vlans(vlan)).is_some(), naive);
        }
    }
}
