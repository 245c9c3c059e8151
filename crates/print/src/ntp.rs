//! NTP.

use crate::text::{Text, put};

const MODES: [&str; 8] = [
    "Reserved",
    "Symmetric Active",
    "Symmetric Passive",
    "Client",
    "Server",
    "Broadcast",
    "Control Message",
    "Reserved",
];

/// Writes a message of `length` bytes, possibly truncated; returns false if it is not NTP.
pub(crate) fn write(text: &mut Text<'_>, message: &[u8], length: usize) -> bool {
    let Some(first) = message.first() else { return false };
    let (version, mode) = (first >> 3 & 7, usize::from(first & 7));
    put!(text, "NTPv{version}, {}, length {length}", MODES[mode]);
    if let (Some(stratum), true) = (message.get(1), (1..=5).contains(&mode)) {
        put!(text, ", stratum {stratum}");
    }
    true
}
