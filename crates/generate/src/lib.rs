//! What to send and when, without sending anything.
//!
//! - [`answer`]: answers to those who ask for the addresses of a sender, and asking for its next hops;
//! - [`rate`]: rates as users write them;
//! - [`schedule`]: when each frame is due, in nanoseconds, from a start time;
//! - [`template`]: frames made from fields; in this form one UDP datagram;
//! - [`split`]: one stream of frames over several senders.
#![forbid(unsafe_code)]

pub mod answer;
pub mod rate;
pub mod schedule;
pub mod split;
pub mod template;

pub use rate::{Layer, Rate};
pub use schedule::{Pacing, Schedule};
pub use split::Split;
pub use template::UdpTemplate;
