//! The first line of an HTTP message, on any port.

use crate::text::Text;

/// Start of a message.
const BEGINNINGS: [&[u8]; 10] =
    [b"GET ", b"POST ", b"HEAD ", b"PUT ", b"DELETE ", b"OPTIONS ", b"CONNECT ", b"PATCH ", b"TRACE ", b"HTTP/1."];
/// Maximum bytes of a line that are searched and shown.
const LONGEST: usize = 512;

/// Writes the first line, if the payload is HTTP.
pub(crate) fn write(text: &mut Text<'_>, payload: &[u8]) {
    let is_letter = payload.first().is_some_and(u8::is_ascii_uppercase);
    if !is_letter || !BEGINNINGS.iter().any(|beginning| payload.starts_with(beginning)) {
        return;
    }
    let head = payload.get(..LONGEST).unwrap_or(payload);
    let line = head.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
    let is_message =
        line.starts_with(b"HTTP/1.") || line.len() == head.len() || line.windows(7).any(|part| part == b" HTTP/1");
    if is_message {
        text.str(": HTTP: ");
        text.wire(line, LONGEST);
    }
}
