//! From finished flows to whoever reads them.
//!
//! - `queue`: flows wait here, and a thread of their own writes them, so that metering does not wait for a disk;
//! - `place`: where they go: a stream (standard output, a file) or a folder of hours; `part`: a file has its name once it is complete;
//!   `folders`: those made are on the disk; `hours`: which there are;
//! - `form`: what they are written as, a row each. Another form is one file like `jsonl`, and one row.

mod folders;
mod form;
mod hours;
mod jsonl;
#[cfg(feature = "parquet")]
mod parquet;
mod part;
mod place;
mod queue;
mod zeek;

pub use form::Form;
pub(super) use jsonl::FlowJson;
pub use place::Place;
pub(super) use queue::{Queue, Written};

use linerate_meter::Flow;
use std::io::{Error, ErrorKind, Result, Write};

/// Writes flows as `linerate flows --format FORM` does, in the order given (of `parquet`: that of their first packets).
///
/// # Errors
/// There is no such form; those of writing.
pub fn encode(form: &str, flows: &[Flow], out: Box<dyn Write + Send>) -> Result<()> {
    let form = Form::named(form).ok_or(Error::new(ErrorKind::NotFound, format!("{form}: no form of records")))?;
    let mut encoder = (form.start)(out)?;
    encoder.write(&flows.iter().collect::<Vec<_>>())?;
    encoder.finish()
}
