//! DNS messages (RFC 1035, 4).

mod types;

pub use self::types::{rcode_name, type_name};

use crate::ParseResult;
use crate::cursor::{Cursor, count};
use crate::stream::Stream;
use crate::value::MOST_TEXT;
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// First question of a message, and its answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// Identifies a question and its answer.
    pub id: u16,
    /// True for an answer.
    pub is_answer: bool,
    /// Name of the first question, as in [`Dns::name`](crate::value::Dns::name); `None` without questions.
    pub name: Option<Box<str>>,
    /// Its type.
    pub kind: u16,
    /// Response code, four bits.
    pub rcode: u8,
    /// Number of answers, according to the header.
    pub answers: u16,
    /// Addresses of an answer, as in [`Dns::addresses`](crate::value::Dns::addresses).
    pub addresses: Option<Box<str>>,
}

/// Length of a message header.
const HEADER: usize = 12;
/// Maximum length of a name, and maximum number of its labels (RFC 1035, 2.3.4).
const MOST_NAME: usize = 255;
/// Capacity sufficient for most names.
const USUAL_NAME: usize = 64;
const MOST_LABELS: usize = 127;
/// Maximum number of pointers in a name: one per label is more than any sender needs.
const MOST_POINTERS: usize = 127;
/// Bytes of names read per byte of a message. Answers repeat long names by pointers of two bytes: the longest name
/// (255 bytes) as the owner of records of 16 bytes needs 16.
const READ_PER_BYTE: usize = 16;

impl Message {
    /// Parses a datagram, or a message in a stream; `None` if it is invalid or of an unknown kind.
    pub fn parse(bytes: &[u8]) -> Option<Message> {
        let (mut message, end) = Message::head(bytes)?;
        if let Some((addresses, _)) = addresses(bytes, &message, end) {
            message.addresses = listed(&addresses);
        }
        Some(message)
    }

    /// Returns the end of the first message in a stream, limited to the bytes kept; `None` without a length.
    pub(crate) fn end_in_stream(stream: &[u8]) -> Option<usize> {
        Cursor(stream).u16().map(|length| (2 + usize::from(length)).min(Stream::MOST))
    }

    /// Parses a message without its answers. Also returns the offset of these.
    fn head(bytes: &[u8]) -> Option<(Message, usize)> {
        let mut rest = Cursor(bytes);
        let (id, flags, questions, answers) = (rest.u16()?, rest.u16()?, rest.u16()?, rest.u16()?);
        let operation = flags >> 11 & 15;
        // Query, inverse query, status, notify, update, stateful operations.
        if !matches!(operation, 0..=2 | 4..=6) || bytes.len() < HEADER {
            return None;
        }
        let is_answer = flags >> 15 == 1;
        let mut message = Message { id, is_answer, rcode: (flags & 15) as u8, answers, ..Message::default() };
        let mut end = HEADER;
        if questions > 0 {
            let (name, begin) = Names::of(bytes).read(HEADER)?;
            let mut rest = Cursor(bytes.get(begin..)?);
            message.name = Some(name);
            message.kind = rest.u16()?;
            // Class.
            rest.u16()?;
            end = begin + 4;
        }
        Some((message, end))
    }

    /// Parses a message in a TCP stream: a length, and a message (RFC 1035, 4.2.2).
    pub(crate) fn in_stream(stream: &[u8]) -> ParseResult<Message> {
        let mut rest = Cursor(stream);
        let Some(length) = rest.u16() else { return ParseResult::More };
        if usize::from(length) < HEADER {
            return ParseResult::Never;
        }
        // A question is complete with the first one; the header and the longest name fit any buffer.
        let message = rest.0.get(..rest.0.len().min(length.into())).and_then(Message::parse);
        match message {
            Some(message) if message.may_have_addresses() && rest.0.len() < length.into() => ParseResult::Part(message),
            Some(message) => ParseResult::Done(message),
            None if rest.0.len() < usize::from(length).min(HEADER + MOST_NAME + 1 + 4) => ParseResult::More,
            None => ParseResult::Never,
        }
    }
}

impl Message {
    /// Returns whether it may have addresses.
    fn may_have_addresses(&self) -> bool {
        self.is_answer && self.rcode == 0 && self.answers > 0 && matches!(self.kind, A | AAAA)
    }
}

/// Addresses that a client has resolved for a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// Requested name, whatever aliases it led to.
    pub name: Box<str>,
    /// Addresses.
    pub addresses: Vec<IpAddr>,
    /// TTL in seconds: the minimum of all records that led to them.
    pub seconds: u32,
}

/// Maximum number of answers examined.
const MOST_ANSWERS: usize = 64;
/// Numbers of types, and of the Internet class.
const A: u16 = 1;
const CNAME: u16 = 5;
const AAAA: u16 = 28;
const INTERNET: u16 = 1;

impl Addresses {
    /// Parses a datagram that answers a question for addresses: returns those of the name itself, or of its aliases
    /// (RFC 1034, 3.6.2), in the order of the answers. Records of other names are ignored.
    pub fn parse(bytes: &[u8]) -> Option<Addresses> {
        let (message, end) = Message::head(bytes)?;
        let (addresses, seconds) = addresses(bytes, &message, end)?;
        Some(Addresses { name: message.name?, addresses, seconds })
    }
}

/// Returns the addresses of a message, and their TTL in seconds; its answers start at `at`.
fn addresses(bytes: &[u8], message: &Message, mut at: usize) -> Option<(Vec<IpAddr>, u32)> {
    let operation = bytes.get(2)? >> 3 & 15;
    if !message.may_have_addresses() || operation != 0 {
        return None;
    }
    let (mut wanted, mut names) = (message.name.clone()?, Names::of(bytes));
    let (mut found, mut seconds) = (Vec::new(), u32::MAX);
    for _ in 0..usize::from(message.answers).min(MOST_ANSWERS) {
        // Answers before a truncation remain valid.
        let Some((owner, end)) = names.read(at) else { break };
        let Some(record) = bytes.get(end..).and_then(Record::parse) else { break };
        at = end + Record::HEAD + record.data.len();
        if record.class != INTERNET || !owner.eq_ignore_ascii_case(&wanted) {
            continue;
        }
        let address = match record.kind {
            CNAME => {
                let Some((target, _)) = names.read(end + Record::HEAD) else { break };
                wanted = target;
                None
            }
            A => record.data.first_chunk().map(|bytes: &[u8; 4]| IpAddr::V4(Ipv4Addr::from(*bytes))),
            AAAA => record.data.first_chunk().map(|bytes: &[u8; 16]| IpAddr::V6(Ipv6Addr::from(*bytes))),
            _ => continue,
        };
        seconds = seconds.min(record.seconds);
        found.extend(address);
    }
    (!found.is_empty()).then_some((found, seconds))
}

/// Joins addresses with commas, as many as a text may have; `None` without any.
fn listed(addresses: &[IpAddr]) -> Option<Box<str>> {
    let mut text = String::new();
    for address in addresses {
        let before = text.len();
        // Writing to memory cannot fail.
        let _ = write!(text, "{}{address}", if before > 0 { "," } else { "" });
        if text.len() > MOST_TEXT {
            text.truncate(before);
            break;
        }
    }
    (!text.is_empty()).then(|| text.into_boxed_str())
}

/// A record after its owner's name (RFC 1035, 4.1.3).
struct Record<'a> {
    kind: u16,
    class: u16,
    seconds: u32,
    data: &'a [u8],
}

impl Record<'_> {
    /// Length of the fields before its data.
    const HEAD: usize = 10;

    fn parse(bytes: &[u8]) -> Option<Record<'_>> {
        let mut rest = Cursor(bytes);
        let (kind, class, high, low) = (rest.u16()?, rest.u16()?, rest.u16()?, rest.u16()?);
        let length = rest.u16()?;
        let data = rest.0.get(..length.into())?;
        Some(Record { kind, class, seconds: u32::from(high) << 16 | u32::from(low), data })
    }
}

/// Names of a message. Reading them is limited per name and in total.
struct Names<'a> {
    message: &'a [u8],
    /// Bytes that may still be read.
    budget: usize,
}

impl<'a> Names<'a> {
    fn of(message: &'a [u8]) -> Self {
        Names { message, budget: message.len().saturating_mul(READ_PER_BYTE) }
    }

    /// Reads the name at `begin`. Returns it and its end. The first pointer must lead to bytes before the name, each
    /// further one to bytes before the last target: so loops are impossible.
    fn read(&mut self, begin: usize) -> Option<(Box<str>, usize)> {
        let (mut text, mut place, mut end, mut before) = (String::with_capacity(USUAL_NAME), begin, None, begin);
        let (mut labels, mut bytes, mut pointers) = (0, 1, 0);
        loop {
            let length = *self.message.get(place)?;
            match length {
                0 => break,
                1..=63 => {
                    let label = self.take(place, 1 + usize::from(length))?.get(1..)?;
                    (labels, bytes) = (labels + 1, bytes + 1 + label.len());
                    if labels > MOST_LABELS || bytes > MOST_NAME {
                        return None;
                    }
                    if labels > 1 {
                        text.push('.');
                    }
                    match str::from_utf8(label) {
                        Ok(plain) if label.iter().all(|byte| is_plain(*byte)) => text.push_str(plain),
                        _ => label.iter().for_each(|byte| push(&mut text, *byte)),
                    }
                    place += 1 + label.len();
                }
                0xc0.. => {
                    let target = Cursor(self.take(place, 2)?).u16().map(|word| usize::from(word & 0x3fff))?;
                    end.get_or_insert(place + 2);
                    pointers += 1;
                    if target < HEADER || target >= before || pointers > MOST_POINTERS {
                        return None;
                    }
                    (place, before) = (target, target);
                }
                _ => return None,
            }
        }
        if labels == 0 {
            text.push('.');
        }
        Some((text.into_boxed_str(), end.unwrap_or(place + 1)))
    }

    /// Returns bytes at an offset, charged to the budget.
    fn take(&mut self, place: usize, length: usize) -> Option<&'a [u8]> {
        self.budget = self.budget.checked_sub(length)?;
        count(length);
        self.message.get(place..place + length)
    }
}

fn is_plain(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~') && !matches!(byte, b'.' | b'\\')
}

/// Appends a byte, escaped as in RFC 1035, 5.1.
fn push(text: &mut String, byte: u8) {
    match byte {
        b'.' | b'\\' => text.extend(['\\', char::from(byte)]),
        byte if is_plain(byte) => text.push(char::from(byte)),
        _ => {
            // Writing to memory cannot fail.
            let _ = write!(text, "\\{byte:03}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(message: &[u8], begin: usize) -> Option<(Box<str>, usize)> {
        Names::of(message).read(begin)
    }

    /// Returns a header with a question, then bytes.
    fn message(question: &[u8]) -> Vec<u8> {
        [&[0x12, 0x34, 0x81, 0x83, 0, 1, 0, 2, 0, 0, 0, 0][..], question].concat()
    }

    #[test]
    fn first_question_and_header_are_parsed() {
        let bytes = message(b"\x03www\x07exa.ple\x00\x00\x1c\x00\x01");
        let found = Message::parse(&bytes).unwrap();
        assert_eq!((found.id, found.is_answer, found.rcode, found.answers, found.kind), (0x1234, true, 3, 2, 28));
        assert_eq!(found.name.as_deref(), Some("www.exa\\.ple"));
        (0..bytes.len()).for_each(|length| assert_eq!(Message::parse(&bytes[..length]), None, "{length}"));
        let root = Message::parse(&message(b"\x00\x00\x02\x00\x01")).unwrap();
        assert_eq!(root.name.as_deref(), Some("."));
        assert_eq!((root.addresses, found.addresses), (None, None));
        let bytes = Message::parse(&message(b"\x04a \xff\\\x00\x00\x02\x00\x01")).unwrap();
        assert_eq!(bytes.name.as_deref(), Some("a\\032\\255\\\\"));
    }

    #[test]
    fn pointers_lead_backwards_without_loops() {
        // The name is in the header, or points to itself.
        for question in
            [&b"\xc0\x0c\x00\x01\x00\x01"[..], b"\xc0\x00\x00\x01\x00\x01", b"\x01a\xc0\x0c\x00\x01\x00\x01"]
        {
            assert_eq!(Message::parse(&message(question)), None, "{question:x?}");
        }
        // From the end: to a name, to a pointer to itself, to a later pointer.
        let bytes = message(b"\x01a\x01b\x00\x01c\xc0\x0e\xc0\x13\xc0\x17");
        assert_eq!(name(&bytes, 17), Some(("c.b".into(), 21)));
        assert_eq!(name(&bytes, 21), Some(("b".into(), 23)), "by two pointers");
        assert_eq!(name(&bytes, 23), None, "to itself");
    }

    #[test]
    fn names_end_within_their_bounds() {
        let labels = |count: usize, length: u8| {
            let label = [&[length][..], &vec![b'x'; length.into()]].concat();
            message(&[label.repeat(count), vec![0, 0, 1, 0, 1]].concat())
        };
        assert!(Message::parse(&labels(127, 1)).is_some() && Message::parse(&labels(128, 1)).is_none());
        assert!(Message::parse(&labels(3, 63)).is_some() && Message::parse(&labels(4, 63)).is_none());
        assert!(Message::parse(&labels(1, 64)).is_none(), "a label of a form that is not used");
    }

    /// Returns a record whose owner is a pointer to an offset of the message.
    fn record(owner: u8, kind: u16, seconds: u32, data: &[u8]) -> Vec<u8> {
        let head = [&[0xc0, owner][..], &kind.to_be_bytes(), &[0, 1], &seconds.to_be_bytes()].concat();
        [&head[..], &(data.len() as u16).to_be_bytes(), data].concat()
    }

    #[test]
    fn addresses_of_a_name_and_its_aliases_are_found() {
        let answer = |records: &[Vec<u8>]| {
            let mut bytes = message(b"\x03WWW\x01a\x00\x00\x01\x00\x01");
            (bytes[3], bytes[7]) = (0x80, records.len() as u8);
            bytes.extend(records.concat());
            bytes
        };
        let found = |name: &str, addresses: &[[u8; 4]], seconds| {
            let addresses = addresses.iter().map(|one| IpAddr::from(*one)).collect();
            Some(Addresses { name: name.into(), addresses, seconds })
        };
        // 12: the question's name; 35: the first record's data.
        let alias = record(12, CNAME, 300, b"\x03cdn\xc0\x10");
        let target = 23 + 12;
        let two =
            answer(&[alias.clone(), record(target, A, 60, &[192, 0, 2, 1]), record(target, A, 90, &[192, 0, 2, 2])]);
        assert_eq!(Addresses::parse(&two), found("WWW.a", &[[192, 0, 2, 1], [192, 0, 2, 2]], 60));
        // Of another name, of no address, of the name itself after its alias.
        assert_eq!(Addresses::parse(&answer(&[record(16, A, 60, &[192, 0, 2, 1])])), None);
        assert_eq!(Addresses::parse(&answer(std::slice::from_ref(&alias))), None);
        assert_eq!(Addresses::parse(&answer(&[alias, record(12, A, 60, &[192, 0, 2, 1])])), None);
        let short = answer(&[record(12, A, 5, &[1, 2, 3, 4]), record(12, A, 5, &[1, 2, 3])]);
        assert_eq!(Addresses::parse(&short), found("WWW.a", &[[1, 2, 3, 4]], 5));
        // Truncated after the first address, one is found.
        (0..two.len()).for_each(|length| {
            let addresses = Addresses::parse(&two[..length]).map_or(0, |found| found.addresses.len());
            assert_eq!(addresses, usize::from(length >= two.len() - 16), "{length}");
        });
        assert_eq!(Message::parse(&two).unwrap().addresses.as_deref(), Some("192.0.2.1,192.0.2.2"));
        // Over TCP: the part received, and everything once complete.
        let stream = [&(two.len() as u16).to_be_bytes()[..], &two].concat();
        let read = |length: usize| Message::in_stream(&stream[..length]);
        let cut = read(stream.len() - 1);
        assert!(matches!(&cut, ParseResult::Part(some) if some.addresses.as_deref() == Some("192.0.2.1")), "{cut:?}");
        let all = read(stream.len());
        assert!(matches!(&all, ParseResult::Done(all) if all.addresses.as_deref() == Some("192.0.2.1,192.0.2.2")));
        let mut question = two.clone();
        question[2] &= 0x7f;
        assert_eq!(Addresses::parse(&question), None);
    }

    #[test]
    fn address_list_is_truncated_at_whole_addresses() {
        let one: IpAddr = "2001:db8:1111:1111:1111:1111:1111:1111".parse().unwrap();
        let text = listed(&[one; 64]).unwrap();
        assert_eq!((text.len(), text.split(',').count()), (6 * 38 + 5, 6));
        assert!(text.split(',').all(|read| read.parse() == Ok(one)));
        let most = listed(&[IpAddr::from([255; 4]); 64]).unwrap();
        assert_eq!((most.len(), most.split(',').count()), (MOST_TEXT, 16));
        assert_eq!(listed(&[]), None);
    }
}
