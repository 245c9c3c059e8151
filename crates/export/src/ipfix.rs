//! IPFIX (RFC 7011) and NetFlow v9 (RFC 3954): export to collectors, and collection from other exporters.
//!
//! - `column`: the elements of a record in their order, derived from the table of fields;
//! - `enterprise`: numbers of elements that are not registered;
//! - `elements`, `times`: elements that are decoded, and their semantics;
//! - `names`: names decoded from elements;
//! - `types`: information element type records (RFC 5610), sent with the records;
//! - `sessions`: templates per exporter, in bounded memory;
//! - `pack`: encoding of templates and messages, limited to the size of a datagram;
//! - [`Collector`]: decodes messages of any exporter; [`Listener`] receives them from sockets, [`read_file`] from
//!   files.
//!
//! None of these reads the clock.

mod collect;
mod column;
mod decode;
mod elements;
mod enterprise;
mod listen;
pub(crate) mod names;
mod pack;
mod sessions;
mod times;
mod types;

pub use self::collect::{Collector, CollectorCounters};
pub use self::enterprise::{OWN, RESPONDER, number};
pub use self::listen::{Listener, read_file};
pub use self::pack::{Message, Packer, Statistics};
pub use self::sessions::{Limits, Session};

use std::io::{Error, ErrorKind, Result};

/// Default private enterprise number of our elements: reserved for documentation (RFC 5612).
pub const ENTERPRISE: u32 = 32473;

/// Export settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Protocol version.
    pub version: Version,
    /// True for both directions in one record (RFC 5103), if the flow has both.
    pub biflow: bool,
    /// True to export all fields, not only those that every collector reads.
    pub full: bool,
    /// True if the user chose `biflow` and `full`; otherwise a file has both.
    pub is_chosen: bool,
    /// Private enterprise number of unregistered elements.
    pub enterprise: u32,
    /// Observation domain (source id of NetFlow v9).
    pub domain: u32,
    /// Maximum message size in bytes.
    pub most: usize,
    /// Maximum records per second; UDP only.
    pub rate: u64,
}

/// Protocol version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// RFC 7011.
    Ipfix,
    /// RFC 3954.
    V9,
}

impl Default for Profile {
    fn default() -> Self {
        Profile {
            version: Version::Ipfix,
            biflow: false,
            full: false,
            is_chosen: false,
            enterprise: ENTERPRISE,
            domain: domain(),
            most: 1400,
            rate: 250_000,
        }
    }
}

impl Profile {
    /// Parses `uniflow,biflow,full,enterprise=N,domain=N,mtu=BYTES,rate=RECORDS`; each part is optional.
    ///
    /// # Errors
    /// A part is unknown or its number is out of range.
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = |text: String| Error::new(ErrorKind::InvalidInput, text);
        let mut profile = Profile::default();
        for word in text.split(',') {
            let (name, value) = word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
            let number = |least: u64, most: u64| {
                let number =
                    value.and_then(|value| value.parse().ok()).filter(|number| (least..=most).contains(number));
                number.ok_or_else(|| {
                    wrong(format!("{word:?}: invalid {name}; expected {name}=N, from {least} to {most}"))
                })
            };
            match (name, value) {
                ("uniflow", None) => profile.is_chosen = true,
                ("biflow", None) => (profile.biflow, profile.is_chosen) = (true, true),
                ("full", None) => (profile.full, profile.is_chosen) = (true, true),
                ("enterprise", _) => profile.enterprise = number(1, u32::MAX.into())? as u32,
                ("domain", _) => profile.domain = number(1, u32::MAX.into())? as u32,
                ("mtu", _) => profile.most = number(512, 65_000)? as usize - HEADERS,
                ("rate", _) => profile.rate = number(1, 1_000_000_000)?,
                _ => {
                    return Err(wrong(format!(
                        "{word:?}: expected uniflow, biflow, full, enterprise=N, domain=N, mtu=N or rate=N"
                    )));
                }
            }
        }
        if profile.biflow && text.split(',').any(|word| word == "uniflow") {
            return Err(wrong(format!("{text:?}: uniflow excludes biflow; remove one of them")));
        }
        Ok(profile)
    }

    /// Returns the profile for a file: no collector has to skip a field, so it contains all unless the user chose.
    pub(crate) fn of_file(self) -> Self {
        if self.is_chosen { self } else { Profile { biflow: true, full: true, ..self } }
    }
}

/// Derives the observation domain from the host name: collectors distinguish sensors by it, some by nothing else.
fn domain() -> u32 {
    let name = rustix::system::uname();
    // FNV-1a.
    let hash = name
        .nodename()
        .to_bytes()
        .iter()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    hash.max(1)
}

/// Size of the IPv6 and UDP headers of a datagram.
const HEADERS: usize = 48;

#[cfg(test)]
mod tests;
