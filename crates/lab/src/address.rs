//! Interface addresses with prefix length.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::PlanError;

/// An IPv4 or IPv6 address and its prefix length in bits, written `10.0.0.1/24` or `fd00::1/64`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Cidr {
    address: IpAddr,
    prefix: u8,
}

impl Cidr {
    /// Returns an address valid for an interface: not unspecified, multicast or broadcast; `prefix` is 1 to 32 bits
    /// for IPv4, 1 to 128 for IPv6.
    pub fn new(address: IpAddr, prefix: u8) -> Result<Self, PlanError> {
        let longest = if address.is_ipv4() { 32 } else { 128 };
        let refuse = |problem: String| PlanError::Value { place: "address".into(), problem };
        if !(1..=longest).contains(&prefix) {
            return Err(refuse(format!("/{prefix} of {address}: invalid prefix length; expected 1 to {longest}")));
        }
        let broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
        if address.is_unspecified() || address.is_multicast() || broadcast {
            return Err(refuse(format!("{address}: not a unicast interface address")));
        }
        Ok(Self { address, prefix })
    }

    /// Returns the address without the prefix length.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Returns the prefix length in bits.
    pub fn prefix(&self) -> u8 {
        self.prefix
    }

    /// Returns whether it is an IPv6 address.
    pub fn is_ipv6(&self) -> bool {
        self.address.is_ipv6()
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

impl FromStr for Cidr {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Self, PlanError> {
        let parts = text.split_once('/').and_then(|(address, prefix)| {
            let digits = prefix.bytes().all(|b| b.is_ascii_digit());
            Some((address.parse().ok()?, prefix.parse().ok().filter(|_| digits)?))
        });
        let (address, prefix) = parts.ok_or_else(|| PlanError::Value {
            place: "address".into(),
            problem: format!("invalid address {text:?}; expected ADDRESS/PREFIX, such as 10.0.0.1/24 or fd00::1/64"),
        })?;
        Self::new(address, prefix)
    }
}

impl TryFrom<String> for Cidr {
    type Error = PlanError;

    fn try_from(text: String) -> Result<Self, PlanError> {
        text.parse()
    }
}

impl From<Cidr> for String {
    fn from(cidr: Cidr) -> String {
        cidr.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_families_round_trip() {
        for text in ["10.0.0.1/24", "192.168.255.254/32", "1.2.3.4/1", "fd00::1/64", "2001:db8::/128", "fe80::1/10"] {
            assert_eq!(text.parse::<Cidr>().unwrap().to_string(), text);
        }
        assert!("fd00::1/64".parse::<Cidr>().unwrap().is_ipv6());
        assert!(!"10.0.0.1/8".parse::<Cidr>().unwrap().is_ipv6());
    }

    #[test]
    fn invalid_interface_addresses_are_rejected() {
        for text in ["", "10.0.0.1", "10.0.0.1/", "10.0.0.1/0", "10.0.0.1/33", "10.0.0.1/+8", "10.0.0/8", "/8"] {
            assert!(text.parse::<Cidr>().is_err(), "{text}");
        }
        for text in ["0.0.0.0/8", "224.0.0.1/4", "255.255.255.255/32", "::/64", "ff02::1/64", "fd00::1/129", "a/8"] {
            assert!(text.parse::<Cidr>().is_err(), "{text}");
        }
    }
}
