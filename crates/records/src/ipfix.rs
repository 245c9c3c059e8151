//! IPFIX (RFC 7011) and NetFlow v9 (RFC 3954): records as collectors take them, and those of others read.
//!
//! - `column`: which elements a record has, in which order, made from the table of fields;
//! - `own`: numbers of the elements that no registry has;
//! - `elements`, `times`: which elements are read, and what they say;
//! - `said`: names back from elements;
//! - `types`: what these are, told beside records;
//! - `sessions`: whose templates are kept, as long as there is room;
//! - `pack`: templates and messages, no longer than a datagram may be;
//! - [`Collector`]: messages back to flows, whoever made them; [`Listener`] takes them from sockets, [`read_file`] from files.
//!
//! None of these reads a clock.

mod back;
mod collect;
mod column;
mod elements;
mod listen;
mod own;
mod pack;
pub(crate) mod said;
mod sessions;
mod times;
mod types;

pub use self::collect::{Collector, Found};
pub use self::listen::{Listener, read_file};
pub use self::own::{OWN, RESPONDER, number};
pub use self::pack::{Message, Packer, Statistics};
pub use self::sessions::{Limits, Session};

use std::io::{Error, ErrorKind, Result};

/// The enterprise whose elements ours are unless another is named: reserved for documentation (RFC 5612).
pub const ENTERPRISE: u32 = 32473;

/// What is written, and to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Which protocol.
    pub version: Version,
    /// Both directions in one record (RFC 5103), where there are two.
    pub biflow: bool,
    /// All that is known of a flow, and not what every collector reads alone.
    pub full: bool,
    /// Whose numbers the elements have that no registry has.
    pub enterprise: u32,
    /// Observation domain (source id of NetFlow v9).
    pub domain: u32,
    /// The most bytes of a message.
    pub most: usize,
    /// The most records a second; UDP alone.
    pub rate: u64,
}

/// Which protocol.
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
            enterprise: ENTERPRISE,
            domain: domain(),
            most: 1400,
            rate: 250_000,
        }
    }
}

impl Profile {
    /// As it is written: `biflow,full,enterprise=N,domain=N,mtu=BYTES,rate=RECORDS`, each of them or none.
    ///
    /// # Errors
    /// A word is none of these, or its number cannot be.
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = |text: String| Error::new(ErrorKind::InvalidInput, text);
        let mut profile = Profile::default();
        for word in text.split(',') {
            let (name, value) = word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
            let number = |least: u64, most: u64| {
                let number =
                    value.and_then(|value| value.parse().ok()).filter(|number| (least..=most).contains(number));
                number.ok_or_else(|| wrong(format!("{word:?}: {name}=N, from {least} to {most}")))
            };
            match (name, value) {
                ("biflow", None) => profile.biflow = true,
                ("full", None) => profile.full = true,
                ("enterprise", _) => profile.enterprise = number(1, u32::MAX.into())? as u32,
                ("domain", _) => profile.domain = number(1, u32::MAX.into())? as u32,
                ("mtu", _) => profile.most = number(512, 65_000)? as usize - HEADERS,
                ("rate", _) => profile.rate = number(1, 1_000_000_000)?,
                _ => {
                    let text = format!("{word:?} is none of biflow, full, enterprise=N, domain=N, mtu=N, rate=N");
                    return Err(wrong(text));
                }
            }
        }
        Ok(profile)
    }
}

/// Of this host: collectors tell sensors apart by it, some by nothing else.
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

/// Bytes of IPv6 and UDP headers around a datagram.
const HEADERS: usize = 48;

#[cfg(test)]
mod tests;
