//! linerate as one library: each crate under its short name, and the program's verbs.
//!
//! ```no_run
//! use linerate::burst::{Ledger, Sink};
//! use linerate::engine::{Capture, Receive, Selection};
//! use linerate::port::{RxOptions, Spec, open_rx};
//!
//! let port = open_rx(&Spec::parse("pcap:trace.pcap").unwrap(), &RxOptions::default()).unwrap();
//! let mut capture = Capture::new(Selection { filter: "udp port 53".into(), ..Selection::default() }, Vec::new());
//! let run = Receive::all(vec![port]).run(&mut [&mut capture]);
//! println!("{} frames, {} lost", capture.done().frames, run.ledger.lost());
//! ```
//!
//! # Rights
//!
//! Once ports are open the program becomes the user who called sudo, doas or pkexec (or `-Z USER`; of root at interfaces `linerate` or
//! `nobody`), drops every capability, and opens outputs as that user: no owner and no mode is ever changed. Memory of rings and tables
//! is taken before. Then `privileges/confine` leaves the system calls of a list (`privileges/calls`) and, to write in, the folders of
//! the outputs. A new system call in a run belongs into that list: what is not there looks like a kernel that lacks it (ENOSYS).
//!
//! # Signals
//!
//! They are handled once ports and files are open; before that they end the program. The first asks the run to stop. Those within a
//! second of it are the same request (timeout(1) signals twice), a later one is told what is waited for, a third ends.
//!
//! # What is printed
//!
//! `view/terminal` is the only file that prints: it escapes what a terminal would obey, takes a closed pipe as an end and any other
//! failure of standard output as one of the run. A name in a line goes through `shown`, or it could bring lines of its own. Views
//! never slow the data path: the run writes counters, a thread of its own prints them. JSON: `docs/json.md`.
#![forbid(unsafe_code)]

pub use linerate_burst as burst;
pub use linerate_engine as engine;
pub use linerate_filter as filter;
pub use linerate_generate as generate;
pub use linerate_lab as lab;
pub use linerate_merge as merge;
pub use linerate_meter as meter;
pub use linerate_record as record;
pub use linerate_records as records;
pub use linerate_wire as wire;

/// The port contract, and opening ports by the registry of the backends.
pub mod port {
    pub use linerate_backends as backends;
    pub use linerate_backends::{BACKENDS, REGISTRY, inventory, netns, open_rx, open_tx};
    pub use linerate_port::*;
}

pub mod exit;
pub mod privileges;
pub mod signals;
pub mod verbs;
pub mod view;
