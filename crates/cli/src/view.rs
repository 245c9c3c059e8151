//! Output: tables, live lines, JSON.

pub(crate) mod chart;
pub mod document;
pub mod file_progress;
pub mod ledger;
pub mod live;
#[cfg(feature = "serve")]
pub mod metrics;
pub mod rates;
#[cfg(feature = "tui")]
pub mod screen;
pub mod streams;
pub mod table;
pub mod terminal;
