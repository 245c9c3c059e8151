//! Zeek's native text format: tab-separated values after header lines with names and types, as `zeek-cut` reads it.
//!
//! The lines `#open` and `#close`, with the time of writing, are omitted: encoders do not know it, and no reader
//! requires them.

use super::json::Source;
use super::lines::Lines;
use super::zeek::columns;
use super::{Encoder, Settings, text};
use crate::fields::Getter;
use linerate_meter::Flow;
use std::io::{self, Write};
use std::sync::LazyLock;

/// Types of names that are not `count`.
const TYPES: [(&str, &str); 17] = [
    ("ts", "time"),
    ("uid", "string"),
    ("id.orig_h", "addr"),
    ("id.orig_p", "port"),
    ("id.resp_h", "addr"),
    ("id.resp_p", "port"),
    ("proto", "enum"),
    ("service", "string"),
    ("duration", "interval"),
    ("conn_state", "string"),
    ("history", "string"),
    ("tunnel_parents", "set[string]"),
    ("community_id", "string"),
    ("orig_l2_addr", "string"),
    ("resp_l2_addr", "string"),
    ("vlan", "int"),
    ("inner_vlan", "int"),
];

static COLUMNS: LazyLock<Vec<(&'static str, Source)>> = LazyLock::new(columns);

pub(super) fn start(out: Box<dyn Write + Send>, _: &Settings) -> io::Result<Box<dyn Encoder>> {
    let kind = |name: &str| TYPES.iter().find(|(known, _)| *known == name).map_or("count", |(_, kind)| *kind);
    let mut head =
        "#separator \\x09\n#set_separator\t,\n#empty_field\t(empty)\n#unset_field\t-\n#path\tconn\n#fields".to_owned();
    COLUMNS.iter().for_each(|(name, _)| head.extend(["\t", name]));
    head += "\n#types";
    COLUMNS.iter().for_each(|(name, _)| head.extend(["\t", kind(name)]));
    head.push('\n');
    Lines::start(out, &head, |flow, text| {
        for (_, source) in COLUMNS.iter() {
            write_field(source, flow, text);
            text.push(b'\t');
        }
        // No tab after the last value.
        text.pop();
    })
}

fn write_field(source: &Source, flow: &Flow, text: &mut Vec<u8>) {
    let is_there = match source {
        Source::Value { get, side, .. } => write_value(get, flow, *side, text),
        // A set of names is JSON in the source.
        Source::Text(write) => {
            let begin = text.len();
            let is_there = write(flow, text);
            let list = text.split_off(begin);
            text.extend(list.into_iter().filter(|byte| !b"[]\"".contains(byte)));
            is_there
        }
        Source::Object(_) => false,
    };
    if !is_there {
        text.push(b'-');
    }
}

/// Appends a value; returns false, without appending, if it is absent.
fn write_value(get: &Getter, flow: &Flow, side: usize, text: &mut Vec<u8>) -> bool {
    match get {
        Getter::F64(get) => get(flow, side).is_some_and(|number| write!(text, "{number:.6}").is_ok()),
        Getter::Bool(get) => get(flow, side).map(|is_so| text.push(if is_so { b'T' } else { b'F' })).is_some(),
        Getter::Name(get) => get(flow, side).is_some_and(|name| write_text(name, text)),
        Getter::Text(get) => get(flow, side).is_some_and(|name| write_text(&name, text)),
        Getter::Address(get) => get(flow, side).map(|address| text::address(address, text)).is_some(),
        Getter::Mac(get) => get(flow, side).map(|mac| text::display(mac, text)).is_some(),
        // Zeek's lists do not use these types.
        Getter::List(_) | Getter::Quality(_) => false,
        get => super::json::write_value(get, flow, side, text),
    }
}

/// Appends text, with tabs, placeholders of absent values and escapes escaped. Always returns true.
fn write_text(name: &str, text: &mut Vec<u8>) -> bool {
    if name.is_empty() {
        text.extend_from_slice(b"(empty)");
    }
    let is_no_value = ["-", "(empty)"].contains(&name);
    let is_escaped = |byte: u8| !(b' '..=b'~').contains(&byte) || byte == b'\\';
    if !is_no_value && !name.bytes().any(is_escaped) {
        text.extend_from_slice(name.as_bytes());
        return true;
    }
    for (place, byte) in name.bytes().enumerate() {
        if is_escaped(byte) || is_no_value && place == 0 {
            // Writing to memory does not fail.
            let _ = write!(text, "\\x{byte:02x}");
        } else {
            text.push(byte);
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_and_every_type_has_a_column() {
        let escaped = |name: &str| {
            let mut text = Vec::new();
            write_text(name, &mut text);
            String::from_utf8(text).unwrap()
        };
        for (name, text) in
            [("ShAD", "ShAD"), ("", "(empty)"), ("-", "\\x2d"), ("a\tb\\", "a\\x09b\\x5c"), ("\u{e9}", "\\xc3\\xa9")]
        {
            assert_eq!(escaped(name), text);
        }
        let names: Vec<&str> = columns().iter().map(|(name, _)| *name).collect();
        assert!(TYPES.iter().all(|(name, _)| names.contains(name)));
    }
}
