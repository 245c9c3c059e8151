//! Recognises a file by its first bytes.

use super::Format;
use crate::compression::Compression;
use crate::error::{Fault, ReadError};
use crate::origin::Origin;
use crate::pcap::{FILE_HEADER, FileHeader};
use crate::pcapng::{SECTION_HEADER, Section};
use linerate_burst::{Interface, StampSource};
use std::sync::Arc;

/// Magics of compressed files that are not supported, with the program that decompresses them.
const COMPRESSED: [(&[u8], &str); 2] = [(b"\xfd7zXZ", "xz"), (b"BZh", "bzip2")];

/// Returns the format of a file by its first bytes, and the length of the header consumed.
pub(super) fn recognise(bytes: &[u8], name: &str) -> Result<(Format, u64), ReadError> {
    let name = name.to_owned();
    if let Some((_, tool)) = COMPRESSED.iter().find(|(magic, _)| bytes.starts_with(magic)) {
        return Err(ReadError::Compressed { name, tool });
    }
    // Content that was compressed once is decompressed at this point.
    if let Some(again) = Compression::of_magic(bytes) {
        let found = format!("it is compressed twice; decompress it once first ({} -dc)", again.name());
        return Err(ReadError::NotACapture { name, found });
    }
    let Some(magic) = bytes.first_chunk::<4>() else {
        let found = if bytes.is_empty() { "it is empty".into() } else { format!("it has {} bytes", bytes.len()) };
        return Err(ReadError::NotACapture { name, found });
    };
    if *magic == SECTION_HEADER.to_ne_bytes() {
        return Ok((Format::Pcapng(Section::new()), 0));
    }
    if !FileHeader::is_magic(*magic) {
        let known = if *magic == *b"PAR1" { ", as Parquet does" } else { "" };
        let found = format!("it begins with {}{known}", magic.escape_ascii());
        return Err(ReadError::NotACapture { name, found });
    }
    let Some(header) = bytes.first_chunk::<FILE_HEADER>() else {
        let (needed, present) = (FILE_HEADER as u64, bytes.len() as u64);
        return Err(ReadError::CutOff { name, offset: 0, needed, present, frames: 0 });
    };
    match FileHeader::parse(header) {
        Ok(header) => {
            let mut interface = Interface::new("", header.link, StampSource::File);
            interface.snap = header.snap;
            if header.fcs > 0 {
                interface.origin = Some(Arc::new(Origin::of_fcs(header.fcs)));
            }
            Ok((Format::Pcap(header, [interface]), FILE_HEADER as u64))
        }
        Err(Fault::Unsupported(what)) => Err(ReadError::Unsupported { name, offset: 0, what, frames: 0 }),
        Err(Fault::Damaged(what)) => Err(ReadError::Damaged { name, offset: 0, what, frames: 0 }),
    }
}
