//! Columns, made from the table of fields: from flows to an array each.

use crate::fields::{self, Absence, Field as Declared, Get, Part};
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

/// What any of some flows has, of all that most have not.
pub(super) struct Has {
    tags: bool,
    tunnel: bool,
    extensions: bool,
    macs: bool,
    labels: bool,
    teids: bool,
    exporter: bool,
    tcp: bool,
    stats: bool,
    names: bool,
    quality: Quality,
}

impl Has {
    /// Any of these.
    pub fn any(flows: &[&Flow]) -> Has {
        let (mut bits, mut quality) = (0u32, Quality::default());
        for flow in flows {
            bits |= u32::from(flow.vlans[0] != 0)
                | u32::from(flow.tunnel.is_some()) << 1
                | u32::from(flow.extensions != 0) << 2
                | u32::from(flow.macs.is_some()) << 3
                | u32::from(flow.mpls[0][0] | flow.mpls[1][0] != 0) << 4
                | u32::from(flow.teids != [None; 2]) << 5
                | u32::from(flow.exporter.is_some()) << 6
                | u32::from(flow.tcp.is_some()) << 7
                | u32::from(flow.stats.is_some()) << 8
                | u32::from(flow.names.is_some()) << 9;
            quality.0 |= flow.quality.0;
        }
        let bit = |place: u32| bits >> place & 1 != 0;
        Has {
            tags: bit(0),
            tunnel: bit(1),
            extensions: bit(2),
            macs: bit(3),
            labels: bit(4),
            teids: bit(5),
            exporter: bit(6),
            tcp: bit(7),
            stats: bit(8),
            names: bit(9),
            quality,
        }
    }
}

impl Column {
    /// Whether flows that have no more than this may have values of it.
    fn may_be(&self, has: &Has) -> bool {
        match self.of.part {
            Part::Tcp | Part::TcpSide => has.tcp,
            Part::Stats | Part::StatsSide => has.stats,
            Part::Names => has.names,
            Part::Flow | Part::Headers | Part::End | Part::Side | Part::Quality => match self.of.path {
                "vlan" | "inner_vlan" => has.tags,
                "extension_headers" => has.extensions,
                "*.mac" => has.macs,
                "*.mpls_labels" => has.labels,
                "*.teid" => has.teids,
                path if path.starts_with("tunnel.") => has.tunnel,
                path if path.starts_with("exporter.") => has.exporter,
                _ => true,
            },
        }
    }

    /// Whether it holds times.
    pub fn is_of_times(&self) -> bool {
        matches!(self.of.get, Get::Time(_))
    }

    /// Its values for these flows, which have no more than this; `None`: they have none.
    pub fn array(&self, flows: &[&Flow], has: &Has) -> Option<ArrayRef> {
        self.may_be(has).then(|| self.values(flows, has))
    }

    fn values(&self, flows: &[&Flow], has: &Has) -> ArrayRef {
        let side = self.side;
        match self.of.get {
            Get::U8(get) => numbers::<UInt8Type>(flows, |flow| get(flow, side)),
            Get::U16(get) => numbers::<UInt16Type>(flows, |flow| get(flow, side)),
            Get::U32(get) => numbers::<UInt32Type>(flows, |flow| get(flow, side)),
            Get::U64(get) | Get::Id(get) => numbers::<UInt64Type>(flows, |flow| get(flow, side)),
            Get::F64(get) => numbers::<Float64Type>(flows, |flow| get(flow, side)),
            Get::Time(get) => numbers::<TimestampNanosecondType>(flows, |flow| get(flow, side).map(signed)),
            Get::Bool(get) => bits(flows, |flow| get(flow, side)),
            Get::Quality(_) if !has.quality.contains(self.bit) => {
                Arc::new(BooleanArray::from(vec![false; flows.len()]))
            }
            Get::Quality(get) => bits(flows, |flow| Some(get(flow).contains(self.bit))),
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
fn write_address(address: IpAddr, text: &mut impl Write) -> bool {
    let IpAddr::V4(address) = address else { return write!(text, "{address}").is_ok() };
    let (mut bytes, mut used) = ([0; 16], 0);
    for octet in address.octets() {
        let (digits, count) = DIGITS[usize::from(octet)];
        bytes[used..used + 4].copy_from_slice(&digits);
        used += count;
    }
    str::from_utf8(&bytes[..used - 1]).is_ok_and(|of| text.write_str(of).is_ok())
}

/// Each octet with a point behind it, and how many characters that is.
const DIGITS: [([u8; 4], usize); 256] = {
    let (mut all, mut octet) = ([([b'.'; 4], 0); 256], 0);
    while octet < 256 {
        let digits = [octet / 100, octet / 10 % 10, octet % 10];
        let first = if octet >= 100 {
            0
        } else if octet >= 10 {
            1
        } else {
            2
        };
        let mut at = first;
        while at < 3 {
            all[octet].0[at - first] = b'0' + digits[at] as u8;
            at += 1;
        }
        all[octet].1 = 4 - first;
        octet += 1;
    }
    all
};

/// Numbers: where all are there, which is usual, without a word on which are.
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
            // What was written since the one before.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A flow with one thing more than the plain one, of each that is asked for.
    fn with_more() -> Vec<Flow> {
        let mut plain = crate::back::nothing();
        (plain.tcp, plain.stats, plain.names) = (None, None, None);
        let mut all = vec![plain.clone()];
        let mut add = |change: fn(&mut Flow)| {
            let mut flow = plain.clone();
            change(&mut flow);
            all.push(flow);
        };
        add(|flow| flow.vlans = [7, 0]);
        add(|flow| flow.vlans = [7, 8]);
        add(|flow| {
            flow.tunnel = Some(linerate_meter::Tunnel { kind: linerate_meter::TunnelKind::Gre, id: 5, parent: 6 })
        });
        add(|flow| flow.extensions = 4);
        add(|flow| flow.macs = Some(Default::default()));
        add(|flow| flow.mpls[1][0] = 9);
        add(|flow| flow.teids[1] = Some(3));
        add(|flow| flow.exporter = Some(Arc::default()));
        add(|flow| flow.names = Some(Arc::default()));
        Quality::NAMES.iter().for_each(|(bit, _)| all.push(Flow { quality: *bit, ..plain.clone() }));
        let full = crate::tests::flow();
        all.push(Flow { tcp: full.tcp.clone(), ..plain.clone() });
        all.push(Flow { stats: full.stats.clone(), ..plain.clone() });
        all.push(full);
        all
    }

    /// What is not made has no values.
    #[test]
    fn columns_that_are_passed_over_are_empty() {
        for flow in with_more() {
            let has = Has::any(&[&flow]);
            for column in columns() {
                let made = column.values(&[&flow], &Has { quality: Quality(u16::MAX), ..Has::any(&[&flow]) });
                match column.array(&[&flow], &has) {
                    Some(array) => assert_eq!(&array, &made, "{}", column.field.name()),
                    None => assert_eq!(made.null_count(), 1, "{} of {flow:?}", column.field.name()),
                }
            }
        }
    }

    #[test]
    fn an_address_is_written_as_the_library_does() {
        let all = (0..=255u8).map(|octet| IpAddr::from([octet, 255 - octet, 0, octet / 3]));
        for address in all.chain([IpAddr::from([0; 16]), "2001:db8::1".parse().unwrap()]) {
            let mut text = String::new();
            assert!(write_address(address, &mut text) && text == address.to_string(), "{address} {text}");
        }
    }
}
