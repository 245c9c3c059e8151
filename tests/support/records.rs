//! Simple reader and writer of classic pcap, so that tests do not check our reader with itself.

/// Frame of a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Nanoseconds since 1970.
    pub time: u64,
    /// Length on the wire.
    pub wire: u32,
    /// Captured bytes.
    pub bytes: Vec<u8>,
}

impl Record {
    /// Returns the wire length and the captured bytes, without the time.
    pub fn content(&self) -> (u32, &[u8]) {
        (self.wire, &self.bytes)
    }
}

const NANOSECONDS: u32 = 0xa1b2_3c4d;
const MICROSECONDS: u32 = 0xa1b2_c3d4;
const FILE_HEADER: usize = 24;
const RECORD_HEADER: usize = 16;

/// Returns the frames of a little-endian pcap file; of a truncated file, the complete frames.
///
/// # Panics
/// If it is not such a file.
pub fn read(path: &str) -> Vec<Record> {
    parse(&std::fs::read(path).unwrap_or_else(|error| panic!("{path}: {error}")))
}

/// Returns the frames of a little-endian pcap file in memory.
///
/// # Panics
/// If it is not such a file.
pub fn parse(file: &[u8]) -> Vec<Record> {
    let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
    let unit = match word(0) {
        NANOSECONDS => 1,
        MICROSECONDS => 1000,
        other => panic!("{other:#x} is not the magic number of a pcap file"),
    };
    let (mut at, mut records) = (FILE_HEADER, Vec::new());
    while at + RECORD_HEADER <= file.len() {
        let (from, to) = (at + RECORD_HEADER, at + RECORD_HEADER + word(at + 8) as usize);
        let Some(bytes) = file.get(from..to) else { break };
        let time = u64::from(word(at)) * 1_000_000_000 + u64::from(word(at + 4)) * unit;
        records.push(Record { time, wire: word(at + 12), bytes: bytes.to_vec() });
        at = to;
    }
    records
}

/// Writes frames as a nanosecond pcap file of Ethernet.
///
/// # Panics
/// If it cannot be written.
pub fn write(path: &str, records: &[Record]) {
    let file = [header(), body(records)].concat();
    std::fs::write(path, file).unwrap_or_else(|error| panic!("{path}: {error}"));
}

/// Returns the header of a nanosecond pcap file of Ethernet.
pub fn header() -> Vec<u8> {
    [NANOSECONDS, 4 << 16 | 2, 0, 0, 262_144, 1].map(u32::to_le_bytes).concat()
}

/// Returns the records after the header of such a file.
pub fn body(records: &[Record]) -> Vec<u8> {
    let mut body = Vec::new();
    for Record { time, wire, bytes } in records {
        for word in [(time / 1_000_000_000) as u32, (time % 1_000_000_000) as u32, bytes.len() as u32, *wire] {
            body.extend(word.to_le_bytes());
        }
        body.extend(bytes);
    }
    body
}

/// Returns the size of a pcap file of these frames.
pub fn file_size(records: &[Record]) -> u64 {
    records.iter().map(|record| RECORD_HEADER + record.bytes.len()).sum::<usize>() as u64 + FILE_HEADER as u64
}

/// Checks that both have the same frames in the same order, ignoring times; prints only the first difference.
///
/// # Panics
/// If they do not.
pub fn assert_same_frames(what: &str, got: &[Record], wanted: &[Record]) {
    let differs = got.iter().zip(wanted).position(|(got, wanted)| got.content() != wanted.content());
    if let Some(at) = differs {
        panic!("{what}: frame {at} differs\n got {:02x?}\n not {:02x?}", got[at].content(), wanted[at].content());
    }
    assert_eq!(got.len(), wanted.len(), "{what}: the number of frames");
}

/// Checks that no time is before the previous one.
///
/// # Panics
/// If times go backwards.
pub fn assert_times_never_go_back(records: &[Record]) {
    let back = records.windows(2).position(|pair| pair[1].time < pair[0].time);
    assert_eq!(back, None, "times go backwards after this frame");
}
