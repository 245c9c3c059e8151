//! Names of shared rings.

use crate::exit::usage;
use linerate_burst::text::quoted;

/// Checks the name of a ring given as option or argument `what`: a plain name, not the port of its readers.
pub(super) fn ring_name<'a>(what: &str, name: &'a str) -> anyhow::Result<&'a str> {
    match name.strip_prefix("shm:") {
        None => Ok(name),
        Some(bare) => {
            Err(usage(format!("{what} {name}: expected the name without shm:, such as {what} {}", quoted(bare))))
        }
    }
}
