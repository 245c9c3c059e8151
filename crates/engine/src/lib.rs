//! The only threads and the only clock: wiring ports to sinks.
//!
//! - [`clock`]: the time that is handed down as `now`;
//! - [`control`]: stopping a run, and watching it from another thread;
//! - [`wait`]: what to do while nothing is ready;
//! - [`select`]: filter text, shards, duplicates, slices and frame limit;
//! - [`capture`]: ports -> merge -> select -> block -> sinks;
//!   `complete`: what is done with each desc; `output`: the block being filled; `outlet`: the sinks that see it, in a thread of their own;
//! - [`share`]: the ordered stream for other processes;
//! - [`count`]: ports -> select -> counts, with nothing copied;
//! - [`flows`]: ports -> select -> flow records;
//! - [`forward`]: port -> port;
//! - [`made`]: frames made from a plan;
//! - [`source`]: where a sender's frames come from;
//! - [`transmit`]: source -> schedule -> port; `live`: watching a port that makes frames itself.
#![forbid(unsafe_code)]

pub mod capture;
pub mod clock;
mod complete;
pub mod control;
pub mod count;
pub mod flows;
pub mod forward;
mod lanes;
mod live;
pub mod made;
mod outlet;
mod output;
mod rounds;
pub mod select;
pub mod share;
pub mod source;
pub mod transmit;
pub mod wait;

pub use capture::{Capture, CaptureReport};
pub use control::{Progress, Stop};
pub use count::{CountReport, Counting, Watch};
pub use flows::{FlowsReport, Metering};
pub use forward::{Forward, ForwardReport};
pub use made::Changes;
pub use select::{Selection, Shard, Slice};
pub use share::{Sharing, SharingOptions};
pub use source::Source;
pub use transmit::{Transmit, TransmitReport};
pub use wait::Waiting;
