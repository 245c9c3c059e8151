//! Queries of flow records: filter, group by keys, sum measures.
//!
//! ```text
//!  text of a filter -> Filter --+
//!  keys, measures, steps -------+-> Question -> PartialAnswer <- Batch   records of the meter, of a collector
//!                                                 |   <- Batch   row groups of files, in several threads (Store)
//!                                               Answer
//! ```
//!
//! - [`columns`]: the table of fields as numbers, and values of many records at a time ([`Batch`](columns::Batch));
//! - [`Filter`]: conditions, their outcome for many records, and for row groups without reading them; the syntax is
//!   that of pcap-filter and nfdump, plus any field;
//! - [`Question`], [`PartialAnswer`], [`Answer`]: groups in bounded memory;
//! - [`Store`]: folders and files of Parquet. Files are skipped by folder name, row groups by their statistics, and
//!   columns of the filter are read first, those of words before others.
//!
//! ```
//! use linerate_burst::Nanos;
//! use linerate_meter::Flow;
//! use std::sync::Arc;
//! use linerate_query::{PartialAnswer, Filter, Key, Question, columns::Batch};
//!
//! let filter = Filter::parse("src net 10.0.0.0/8 and bytes > 1M", Nanos(0))?;
//! let question = Arc::new(Question { keys: Key::parse("resp_port")?, ..Question::new(filter) });
//! let mut asked = PartialAnswer::new(&question, 1);
//! let flows: Vec<Flow> = Vec::new();
//! asked.take(&Batch::of_flows(&flows, asked.columns()));
//! assert_eq!(asked.answer().records, 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Design
//!
//! No query engine is embedded: one that was tried takes eleven minutes to build, and a hundred lines are as fast for
//! sums by one key over a dictionary of addresses (24 M rows/s per core, with 5 columns; DuckDB 25). The same code
//! evaluates stored and live records: both are columns of many records.
//!
//! An attacker can cause a million keys. Groups are bounded ([`MOST_GROUPS`]): above the limit the smaller half is
//! merged into "others", whose sums stay exact, so that large groups and totals are correct.
#![forbid(unsafe_code)]

mod answer;
#[cfg(feature = "parquet")]
mod arrays;
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
mod positioned_read;
mod predicate;
mod quantity;
mod question;
mod slot;
mod steps;
#[cfg(feature = "parquet")]
mod store;
mod values;

pub use answer::{Answer, PartialAnswer, Row, WHOLE_THREADS};
pub use filter::{Filter, Match, Memo, Outlook, Range, Test};
pub use folder::{RecordFile, stored};
pub use key::Value;
pub use names::{NamedColumns, PROTOCOLS, named, protocol};
pub use networks::{Network, Networks};
pub use parse::ParseError;
pub use quantity::{Number, Order, Quantity};
pub use question::{Key, MOST_GROUPS, Measure, Question};
#[cfg(feature = "parquet")]
pub use store::{KeepRunning, Scan, Store};
pub use values::step;
