//! What to send and when, without sending anything, and what became of it.
//!
//! What to send:
//! - [`stream`]: streams of frames and what changes in them;
//! - [`packet`]: packets as one line of text; [`describe`](mod@describe): frames of a stream for people;
//! - [`file`](mod@file): sets of streams described in a file;
//! - [`plan`]: a set of streams analysed, for whoever makes its frames fast;
//! - [`render`]: the frames of a set of streams, made fast;
//! - [`rewrite`]: recorded frames with other addresses, ports, tags and times to live;
//! - [`sides`]: which side of a recording sent a frame, client or server;
//! - [`split`]: one stream of frames over several senders.
//!
//! When:
//! - [`rate`]: rates as users write them;
//! - [`timeline`]: which frame of which stream goes when;
//! - [`command`]: what streams are told while they run;
//! - [`schedule`]: when each frame of a recording is due.
//!
//! What became of it:
//! - [`trailer`]: what a receiver knows a frame by;
//! - [`check`]: the receiver, which accounts for every frame of every stream;
//! - [`delays`]: how long things took, as counts in buckets;
//! - [`answer`]: what a host with these addresses would answer.
//!
//! # Making frames
//!
//! A set of streams is data: [`stream`] says plainly what frame n of a stream is, a function of the stream, n and the time alone.
//! [`timeline`] says which frame of which stream goes when; `n` senders take every n-th slot of that one timeline, so together they
//! send what one would. Due times are counted from the start in exact products, not added up. Interleaved streams that always show
//! the same time take turns in a round, and only rounds lie in a heap.
//!
//! [`plan`] is such a set analysed once: templates, what changes in them as functions of the number, the checksums over that. Two
//! emitters make frames from it, and are tested to equal the plain ones bit for bit: [`render`] here, and the port `xdp-live` as a
//! program of the kernel. In [`render`] the frames of a burst that have one layout are made together, in columns: a template stays
//! where it lies, each thing that changes goes through all frames in one tight loop, and to the sum of the template only the numbers
//! that changed are added (RFC 1624):
//!
//! ```text
//!  template   | eth | ip ......... src dst | udp sport ... | payload |
//!  loop 1     for all frames of the burst:  dst
//!  loop 2     for all frames of the burst:        sport
//!  loop 3     sum of the template + what changed, folded: checksums
//! ```
//!
//! The loops are functions of their own that are not inlined: only as arguments are their inputs and outputs known to lie apart
//! (worth a quarter). Few frames of a layout, as with thousands of streams in turn, are made one by one. `linerate-bench render` measures it.
//!
//! # Replay
//!
//! A rule ([`rewrite`]) changes a field and each checksum that covers it by what changed (RFC 1624), from the inside out, in tunnels
//! too. So checksums keep being right or wrong, of cut frames and first fragments too, and UDP without one keeps none. Only the CRC
//! of SCTP needs the whole packet: it is computed anew where it was right. Sides and queues are chosen by the recorded frame, before
//! rewriting.
//!
//! # Checking
//!
//! Frames of `generate` say at the end of their payload which they are and when they were sent (`docs/trailer.md`). The receiver
//! ([`check`]) keeps 1,984 bytes a stream, for 65,536 streams by default since trailers can be made by anybody. They are asked for
//! when its first frame comes, in huge pages (with 100,000 streams, drawn at random: 14 M frames/s instead of 8): a line of counters
//! that is all a frame in its place needs; a window of one bit for each of the last 1,024 numbers, set where a number is *missing*,
//! so that nothing is to be done to it while nothing is; and a histogram of 16 buckets an octave. Of 32 frames the trailers are read,
//! checksums verified and memory asked for before the first is counted. What came is derived: distinct frames are the highest number
//! less the missing ones.
//!
//! # Answering
//!
//! What is said to whoever looks the sender's addresses up is decided by a state machine without clock or I/O ([`answer`]): at most so
//! many answers a second, none to groups or to addresses no host has, each frame counted once.
#![forbid(unsafe_code)]

pub mod answer;
pub mod check;
pub mod command;
pub mod delays;
pub mod describe;
pub mod file;
pub mod packet;
pub mod plan;
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
pub use command::{Action, Command, Which};
pub use delays::Delays;
pub use describe::describe;
pub use rate::{Layer, Rate};
pub use render::Traffic;
pub use rewrite::{Rewriter, Rewriting};
pub use schedule::{Pacing, Schedule};
pub use sides::{Side, Sides, SplitBy};
pub use split::Split;
pub use timeline::{Batch, News, Part, Run, Shares, Slot, Timeline};
pub use wrong::{Wrong, nearest};
