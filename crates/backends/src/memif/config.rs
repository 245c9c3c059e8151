//! Options of a port.

use super::message::SECRET;
use crate::sys::memif_memory::MOST_LOG2;
use linerate_port::{PortError, Spec};

/// Maximum number of rings per direction.
const MOST_RINGS: u64 = 64;
/// Defaults: descriptors of a ring, bytes of a buffer, and bytes of a peer's regions. Peers assume buffers of at most
/// 2048 bytes: some copy as much as there is to one of that size.
const RING: u64 = 1024;
const BUFFER: u64 = 2048;
const MEMORY: u64 = 1 << 30;

pub(super) const OPTIONS: &[&str] = &[
    "role",
    "id",
    "secret",
    "abstract",
    "rings-in",
    "rings-out",
    "ring",
    "buffer",
    "users",
    "chains",
    "trust",
    "memory",
];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MemifConfig {
    /// Name in reports.
    pub name: String,
    pub target: String,
    /// True if the target is an abstract name, not a path.
    pub is_abstract: bool,
    /// True for a server, which listens; a client connects.
    pub is_server: bool,
    /// Interface of the socket.
    pub id: u32,
    /// Secret of the client, or the one that a server requires.
    pub secret: [u8; SECRET],
    /// Receive and transmit rings; at least one each.
    pub rings: (u16, u16),
    /// True if the options set the number of receive rings, and of transmit rings.
    said_rings: (bool, bool),
    /// Descriptors of a ring, as a power of two.
    pub log2: u8,
    /// Bytes of a buffer.
    pub buffer: u32,
    /// Users that a peer may run as, other than root and this one.
    pub users: Vec<u32>,
    /// True if NEXT is followed in any buffer, not only in a full one.
    pub any_chains: bool,
    /// True if unsealed memory is accepted.
    pub trusts: bool,
    /// Maximum bytes of a peer's regions.
    pub memory: u64,
}

impl MemifConfig {
    /// Parses the options of a port. `rings` are the numbers of rings in and out that the caller needs; 0 if unknown.
    pub(super) fn read(spec: &Spec, rings: (usize, usize)) -> Result<MemifConfig, PortError> {
        let name = spec.to_string();
        let wrong = |reason: String| PortError::wrong(&name, reason);
        let number = |key: &str, default| spec.number(key, default);
        if spec.queues.is_some() {
            return Err(wrong("queues are set by rings-in= and rings-out=, not by @".into()));
        }
        let either = |key: &str, [no, yes]: [&str; 2]| match spec.option(key) {
            None => Ok(false),
            Some(value) if value == no => Ok(false),
            Some(value) if value == yes => Ok(true),
            Some(other) => Err(wrong(format!("{key}={other}: expected {no} or {yes}"))),
        };
        let count = |key: &str, asked: usize| {
            let default = (asked.max(1) as u64).min(MOST_RINGS);
            match number(key, default)? {
                rings @ 1..=MOST_RINGS => Ok(rings as u16),
                _ => Err(wrong(format!("{key}=: expected 1 to {MOST_RINGS} rings"))),
            }
        };
        let (ring, buffer) = (number("ring", RING)?, number("buffer", BUFFER)?);
        if !ring.is_power_of_two() || !(2..=1 << MOST_LOG2).contains(&ring) {
            return Err(wrong(format!("ring=: expected a power of two from 2 to {} descriptors", 1 << MOST_LOG2)));
        }
        if !buffer.is_multiple_of(64) || !(64..=1 << 16).contains(&buffer) {
            return Err(wrong("buffer=: expected a multiple of 64 up to 65536 bytes".into()));
        }
        let given = spec.option("secret").unwrap_or_default().as_bytes();
        let mut secret = [0; SECRET];
        let place = secret.get_mut(..given.len()).filter(|_| !given.contains(&0));
        place
            .ok_or_else(|| wrong(format!("secret=: expected at most {SECRET} bytes, none of them 0")))?
            .copy_from_slice(given);
        let id = u32::try_from(number("id", 0)?).map_err(|_| wrong("id=: expected a 32-bit number".into()))?;
        let users = spec.option("users").map_or(Ok(Vec::new()), |users| users.split('+').map(str::parse).collect());
        let is_abstract = either("abstract", ["no", "yes"])? || !spec.target.contains('/');
        if spec.target.len() > 107 || spec.target.contains('\0') {
            return Err(wrong("invalid socket name; expected at most 107 bytes, none of them 0".into()));
        }
        Ok(MemifConfig {
            target: spec.target.clone(),
            is_abstract,
            is_server: either("role", ["client", "server"])?,
            id,
            secret,
            rings: (count("rings-in", rings.0)?, count("rings-out", rings.1)?),
            said_rings: (spec.option("rings-in").is_some(), spec.option("rings-out").is_some()),
            log2: ring.ilog2() as u8,
            buffer: buffer as u32,
            users: users.map_err(|_| wrong("users=: expected user IDs, such as 1000+65534".into()))?,
            any_chains: either("chains", ["full", "any"])?,
            trusts: either("trust", ["no", "yes"])?,
            memory: number("memory", MEMORY)?,
            name,
        })
    }

    /// Returns whether both are the same end of the same interface.
    pub(super) fn is_end_of(&self, other: &MemifConfig) -> bool {
        let key = |config: &MemifConfig| (config.target.clone(), config.is_abstract, config.is_server, config.id);
        key(self) == key(other)
    }

    /// Returns whether both listen on the same socket.
    pub(super) fn is_behind(&self, other: &MemifConfig) -> bool {
        let key = |config: &MemifConfig| (config.target.clone(), config.is_abstract, config.is_server);
        self.is_server && key(self) == key(other)
    }

    /// Returns whether both can share a socket: users and rings apply before the client has named its interface.
    pub(super) fn can_share_socket(&self, other: &MemifConfig) -> bool {
        (&self.users, self.rings) == (&other.users, other.rings)
    }

    /// Returns whether an open end meets these options: all that are set here must be the same there.
    pub(super) fn is_satisfied_by(&self, open: &MemifConfig) -> bool {
        let rings = |said: bool, wanted: u16, there: u16| if said { wanted == there } else { wanted <= there };
        rings(self.said_rings.0, self.rings.0, open.rings.0)
            && rings(self.said_rings.1, self.rings.1, open.rings.1)
            && MemifConfig { name: String::new(), rings: open.rings, said_rings: open.said_rings, ..self.clone() }
                == MemifConfig { name: String::new(), ..open.clone() }
    }
}
