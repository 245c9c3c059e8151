//! Plans and links as text: TOML files, and the links of the command line.
//!
//! ```
//! # use linerate_lab::Plan;
//! let plan = Plan::from_toml(r#"
//! name = "demo"
//!
//! [[links]]
//! ends = [
//!     { host = "left", interface = "eth0", addresses = ["10.0.0.1/24"] },
//!     { host = "sensor", interface = "eth0" },
//! ]
//! queues = 4
//! mtu = 22000
//! "#)?;
//! assert_eq!(plan.hosts.len(), 2);
//! assert_eq!(plan.links[0].to_string(), "left:eth0=10.0.0.1/24,sensor:eth0,queues=4,mtu=22000");
//! # Ok::<(), linerate_lab::PlanError>(())
//! ```

use std::fmt;
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer, Error};

use crate::error::PlanError;
use crate::names;
use crate::plan::{self, Link, LinkEnd, Plan};

impl Plan {
    /// Reads a plan from TOML: `name`, `[[hosts]]` with `name` (hosts that links name may be omitted), `[[links]]`
    /// with `ends` (two of `host`, `interface`, `addresses`), `queues`, `mtu`, `offloads`. An unknown field is an
    /// error.
    pub fn from_toml(text: &str) -> Result<Self, PlanError> {
        let mut plan: Self = toml::from_str(text).map_err(|error| {
            let before = text.get(..error.span().map_or(0, |span| span.start)).unwrap_or_default();
            let number = before.matches('\n').count() + 1;
            let line = text.lines().nth(number - 1).unwrap_or_default().trim();
            PlanError::Toml(format!("line {number}, {line}: {}", error.message().trim_end()))
        })?;
        plan.complete();
        plan.validate()?;
        Ok(plan)
    }

    /// Parses a link of the command line, like [`Link::from_str`].
    pub fn parse_link(text: &str) -> Result<Link, PlanError> {
        text.parse()
    }
}

/// `HOST:INTERFACE[=ADDRESS/PREFIX[+ADDRESS/PREFIX...]],HOST:INTERFACE[=...]`, then any of
/// `,queues=N`, `,mtu=N` and `,offloads=on|off`.
impl FromStr for Link {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Self, PlanError> {
        read_link(text).map_err(|problem| PlanError::Link { text: text.to_owned(), problem })
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}", self.ends[0], self.ends[1])?;
        if self.queues != plan::default_queues() {
            write!(f, ",queues={}", self.queues)?;
        }
        if self.mtu != plan::default_mtu() {
            write!(f, ",mtu={}", self.mtu)?;
        }
        if self.offloads { Ok(()) } else { write!(f, ",offloads=off") }
    }
}

impl fmt::Display for LinkEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.interface)?;
        for (a, cidr) in self.addresses.iter().enumerate() {
            write!(f, "{}{cidr}", if a == 0 { '=' } else { '+' })?;
        }
        Ok(())
    }
}

/// Deserializes a lab or host name, so that the error points at its line.
pub(crate) fn name<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let name = String::deserialize(from)?;
    names::check_name(&name).map_err(D::Error::custom)?;
    Ok(name)
}

/// Deserializes an interface name, so that the error points at its line.
pub(crate) fn interface<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let name = String::deserialize(from)?;
    names::check_interface(&name).map_err(D::Error::custom)?;
    Ok(name)
}

/// Deserializes a number of queues, so that the error points at its line.
pub(crate) fn queues<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    let queues = u32::deserialize(from)?;
    plan::check_queues(queues).map_err(D::Error::custom)?;
    Ok(queues)
}

/// Deserializes an MTU, so that the error points at its line.
pub(crate) fn mtu<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    let mtu = u32::deserialize(from)?;
    plan::check_mtu(mtu).map_err(D::Error::custom)?;
    Ok(mtu)
}

fn read_link(text: &str) -> Result<Link, String> {
    let mut parts = text.split(',');
    let mut next_end =
        || parts.next().ok_or_else(|| "second end is missing; a link needs two".to_owned()).and_then(read_end);
    let mut link = Link::new(next_end()?, next_end()?);
    for option in parts {
        match option.split_once('=') {
            Some(("queues", n)) => link.queues = read_number("queues", n)?,
            Some(("mtu", n)) => link.mtu = read_number("mtu", n)?,
            Some(("offloads", "on")) => link.offloads = true,
            Some(("offloads", "off")) => link.offloads = false,
            Some(("offloads", other)) => return Err(format!("offloads={other:?}: invalid value; expected on or off")),
            _ => return Err(format!("unknown option {option:?}; expected queues=N, mtu=N or offloads=on|off")),
        }
    }
    link.validate("link").map_err(|e| e.to_string())?;
    Ok(link)
}

fn read_end(text: &str) -> Result<LinkEnd, String> {
    let (place, addresses) = match text.split_once('=') {
        Some((place, addresses)) => (place, Some(addresses)),
        None => (text, None),
    };
    let (host, interface) =
        place.split_once(':').ok_or_else(|| format!("invalid end {place:?}; expected HOST:INTERFACE"))?;
    let mut end = LinkEnd::new(host, interface);
    for cidr in addresses.iter().flat_map(|list| list.split('+')) {
        end.addresses.push(cidr.parse().map_err(|e: PlanError| e.to_string())?);
    }
    Ok(end)
}

fn read_number(what: &str, text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("{what}={text:?}: not a number"))
}
