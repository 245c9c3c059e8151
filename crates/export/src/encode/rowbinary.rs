//! ClickHouse `RowBinary`, for all versions: the columns of a table of flows, concatenated values, little endian.
//!
//! An address is 16 bytes (`IPv6`, or `FixedString(16)` before version 18.12; IPv4 is mapped), a time ns since 1970
//! (`DateTime64(9)`, or `UInt64` before 20.1), a text its length (LEB128) followed by its bytes.

use super::Origin;
use crate::fields::{Field, Getter, columns};
use linerate_meter::Flow;
use std::net::IpAddr;
use std::sync::LazyLock;

/// Columns, by their names in Parquet.
const NAMES: [&str; 16] = [
    "first_time",
    "duration_ns",
    "id",
    "protocol",
    "orig_address",
    "resp_address",
    "orig_port",
    "resp_port",
    "flows",
    "orig_packets",
    "resp_packets",
    "orig_frame_bytes",
    "resp_frame_bytes",
    "orig_packet_bytes",
    "resp_packet_bytes",
    "end_reason",
];

static COLUMNS: LazyLock<Vec<(&Field, usize)>> = LazyLock::new(|| {
    let of = |name: &&str| columns().find(|(field, side)| field.column_of(*side) == **name);
    NAMES.iter().filter_map(of).collect()
});

/// Returns the columns of a row, for the `INSERT` statement.
pub fn names() -> String {
    [&["sensor", "run", "batch", "row"], &NAMES[..]].concat().join(", ")
}

/// Returns the rows of flows.
pub fn rows_from(flows: &[&Flow], origin: &Origin) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (row, flow) in flows.iter().enumerate() {
        text(&origin.sensor, &mut bytes);
        bytes.extend(origin.run.to_le_bytes());
        bytes.extend(origin.batch.to_le_bytes());
        bytes.extend((row as u32).to_le_bytes());
        COLUMNS.iter().for_each(|(field, side)| value(&field.get, flow, *side, &mut bytes));
    }
    bytes
}

/// Returns the offset after `rows` rows; `None` if there are fewer.
pub(crate) fn end_of(bytes: &[u8], rows: usize) -> Option<usize> {
    let mut rest = bytes;
    for _ in 0..rows {
        // After the sensor: run, batch, row.
        rest = after_text(rest)?.get(20..)?;
        for (field, _) in COLUMNS.iter() {
            rest = match field.get {
                Getter::U8(_) => rest.get(1..)?,
                Getter::U16(_) => rest.get(2..)?,
                Getter::U32(_) => rest.get(4..)?,
                Getter::U64(_) | Getter::Id(_) | Getter::Time(_) => rest.get(8..)?,
                Getter::Address(_) => rest.get(16..)?,
                Getter::Name(_) | Getter::Text(_) => after_text(rest)?,
                Getter::F64(_) | Getter::Bool(_) | Getter::Mac(_) | Getter::List(_) | Getter::Quality(_) => rest,
            };
        }
    }
    Some(bytes.len() - rest.len())
}

fn after_text(bytes: &[u8]) -> Option<&[u8]> {
    let (mut length, mut at) = (0, 0);
    loop {
        let byte = *bytes.get(at)?;
        length |= usize::from(byte & 0x7f) << (7 * at);
        at += 1;
        if byte < 0x80 {
            return bytes.get(at + length..);
        }
        // Text lengths fit in four bytes.
        if at == 4 {
            return None;
        }
    }
}

/// Appends a value; absent ones are 0 or empty.
fn value(get: &Getter, flow: &Flow, side: usize, bytes: &mut Vec<u8>) {
    match get {
        Getter::U8(get) => bytes.push(get(flow, side).unwrap_or_default()),
        Getter::U16(get) => bytes.extend(get(flow, side).unwrap_or_default().to_le_bytes()),
        Getter::U32(get) => bytes.extend(get(flow, side).unwrap_or_default().to_le_bytes()),
        Getter::U64(get) | Getter::Id(get) => bytes.extend(get(flow, side).unwrap_or_default().to_le_bytes()),
        // Saturates at the largest time of the type.
        Getter::Time(get) => {
            bytes.extend(get(flow, side).map_or(0, |time| time.0.min(i64::MAX as u64)).to_le_bytes());
        }
        Getter::Address(get) => bytes.extend(match get(flow, side) {
            Some(IpAddr::V6(address)) => address.octets(),
            Some(IpAddr::V4(address)) => address.to_ipv6_mapped().octets(),
            None => [0; 16],
        }),
        Getter::Name(get) => text(get(flow, side).unwrap_or_default(), bytes),
        Getter::Text(get) => text(&get(flow, side).unwrap_or_default(), bytes),
        Getter::F64(_) | Getter::Bool(_) | Getter::Mac(_) | Getter::List(_) | Getter::Quality(_) => {}
    }
}

fn text(text: &str, bytes: &mut Vec<u8>) {
    let mut length = text.len();
    while length > 0x7f {
        bytes.push(length as u8 | 0x80);
        length >>= 7;
    }
    bytes.push(length as u8);
    bytes.extend(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_the_concatenation_of_its_values() {
        assert_eq!(COLUMNS.len(), NAMES.len());
        let kinds = |(field, _): &(&Field, usize)| {
            !matches!(
                field.get,
                Getter::F64(_) | Getter::Bool(_) | Getter::Mac(_) | Getter::List(_) | Getter::Quality(_)
            )
        };
        assert!(COLUMNS.iter().all(kinds));
        let flow = crate::tests::flow();
        let origin = Origin { sensor: "s".repeat(200), run: 7, batch: 8 };
        let bytes = rows_from(&[&flow, &flow], &origin);
        let (one, two) = bytes.split_at(bytes.len() / 2);
        assert_eq!(one[..4], [0xc8, 1, b's', b's']);
        assert_eq!(
            one[202..222],
            [[7, 0, 0, 0, 0, 0, 0, 0], [8, 0, 0, 0, 0, 0, 0, 0]]
                .concat()
                .iter()
                .chain(&[0; 4])
                .copied()
                .collect::<Vec<u8>>()[..]
        );
        assert_eq!((&two[..218], two[218], &two[222..]), (&one[..218], 1, &one[222..]));
        // first_time, duration, id, protocol.
        let numbers = [flow.first().0, 0, 1].map(u64::to_le_bytes).concat();
        assert_eq!((&one[222..246], one[246]), (&numbers[..], 17));
        assert_eq!(one[247..263], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1]);
        assert_eq!([0, 1, 2, 3].map(|rows| end_of(&bytes, rows)), [Some(0), Some(one.len()), Some(bytes.len()), None]);
        assert!((0..one.len()).all(|cut| end_of(&one[..cut], 1).is_none()));
        assert!(one.ends_with(b"\x04idle"));
        assert!(names().starts_with("sensor, run, batch, row, first_time"));
    }
}
