//! Comma-separated values (RFC 4180): a header line, then one line per flow. The columns are those of Parquet.
//!
//! Times are text with nine digits, which DuckDB and ClickHouse detect as timestamps. Text may come from payload, so it
//! is always quoted; absent values are empty.

use super::json::write_value;
use super::lines::Lines;
use super::{Encoder, Settings, text};
use crate::fields::{self, Field, Getter, PresentParts};
use linerate_burst::Nanos;
use linerate_meter::{Flow, Quality};
use linerate_pcap::date;
use std::io::{self, Write};
use std::sync::LazyLock;

struct Column {
    name: String,
    of: &'static Field,
    side: usize,
    /// Quality bit of a bit column.
    bit: Quality,
}

static COLUMNS: LazyLock<Vec<Column>> = LazyLock::new(|| {
    let mut columns = Vec::new();
    for (of, side) in fields::columns() {
        let name = of.column_of(side);
        let mut add = |name, bit| columns.push(Column { name, of, side, bit });
        match of.get {
            Getter::Quality(_) => Quality::NAMES.iter().for_each(|(bit, word)| add(format!("{name}_{word}"), *bit)),
            _ => add(name, Quality::default()),
        }
    }
    columns
});

/// Groups of adjacent columns, with the parts that a flow must have for any of them.
static RUNS: LazyLock<Vec<(PresentParts, &[Column])>> = LazyLock::new(|| {
    COLUMNS.chunk_by(|one, next| one.of.needs() == next.of.needs()).map(|run| (run[0].of.needs(), run)).collect()
});

pub(super) fn start(out: Box<dyn Write + Send>, _: &Settings) -> io::Result<Box<dyn Encoder>> {
    let names: Vec<&str> = COLUMNS.iter().map(|column| &*column.name).collect();
    Lines::start(out, &format!("{}\n", names.join(",")), |flow, text| {
        let has = PresentParts::of(flow);
        for (needs, columns) in RUNS.iter() {
            if !has.covers(*needs) {
                text.resize(text.len() + columns.len(), b',');
                continue;
            }
            for column in *columns {
                write_field(column, flow, text);
                text.push(b',');
            }
        }
        // No comma after the last value.
        text.pop();
    })
}

/// Appends a value; nothing if it is absent.
fn write_field(Column { of, side, bit, .. }: &Column, flow: &Flow, text: &mut Vec<u8>) {
    let side = *side;
    match &of.get {
        Getter::Time(get) => get(flow, side).into_iter().for_each(|time| write_time(time, text)),
        Getter::Id(get) => get(flow, side).into_iter().for_each(|id| text::hex(id, text)),
        Getter::Name(get) => get(flow, side).into_iter().for_each(|name| text.extend_from_slice(name.as_bytes())),
        Getter::Address(get) => get(flow, side).into_iter().for_each(|address| text::address(address, text)),
        Getter::Mac(get) => get(flow, side).into_iter().for_each(|mac| text::display(mac, text)),
        Getter::Text(get) => get(flow, side).into_iter().for_each(|word| write_quoted(&word, text)),
        Getter::List(_) => {
            let before = text.len();
            text.push(b'"');
            match write_value(&of.get, flow, side, text) {
                true => text.push(b'"'),
                false => text.truncate(before),
            }
        }
        Getter::Quality(get) => text.extend_from_slice(if get(flow).contains(*bit) { b"true" } else { b"false" }),
        // Numbers and booleans look the same as in JSON.
        _ => drop(write_value(&of.get, flow, side, text)),
    }
}

/// Formats as RFC 3339, in UTC.
fn write_time(time: Nanos, text: &mut Vec<u8>) {
    let (seconds, nanos) = (time.0 / 1_000_000_000, time.0 % 1_000_000_000);
    let [year, month, day] = date(seconds);
    // 64 bits of nanoseconds end in the year 2554.
    text::digits::<4>(year, text);
    for (before, number) in
        [(b'-', month), (b'-', day), (b'T', seconds / 3600 % 24), (b':', seconds / 60 % 60), (b':', seconds % 60)]
    {
        text.push(before);
        text::digits::<2>(number, text);
    }
    text.push(b'.');
    text::digits::<9>(nanos, text);
    text.push(b'Z');
}

fn write_quoted(word: &str, text: &mut Vec<u8>) {
    text.push(b'"');
    for byte in word.bytes() {
        if byte == b'"' {
            text.push(b'"');
        }
        text.push(byte);
    }
    text.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_nine_digits_and_quotes_are_doubled() {
        let mut text = Vec::new();
        write_time(Nanos(1_795_219_199_000_000_007), &mut text);
        text.push(b' ');
        write_quoted("a\",b\n", &mut text);
        assert_eq!(String::from_utf8(text).unwrap(), "2026-11-20T23:59:59.000000007Z \"a\"\",b\n\"");
    }
}
