use super::*;
use crate::pcap::file_header;
use linerate_burst::{LinkType, MAX_FRAME};

fn open(bytes: &[u8]) -> Result<Reader, ReadError> {
    Reader::new(Box::new(io::Cursor::new(bytes.to_vec())), "x.pcap")
}

fn record(captured: u32, there: usize) -> Vec<u8> {
    let words = [1u32, 2, captured, captured];
    words.iter().flat_map(|word| word.to_ne_bytes()).chain(vec![7; there]).collect()
}

fn refusal(bytes: &[u8]) -> String {
    open(bytes).err().expect("an error").to_string()
}

/// Reads to the end; returns the number of frames, and the error.
fn drain(mut reader: Reader) -> (usize, Option<String>) {
    let mut frames = 0;
    loop {
        match reader.fill().map(|burst| burst.len()) {
            Ok(0) => return (frames, None),
            Ok(shown) => {
                frames += 1;
                reader.consume(1.min(shown));
            }
            Err(error) => {
                assert!(reader.ended() && reader.fill().unwrap().is_empty(), "reported once, then ended");
                return (frames, Some(error.to_string()));
            }
        }
    }
}

#[test]
fn other_formats_are_named_in_the_error() {
    assert!(refusal(b"").contains("it is empty"));
    assert!(refusal(b"abc").contains("it has 3 bytes"));
    assert!(refusal(b"GIF89a").contains("it begins with GIF8;"));
    assert!(refusal(b"PAR1\x15\x04").contains("it begins with PAR1, as Parquet does"));
    assert!(refusal(b"\xfd7zXZ\0").contains("(xz -dc x.pcap | linerate ... -r -)"));
    assert!(refusal(b"BZh91AY").contains("bzip2 -dc"));
    assert!(refusal(&file_header(LinkType::RAW, 0)[..23]).contains("(23 of 24 bytes present)"));
}

#[test]
fn frames_before_a_truncation_are_returned_first() {
    let mut bytes = file_header(LinkType::ETHERNET, 0).to_vec();
    bytes.extend([record(60, 60), record(0, 0), record(60, 18)].concat());
    let message = "x.pcap: cut off in the middle of the record at byte 116 (34 of 76 bytes present); \
                   2 packets before it";
    assert_eq!(drain(open(&bytes).unwrap()), (2, Some(message.into())));
    bytes.truncate(116);
    assert_eq!(drain(open(&bytes).unwrap()), (2, None));
}

#[test]
fn hostile_length_is_reported_with_its_offset() {
    let mut bytes = file_header(LinkType::ETHERNET, 0).to_vec();
    bytes.extend([record(60, 60), record(u32::MAX, 1000)].concat());
    let message = "x.pcap: damaged at byte 100: packet length 4294967295 exceeds the maximum of 262144 bytes; \
                   1 packet before it";
    assert_eq!(drain(open(&bytes).unwrap()), (1, Some(message.into())));
}

#[test]
fn longest_frame_is_accepted() {
    let mut bytes = file_header(LinkType::ETHERNET, 0).to_vec();
    for _ in 0..5 {
        bytes.extend(record(MAX_FRAME as u32, MAX_FRAME));
    }
    assert_eq!(drain(open(&bytes).unwrap()), (5, None));
}

#[test]
fn blocking_source_is_read_again() {
    struct Hesitant(Vec<u8>, bool);
    impl Read for Hesitant {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            self.1 = !self.1;
            if !self.1 || self.0.is_empty() {
                return if self.0.is_empty() { Ok(0) } else { Err(io::ErrorKind::WouldBlock.into()) };
            }
            let count = self.0.len().min(30).min(to.len());
            to[..count].copy_from_slice(&self.0[..count]);
            self.0.drain(..count);
            Ok(count)
        }
    }
    let mut bytes = file_header(LinkType::ETHERNET, 0).to_vec();
    bytes.extend([record(60, 60), record(60, 60)].concat());
    let mut reader = Reader::new(Box::new(Hesitant(bytes, false)), "slow").unwrap();
    let (mut frames, mut blocked) = (0, 0);
    while !reader.ended() {
        match reader.fill().map(|burst| burst.len()) {
            Ok(shown) => {
                frames += shown;
                reader.consume(shown);
            }
            Err(ReadError::Io { reason, .. }) if reason.kind() == io::ErrorKind::WouldBlock => blocked += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(frames, 2);
    assert!(blocked > 3);
}
