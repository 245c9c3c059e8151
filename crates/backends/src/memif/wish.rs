//! What a port asks for.

use super::message::SECRET;
use crate::sys::memif_memory::MOST_LOG2;
use linerate_port::{PortError, Spec};

/// Most rings of a direction.
const MOST_RINGS: u64 = 64;
/// Descriptors of a ring, bytes of a buffer, and bytes of a peer's regions, unless the port says otherwise. No peer takes more than
/// 2048 bytes in a buffer for granted: some copy as much as is there to one of that size.
const RING: u64 = 1024;
const BUFFER: u64 = 2048;
const MEMORY: u64 = 1 << 30;

/// The options of a port.
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

/// What a port asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wish {
    /// As it is shown.
    pub name: String,
    /// Where the socket is.
    pub target: String,
    /// Whether that is an abstract name, and no path.
    pub is_abstract: bool,
    /// Whether it listens for the other end, or connects to it.
    pub is_server: bool,
    /// Which interface of the socket.
    pub id: u32,
    /// What the other end has to know, or to be told.
    pub secret: [u8; SECRET],
    /// Rings that frames come by, and that they go by; at least one each.
    pub rings: (u16, u16),
    /// Whether the port says how many of each.
    said_rings: (bool, bool),
    /// Descriptors of a ring, as a power of two.
    pub log2: u8,
    /// Bytes of a buffer.
    pub buffer: u32,
    /// Users who may be at the other end, beside root and this one.
    pub users: Vec<u32>,
    /// Whether a frame goes on in the next buffer whenever the peer says so, however full the first one is.
    pub any_chains: bool,
    /// Whether the peer is believed not to take memory away.
    pub trusts: bool,
    /// The most bytes of a peer's regions.
    pub memory: u64,
}

impl Wish {
    /// What a port asks for, and how many rings its user, in and out; 0 where it does not say.
    pub(super) fn read(spec: &Spec, rings: (usize, usize)) -> Result<Wish, PortError> {
        let name = spec.to_string();
        let wrong = |reason: String| PortError::wrong(&name, reason);
        let number = |key: &str, default| spec.number(key, default);
        if spec.queues.is_some() {
            return Err(wrong("its queues are its rings: say rings-in= and rings-out= instead of @".into()));
        }
        let either = |key: &str, [no, yes]: [&str; 2]| match spec.option(key) {
            None => Ok(false),
            Some(value) if value == no => Ok(false),
            Some(value) if value == yes => Ok(true),
            Some(other) => Err(wrong(format!("{key}={other}: it is {no} or {yes}"))),
        };
        let count = |key: &str, asked: usize| {
            let default = (asked.max(1) as u64).min(MOST_RINGS);
            match number(key, default)? {
                rings @ 1..=MOST_RINGS => Ok(rings as u16),
                _ => Err(wrong(format!("{key}= is 1 to {MOST_RINGS} rings"))),
            }
        };
        let (ring, buffer) = (number("ring", RING)?, number("buffer", BUFFER)?);
        if !ring.is_power_of_two() || !(2..=1 << MOST_LOG2).contains(&ring) {
            return Err(wrong(format!("ring= is a power of two, 2 to {} descriptors", 1 << MOST_LOG2)));
        }
        if !buffer.is_multiple_of(64) || !(64..=1 << 16).contains(&buffer) {
            return Err(wrong("buffer= is a multiple of 64, up to 65536 bytes".into()));
        }
        let given = spec.option("secret").unwrap_or_default().as_bytes();
        let mut secret = [0; SECRET];
        let place = secret.get_mut(..given.len()).filter(|_| !given.contains(&0));
        place.ok_or_else(|| wrong(format!("secret= has at most {SECRET} bytes")))?.copy_from_slice(given);
        let id = u32::try_from(number("id", 0)?).map_err(|_| wrong("id= is a number of 32 bits".into()))?;
        let users = spec.option("users").map_or(Ok(Vec::new()), |users| users.split('+').map(str::parse).collect());
        let is_abstract = either("abstract", ["no", "yes"])? || !spec.target.contains('/');
        if spec.target.len() > 107 || spec.target.contains('\0') {
            return Err(wrong("the name of a socket has at most 107 bytes".into()));
        }
        Ok(Wish {
            target: spec.target.clone(),
            is_abstract,
            is_server: either("role", ["client", "server"])?,
            id,
            secret,
            rings: (count("rings-in", rings.0)?, count("rings-out", rings.1)?),
            said_rings: (spec.option("rings-in").is_some(), spec.option("rings-out").is_some()),
            log2: ring.ilog2() as u8,
            buffer: buffer as u32,
            users: users.map_err(|_| wrong("users= are numbers, as in 1000+65534".into()))?,
            any_chains: either("chains", ["full", "any"])?,
            trusts: either("trust", ["no", "yes"])?,
            memory: number("memory", MEMORY)?,
            name,
        })
    }

    /// Whether it is the same end of the same interface.
    pub(super) fn is_end_of(&self, other: &Wish) -> bool {
        let key = |wish: &Wish| (wish.target.clone(), wish.is_abstract, wish.is_server, wish.id);
        key(self) == key(other)
    }

    /// Whether both listen at the same place.
    pub(super) fn is_behind(&self, other: &Wish) -> bool {
        let key = |wish: &Wish| (wish.target.clone(), wish.is_abstract, wish.is_server);
        self.is_server && key(self) == key(other)
    }

    /// Whether a client can be let in, and told how many rings there are, before it is known which of these it is for.
    pub(super) fn goes_beside(&self, other: &Wish) -> bool {
        (&self.users, self.rings) == (&other.users, other.rings)
    }

    /// Whether an end that was opened so is what this one asks for: all that is said there is said here, and the same.
    pub(super) fn is_met_by(&self, open: &Wish) -> bool {
        let rings = |said: bool, wanted: u16, there: u16| if said { wanted == there } else { wanted <= there };
        rings(self.said_rings.0, self.rings.0, open.rings.0)
            && rings(self.said_rings.1, self.rings.1, open.rings.1)
            && Wish { name: String::new(), rings: open.rings, said_rings: open.said_rings, ..self.clone() }
                == Wish { name: String::new(), ..open.clone() }
    }
}
