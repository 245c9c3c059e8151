//! Packets of Linux at line rate: capture, filters, flow records, files, streams, rings for other processes.
//!
//! [`open`] names the ports, and an [`Input`] has the filter and the limits:
//!
//! ```no_run
//! # fn main() -> Result<(), linerate::Error> {
//! // To a capture file.
//! let seen = linerate::open("eth0")?.filter("udp port 53")?.limit(1000).write("dns.pcapng")?;
//! println!("{} packets, {} lost", seen.packets(), seen.lost());
//!
//! // Packets of two ports, merged by time.
//! let mut packets = linerate::open("eth0,eth1")?.filter("tcp")?.packets()?;
//! while let Some(packet) = packets.next()? {
//!     println!("{}: {packet}", packet.interface().name);
//! }
//!
//! // Flow records.
//! for flow in linerate::open("trace.pcap")?.flows(&linerate::meter::Config::default())? {
//!     let flow = flow?;
//!     println!("{} > {}: {} bytes", flow.ends[0].address, flow.ends[1].address, flow.frame_bytes());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! [`send`] sends streams, and checks them where they arrive.
//!
//! # Losses
//!
//! No packet disappears without a reason. A [`Summary`] has the packet accounting ([`Ledger`](burst::Ledger)): for each
//! stage what it received, passed on, filtered and lost, by cause; [`Summary::lost`] is the sum of all losses.
//!
//! # Below this
//!
//! Everything above is one loop ([`engine::Receive`]) over ports ([`port`]) with a consumer ([`engine::Consumer`]),
//! which is called with bursts of packets where they lie ([`burst::Burst`]). Implement [`engine::Consumer`] to copy
//! nothing, to share a run with other consumers, or to hold packets; implement [`port::RxQueue`] for a source of your
//! own. `examples/` has complete programs: `capture`, `packets`, `flows` and `stream`, with the functions of this page;
//! `attach`, a consumer that reads the ring of another process in place; and, in the crate `backends`, `own_backend`.
//!
//! The feature `parquet` writes and queries Parquet files (31 packages more); `cuda` reads into GPU memory. Neither is a
//! default.
//!
//! The other modules are the crates that the program consists of. They change with it; of this page, names change only
//! with the major version.
#![forbid(unsafe_code)]

#[doc(inline)]
pub use linerate_burst as burst;
#[doc(inline)]
pub use linerate_device as device;
#[doc(inline)]
pub use linerate_engine as engine;
#[doc(inline)]
pub use linerate_export as export;
#[doc(inline)]
pub use linerate_filter as filter;
#[doc(inline)]
pub use linerate_generate as generate;
#[doc(inline)]
pub use linerate_headers as headers;
#[doc(inline)]
pub use linerate_index as index;
#[doc(inline)]
pub use linerate_measure as measure;
#[doc(inline)]
pub use linerate_merge as merge;
#[doc(inline)]
pub use linerate_meter as meter;
#[doc(inline)]
pub use linerate_names as names;
#[doc(inline)]
pub use linerate_pcap as pcap;
#[doc(inline)]
pub use linerate_print as print;
#[doc(inline)]
pub use linerate_query as query;
#[doc(inline)]
pub use linerate_share as share;
#[doc(inline)]
pub use linerate_switch as switch;
#[doc(inline)]
pub use linerate_transport as transport;

mod error;
mod flows;
mod input;
mod output;
mod packets;
mod summary;

pub use self::error::Error;
pub use self::flows::Flows;
pub use self::input::{Input, open, open_file};
pub use self::output::{Output, Sent, send};
pub use self::packets::{Packet, Packets};
pub use self::summary::Summary;

/// Port contract, and opening of ports through the registry of backends.
pub mod port {
    #[doc(inline)]
    pub use linerate_backends as backends;
    pub use linerate_backends::{BACKENDS, REGISTRY, inventory, netns, open_rx, open_tx};
    pub use linerate_port::*;
}
