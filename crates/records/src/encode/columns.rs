//! Columns, made from the table of fields: from flows to an array each.

use crate::fields::{self, Absence, Field as Declared, Get, Part};
use arrow_array::builder::{ListBuilder, StringBuilder, UInt64Builder};
use arrow_array::{
    ArrayRef, BooleanArray, Float64Array, TimestampNanosecondArray, UInt8Array, UInt16Array, UInt32Array, UInt64Array,
};
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use linerate_burst::Nanos;
use linerate_meter::{Flow, Level, Quality};
use std::fmt::Write;
use std::net::IpAddr;
use std::sync::Arc;

/// One column of a file.
pub(super) struct Column {
    pub field: Field,
    of: &'static Declared,
    side: usize,
    /// Of bits with names: which.
    bit: Quality,
}

/// The schema of all files, whatever the level: what a level does not have is null.
pub fn schema() -> Schema {
    Schema::new(columns().into_iter().map(|column| column.field).collect::<Vec<_>>())
}

/// All columns, in their order.
pub(super) fn columns() -> Vec<Column> {
    let mut columns = Vec::new();
    for (of, side) in fields::columns() {
        let name = of.column_of(side);
        let nullable = of.absence != Absence::Never || of.part.level() > Level::Counters;
        let mut add = |name: String, bit| {
            columns.push(Column { field: Field::new(name, data_type(of.get), nullable), of, side, bit });
        };
        match of.get {
            Get::Quality(_) => Quality::NAMES.iter().for_each(|(bit, word)| add(format!("{name}_{word}"), *bit)),
            _ => add(name, Quality::default()),
        }
    }
    columns
}

/// What none of some flows has.
pub(super) struct Absent {
    tcp: bool,
    stats: bool,
    names: bool,
}

impl Absent {
    /// From these.
    pub fn from(flows: &[&Flow]) -> Absent {
        let all = |has: fn(&Flow) -> bool| !flows.iter().any(|flow| has(flow));
        Absent {
            tcp: all(|flow| flow.tcp.is_some()),
            stats: all(|flow| flow.stats.is_some()),
            names: all(|flow| flow.names.is_some()),
        }
    }
}

impl Column {
    /// Whether it has no values then.
    pub fn is_absent(&self, absent: &Absent) -> bool {
        match self.of.part {
            Part::Tcp | Part::TcpSide => absent.tcp,
            Part::Stats | Part::StatsSide => absent.stats,
            Part::Names => absent.names,
            Part::Flow | Part::Headers | Part::End | Part::Side | Part::Quality => false,
        }
    }

    /// Whether it holds times.
    pub fn is_of_times(&self) -> bool {
        matches!(self.of.get, Get::Time(_))
    }

    /// Its values for these flows.
    pub fn array(&self, flows: &[&Flow]) -> ArrayRef {
        let side = self.side;
        match self.of.get {
            Get::U8(get) => Arc::new(flows.iter().map(|flow| get(flow, side)).collect::<UInt8Array>()),
            Get::U16(get) => Arc::new(flows.iter().map(|flow| get(flow, side)).collect::<UInt16Array>()),
            Get::U32(get) => Arc::new(flows.iter().map(|flow| get(flow, side)).collect::<UInt32Array>()),
            Get::U64(get) | Get::Id(get) => Arc::new(flows.iter().map(|flow| get(flow, side)).collect::<UInt64Array>()),
            Get::F64(get) => Arc::new(flows.iter().map(|flow| get(flow, side)).collect::<Float64Array>()),
            Get::Bool(get) => Arc::new(flows.iter().map(|flow| get(flow, side)).collect::<BooleanArray>()),
            Get::Quality(get) => {
                let bits = flows.iter().map(|flow| Some(get(flow).contains(self.bit)));
                Arc::new(bits.collect::<BooleanArray>())
            }
            Get::Time(get) => {
                let times = flows.iter().map(|flow| get(flow, side).map(signed));
                Arc::new(times.collect::<TimestampNanosecondArray>())
            }
            Get::Name(get) => {
                texts(flows, |flow, text| get(flow, side).is_some_and(|name| text.write_str(name).is_ok()))
            }
            Get::Text(get) => texts(flows, |flow, text| get(flow, side).is_some_and(|of| text.write_str(&of).is_ok())),
            Get::Address(get) => texts(flows, |flow, text| get(flow, side).is_some_and(|of| write_address(of, text))),
            Get::Mac(get) => texts(flows, |flow, text| get(flow, side).is_some_and(|of| write!(text, "{of}").is_ok())),
            Get::List(get) => lists(flows, |flow, list| get(flow, side, list)),
        }
    }
}

fn data_type(get: Get) -> DataType {
    match get {
        Get::U8(_) => DataType::UInt8,
        Get::U16(_) => DataType::UInt16,
        Get::U32(_) => DataType::UInt32,
        Get::U64(_) | Get::Id(_) => DataType::UInt64,
        Get::F64(_) => DataType::Float64,
        Get::Bool(_) | Get::Quality(_) => DataType::Boolean,
        // Without a zone, as DuckDB has hardly a function for nanoseconds with one; always UTC.
        Get::Time(_) => DataType::Timestamp(TimeUnit::Nanosecond, None),
        Get::Name(_) | Get::Text(_) | Get::Address(_) | Get::Mac(_) => DataType::Utf8,
        Get::List(_) => DataType::List(Arc::new(item())),
    }
}

/// Parquet's times are signed and end in the year 2262: what is later stands for the last moment (docs/flows.md).
fn signed(time: Nanos) -> i64 {
    i64::try_from(time.0).unwrap_or(i64::MAX)
}

fn item() -> Field {
    Field::new("element", DataType::UInt64, false)
}

/// An address: of IPv4 its digits one after the other, which takes a fifth of what the machinery for all formats does.
fn write_address(address: IpAddr, text: &mut String) -> bool {
    let IpAddr::V4(address) = address else { return write!(text, "{address}").is_ok() };
    for (at, octet) in address.octets().into_iter().enumerate() {
        if at > 0 {
            text.push('.');
        }
        let digits = [octet / 100, octet / 10 % 10, octet % 10];
        let first = if octet >= 100 {
            0
        } else if octet >= 10 {
            1
        } else {
            2
        };
        digits[first..].iter().for_each(|digit| text.push(char::from(b'0' + digit)));
    }
    true
}

fn texts(flows: &[&Flow], get: impl Fn(&Flow, &mut String) -> bool) -> ArrayRef {
    const USUAL: usize = 16;
    let (mut texts, mut text) = (StringBuilder::with_capacity(flows.len(), flows.len() * USUAL), String::new());
    for flow in flows {
        text.clear();
        let is_there = get(flow, &mut text);
        texts.append_option(is_there.then_some(&text));
    }
    Arc::new(texts.finish())
}

fn lists(flows: &[&Flow], get: impl Fn(&Flow, &mut Vec<u64>) -> bool) -> ArrayRef {
    let mut lists = ListBuilder::new(UInt64Builder::new()).with_field(item());
    let mut list = Vec::new();
    for flow in flows {
        list.clear();
        get(flow, &mut list);
        lists.values().append_slice(&list);
        lists.append(!list.is_empty());
    }
    Arc::new(lists.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_written_as_the_library_does() {
        let all = (0..=255u8).map(|octet| IpAddr::from([octet, 255 - octet, 0, octet / 3]));
        for address in all.chain([IpAddr::from([0; 16]), "2001:db8::1".parse().unwrap()]) {
            let mut text = String::new();
            assert!(write_address(address, &mut text) && text == address.to_string(), "{address} {text}");
        }
    }
}
