//! Frames of a stream as readable text: layer by layer, with the changes of each field.

use crate::stream::{Change, IndexSelection, Map, Selector, Stream};
use crate::trailer::{Key, LEN};
use linerate_headers::coverage::{self, Coverage};
use linerate_headers::named::{Field, Format, Kind};
use linerate_headers::{Layers, Protocol, dissect, mpls};
use std::fmt::Write;

/// Formats frame `n` of a stream, sent at `time`, one layer per line: `name field=value ...`; a field that changes is
/// followed by its values in braces. Wrong checksums are marked.
pub fn describe(stream: &Stream, n: u64, time: u64, key: &Key) -> String {
    let (frame, variant) = (stream.frame(n, time, key), stream.variant(n));
    let (mut layers, mut text) = (Layers::new(), String::new());
    dissect(stream.link, &frame, &mut layers);
    let placed = coverage::placed(&frame, &layers);
    let checksums = coverage::checksums(&frame, &placed);
    let mut shown =
        StreamText { stream, changes: variant.changes.iter().collect(), frame: &frame, checksums, text: &mut text };
    shown.line(format_args!("frame {n} of {}: {} bytes, {} with FCS", stream.name, frame.len(), frame.len() + 4));
    for at in &placed {
        let each = if at.protocol == Protocol::Mpls { mpls::ENTRY_LEN } else { at.length.max(1) };
        for start in (at.offset..at.offset + at.length.max(1)).step_by(each) {
            shown.layer(at.protocol, start, start + each.min(at.length));
        }
    }
    let payload = placed.last().map_or(0, |last| last.offset + last.length);
    let end = placed.last().map_or(frame.len(), |last| last.end);
    shown.rest("payload", payload, variant.trailer.unwrap_or(end).max(payload));
    if let Some(at) = variant.trailer {
        let what = format!("stream={} sequence={n} at byte {at}", stream.id);
        shown.line(format_args!("  {:<10} {what}", "trailer"));
    }
    shown.rest("padding", end.max(variant.trailer.map_or(0, |at| at + LEN)), frame.len());
    for fill in &variant.fills {
        let what = format!("{} random bytes from byte {} in every frame", fill.length, fill.offset);
        shown.line(format_args!("  {:<10} {what}", "noise"));
    }
    for change in std::mem::take(&mut shown.changes) {
        let what = values(change, &stream.selectors[change.selector], Format::Hex);
        shown.line(format_args!("  {:<10} +{}:{} {what}", "bytes", change.offset, change.mask.count_ones()));
    }
    text
}

struct StreamText<'a> {
    stream: &'a Stream,
    /// Changes not described so far.
    changes: Vec<&'a Change>,
    frame: &'a [u8],
    checksums: Vec<Coverage>,
    text: &'a mut String,
}

impl StreamText<'_> {
    fn line(&mut self, what: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "{what}");
    }

    fn layer(&mut self, protocol: Protocol, start: usize, end: usize) {
        let header = &self.frame[start..end];
        let Some(kind) = Kind::of(protocol, header) else {
            return self.line(format_args!("  {:<10} {} bytes", protocol.name(), header.len()));
        };
        let mut fields = String::new();
        let is_it = |field: &&Field| kind.field(field.name, header).is_some_and(|found| std::ptr::eq(found, *field));
        for field in kind.fields.iter().filter(|field| field.own).filter(is_it) {
            let (Some(value), Some(bit)) = (field.get(header), field.start(header)) else { continue };
            fields += &format!(" {}={}", field.name, field.format.show(value));
            fields += &self.changes_of(start * 8 + bit, field);
            if field.name == "checksum" {
                fields += self.verdict(start + bit / 8);
            }
        }
        self.line(format_args!("  {:<10}{fields}", kind.name()));
    }

    /// Returns the values of a field's changes, each change once.
    fn changes_of(&mut self, start: usize, field: &Field) -> String {
        let end = start + field.bits as usize;
        let is_here = |change: &&Change| {
            let first = change.offset * 8 + change.width * 8 - (128 - change.mask.leading_zeros() as usize);
            (start..end).contains(&first)
        };
        let (here, others) = self.changes.iter().copied().partition(is_here);
        self.changes = others;
        let here: Vec<&Change> = here;
        let whole = |change: &Change| change.mask.count_ones() == field.bits;
        let text = |change: &&Change| {
            let format = if whole(change) { field.format } else { Format::Number };
            format!(" {{{}}}", values(change, &self.stream.selectors[change.selector], format))
        };
        here.iter().map(text).collect()
    }

    fn verdict(&self, offset: usize) -> &'static str {
        let Some(sum) = self.checksums.iter().find(|sum| sum.offset == offset) else { return "" };
        let mut filled = self.frame.to_vec();
        sum.fill(&mut filled);
        if filled == self.frame { "" } else { " (wrong)" }
    }

    fn rest(&mut self, name: &str, start: usize, end: usize) {
        let Some(bytes) = self.frame.get(start..end).filter(|bytes| !bytes.is_empty()) else { return };
        let hex: String = bytes.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        let letter = |byte: &u8| if (b' '..=b'~').contains(byte) { char::from(*byte) } else { '.' };
        let letters: String = bytes.iter().take(16).map(letter).collect();
        let more = if bytes.len() > 16 { "..." } else { "" };
        self.line(format_args!("  {name:<10} {} bytes: {hex}{more} \"{letters}\"{more}", bytes.len()));
    }
}

/// Formats the values of a change, and their order.
fn values(change: &Change, selector: &Selector, format: Format) -> String {
    let show = |value: u128| format.show(value & u128::MAX >> (128 - change.mask.count_ones())).to_string();
    let which = match &change.map {
        Map::Range { start, step, divide, modulo } => {
            let count = if *modulo == 0 { selector.count } else { *modulo };
            let last = start.wrapping_add((*step as u128).wrapping_mul(u128::from(count.wrapping_sub(1))));
            let steps = if step.unsigned_abs() > 1 { format!("/{}", step.unsigned_abs()) } else { String::new() };
            let slow = if *divide > 1 { format!(" every {divide}") } else { String::new() };
            format!("{}..{}{steps}{slow}", show(*start), show(last))
        }
        Map::List(list) if list.len() <= 8 => {
            format!("[{}]", list.iter().map(|value| show(*value)).collect::<Vec<_>>().join(", "))
        }
        Map::List(list) => format!("{} values", list.len()),
        Map::Scatter { start, span, .. } => {
            format!("{}..{}", show(*start), show(start.wrapping_add(span.wrapping_sub(1))))
        }
    };
    let how = match &selector.pick {
        _ if matches!(change.map, Map::Scatter { .. }) => "random".to_owned(),
        IndexSelection::InTurn { every: 1 } => "in turn".to_owned(),
        IndexSelection::InTurn { every } => format!("in turn, each for {every} frames"),
        IndexSelection::Random { .. } => "random".to_owned(),
        IndexSelection::Weighted { .. } => "weighted".to_owned(),
    };
    format!("{which} {how}")
}
