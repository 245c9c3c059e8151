//! Conversion of a frame to the text that makes it.

use super::{Setup, Sizes, frames};
use linerate_headers::named::{Field, Form, Kind};
use linerate_headers::{Layers, Link, Protocol, coverage, dissect, mpls};

/// Returns the text of a packet that makes this frame, byte for byte: known headers, fields that are neither default
/// nor computed, and the payload. Parts that headers cannot express are in hexadecimal.
///
/// ```
/// use linerate_generate::packet::{Setup, express, frames};
/// let text = "ip(ttl=9)/udp(dport=53)/payload(\"hello, how are you\")";
/// let frame = frames(text, &Setup::default())?.variants.remove(0).frame;
/// assert_eq!(express(linerate_headers::Link::Ethernet, &frame), format!("eth/{text}"));
/// # Ok::<(), linerate_generate::TextError>(())
/// ```
pub fn express(link: Link, frame: &[u8]) -> String {
    let headers = headers(link, frame);
    (1..=headers.len())
        .rev()
        .find_map(|count| Expression::of(link, frame, &headers[..count]).found())
        .unwrap_or_else(|| format!("raw({})", hex(frame)))
}

#[derive(Clone, Copy)]
struct Header {
    kind: &'static Kind,
    start: usize,
    end: usize,
    end_of_payload: usize,
}

/// Returns the headers of a frame, each label of a stack separately.
fn headers(link: Link, frame: &[u8]) -> Vec<Header> {
    let mut layers = Layers::new();
    dissect(link, frame, &mut layers);
    let mut headers = Vec::new();
    for at in coverage::placed(frame, &layers) {
        let bytes = frame.get(at.offset..at.offset + at.length).unwrap_or_default();
        let Some(kind) = Kind::of(at.protocol, bytes) else { break };
        let each = if at.protocol == Protocol::Mpls { mpls::ENTRY_LEN } else { at.length.max(1) };
        for start in (at.offset..at.offset + at.length.max(1)).step_by(each) {
            headers.push(Header { kind, start, end: start + each.min(at.length), end_of_payload: at.end });
        }
    }
    headers
}

/// Text that grows until it makes the frame.
struct Expression<'a> {
    link: Link,
    frame: &'a [u8],
    headers: &'a [Header],
    /// Arguments of each header so far.
    arguments: Vec<Vec<String>>,
    end: String,
}

impl<'a> Expression<'a> {
    fn of(link: Link, frame: &'a [u8], headers: &'a [Header]) -> Self {
        let arguments = headers.iter().map(|header| parts(header.kind, &frame[header.start..header.end])).collect();
        let (start, end) = headers.last().map_or((0, 0), |last| (last.end, last.end_of_payload));
        let mut rest = String::new();
        if end > start {
            rest += &format!("/payload({})", payload(&frame[start..end]));
        }
        if frame.len() > end {
            rest += &format!("/padding({})", hex(&frame[end..]));
        }
        Expression { link, frame, headers, arguments, end: rest }
    }

    /// Returns the text that makes the frame, if one exists.
    fn found(mut self) -> Option<String> {
        // One round for the fields, one for each wrong checksum, and one to verify the result.
        for _ in 0..self.headers.len() + 2 {
            let text = self.text();
            let setup = Setup { link: self.link, sizes: Sizes::Natural(0), ..Setup::default() };
            let made = frames(&text, &setup).ok()?.variants.pop()?.frame;
            if made == self.frame {
                return Some(text);
            }
            if made.len() != self.frame.len() || !self.add(&made) {
                return None;
            }
        }
        None
    }

    fn text(&self) -> String {
        let layers = self.headers.iter().zip(&self.arguments).map(|(header, arguments)| {
            let name = header.kind.name();
            if arguments.is_empty() { name.to_owned() } else { format!("{name}({})", arguments.join(", ")) }
        });
        layers.collect::<Vec<_>>().join("/") + &self.end
    }

    /// Adds the fields that differ: first all but checksums, which depend on them; then the innermost wrong checksum.
    fn add(&mut self, made: &[u8]) -> bool {
        let mut added = false;
        for is_checksum in [false, true] {
            for (header, arguments) in self.headers.iter().zip(&mut self.arguments).rev() {
                let (theirs, ours) = (&self.frame[header.start..header.end], &made[header.start..header.end]);
                let fields = header.kind.fields.iter().filter(|field| field.own && is(header.kind, field, theirs));
                for field in fields.filter(|field| (field.name == "checksum") == is_checksum) {
                    let value = field.get(theirs).filter(|value| field.get(ours) != Some(*value));
                    let Some(value) = value else { continue };
                    arguments.retain(|argument| argument != field.name);
                    arguments.push(format!("{}={}", field.name, field.format.show(value)));
                    added = true;
                }
                if added && is_checksum {
                    return true;
                }
            }
            if added {
                return true;
            }
        }
        false
    }
}

/// Returns whether a field is the one of its name in this header.
fn is(kind: &Kind, field: &Field, header: &[u8]) -> bool {
    kind.field(field.name, header).is_some_and(|found| std::ptr::eq(found, field))
}

/// Returns the arguments that determine the form of a header.
fn parts(kind: &Kind, header: &[u8]) -> Vec<String> {
    let part = |part: &linerate_headers::named::Part| match part.form {
        Form::Present => kind.field(part.name, header).map(|_| part.name.to_owned()),
        Form::Number => {
            let value = kind.field(part.name, header).and_then(|field| field.get(header));
            value.map(|value| format!("{}={value:#x}", part.name))
        }
        Form::Bytes(find) => find(header).map(|bytes| format!("{}={}", part.name, hex(bytes))),
        Form::Within => None,
    };
    kind.parts.iter().filter_map(part).collect()
}

/// Returns the payload as text if printable, else in hexadecimal.
fn payload(bytes: &[u8]) -> String {
    if !bytes.iter().all(|byte| matches!(byte, b' '..=b'~' | b'\n' | b'\r' | b'\t')) {
        return format!("hex={}", hex(bytes));
    }
    let text: String = bytes.iter().map(|byte| char::from(*byte)).collect();
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n").replace('\r', "\\r");
    format!("\"{}\"", escaped.replace('\t', "\\t"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
