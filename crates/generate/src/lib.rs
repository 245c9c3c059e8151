//! What to send and when, without sending anything.
//!
//! - [`rate`]: rates as users write them;
//! - [`rewrite`]: recorded frames with other addresses, ports, tags and times to live;
//! - [`schedule`]: when each frame is due, in nanoseconds, from a start time;
//! - [`template`]: frames made from fields; in this form one UDP datagram;
//! - [`sides`]: which side of a recording sent a frame, client or server;
//! - [`delays`]: how long things took, as counts in buckets;
//! - [`split`]: one stream of frames over several senders.
#![forbid(unsafe_code)]

pub mod delays;
pub mod rate;
pub mod rewrite;
pub mod schedule;
pub mod sides;
pub mod split;
pub mod template;

pub use delays::Delays;
pub use rate::{Layer, Rate};
pub use rewrite::{Rewriter, Rewriting};
pub use schedule::{Pacing, Schedule};
pub use sides::{Side, Sides, SplitBy};
pub use split::Split;
pub use template::UdpTemplate;
