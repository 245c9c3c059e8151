//! Decoding of numbers and strings of a Kafka request.

/// Bytes of a request.
pub(crate) struct In<'a>(pub &'a [u8]);

impl<'a> In<'a> {
    pub(crate) fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(count);
        self.0 = rest;
        bytes
    }

    pub(crate) fn number(&mut self, count: usize) -> i64 {
        let bytes = self.bytes(count);
        let sign = if bytes[0] & 0x80 != 0 { -1 } else { 0 };
        bytes.iter().fold(sign, |number, byte| number << 8 | i64::from(*byte))
    }

    pub(crate) fn text(&mut self) -> Option<String> {
        let count = self.number(2);
        (count >= 0).then(|| String::from_utf8(self.bytes(count as usize).to_vec()).unwrap())
    }

    pub(crate) fn var(&mut self) -> i64 {
        let (mut number, mut shift) = (0u64, 0);
        loop {
            let byte = self.bytes(1)[0];
            number |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                return (number >> 1) as i64 ^ -((number & 1) as i64);
            }
        }
    }

    pub(crate) fn var_bytes(&mut self) -> Option<&'a [u8]> {
        let count = self.var();
        (count >= 0).then(|| self.bytes(count as usize))
    }
}

/// CRC-32C of a batch, bit by bit.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}
