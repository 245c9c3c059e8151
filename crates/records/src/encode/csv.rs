//! Comma-separated values (RFC 4180): a line of names, then a line a flow. The columns are those of Parquet.
//!
//! Times are text with nine digits, which DuckDB and ClickHouse take for times by themselves. Text, in which strangers may have a
//! word, is always in quotes; what is absent is empty.

use super::json::write_value;
use super::lines::{Lines, separated};
use super::{Encoder, Settings};
use crate::fields::{self, Field, Get};
use linerate_burst::Nanos;
use linerate_meter::{Flow, Quality};
use linerate_record::date;
use std::io::{self, Write};
use std::sync::LazyLock;

/// A column of a file.
struct Column {
    name: String,
    of: &'static Field,
    side: usize,
    /// Of bits with names: which.
    bit: Quality,
}

static COLUMNS: LazyLock<Vec<Column>> = LazyLock::new(|| {
    let mut columns = Vec::new();
    for (of, side) in fields::columns() {
        let name = of.column_of(side);
        let mut add = |name, bit| columns.push(Column { name, of, side, bit });
        match of.get {
            Get::Quality(_) => Quality::NAMES.iter().for_each(|(bit, word)| add(format!("{name}_{word}"), *bit)),
            _ => add(name, Quality::default()),
        }
    }
    columns
});

pub(super) fn start(out: Box<dyn Write + Send>, _: &Settings) -> io::Result<Box<dyn Encoder>> {
    let names: Vec<&str> = COLUMNS.iter().map(|column| &*column.name).collect();
    Lines::start(out, &format!("{}\n", names.join(",")), |flow, text| {
        separated(&COLUMNS, b',', text, |column, text| write_field(column, flow, text));
    })
}

/// Appends a value; nothing where it is absent.
fn write_field(Column { of, side, bit, .. }: &Column, flow: &Flow, text: &mut Vec<u8>) {
    let side = *side;
    match &of.get {
        Get::Time(get) => get(flow, side).into_iter().for_each(|time| write_time(time, text)),
        Get::Id(get) => get(flow, side).into_iter().for_each(|id| put(text, format_args!("{id:016x}"))),
        Get::Name(get) => get(flow, side).into_iter().for_each(|name| text.extend_from_slice(name.as_bytes())),
        Get::Address(get) => get(flow, side).into_iter().for_each(|address| put(text, format_args!("{address}"))),
        Get::Mac(get) => get(flow, side).into_iter().for_each(|mac| put(text, format_args!("{mac}"))),
        Get::Text(get) => get(flow, side).into_iter().for_each(|word| write_quoted(&word, text)),
        Get::List(_) => {
            let before = text.len();
            text.push(b'"');
            match write_value(&of.get, flow, side, text) {
                true => text.push(b'"'),
                false => text.truncate(before),
            }
        }
        Get::Quality(get) => put(text, format_args!("{}", get(flow).contains(*bit))),
        // Numbers, and yes or no, are the same there.
        _ => drop(write_value(&of.get, flow, side, text)),
    }
}

/// As RFC 3339 has it, in UTC.
fn write_time(time: Nanos, text: &mut Vec<u8>) {
    let (seconds, nanos) = (time.0 / 1_000_000_000, time.0 % 1_000_000_000);
    let [year, month, day] = date(seconds);
    let [hour, minute, second] = [seconds / 3600 % 24, seconds / 60 % 60, seconds % 60];
    put(text, format_args!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{nanos:09}Z"));
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

fn put(text: &mut Vec<u8>, what: std::fmt::Arguments<'_>) {
    // Memory takes whatever is written.
    let _ = text.write_fmt(what);
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
