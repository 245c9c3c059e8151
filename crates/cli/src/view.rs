//! Output: tables, live lines, JSON.

pub mod document;
pub mod ledger;
pub mod live;
#[cfg(feature = "serve")]
pub mod metrics;
pub(crate) mod picture;
pub mod rates;
pub mod reading;
#[cfg(feature = "tui")]
pub mod screen;
pub mod streams;
pub mod table;
pub mod terminal;
