//! Headers as views and values, checksums, and the layered dissection of a frame.
//!
//! A *view* is a thin look at bytes: `View::parse` checks every length once, then its getters cannot
//! fail. A *value* is a plain struct that is read from a view and *emitted* into bytes; what follows from
//! other bytes (header lengths, total lengths, checksums) is not in it but computed when it is emitted.
//! [`dissect`](dissect()) walks a frame from the outermost header inwards, allocates nothing, and says
//! where each header lies and why it stopped. [`build`] makes a frame of values and a payload.
//!
//! In the order of a frame:
//!
//! - [`link`]: what a frame may begin with: [`ethernet`] with [`llc`] (802.3) and [`vlan`], [`null`], [`sll`],
//!   [`sll2`], [`ppp`], [`chdlc`];
//! - [`mpls`], [`pseudowire`], [`pppoe`];
//! - [`arp`], [`ipv4`], [`ipv6`], [`ipv6_extension`], [`ipv6_fragment`], [`mobility`], [`hip`], [`shim6`], [`ah`];
//! - [`tcp`], [`tcp_option`], [`udp`], [`udp_lite`], [`sctp`], [`icmp`], [`icmpv6`], [`ndp`], [`igmp`], [`esp`];
//! - tunnels: [`gre`], [`erspan`], [`vxlan`], [`geneve`], [`gtp_u`], [`teredo`], and IP in IP;
//! - [`options`]: the kind, length, data lists of IPv4 and TCP; [`checksum`]: RFC 1071 and RFC 1624; [`crc32c`];
//! - [`registry`]: one row a protocol; [`number`]: how they announce each other;
//! - [`dissect`](mod@dissect): the walk, its findings in [`layers`];
//! - [`flow`]: which flow a frame belongs to, by a hash that is the same for both directions;
//! - [`build`]: frames from headers, all that follows from others computed; [`cover`]: what each checksum covers;
//! - [`named`]: headers and fields by the names that users write;
//! - [`error`]: what is wrong with bytes, or with a value that does not fit.
//!
//! # How long a payload is
//! Frames are captured without FCS, may be cut by a snap length and padded to Ethernet's minimum size.
//! So a payload ends where its header's length field says, or where the bytes end if that is sooner;
//! `is_cut` then says that bytes are missing. Padding behind the length never is payload. A length of 0
//! in IPv4, IPv6 and UDP, as segmentation offload and jumbograms (RFC 2675) leave it, means all bytes there.
//!
//! ```
//! use linerate_wire::{Layers, Link, Protocol, Stop, dissect};
//!
//! let mut frame = [0u8; 60];
//! frame[12..15].copy_from_slice(&[0x08, 0x00, 0x45]); // Ethernet type IPv4; version 4, 20 bytes of header
//! frame[16..18].copy_from_slice(&[0, 28]); // total length
//! frame[23] = 17; // UDP
//! frame[38..40].copy_from_slice(&[0, 8]); // UDP length
//! let mut layers = Layers::new();
//! dissect(Link::Ethernet, &frame, &mut layers);
//! let protocols: Vec<_> = layers.as_slice().iter().map(|layer| layer.protocol).collect();
//! assert_eq!(protocols, [Protocol::Ethernet, Protocol::Ipv4, Protocol::Udp]);
//! assert_eq!((layers.l3(), layers.l4(), layers.stop()), (14, 34, Stop::End));
//! ```
//!
//! # Dissection
//!
//! One row of [`registry`] a protocol: which numbers announce it, and a function that says how long a header is and what it
//! announces in turn. Numbers are looked up in a hash table that is made from the rows at compile time. A UDP port only makes a
//! guess: the bytes behind it must be a plausible header (version, flags, what is reserved), else they are payload. What has nothing
//! to verify, as ESP or MPLS in UDP, is not guessed.
//!
//! Most frames are Ethernet, tags, IP and TCP or UDP. Their walk is spelled out (`common`), held equal to the general one by a
//! property, and does not grow slower with the number of protocols: UDP ports are compared with all known ones at once.
//!
//! A frame has at most 16 layers (the deepest of 100,000 real frames has 10). What is deeper ends with a reason, as all that cannot
//! be walked does. A label stack, or a chain of GTP extension headers, is one layer of at most 65,535 bytes. A header is read at
//! most twice, so hostile frames take no longer than long ones. `l3` and `l4` of a desc are for the outermost IP packet; [`Layers`]
//! also knows the innermost.
//!
//! # The flow hash
//!
//! It sorts the endpoints, then multiplies ([`flow`]): hashes that add or xor them send flows whose addresses count up in step to
//! one shard of sixteen. It carries no secret, so that shards agree between programs and machines.
#![forbid(unsafe_code)]

pub mod ah;
pub mod arp;
pub mod build;
pub mod chdlc;
pub mod checksum;
mod common;
pub mod cover;
pub mod crc32c;
pub mod dissect;
pub mod error;
pub mod erspan;
pub mod esp;
pub mod ethernet;
pub mod flow;
pub mod geneve;
pub mod gre;
pub mod gtp_u;
pub mod hip;
pub mod icmp;
pub mod icmpv6;
pub mod igmp;
pub mod ipv4;
pub mod ipv6;
pub mod ipv6_extension;
pub mod ipv6_fragment;
pub mod layers;
pub mod link;
pub mod llc;
mod lookup;
pub mod mac;
pub mod mobility;
pub mod mpls;
pub mod named;
pub mod ndp;
pub mod null;
pub mod number;
pub mod options;
pub mod ppp;
pub mod pppoe;
pub mod pseudowire;
pub mod registry;
pub mod sctp;
pub mod shim6;
pub mod sll;
pub mod sll2;
pub mod tcp;
pub mod tcp_option;
pub mod teredo;
pub mod udp;
pub mod udp_lite;
pub mod vlan;
pub mod vxlan;

pub use checksum::{Pseudo, Sum};
pub use cover::{Coverage, Placed};
pub use crc32c::Crc32c;
pub use dissect::dissect;
pub use error::{Flaw, Malformed, Unfit};
pub use layers::{Layer, Layers, MAX_LAYERS, Stop};
pub use link::Link;
pub use mac::MacAddr;
pub use number::Number;
pub use registry::{Protocol, Role};
