//! linerate as one library: each crate under its short name. The program is in the crate `linerate-cli`.
//!
//! Frames are received from ports by one loop, and consumers process its rounds:
//!
//! ```no_run
//! use linerate::engine::{Capture, Receive, Selection};
//! use linerate::port::{RxOptions, Spec, open_rx};
//!
//! let port = open_rx(&Spec::parse("pcap:trace.pcap").unwrap(), &RxOptions::default()).unwrap();
//! let mut capture = Capture::new(Selection { filter: "udp port 53".into(), ..Selection::default() }, Vec::new());
//! let run = Receive::all(vec![port]).run(&mut [&mut capture]);
//! println!("{} frames, {} lost", capture.done().frames, run.ledger.lost());
//! ```
//!
//! `examples/` has complete programs: `capture` (to a file, with a filter), `flows` (as JSON lines), `stream` (sends
//! one and accounts for each frame), `attach` (reads a ring of another process), and, in the crate `backends`,
//! `own_backend`: a custom port.
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

/// Port contract, and opening of ports through the registry of backends.
pub mod port {
    #[doc(inline)]
    pub use linerate_backends as backends;
    pub use linerate_backends::{BACKENDS, REGISTRY, inventory, netns, open_rx, open_tx};
    pub use linerate_port::*;
}
