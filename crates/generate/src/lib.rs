//! What to send and when, without sending anything.
//!
//! - [`rate`]: rates as users write them;
//! - [`schedule`]: when each frame is due, in nanoseconds, from a start time;
//! - [`describe`](mod@describe): frames of a stream for people;
//! - [`file`](mod@file): stream files;
//! - [`packet`]: packets as one line of text;
//! - [`template`]: frames made from fields; in this form one UDP datagram;
//! - [`split`]: one stream of frames over several senders;
//! - [`stream`]: streams of frames and what changes in them;
//! - [`trailer`]: what a receiver knows a frame by.
#![forbid(unsafe_code)]

pub mod describe;
pub mod file;
pub mod packet;
pub mod rate;
pub mod schedule;
pub mod split;
pub mod stream;
pub mod template;
pub mod trailer;
mod wrong;

pub use describe::describe;
pub use rate::{Layer, Rate};
pub use schedule::{Pacing, Schedule};
pub use split::Split;
pub use template::UdpTemplate;
pub use wrong::Wrong;
