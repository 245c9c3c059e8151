//! What parts of a capture file may hold, so that a search reads the others not at all.
//!
//! An index is a file beside a capture file, `FILE.idx`: for each MiB of it the times, and what its frames have in the
//! places where filters look. It is appended to while the capture is written, is right up to its last whole entry whatever
//! happens, and what lies behind that is read in full. In the order data takes:
//!
//! - `link`: what both sides agree on: which places of a frame there are;
//! - `gather`: what the frames of a part have there, as sets;
//! - [`layout`], `bloom`: how they lie in the file (`docs/index-format.md`);
//! - [`Indexed`]: a capture file that is indexed while it is written; [`make()`]: one that was written without;
//! - [`entry`]: an entry read back, and the questions it answers;
//! - [`plan`]: which questions a filter asks, found by following its program;
//! - [`parts`]: which parts of a file are to be read, and the file without the others;
//! - [`search`]: several files, in order of time.
//!
//! # Why a search misses nothing
//!
//! A part is left out only if every way through the filter's program needs a value that no frame of the part has in that place.
//! Both sides take the place from `link`, and a frame that is cut off in front of it is refused by the program as well. Sets
//! are exact or, many addresses, a filter that knows each of them; one that is not there may hold anything. Parts
//! with interfaces, names or secrets are read whatever they hold, since frames behind need them. And what remains goes through the
//! filter itself, so a set that says too much costs time alone.
//!
//! # What is believed
//!
//! Neither index nor file is. Lengths are bounded before memory is taken (64 KiB an entry), entries are checked, in order, and
//! inside of the file. Of the parts that would be left out, the first and one of 16 are looked at (of compressed files one of 64):
//! the time of their first record, in nanoseconds, is in the index. Where the file has something else there, the index is of
//! another file, is not used, and that is said.
//!
//! # What it costs
//!
//! While recording, in the thread of the sinks: frames of a flow that was seen in this MiB are told by 14 bytes and passed over;
//! others put two addresses, two ports and a protocol into sets (`examples/gather_speed.rs`). At most 2 % of the capture in size:
//! addresses and ports have room for 19 KiB, whatever comes.
#![forbid(unsafe_code)]

mod bloom;
pub mod entry;
mod gather;
pub mod layout;
mod link;
mod make;
pub mod parts;
pub mod plan;
pub mod search;
mod writer;

#[cfg(test)]
mod tests;

pub use gather::Gather;
pub use make::{NotMade, make};
pub use search::Search;
pub use writer::Indexed;

/// What the name of an index ends with, behind that of its capture file.
pub const ENDING: &str = ".idx";
