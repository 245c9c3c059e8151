//! What to send and when, without sending anything.
//!
//! - [`rate`]: rates as users write them;
//! - [`schedule`]: when each frame is due, in nanoseconds, from a start time;
//! - [`template`]: frames made from fields; in this form one UDP datagram;
//! - [`split`]: one stream of frames over several senders;
//! - [`stream`]: streams of frames and what changes in them;
//! - [`timeline`]: which frame of which stream goes when;
//! - [`render`]: the frames of a set, made fast;
//! - [`trailer`]: what a receiver knows a frame by.
#![forbid(unsafe_code)]

pub mod rate;
pub mod render;
pub mod schedule;
pub mod split;
pub mod stream;
pub mod template;
pub mod timeline;
pub mod trailer;

pub use rate::{Layer, Rate};
pub use render::Traffic;
pub use schedule::{Pacing, Schedule};
pub use split::Split;
pub use template::UdpTemplate;
pub use timeline::{Part, Run, Slot, Timeline};
