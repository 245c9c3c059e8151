//! How users name rings that are shared.

use crate::exit::usage;
use linerate_burst::text::quoted;

/// The name of a ring, as an option or argument `what` has it: alone, not as the port that others read it by.
pub(super) fn ring_name<'a>(what: &str, name: &'a str) -> anyhow::Result<&'a str> {
    match name.strip_prefix("shm:") {
        None => Ok(name),
        Some(bare) => Err(usage(format!("{what} {name}: a ring has its name alone here: {what} {}", quoted(bare)))),
    }
}
