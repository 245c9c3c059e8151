//! What to send and when, without sending anything, and what became of it.
//!
//! What to send:
//! - [`stream`]: streams of frames and what changes in them;
//! - [`packet`]: packets as one line of text; [`describe`](mod@describe): frames of a stream for people;
//! - [`file`](mod@file): sets of streams described in a file;
//! - [`render`]: the frames of a set of streams, made fast;
//! - [`rewrite`]: recorded frames with other addresses, ports, tags and times to live;
//! - [`sides`]: which side of a recording sent a frame, client or server;
//! - [`split`]: one stream of frames over several senders.
//!
//! When:
//! - [`rate`]: rates as users write them;
//! - [`timeline`]: which frame of which stream goes when;
//! - [`schedule`]: when each frame of a recording is due.
//!
//! What became of it:
//! - [`trailer`]: what a receiver knows a frame by;
//! - [`check`]: the receiver, which accounts for every frame of every stream;
//! - [`delays`]: how long things took, as counts in buckets;
//! - [`answer`]: what a host with these addresses would answer.
#![forbid(unsafe_code)]

pub mod answer;
pub mod check;
pub mod delays;
pub mod describe;
pub mod file;
pub mod packet;
pub mod rate;
pub mod render;
pub mod rewrite;
pub mod schedule;
pub mod sides;
pub mod split;
pub mod stream;
pub mod timeline;
pub mod trailer;
mod wrong;

pub use check::Check;
pub use delays::Delays;
pub use describe::describe;
pub use rate::{Layer, Rate};
pub use render::Traffic;
pub use rewrite::{Rewriter, Rewriting};
pub use schedule::{Pacing, Schedule};
pub use sides::{Side, Sides, SplitBy};
pub use split::Split;
pub use timeline::{Part, Run, Slot, Timeline};
pub use wrong::Wrong;
