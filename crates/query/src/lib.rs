//! Flow records asked: which of them, put together by which keys, what of them added up.
//!
//! ```text
//!  text of a filter -> Filter --+
//!  keys, measures, steps -------+-> Question -> Asked <- Batch   records of the meter, of a collector
//!                                                 |   <- Batch   row groups of files, in several threads (Store)
//!                                               Answer
//! ```
//!
//! - [`columns`]: the table of fields as numbers, and values of many records at a time ([`Batch`](columns::Batch));
//! - [`Filter`]: conditions, what they say of many records, and what is known without reading any; its text is that of pcap-filter
//!   and nfdump, and any field;
//! - [`Question`], [`Asked`], [`Answer`]: groups in bounded memory;
//! - [`Store`]: folders and files of Parquet. By the names of folders files are passed over, by their statistics row groups, and columns
//!   of the filter are read first, those of words before others.
//!
//! ```
//! use linerate_burst::Nanos;
//! use linerate_meter::Flow;
//! use std::sync::Arc;
//! use linerate_query::{Asked, Filter, Key, Question, columns::Batch};
//!
//! let filter = Filter::parse("src net 10.0.0.0/8 and bytes > 1M", Nanos(0))?;
//! let question = Arc::new(Question { keys: Key::parse("resp_port")?, ..Question::new(filter) });
//! let mut asked = Asked::new(&question, 1);
//! let flows: Vec<Flow> = Vec::new();
//! asked.take(&Batch::of_flows(&flows, asked.columns()));
//! assert_eq!(asked.answer().records, 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Why it is so
//!
//! No query engine is embedded: one that was tried takes eleven minutes to build, and sums by one key over a dictionary of addresses are
//! as fast by a hundred lines (24 M rows/s of a core, with 5 columns; DuckDB 25). What stored records answer, those that come do too: both are
//! columns of many records.
//!
//! A million keys are what an attacker sends. Groups are bounded ([`MOST_GROUPS`]): beyond, half of them, those of which there is least, become
//! "others", whose sums stay exact, so that what is much of all is told and totals are right.
#![forbid(unsafe_code)]

mod answer;
#[cfg(feature = "parquet")]
mod arrays;
mod ask;
pub mod columns;
#[cfg(feature = "parquet")]
mod file;
mod filter;
mod folder;
mod group;
mod key;
mod lex;
mod names;
mod networks;
#[cfg(feature = "parquet")]
mod pages;
mod parse;
#[cfg(feature = "parquet")]
mod piece;
mod quantity;
#[cfg(feature = "parquet")]
mod store;
mod tested;
mod values;

pub use answer::{Answer, Asked, Row, WHOLE_THREADS};
pub use ask::{Key, MOST_GROUPS, Measure, Question};
pub use filter::{Filter, Match, Memo, Outlook, Range, Test};
pub use folder::{Stored, stored};
pub use key::Value;
pub use names::{Named, PROTOCOLS, named, protocol};
pub use networks::{Network, Networks};
pub use parse::Mistake;
pub use quantity::{Number, Order, Quantity};
#[cfg(feature = "parquet")]
pub use store::{GoesOn, Scan, Store};
pub use values::step;
