//! Files wrapped as gzip and as zstd without compression.

/// RFC 1952, with stored blocks (RFC 1951, section 3.2.4).
pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut file = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
    let mut blocks = bytes.chunks(0xffff).peekable();
    while let Some(block) = blocks.next() {
        let length = block.len() as u16;
        file.push(u8::from(blocks.peek().is_none()));
        file.extend([length.to_le_bytes(), (!length).to_le_bytes()].concat());
        file.extend(block);
    }
    if bytes.is_empty() {
        file.extend([1, 0, 0, 0xff, 0xff]);
    }
    file.extend(crc(bytes).to_le_bytes());
    file.extend((bytes.len() as u32).to_le_bytes());
    file
}

/// RFC 8878, section 3.1.1, with raw blocks and a window of 128 KiB; blocks hold under a third of their maximum.
pub(crate) fn zstd(bytes: &[u8]) -> Vec<u8> {
    let mut file = vec![0x28, 0xb5, 0x2f, 0xfd, 0, 7 << 3];
    let mut blocks = bytes.chunks(40_000).peekable();
    while let Some(block) = blocks.next() {
        let header = (block.len() as u32) << 3 | u32::from(blocks.peek().is_none());
        file.extend(&header.to_le_bytes()[..3]);
        file.extend(block);
    }
    if bytes.is_empty() {
        file.extend([1, 0, 0]);
    }
    file
}

fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| crc >> 1 ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 })
    })
}
