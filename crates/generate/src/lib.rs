//! Describes the frames to send and their times, without sending anything, and checks the frames received.
//!
//! Frames to send:
//! - [`stream`]: streams of frames and their changing fields;
//! - [`packet`]: packets as one line of text; [`describe`](mod@describe): frames of a stream as readable text;
//! - [`file`](mod@file): sets of streams described in a file;
//! - [`plan`]: a set of streams analysed, for fast emitters;
//! - [`render`]: the frames of a set of streams, made fast;
//! - [`rewrite`]: recorded frames with other addresses, ports, tags and times to live;
//! - [`sides`]: the side of a recording that sent a frame, client or server;
//! - [`split`]: one stream of frames over several senders.
//!
//! Timing:
//! - [`rate`]: rates as users write them;
//! - [`timeline`]: the order and times of the frames of all streams;
//! - [`command`]: commands to running streams;
//! - [`schedule`]: due times of the frames of a recording.
//!
//! Results:
//! - [`trailer`]: the mark by which a receiver identifies a frame;
//! - [`check`]: the receiver, which accounts for every frame of every stream;
//! - [`delays`]: a histogram of durations;
//! - [`answer`]: answers of a host with the sender's addresses.
//!
//! # Making frames
//!
//! A set of streams is data: [`stream`] defines frame n of a stream as a function of only the stream, n and the time.
//! [`timeline`] defines the order and times of frames; `n` senders take every n-th slot of that one timeline, so
//! together they send the same as one would. Due times are counted from the start in exact products, not added up.
//! Interleaved streams that always have the same due time take turns in a round, and only rounds are in a heap.
//!
//! [`plan`] is such a set analysed once: templates, their changing fields as functions of the number, and the checksums
//! that cover them. Two emitters make frames from it, and are tested to equal the plain ones bit for bit: [`render`]
//! here, and the port `xdp-live` as a program of the kernel. In [`render`] the frames of a burst with the same layout
//! are made together, in columns: a template stays in place, each changing field is written to all frames in one tight
//! loop, and only the changed numbers are added to the checksum of the template (RFC 1624):
//!
//! ```text
//!  template   | eth | ip ......... src dst | udp sport ... | payload |
//!  loop 1     for all frames of the burst:  dst
//!  loop 2     for all frames of the burst:        sport
//!  loop 3     sum of the template + what changed, folded: checksums
//! ```
//!
//! The loops are functions of their own that are not inlined: only function arguments are known not to alias (worth a
//! quarter). Few frames of a layout, as with thousands of streams in turn, are made one by one. `linerate-bench render`
//! measures it.
//!
//! # Replay
//!
//! A rule ([`rewrite`]) changes a field and each checksum that covers it by the difference (RFC 1624), from the inside
//! out, in tunnels too. So checksums stay right or wrong, of cut frames and first fragments too, and UDP without a
//! checksum keeps none. Only the CRC of SCTP needs the whole packet: it is recomputed where it was right. Sides and
//! queues are chosen by the recorded frame, before rewriting.
//!
//! # Checking
//!
//! Frames of `generate` end with a trailer that holds their number and send time (`docs/trailer.md`). The receiver
//! ([`check`]) keeps 1,984 bytes per stream, for 65,536 streams by default because anyone can forge trailers. They are
//! allocated when its first frame is received, in huge pages (with 100,000 streams, drawn at random: 14 M frames/s
//! instead of 8): a line of counters that is all a frame in order needs; a window of one bit for each of the last 1,024
//! numbers, set where a number is *missing*, so that it is untouched while nothing is; and a histogram of 16 buckets
//! per octave. For 32 frames the trailers are read, checksums verified and memory prefetched before the first is
//! counted. The number of distinct frames is derived: the highest number less the missing ones.
//!
//! # Answering
//!
//! Answers to address resolution requests for the sender are decided by a state machine without clock or I/O
//! ([`answer`]): the rate of answers is limited, groups and addresses that no host has get none, and each frame is
//! counted once.
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
mod text_error;
pub mod timeline;
pub mod trailer;

pub use check::Check;
pub use command::{Action, Command, StreamSelection};
pub use delays::Delays;
pub use describe::describe;
pub use rate::{Layer, Rate};
pub use render::Traffic;
pub use rewrite::{Rewriter, Rewriting};
pub use schedule::{Pacing, Schedule};
pub use sides::{Side, Sides, SplitBy};
pub use split::Split;
pub use text_error::TextError;
pub use timeline::{Batch, Run, SenderPart, Shares, Slot, StreamEvent, Timeline};
