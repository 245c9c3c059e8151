//! Arrow columns, generated from the table of fields: one array per column.

use super::text::Dotted;
use crate::fields::{self, Absence, Field as Declared, Getter, PresentParts};
use arrow_array::builder::{ListBuilder, StringBuilder, UInt64Builder};
use arrow_array::types::{
    ArrowPrimitiveType, Float64Type, TimestampNanosecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{ArrayRef, BooleanArray, PrimitiveArray};
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use linerate_burst::Nanos;
use linerate_meter::{Flow, Level, Quality};
use std::fmt::Write;
use std::net::IpAddr;
use std::sync::Arc;

/// Column of a file.
pub(super) struct Column {
    pub field: Field,
    of: &'static Declared,
    side: usize,
    /// Quality bit of a bit column.
    bit: Quality,
}

/// Returns the schema of all files, for every level: fields above the level are null.
pub fn schema() -> Schema {
    Schema::new(columns().into_iter().map(|column| column.field).collect::<Vec<_>>())
}

pub(super) fn columns() -> Vec<Column> {
    let mut columns = Vec::new();
    for (of, side) in fields::columns() {
        let name = of.column_of(side);
        let nullable = of.absence != Absence::Never || of.part.level() > Level::Counters;
        let mut add = |name: String, bit| {
            columns.push(Column { field: Field::new(name, data_type(of.get), nullable), of, side, bit });
        };
        match of.get {
            Getter::Quality(_) => Quality::NAMES.iter().for_each(|(bit, word)| add(format!("{name}_{word}"), *bit)),
            _ => add(name, Quality::default()),
        }
    }
    columns
}

impl Column {
    /// Returns whether it holds timestamps.
    pub(super) fn is_of_times(&self) -> bool {
        matches!(self.of.get, Getter::Time(_))
    }

    /// Returns its values for these flows, whose parts are `has`; `None` if all are absent.
    pub(super) fn array(&self, flows: &[&Flow], has: PresentParts) -> Option<ArrayRef> {
        has.covers(self.of.needs()).then(|| self.values(flows, has))
    }

    fn values(&self, flows: &[&Flow], has: PresentParts) -> ArrayRef {
        let side = self.side;
        match self.of.get {
            Getter::U8(get) => numbers::<UInt8Type>(flows, |flow| get(flow, side)),
            Getter::U16(get) => numbers::<UInt16Type>(flows, |flow| get(flow, side)),
            Getter::U32(get) => numbers::<UInt32Type>(flows, |flow| get(flow, side)),
            Getter::U64(get) | Getter::Id(get) => numbers::<UInt64Type>(flows, |flow| get(flow, side)),
            Getter::F64(get) => numbers::<Float64Type>(flows, |flow| get(flow, side)),
            Getter::Time(get) => numbers::<TimestampNanosecondType>(flows, |flow| get(flow, side).map(signed)),
            Getter::Bool(get) => bits(flows, |flow| get(flow, side)),
            Getter::Quality(_) if !has.quality().contains(self.bit) => {
                Arc::new(BooleanArray::from(vec![false; flows.len()]))
            }
            Getter::Quality(get) => bits(flows, |flow| Some(get(flow).contains(self.bit))),
            Getter::Name(get) => {
                texts(flows, |flow, text| get(flow, side).is_some_and(|name| text.write_str(name).is_ok()))
            }
            Getter::Text(get) => {
                texts(flows, |flow, text| get(flow, side).is_some_and(|of| text.write_str(&of).is_ok()))
            }
            Getter::Address(get) => {
                texts(flows, |flow, text| get(flow, side).is_some_and(|of| write_address(of, text)))
            }
            Getter::Mac(get) => {
                texts(flows, |flow, text| get(flow, side).is_some_and(|of| write!(text, "{of}").is_ok()))
            }
            Getter::List(get) => lists(flows, |flow, list| get(flow, side, list)),
        }
    }
}

fn data_type(get: Getter) -> DataType {
    match get {
        Getter::U8(_) => DataType::UInt8,
        Getter::U16(_) => DataType::UInt16,
        Getter::U32(_) => DataType::UInt32,
        Getter::U64(_) | Getter::Id(_) => DataType::UInt64,
        Getter::F64(_) => DataType::Float64,
        Getter::Bool(_) | Getter::Quality(_) => DataType::Boolean,
        // Without a time zone, because DuckDB has hardly any functions for nanoseconds with one; always UTC.
        Getter::Time(_) => DataType::Timestamp(TimeUnit::Nanosecond, None),
        Getter::Name(_) | Getter::Text(_) | Getter::Address(_) | Getter::Mac(_) => DataType::Utf8,
        Getter::List(_) => DataType::List(Arc::new(item())),
    }
}

/// Converts to Parquet's signed timestamps, which end in the year 2262: later times saturate (docs/flows.md).
fn signed(time: Nanos) -> i64 {
    i64::try_from(time.0).unwrap_or(i64::MAX)
}

fn item() -> Field {
    Field::new("element", DataType::UInt64, false)
}

fn write_address(address: IpAddr, text: &mut impl Write) -> bool {
    match address {
        IpAddr::V4(address) => text.write_str(Dotted::of(address).as_str()).is_ok(),
        IpAddr::V6(address) => write!(text, "{address}").is_ok(),
    }
}

/// Builds an array without a null bitmap where all values are present, the usual case.
fn numbers<T: ArrowPrimitiveType>(flows: &[&Flow], get: impl Fn(&Flow) -> Option<T::Native>) -> ArrayRef {
    let mut values = Vec::with_capacity(flows.len());
    values.extend(flows.iter().map_while(|flow| get(flow)));
    match values.len() == flows.len() {
        true => Arc::new(PrimitiveArray::<T>::new(values.into(), None)),
        false => Arc::new(flows.iter().map(|flow| get(flow)).collect::<PrimitiveArray<T>>()),
    }
}

fn bits(flows: &[&Flow], get: impl Fn(&Flow) -> Option<bool>) -> ArrayRef {
    let values: Vec<bool> = flows.iter().map_while(|flow| get(flow)).collect();
    match values.len() == flows.len() {
        true => Arc::new(BooleanArray::from(values)),
        false => Arc::new(flows.iter().map(|flow| get(flow)).collect::<BooleanArray>()),
    }
}

fn texts(flows: &[&Flow], get: impl Fn(&Flow, &mut StringBuilder) -> bool) -> ArrayRef {
    const USUAL: usize = 16;
    let mut texts = StringBuilder::with_capacity(flows.len(), flows.len() * USUAL);
    for flow in flows {
        match get(flow, &mut texts) {
            // Ends the value written since the previous one.
            true => texts.append_value(""),
            false => texts.append_null(),
        }
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
