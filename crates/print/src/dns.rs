//! DNS: header, question, answers.

use crate::read::{part, take, u16_at};
use crate::text::{Text, put};

pub(crate) const HEADER: usize = 12;
/// Maximum number of labels in a name, and thus of pointers.
const MOST_POINTERS: u32 = 127;
/// Maximum bytes of a name, and of a text in an answer.
const LONGEST_NAME: usize = 255;
const LONGEST_TEXT: usize = 120;

const OPERATIONS: [&str; 6] = ["", " inv_q", " stat", " op3", " notify", " update"];
const RESULTS: [&str; 11] = [
    "",
    " FormErr",
    " ServFail",
    " NXDomain",
    " NotImp",
    " Refused",
    " YXDomain",
    " YXRRSet",
    " NXRRSet",
    " NotAuth",
    " NotZone",
];

const A: u16 = 1;
const NS: u16 = 2;
const CNAME: u16 = 5;
const PTR: u16 = 12;
const MX: u16 = 15;
const TXT: u16 = 16;
const AAAA: u16 = 28;
const SRV: u16 = 33;
const DNAME: u16 = 39;
const OPT: u16 = 41;
const TYPES: [(u16, &str); 32] = [
    (A, "A"),
    (NS, "NS"),
    (CNAME, "CNAME"),
    (6, "SOA"),
    (11, "WKS"),
    (PTR, "PTR"),
    (13, "HINFO"),
    (MX, "MX"),
    (TXT, "TXT"),
    (17, "RP"),
    (18, "AFSDB"),
    (24, "SIG"),
    (25, "KEY"),
    (AAAA, "AAAA"),
    (29, "LOC"),
    (SRV, "SRV"),
    (35, "NAPTR"),
    (DNAME, "DNAME"),
    (OPT, "OPT"),
    (43, "DS"),
    (46, "RRSIG"),
    (47, "NSEC"),
    (48, "DNSKEY"),
    (50, "NSEC3"),
    (52, "TLSA"),
    (64, "SVCB"),
    (65, "HTTPS"),
    (250, "TSIG"),
    (251, "IXFR"),
    (252, "AXFR"),
    (255, "ANY"),
    (257, "CAA"),
];

/// Writes a message of `length` bytes, possibly truncated; returns false if it is not DNS. With `is_multicast`, classes
/// have the bit of multicast DNS.
pub(crate) fn write(text: &mut Text<'_>, message: &[u8], length: usize, is_multicast: bool) -> bool {
    let Some(head) = part::<HEADER>(message, 0) else { return false };
    let word = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    let (flags, questions, counts) = (word(2), word(4), [word(6), word(8), word(10)]);
    text.dec(word(0));
    let operation = usize::from(flags >> 11 & 15);
    match OPERATIONS.get(operation) {
        Some(name) => text.str(name),
        None => put!(text, " op{operation}"),
    }
    let mut reader = Reader { message, rest: message.get(HEADER..).unwrap_or_default(), is_multicast };
    let is_response = flags >> 15 == 1;
    let is_cut = if is_response {
        response(text, flags, questions, counts, &mut reader).is_none()
    } else {
        question(text, flags, questions, counts, &mut reader).is_none()
    };
    text.gap("");
    text.str(if is_cut { " [|domain] (" } else { " (" });
    text.dec(length as u64);
    text.str(")");
    true
}

fn question(text: &mut Text<'_>, flags: u16, questions: u16, counts: [u16; 3], reader: &mut Reader<'_>) -> Option<()> {
    text.str(if flags & 0x100 != 0 { "+" } else { "" });
    text.str(if flags & 0x10 != 0 { "%" } else { "" });
    let [answers, authorities, others] = counts;
    for (count, name) in [(answers, "a"), (questions, "q"), (authorities, "n"), (others, "au")] {
        if count != u16::from(name == "q") {
            put!(text, " [{count}{name}]");
        }
    }
    for place in 0..questions {
        if text.is_full() {
            return Some(());
        }
        text.str(if place > 0 { "," } else { "" });
        let name = *reader;
        reader.skip_name()?;
        let (kind, class) = (u16_at(reader.rest, 0)?, u16_at(reader.rest, 2)?);
        take(&mut reader.rest, 4)?;
        text.str(" ");
        kind_of(text, kind);
        if reader.is_multicast {
            text.str(if class & 0x8000 != 0 { " (QU)" } else { " (QM)" });
        }
        text.str("?");
        text.gap(" ");
        name.write_name(text)?;
    }
    Some(())
}

fn response(text: &mut Text<'_>, flags: u16, questions: u16, counts: [u16; 3], reader: &mut Reader<'_>) -> Option<()> {
    let result = usize::from(flags & 15);
    match RESULTS.get(result) {
        Some(name) => text.str(name),
        None => put!(text, " Resp{result}"),
    }
    text.str(if flags & 0x400 != 0 { "*" } else { "" });
    text.str(if flags & 0x80 != 0 { "" } else { "-" });
    text.str(if flags & 0x200 != 0 { "|" } else { "" });
    text.str(if flags & 0x20 != 0 { "$" } else { "" });
    if questions != 1 {
        put!(text, " [{questions}q]");
    }
    put!(text, " {}/{}/{}", counts[0], counts[1], counts[2]);
    for _ in 0..questions {
        reader.skip_name()?;
        take(&mut reader.rest, 4)?;
    }
    for place in 0..counts[0] {
        if text.is_full() {
            return Some(());
        }
        text.str(if place > 0 { "," } else { "" });
        answer(text, reader)?;
    }
    Some(())
}

fn answer(text: &mut Text<'_>, reader: &mut Reader<'_>) -> Option<()> {
    reader.skip_name()?;
    let (kind, class) = (u16_at(reader.rest, 0)?, u16_at(reader.rest, 2)?);
    let length = u16_at(reader.rest, 8)?;
    take(&mut reader.rest, 10)?;
    // Names in the data may point to earlier parts of the message.
    let data = Reader { rest: reader.rest, ..*reader };
    let own = take(&mut reader.rest, length.into())?;
    if reader.is_multicast && class & 0x8000 != 0 && kind != OPT {
        text.str(" (Cache flush)");
    }
    text.str(" ");
    kind_of(text, kind);
    match kind {
        A => {
            text.str(" ");
            text.ipv4(part(own, 0)?);
        }
        AAAA => {
            text.str(" ");
            text.ipv6(part(own, 0)?);
        }
        NS | CNAME | PTR | DNAME => {
            text.str(" ");
            data.write_name(text)?;
        }
        MX => {
            text.str(" ");
            data.behind(2)?.write_name(text)?;
            put!(text, " {}", u16_at(own, 0)?);
        }
        SRV => {
            text.str(" ");
            data.behind(6)?.write_name(text)?;
            put!(text, ":{} {} {}", u16_at(own, 4)?, u16_at(own, 0)?, u16_at(own, 2)?);
        }
        TXT => {
            let mut own = own;
            while let Some((length, rest)) = own.split_first().filter(|_| !text.is_full()) {
                own = rest;
                text.str(" \"");
                text.wire(take(&mut own, usize::from(*length))?, LONGEST_TEXT);
                text.str("\"");
            }
        }
        OPT => put!(text, " UDPsize={class}"),
        _ => {}
    }
    Some(())
}

fn kind_of(text: &mut Text<'_>, kind: u16) {
    match TYPES.binary_search_by_key(&kind, |row| row.0) {
        Ok(at) => text.str(TYPES[at].1),
        Err(_) => put!(text, "Type{kind}"),
    }
}

/// Position in a message.
#[derive(Clone, Copy)]
struct Reader<'a> {
    message: &'a [u8],
    rest: &'a [u8],
    is_multicast: bool,
}

impl Reader<'_> {
    fn behind(self, bytes: usize) -> Option<Self> {
        Some(Reader { rest: self.rest.get(bytes..)?, ..self })
    }

    /// Skips a name.
    fn skip_name(&mut self) -> Option<()> {
        loop {
            let length = *self.rest.first()?;
            take(&mut self.rest, 1)?;
            match length >> 6 {
                0 if length == 0 => return Some(()),
                0 => drop(take(&mut self.rest, usize::from(length))?),
                3 => return take(&mut self.rest, 1).map(drop),
                // Obsolete label types (RFC 2673).
                _ => return None,
            }
        }
    }

    /// Writes the name at this position. It terminates: each pointer must lead to an earlier offset, and a name is
    /// limited to 255 bytes.
    fn write_name(self, text: &mut Text<'_>) -> Option<()> {
        let (mut rest, mut written, mut pointers) = (self.rest, 0, 0);
        let mut front = self.message.len() - self.rest.len();
        loop {
            let length = *rest.first()?;
            match length >> 6 {
                0 if length == 0 => {
                    if written == 0 {
                        text.str(".");
                    }
                    return Some(());
                }
                0 => {
                    take(&mut rest, 1)?;
                    let label = take(&mut rest, usize::from(length))?;
                    written += label.len() + 1;
                    if written > LONGEST_NAME {
                        return None;
                    }
                    text.wire(label, label.len());
                    text.str(".");
                }
                3 => {
                    let place = usize::from(u16_at(rest, 0)? & 0x3fff);
                    pointers += 1;
                    if place >= front || pointers > MOST_POINTERS {
                        return None;
                    }
                    front = place;
                    rest = self.message.get(place..)?;
                }
                _ => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(message: &[u8], at: usize) -> Option<String> {
        let mut out = Vec::new();
        let reader = Reader { message, rest: &message[at..], is_multicast: false };
        reader.write_name(&mut Text::new(&mut out))?;
        Some(String::from_utf8(out).unwrap())
    }

    #[test]
    fn names_follow_pointers_to_the_front_and_end() {
        let message = b"\x03com\x00\x04a\x1bb.\xc0\x00\xc0\x05\xc0\x0e\xc0\x10\x00";
        assert_eq!(name(message, 0).unwrap(), "com.");
        assert_eq!(name(message, 5).unwrap(), "a\\x1bb..com.");
        assert_eq!(name(message, 12).unwrap(), "a\\x1bb..com.");
        assert_eq!(name(message, 14), None, "points to itself");
        assert_eq!(name(message, 18).unwrap(), ".");
        let long: Vec<u8> = [[63; 64].repeat(5).as_slice(), &[0]].concat();
        assert_eq!(name(&long, 0), None, "names have 255 bytes");
        let back: Vec<u8> = (0..2000u16).flat_map(|at| (0xc000 | (at.saturating_sub(1) * 2)).to_be_bytes()).collect();
        assert_eq!(name(&back, 3998), None);
    }

    #[test]
    fn types_ascend() {
        assert!(TYPES.is_sorted_by_key(|row| row.0));
    }
}
