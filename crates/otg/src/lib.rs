//! The Open Traffic Generator API as data: requests become streams, results become answers.
//!
//! It follows the definition in <https://github.com/open-traffic-generator/models>, version 1.61. JSON is parsed to
//! [`serde_json::Value`]; everything that is not supported or unknown is reported with its path, all of it at once
//! ([`read::Faults`]), before anything is changed.
//!
//! - [`config`]: ports, captures, layer 1 and flows; [`flow`]: a flow as a stream; [`device`]: stations with addresses;
//! - [`headers`]: supported headers and fields; [`pattern`]: values of a field; `frame_edits`: changes that the packet
//!   language cannot express, such as wrong checksums;
//! - [`control`]: states to apply, and requests;
//! - [`metrics`]: metrics in answers.
//!
//! A flow is first written as a line of the packet language (`docs/streams.md`), so that there is only one way to make
//! frames.
//!
//! ```
//! use linerate_otg::{config::Config, flow::Setup};
//! let text = r#"{"ports": [{"name": "p1", "location": "veth0"}], "flows": [{"name": "f1", "tx_rx": {"port": {"tx_name": "p1"}},
//!   "packet": [{"choice": "ethernet", "ethernet": {"pfc_queue": {"value": 3}}}]}]}"#;
//! let faults = Config::read(&serde_json::from_str(text)?, &Setup::default()).unwrap_err();
//! assert_eq!(faults.list, ["flows[0].packet[0].ethernet.pfc_queue: not supported, except the value 0"]);
//! # Ok::<(), serde_json::Error>(())
//! ```
#![forbid(unsafe_code)]

pub mod config;
pub mod control;
pub mod device;
pub mod flow;
mod flow_ports;
mod frame_edits;
pub mod headers;
pub mod metrics;
pub mod pattern;
pub mod read;
mod timing;

pub use config::Config;
pub use flow::Flow;
pub use read::Faults;

/// Version of the model.
pub const MODEL: &str = "1.61.0";
/// Range of compatible client versions: since 1.0 there have been only additions.
pub const MODELS: &str = ">=1.0.0,<2.0.0";
