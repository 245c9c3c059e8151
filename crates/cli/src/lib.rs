//! linerate as one library: each crate under its short name, and the program's verbs.
//!
//! ```no_run
//! use linerate::burst::{Ledger, Sink};
//! use linerate::engine::{Capture, Progress, Selection, Stop, Waiting};
//! use linerate::port::{RxOptions, Spec, open_rx};
//!
//! let port = open_rx(&Spec::parse("pcap:trace.pcap").unwrap(), &RxOptions::default()).unwrap();
//! let report = Capture {
//!     ports: vec![port],
//!     selection: Selection { filter: "udp port 53".into(), ..Selection::default() },
//!     sinks: Vec::new(),
//!     share: None,
//!     copy_by_two: false,
//!     waiting: Waiting::default(),
//!     duration: None,
//!     stop: Stop::new(),
//!     progress: Progress::new(),
//! }
//! .run();
//! println!("{} frames, {} lost", report.frames, report.ledger.lost());
//! ```
#![forbid(unsafe_code)]

pub use linerate_burst as burst;
pub use linerate_engine as engine;
pub use linerate_filter as filter;
pub use linerate_generate as generate;
pub use linerate_lab as lab;
pub use linerate_merge as merge;
pub use linerate_meter as meter;
pub use linerate_port as port;
pub use linerate_record as record;
pub use linerate_records as records;
pub use linerate_wire as wire;

pub mod exit;
pub mod privileges;
pub mod signals;
pub mod verbs;
pub mod view;
