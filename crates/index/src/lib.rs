//! Indexes of capture files, with which a search skips the parts that cannot match.
//!
//! An index is a file next to a capture file, `FILE.idx`: for each MiB of it the times, and the values of its frames at
//! the positions that filters read. It is appended to while the capture is written, is valid up to its last whole entry
//! whatever happens, and data after that is read in full. In the order data takes:
//!
//! - `link`: the positions in a frame that both sides agree on;
//! - `gather`: the values of a part's frames at these positions, as sets;
//! - [`layout`], `bloom`: the encoding of the sets (`docs/index-format.md`);
//! - [`IndexedWriter`]: a capture file that is indexed while it is written; [`make()`]: indexes an existing file;
//! - [`entry`]: an entry read back, and the queries that it answers;
//! - [`plan`]: the queries that a filter makes, found by following its program;
//! - [`parts`]: the parts of a file that must be read, and a reader of only these;
//! - [`search`]: a search over several files, in time order.
//!
//! # Completeness
//!
//! A part is skipped only if every path through the filter's program needs a value that no frame of the part has at
//! that position. Both sides take the positions from `link`, and a frame that is truncated before a position is
//! rejected by the program as well. Sets are exact or, for many addresses, a Bloom filter that contains each of them; a
//! missing set may hold any value. Parts with interfaces, names or secrets are always read, since later frames need
//! them. And everything read goes through the filter itself, so a set with too many values only costs time.
//!
//! # Trust
//!
//! Neither index nor file is trusted. Lengths are bounded before memory is allocated (64 KiB per entry); entries are
//! checked, in order, and within the file. Of the parts that would be skipped, the first and one of 16 are verified (of
//! compressed files one of 64): the index holds the time of their first record, in nanoseconds. If the file differs
//! there, the index belongs to another file, is not used, and this is reported.
//!
//! # Cost
//!
//! While recording, in the thread of the sinks: frames of a flow already seen in this MiB are recognised by 14 bytes
//! and skipped; others add two addresses, two ports and a protocol to sets (`examples/gather_speed.rs`). The index
//! takes at most 2 % of the capture's size: addresses and ports have room for 19 KiB in any case.
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

pub use gather::EntryBuilder;
pub use make::{IndexingError, make};
pub use search::Search;
pub use writer::IndexedWriter;

/// File name suffix of an index, after the name of its capture file.
pub const ENDING: &str = ".idx";
