//! Check of the uncompressed sizes of a column's pages, before any is decompressed: a few bytes of zstd can expand to
//! gigabytes.
//!
//! A page begins with a header in Thrift's compact protocol (parquet.thrift, `PageHeader`): field 2 is its uncompressed
//! size, 3 the compressed one.

use crate::positioned_read::Pieces;
use parquet::file::reader::Length;

/// Maximum uncompressed bytes of a page: ours have 1 MiB, and a dictionary not much more.
const MOST: u64 = 256 << 20;
/// Usual bytes of a header, and the maximum.
const USUAL: u64 = 512;
const HEADER: u64 = 1 << 14;
/// Maximum nesting of structures.
const DEEPEST: usize = 8;

/// Checks the headers of the pages of a column, of `length` bytes from `start` on.
pub(crate) fn check(file: &Pieces, start: i64, length: i64) -> Result<(), String> {
    let range = u64::try_from(start).ok().zip(u64::try_from(length).ok());
    let (start, end) = range
        .and_then(|(start, length)| Some((start, start.checked_add(length)?)))
        .filter(|(_, end)| *end <= file.len())
        .ok_or("a column lies beyond the end of the file")?;
    let mut at = start;
    while at < end {
        let header = |most: u64| -> Result<_, String> {
            let bytes = file.piece(at, most.min(end - at) as usize).map_err(|error| error.to_string())?;
            let mut header = Compact { bytes: &bytes, at: 0 };
            Ok(header.page().map(|sizes| (sizes, header.at as u64)))
        };
        let found = match header(USUAL)? {
            None => header(HEADER)?,
            found => found,
        };
        let ([unpacked, packed], length) = found.ok_or("damaged page header")?;
        if unpacked > MOST {
            return Err(format!("page too large: {unpacked} bytes uncompressed"));
        }
        at = at.saturating_add(length).saturating_add(packed);
    }
    Ok(())
}

/// Reader of Thrift's compact protocol.
struct Compact<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Compact<'_> {
    /// Returns the two sizes of a page.
    fn page(&mut self) -> Option<[u64; 2]> {
        let (mut sizes, mut last) = ([None; 2], 0);
        loop {
            let (number, kind) = self.field(&mut last)?;
            match (number, kind) {
                (_, 0) => return Some([sizes[0]?, sizes[1]?]),
                (2 | 3, 5) => sizes[number as usize - 2] = Some(u64::try_from(self.signed()?).ok()?),
                (_, kind) => self.skip(kind, 0)?,
            }
        }
    }

    fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    fn signed(&mut self) -> Option<i64> {
        let number = self.varint()?;
        Some((number >> 1) as i64 ^ -((number & 1) as i64))
    }

    /// Returns the number of a field and its kind; 0 at the end.
    fn field(&mut self, last: &mut i64) -> Option<(i64, u8)> {
        let byte = self.byte()?;
        let kind = byte & 15;
        if kind != 0 {
            *last = match byte >> 4 {
                0 => self.signed()?,
                step => last.checked_add(step.into())?,
            };
        }
        Some((*last, kind))
    }

    fn skip(&mut self, kind: u8, depth: usize) -> Option<()> {
        match kind {
            1 | 2 => {}
            3 => drop(self.byte()?),
            4..=6 => drop(self.varint()?),
            7 => self.at = self.at.checked_add(8)?,
            8 => self.at = usize::try_from(self.varint()?).ok().and_then(|length| self.at.checked_add(length))?,
            12 if depth < DEEPEST => {
                let mut last = 0;
                loop {
                    match self.field(&mut last)? {
                        (_, 0) => break,
                        (_, kind) => self.skip(kind, depth + 1)?,
                    }
                }
            }
            // Page headers have no lists or maps.
            _ => return None,
        }
        (self.at <= self.bytes.len()).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::sync::Arc;

    fn checked(bytes: &[u8], start: i64, length: i64) -> Result<(), String> {
        let path = std::env::temp_dir().join(format!("linerate-pages-{}-{start}-{length}", std::process::id()));
        let mut file = std::fs::File::create(&path).unwrap();
        file.write_all(bytes).unwrap();
        let found = check(&Pieces::of(std::fs::File::open(&path).unwrap(), &Arc::default()).unwrap(), start, length);
        std::fs::remove_file(&path).unwrap();
        found
    }

    fn varint(mut number: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        while number >= 0x80 {
            bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        bytes.push(number as u8);
        bytes
    }

    /// A data page: type, both sizes, a structure that includes a text; then its bytes.
    fn page(unpacked: u64, bytes: &[u8]) -> Vec<u8> {
        let sizes = [unpacked, bytes.len() as u64].map(|size| [vec![0x15], varint(2 * size)].concat());
        [&[0x15, 0][..], &sizes[0], &sizes[1], &[0x2c, 0x15, 2, 0x18, 3, b'a', b'b', b'c', 0, 0], bytes].concat()
    }

    #[test]
    fn pages_with_excessive_sizes_are_detected() {
        let small: Vec<u8> = (0..9000).flat_map(|_| page(500, b"twelve bytes")).collect();
        let large = page(MOST, &[0; 100_000]);
        let bomb = page(MOST + 1, b"little");
        let column = |pages: &[&[u8]]| pages.concat();
        for (bytes, is_good) in [
            (column(&[&small, &large, &small]), true),
            (column(&[&bomb]), false),
            (column(&[&small, &large, &bomb]), false),
            (column(&[&large, &small, &bomb, &small]), false),
            (column(&[&small[..small.len() - 1], &[1]]), true),
            (vec![0xff; 40], false),
            (column(&[&small, &[0x15, 0, 0x15]]), false),
        ] {
            let found = checked(&bytes, 0, bytes.len() as i64);
            assert_eq!(found.is_ok(), is_good, "{found:?}");
        }
        assert!(checked(&small, 0, small.len() as i64 + 1).is_err());
        assert!(checked(&small, -1, 5).is_err() && checked(&small, 5, -1).is_err());
        let deep = [&[0x15, 0][..], &[0x1c; 5000]].concat();
        assert!(checked(&deep, 0, deep.len() as i64).is_err());
    }
}
