//! The only threads and the only clock: wiring ports to sinks.
//!
//! - [`clock`]: the time that is handed down as `now`, and whether somebody has set it; `feed`: how long live ports wait for
//!   lanes that others feed;
//! - [`control`]: stopping a run, and watching it from another thread;
//! - [`wait`]: what to do while nothing is ready;
//! - [`select`]: filter text, shards, duplicates, slices and frame limit;
//! - [`answer`]: port -> answers -> port, beside a sender;
//! - [`capture`]: ports -> merge -> select -> block -> sinks;
//!   `complete`: what is done with each desc; `copier`: a second thread that copies; `output`: the block being filled; `outlet`: the sinks that see it, in a thread of their own;
//! - [`share`]: the ordered stream for other processes;
//! - [`died`]: what becomes of a run that panics;
//! - [`count`]: ports -> select -> counts, with nothing copied;
//! - [`check`]: ports -> order -> the account of streams with trailers;
//! - [`flows`]: ports -> select -> flow records;
//! - [`forward`]: port -> port;
//! - [`replay`]: recording -> rules -> schedule -> the queues of one port or two;
//! - [`streams`]: streams -> timeline -> frames -> the queues of a port;
//!   `sender`: what all senders do; `outlets`: the queues they send into; `live`: watching a port that makes frames itself.
#![forbid(unsafe_code)]

pub mod answer;
pub mod capture;
pub mod check;
pub mod clock;
mod complete;
pub mod control;
mod copier;
pub mod count;
pub mod died;
mod feed;
pub mod flows;
pub mod forward;
mod lanes;
mod live;
mod outlet;
mod outlets;
mod output;
pub mod replay;
mod rounds;
pub mod select;
mod sender;
pub mod share;
pub mod streams;
pub mod wait;

pub use answer::{Answering, AnsweringReport, Unresolved};
pub use capture::{Capture, CaptureReport};
pub use check::{CheckReport, CheckWatch, Checker, Checking};
pub use control::{Progress, Stop};
pub use count::{CountReport, Counting, Watch};
pub use died::{Died, survive};
pub use flows::{FlowsReport, Load, Metering, Meters};
pub use forward::{Forward, ForwardReport};
pub use replay::{Edits, Memory, Replay, ReplayReport};
pub use select::{Selection, Shard, Slice, imbalance};
pub use share::{Sharing, SharingOptions};
pub use streams::{StreamWatch, Streams, StreamsReport};
pub use wait::Waiting;
