//! The Open Traffic Generator API as data: what clients send becomes streams, what happened becomes what they read.
//!
//! <https://github.com/open-traffic-generator/models> is the definition, of which version 1.61 was read. JSON comes in as
//! [`serde_json::Value`]; what it asks for and is not supported, or not known, is told with its path, all of it at once
//! ([`read::Faults`]), before anything is changed.
//!
//! - [`config`]: ports, captures, layer 1 and flows; [`flow`]: a flow as a stream; [`headers`]: which headers and fields there are;
//!   [`device`]: stations with addresses; [`pattern`]: the values of a field; `finish`: what the packet language does not say, as wrong checksums;
//! - [`control`]: states that are to be taken up, and what is asked for;
//! - [`answer`]: metrics as they are answered.
//!
//! A flow is first written as a line of the packet language (`docs/streams.md`), so that there is one way only by which frames are made.
//!
//! ```
//! use linerate_otg::{config::Config, flow::Setup};
//! let text = r#"{"ports": [{"name": "p1", "location": "veth0"}], "flows": [{"name": "f1", "tx_rx": {"port": {"tx_name": "p1"}},
//!   "packet": [{"choice": "ethernet", "ethernet": {"pfc_queue": {"value": 3}}}]}]}"#;
//! let faults = Config::read(&serde_json::from_str(text)?, &Setup::default()).unwrap_err();
//! assert_eq!(faults.list, ["flows[0].packet[0].ethernet.pfc_queue: not supported, but for the value 0"]);
//! # Ok::<(), serde_json::Error>(())
//! ```
#![forbid(unsafe_code)]

pub mod answer;
pub mod config;
pub mod control;
pub mod device;
mod ends;
mod finish;
pub mod flow;
pub mod headers;
pub mod pattern;
pub mod read;
mod timing;

pub use config::Config;
pub use flow::Flow;
pub use read::Faults;

/// The version of the model that this follows.
pub const MODEL: &str = "1.61.0";
/// Versions of clients that are served: additions only have been made since 1.0.
pub const MODELS: &str = ">=1.0.0,<2.0.0";
