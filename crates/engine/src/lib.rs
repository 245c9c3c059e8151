//! The only threads: ports on one side, whoever takes or makes frames on the other.
//!
//! Receiving is one loop with consumers:
//!
//! - [`receive`]: ports -> lanes -> order -> consumers;
//! - [`consumer`]: what a consumer must do;
//! - [`capture`]: ordered frames in blocks, for files and for other processes; [`count`](mod@count): with nothing copied;
//!   [`check`]: streams with trailers; [`flows`]: flow records; [`forward`]: to another port; [`answer`]: back to whoever asked;
//! - [`select`]: filter text, shards, duplicates, slices and frame limit, of each consumer;
//! - `worker`: work on blocks in a thread of its own.
//!
//! Sending:
//!
//! - [`streams`]: streams -> timeline -> frames -> the queues of a port;
//! - [`replay`]: recording -> rules -> schedule -> the queues of one port or two;
//! - `sender`: what all senders do; `tx_queues`: the queues they send into; `live`: watching a port that makes frames itself.
//!
//! Both:
//!
//! - [`control`]: stopping a run, and watching it from another thread;
//! - [`clock`]: the time that is handed down as `now`, and whether somebody has set it;
//! - [`died`]: what becomes of a run that panics.
#![forbid(unsafe_code)]

pub mod answer;
pub mod capture;
pub mod check;
pub mod clock;
pub mod consumer;
pub mod control;
pub mod count;
pub mod died;
pub mod flows;
pub mod forward;
mod live;
pub mod receive;
pub mod replay;
pub mod select;
mod sender;
pub mod streams;
mod tx_queues;
mod worker;

pub use answer::{Answering, AnsweringReport, Unresolved};
pub use capture::share::{Sharing, SharingOptions};
pub use capture::{Capture, Captured};
pub use check::{CheckReport, CheckWatch, Checker, Checking};
pub use consumer::{Consumer, Demand, End, Look, Order, Round, Start};
pub use control::{Progress, Stop};
pub use count::{Counting, Counts, Watch};
pub use died::{Died, survive};
pub use flows::{Load, Metered, Metering, Meters};
pub use forward::Forward;
pub use receive::wait::Waiting;
pub use receive::{Receive, ReceiveError, Received};
pub use replay::{Edits, Memory, Replay, ReplayReport};
pub use select::{Selection, Shard, Slice, imbalance};
pub use streams::{StreamWatch, Streams, StreamsReport};
