//! IGMP.

use crate::read::u16_at;
use crate::text::put;
use crate::walk::LinePrinter;
use linerate_headers::{Layer, igmp};

const REPORT_1: u8 = 0x12;
const DVMRP: u8 = 0x13;
const LEAVE: u8 = 0x17;
/// Minimum length of a version 3 query.
const QUERY_3: usize = 12;

pub(crate) fn write(walk: &mut LinePrinter<'_, '_>, layer: &Layer) {
    let bytes = walk.from(layer);
    let Ok(view) = igmp::View::parse(bytes) else { return };
    let length = walk.end.saturating_sub(layer.offset as usize);
    let text = &mut walk.text;
    text.str("igmp ");
    let group = view.group().octets();
    match view.kind() {
        igmp::QUERY => {
            let version = if length >= QUERY_3 { 3 } else { 1 + u8::from(view.max_response() > 0) };
            put!(text, "query v{version}");
            if version == 2 && view.max_response() != 100 || version == 3 && view.max_response() > 0 {
                put!(text, " [max resp code {}]", view.max_response());
            }
            if group != [0; 4] {
                text.str(" [gaddr ");
                text.ipv4(group);
                text.str("]");
            }
            if version == 3 && view.sources().len() > 0 {
                put!(text, " [{} sources]", view.sources().len());
            }
        }
        REPORT_1 => {
            text.str("v1 report ");
            text.ipv4(group);
        }
        igmp::REPORT_2 => {
            text.str("v2 report ");
            text.ipv4(group);
        }
        igmp::REPORT_3 => put!(text, "v3 report, {} group record(s)", u16_at(bytes, 6).unwrap_or_default()),
        DVMRP => text.str("dvmrp"),
        LEAVE => {
            text.str("leave ");
            text.ipv4(group);
        }
        other => put!(text, "type-{other:#x}"),
    }
    if walk.options.verifies() && walk.is_whole(layer.offset as usize) && !view.is_checksum_right() {
        put!(walk.text, ", bad igmp cksum {:#06x}!", view.checksum());
    }
}
