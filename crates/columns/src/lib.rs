//! Flow records as columns: a Parquet file, written row group by row group.
//!
//! A crate of its own because arrow and parquet are most of what there is to build. Nothing here opens a file, reads a
//! clock or starts a thread.
//!
//! - `table`: every column, a row each: its name, its type and where in a [`Flow`](linerate_meter::Flow) it is;
//! - `get`: from flows to an array;
//! - [`writer`]: arrays to Parquet.
//!
//! What each column means is told in `docs/flows.md`.
#![forbid(unsafe_code)]

mod get;
mod table;
pub mod writer;

pub use table::{column_names, schema};
pub use writer::Writer;
