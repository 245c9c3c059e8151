//! Dump of the bytes of a frame, in lines after its own.

/// Dump format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bytes {
    /// True for hexadecimal digits.
    pub hex: bool,
    /// True for characters.
    pub ascii: bool,
    /// True to include the link header.
    pub link: bool,
}

/// Bytes per line of digits.
const ROW: usize = 16;
/// Characters per line of characters.
const COLUMNS: usize = 128;
const DIGITS: &[u8; 16] = b"0123456789abcdef";

impl Bytes {
    pub(crate) fn is_wanted(self) -> bool {
        self.hex || self.ascii
    }

    /// Appends the lines to `out`; each starts with a tab, so that it differs from the line of a frame.
    pub(crate) fn write(self, bytes: &[u8], out: &mut Vec<u8>) {
        if self.hex {
            bytes.chunks(ROW).enumerate().for_each(|(row, bytes)| digits(row * ROW, bytes, self.ascii, out));
        } else {
            characters(bytes, out);
        }
    }
}

/// Writes an offset, bytes in pairs, and their characters.
fn digits(place: usize, bytes: &[u8], with_characters: bool, out: &mut Vec<u8>) {
    out.extend_from_slice(b"\t0x");
    let digits = if place > 0xffff { 8 } else { 4 };
    out.extend((0..digits).rev().map(|digit| DIGITS[place >> (4 * digit) & 15]));
    out.extend_from_slice(b": ");
    let start = out.len();
    for (at, byte) in bytes.iter().enumerate() {
        if at % 2 == 0 {
            out.push(b' ');
        }
        out.extend_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
    if with_characters {
        out.resize(start + ROW / 2 * 5 + 2, b' ');
        // A space is a dot here, as in tcpdump.
        out.extend(bytes.iter().map(|byte| if byte.is_ascii_graphic() { *byte } else { b'.' }));
    }
    out.push(b'\n');
}

/// Writes characters, including line ends.
fn characters(bytes: &[u8], out: &mut Vec<u8>) {
    for line in bytes.split(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        for part in line.chunks(COLUMNS) {
            out.push(b'\t');
            out.extend(part.iter().map(|byte| visible(*byte)));
            out.push(b'\n');
        }
    }
}

fn visible(byte: u8) -> u8 {
    if (b' '..=b'~').contains(&byte) { byte } else { b'.' }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(hex: bool, ascii: bool, bytes: &[u8]) -> String {
        let mut out = Vec::new();
        Bytes { hex, ascii, link: true }.write(bytes, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn digits_and_characters_are_side_by_side() {
        let bytes: Vec<u8> = (0x40..0x53).collect();
        let first = "\t0x0000:  4041 4243 4445 4647 4849 4a4b 4c4d 4e4f  @ABCDEFGHIJKLMNO\n";
        let second = "\t0x0010:  5051 52                                  PQR\n";
        assert_eq!(lines(true, true, &bytes), format!("{first}{second}"));
        assert_eq!(lines(true, false, &bytes[16..]), "\t0x0000:  5051 52\n");
        assert!(
            lines(true, false, &[0; 65_553])
                .ends_with("\t0x00010000:  0000 0000 0000 0000 0000 0000 0000 0000\n\t0x00010010:  00\n")
        );
        assert_eq!(lines(true, true, &[]), "");
    }

    #[test]
    fn characters_are_printable_in_indented_lines() {
        let long = "x".repeat(COLUMNS);
        let text = format!("GET /\r\n\x1b]0;a\tb\u{7f}\n{long}y");
        assert_eq!(lines(false, true, text.as_bytes()), format!("\tGET /\n\t.]0;a.b.\n\t{long}\n\ty\n"));
    }
}
