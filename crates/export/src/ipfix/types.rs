//! Type information of unregistered elements, sent in addition to records (RFC 5610): numbers, names, types, units,
//! descriptions.

use super::enterprise::{OWN, RESPONDER, number};
use super::pack::{Message, OPTIONS, end_message, end_set, head, start_set};
use super::{Profile, Version};
use crate::fields::{Field, Getter, fields};
use linerate_burst::Nanos;

/// Template id.
const TYPES: u16 = 513;
/// Elements and lengths: two of the scope, which are privateEnterpriseNumber and informationElementId, then informationElementDataType,
/// informationElementSemantics, informationElementUnits, informationElementName, informationElementDescription.
const COLUMNS: [(u16, u16); 7] = [(346, 4), (303, 2), (339, 1), (344, 1), (345, 2), (341, 65535), (340, 65535)];
const SCOPES: u16 = 2;
/// Maximum bytes of a description.
const MOST_TEXT: usize = 200;

/// Returns messages without an observation domain, like statistics; none if no exported element needs them.
pub(super) fn types(profile: &Profile, now: Nanos) -> Vec<Message> {
    if !profile.full || profile.version != Version::Ipfix {
        return Vec::new();
    }
    let begin = || {
        let mut bytes = head(Profile { domain: 0, ..*profile }, now, 0);
        let set = start_set(&mut bytes, OPTIONS);
        [TYPES, COLUMNS.len() as u16, SCOPES].iter().for_each(|number| bytes.extend(number.to_be_bytes()));
        COLUMNS
            .iter()
            .flat_map(|(element, length)| [*element, *length])
            .for_each(|number| bytes.extend(number.to_be_bytes()));
        end_set(&mut bytes, set);
        let set = start_set(&mut bytes, TYPES);
        (Message { bytes, records: 0, flows: 0 }, set)
    };
    let end = |(mut message, set): (Message, usize)| {
        end_set(&mut message.bytes, set);
        end_message(&mut message.bytes);
        message
    };
    let (mut all, mut open) = (Vec::new(), begin());
    let sides = |field: &Field| if field.is_of_sides() { 0..2 } else { 0..1 };
    let own = OWN.iter().filter_map(|path| fields().find(|field| field.path == *path));
    for (field, side) in own.flat_map(|field| sides(field).map(move |side| (field, side))) {
        let record = record(field, side, profile.enterprise);
        // As for any message: the first record always fits.
        if open.0.bytes.len() + record.len() > profile.most && open.0.records > 0 {
            all.push(end(std::mem::replace(&mut open, begin())));
        }
        open.0.bytes.extend(record);
        open.0.records += 1;
    }
    all.push(end(open));
    all
}

fn record(field: &Field, side: usize, enterprise: u32) -> Vec<u8> {
    let element = number(field.path).unwrap_or_default() | if side == 1 { RESPONDER } else { 0 };
    let mut bytes = [&enterprise.to_be_bytes()[..], &element.to_be_bytes()].concat();
    bytes.extend([data_type(field.get), semantics(field)]);
    bytes.extend(unit(field).to_be_bytes());
    let name = field.path_of(side);
    let most = field.meaning.floor_char_boundary(MOST_TEXT);
    for text in [name.as_str(), &field.meaning[..most]] {
        bytes.push(text.len() as u8);
        bytes.extend(text.as_bytes());
    }
    bytes
}

/// IANA, "IPFIX Information Element Data Types".
fn data_type(get: Getter) -> u8 {
    match get {
        Getter::U8(_) => 1,
        Getter::U16(_) | Getter::Quality(_) => 2,
        Getter::U32(_) => 3,
        Getter::U64(_) | Getter::Id(_) => 4,
        Getter::F64(_) => 10,
        Getter::Bool(_) => 11,
        Getter::Mac(_) => 12,
        Getter::Name(_) | Getter::Text(_) | Getter::List(_) => 13,
        Getter::Time(_) => 17,
        Getter::Address(_) => 19,
    }
}

/// Returns IANA "IPFIX Information Element Semantics": quantity for units, totals for packets and bytes, flags,
/// identifiers.
fn semantics(field: &Field) -> u8 {
    const DEFAULT: u8 = 0;
    const QUANTITY: u8 = 1;
    const TOTAL: u8 = 2;
    const IDENTIFIER: u8 = 4;
    const FLAGS: u8 = 5;
    match (field.get, field.unit) {
        (Getter::Quality(_), _) => FLAGS,
        (Getter::Id(_), _) => IDENTIFIER,
        (Getter::U32(_) | Getter::U64(_), "packets" | "bytes") => TOTAL,
        (Getter::U8(_) | Getter::U16(_) | Getter::U32(_) | Getter::U64(_) | Getter::F64(_), "") => DEFAULT,
        (Getter::U8(_) | Getter::U16(_) | Getter::U32(_) | Getter::U64(_) | Getter::F64(_), _) => QUANTITY,
        _ => DEFAULT,
    }
}

/// IANA, "IPFIX Information Element Units".
fn unit(field: &Field) -> u16 {
    match field.unit {
        "bytes" => 2,
        "packets" => 3,
        "flows" => 4,
        "ns" => 8,
        "records" => 12,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A minimal reader finds each element once, with the name of its field.
    #[test]
    fn each_own_element_is_described_once() {
        for (most, messages) in [(464, 20..80), (16_000, 1..2)] {
            let profile = Profile { full: true, enterprise: 77, most, ..Profile::default() };
            let all = types(&profile, Nanos(1_700_000_000_000_000_000));
            assert!(messages.contains(&all.len()), "{}", all.len());
            let mut found = Vec::new();
            for message in &all {
                let bytes = &message.bytes;
                assert!(bytes.len() <= most && bytes[12..16] == [0; 4]);
                assert_eq!(usize::from(u16::from_be_bytes([bytes[2], bytes[3]])), bytes.len());
                let template = usize::from(u16::from_be_bytes([bytes[18], bytes[19]]));
                let mut rest = &bytes[16 + template + 4..];
                for _ in 0..message.records {
                    let (head, tail) = rest.split_at(10);
                    assert_eq!(head[..4], 77u32.to_be_bytes());
                    let (name, tail) = tail[1..].split_at(tail[0].into());
                    let (text, tail) = tail[1..].split_at(tail[0].into());
                    assert!(!text.is_empty());
                    found.push((u16::from_be_bytes([head[4], head[5]]), String::from_utf8(name.to_vec()).unwrap()));
                    rest = tail;
                }
                assert!(rest.is_empty());
            }
            let sides = OWN.iter().filter(|path| path.starts_with('*')).count();
            assert_eq!(found.len(), OWN.len() + sides);
            assert_eq!(found[0], (1, "direction".into()));
            assert!(found.contains(&(number("*.ce").unwrap() | RESPONDER, "resp.ce".into())));
            found.sort();
            found.dedup_by_key(|(number, _)| *number);
            assert_eq!(found.len(), OWN.len() + sides);
        }
        assert!(types(&Profile::default(), Nanos(0)).is_empty());
    }
}
