//! From flows to an array of one column.

use arrow_array::builder::{ListBuilder, StringBuilder, UInt64Builder};
use arrow_array::{
    ArrayRef, BooleanArray, Float64Array, TimestampNanosecondArray, UInt8Array, UInt16Array, UInt32Array, UInt64Array,
};
use arrow_schema::{DataType, Field, TimeUnit};
use linerate_burst::Nanos;
use std::sync::Arc;

/// How a value is had from a part of a flow: `None` is null.
pub(crate) enum Get<T: 'static> {
    U8(fn(&T) -> Option<u8>),
    U16(fn(&T) -> Option<u16>),
    U32(fn(&T) -> Option<u32>),
    U64(fn(&T) -> Option<u64>),
    F64(fn(&T) -> Option<f64>),
    Bool(fn(&T) -> Option<bool>),
    Time(fn(&T) -> Option<Nanos>),
    /// One of a few words.
    Name(fn(&T) -> Option<&'static str>),
    /// Whatever is appended; null if false.
    Text(fn(&T, &mut String) -> bool),
    List(fn(&T, &mut Vec<u64>)),
}

impl<T: 'static> Get<T> {
    /// The type of the column.
    pub fn data_type(&self) -> DataType {
        match self {
            Get::U8(_) => DataType::UInt8,
            Get::U16(_) => DataType::UInt16,
            Get::U32(_) => DataType::UInt32,
            Get::U64(_) => DataType::UInt64,
            Get::F64(_) => DataType::Float64,
            Get::Bool(_) => DataType::Boolean,
            // Without a zone, as DuckDB has hardly a function for nanoseconds with one; always UTC.
            Get::Time(_) => DataType::Timestamp(TimeUnit::Nanosecond, None),
            Get::Name(_) | Get::Text(_) => DataType::Utf8,
            Get::List(_) => DataType::List(Arc::new(item())),
        }
    }

    /// The values of `rows`; null where there is no row.
    pub fn array<'a>(&self, rows: impl Iterator<Item = Option<&'a T>>) -> ArrayRef {
        match self {
            Get::U8(get) => Arc::new(rows.map(|row| row.and_then(get)).collect::<UInt8Array>()),
            Get::U16(get) => Arc::new(rows.map(|row| row.and_then(get)).collect::<UInt16Array>()),
            Get::U32(get) => Arc::new(rows.map(|row| row.and_then(get)).collect::<UInt32Array>()),
            Get::U64(get) => Arc::new(rows.map(|row| row.and_then(get)).collect::<UInt64Array>()),
            Get::F64(get) => Arc::new(rows.map(|row| row.and_then(get)).collect::<Float64Array>()),
            Get::Bool(get) => Arc::new(rows.map(|row| row.and_then(get)).collect::<BooleanArray>()),
            Get::Time(get) => {
                let times = rows.map(|row| row.and_then(get).map(signed));
                Arc::new(times.collect::<TimestampNanosecondArray>())
            }
            Get::Name(get) => {
                let mut names = StringBuilder::new();
                rows.for_each(|row| names.append_option(row.and_then(get)));
                Arc::new(names.finish())
            }
            Get::Text(get) => Arc::new(texts(*get, rows)),
            Get::List(get) => Arc::new(lists(*get, rows)),
        }
    }
}

/// Parquet's times are signed and end in the year 2262: what is later stands for the last moment (docs/flows.md).
fn signed(time: Nanos) -> i64 {
    i64::try_from(time.0).unwrap_or(i64::MAX)
}

fn item() -> Field {
    Field::new("element", DataType::UInt64, false)
}

fn texts<'a, T: 'a>(
    get: fn(&T, &mut String) -> bool,
    rows: impl Iterator<Item = Option<&'a T>>,
) -> arrow_array::StringArray {
    let (mut texts, mut text) = (StringBuilder::new(), String::new());
    for row in rows {
        text.clear();
        let is_there = row.is_some_and(|row| get(row, &mut text));
        texts.append_option(is_there.then_some(&text));
    }
    texts.finish()
}

fn lists<'a, T: 'a>(get: fn(&T, &mut Vec<u64>), rows: impl Iterator<Item = Option<&'a T>>) -> arrow_array::ListArray {
    let mut lists = ListBuilder::new(UInt64Builder::new()).with_field(item());
    let mut list = Vec::new();
    for row in rows {
        list.clear();
        if let Some(row) = row {
            get(row, &mut list);
        }
        lists.values().append_slice(&list);
        lists.append(!list.is_empty());
    }
    lists.finish()
}
