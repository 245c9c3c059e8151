//! Pcapng file with every feature of the format, built by hand.

/// Builder of blocks in one byte order.
pub struct Blocks {
    big: bool,
    bytes: Vec<u8>,
}

impl Blocks {
    /// Creates an empty file with big-endian or little-endian sections.
    pub fn new(big: bool) -> Self {
        Blocks { big, bytes: Vec::new() }
    }

    /// Returns the file.
    pub fn done(self) -> Vec<u8> {
        self.bytes
    }

    /// Encodes a number in the byte order of the file.
    pub fn u16(&self, value: u16) -> [u8; 2] {
        if self.big { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    /// Encodes a number in the byte order of the file.
    pub fn u32(&self, value: u32) -> [u8; 4] {
        if self.big { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    /// Encodes a number in the byte order of the file.
    pub fn u64(&self, value: u64) -> [u8; 8] {
        if self.big { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    fn options(&self, options: &[(u16, &[u8])]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (code, value) in options {
            bytes.extend([self.u16(*code), self.u16(value.len() as u16)].concat());
            bytes.extend(*value);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        if !options.is_empty() {
            bytes.extend([0; 4]);
        }
        bytes
    }

    /// Adds a block of any type.
    pub fn block(&mut self, kind: u32, body: &[u8]) {
        let padded = body.len().next_multiple_of(4);
        let length = self.u32(padded as u32 + 12);
        let mut block = [&self.u32(kind)[..], &length, body].concat();
        block.resize(8 + padded, 0);
        block.extend(length);
        self.bytes.extend(block);
    }

    /// Adds a section header block.
    pub fn section(&mut self, options: &[(u16, &[u8])]) {
        let head = [&self.u32(0x1a2b_3c4d)[..], &self.u16(1), &self.u16(0), &[0xff; 8]].concat();
        self.block(0x0a0d_0d0a, &[head, self.options(options)].concat());
    }

    /// Adds an interface description block.
    pub fn interface(&mut self, link: u16, snap: u32, options: &[(u16, &[u8])]) {
        let head = [&self.u16(link)[..], &[0; 2], &self.u32(snap)].concat();
        self.block(1, &[head, self.options(options)].concat());
    }

    /// Adds an enhanced packet block.
    pub fn frame(&mut self, interface: u32, ticks: u64, frame: &[u8], wire: u32, options: &[(u16, &[u8])]) {
        let words = [interface, (ticks >> 32) as u32, ticks as u32, frame.len() as u32, wire];
        let mut body = words.map(|word| self.u32(word)).concat();
        body.extend(frame);
        body.resize(body.len().next_multiple_of(4), 0);
        body.extend(self.options(options));
        self.block(6, &body);
    }

    /// Adds a packet block, the obsolete predecessor of the enhanced one.
    pub fn old_frame(&mut self, interface: u16, ticks: u64, frame: &[u8], options: &[(u16, &[u8])]) {
        let words = [(ticks >> 32) as u32, ticks as u32, frame.len() as u32, frame.len() as u32];
        let mut body = [self.u16(interface), self.u16(3)].concat();
        body.extend(words.map(|word| self.u32(word)).concat());
        body.extend(frame);
        body.resize(body.len().next_multiple_of(4), 0);
        body.extend(self.options(options));
        self.block(2, &body);
    }

    /// Adds a simple packet block.
    pub fn simple_frame(&mut self, frame: &[u8]) {
        let body = [&self.u32(frame.len() as u32)[..], frame].concat();
        self.block(3, &body);
    }

    /// Adds an interface statistics block, with times in ticks of the interface.
    pub fn statistics(&mut self, interface: u32, start: u64, end: u64, counts: &[(u16, u64)], comment: &[u8]) {
        let time = |this: &Self, ticks: u64| [this.u32((ticks >> 32) as u32), this.u32(ticks as u32)].concat();
        let (start, end) = (time(self, start), time(self, end));
        let values: Vec<(u16, [u8; 8])> = counts.iter().map(|(code, count)| (*code, self.u64(*count))).collect();
        let mut options: Vec<(u16, &[u8])> = vec![(2, &start), (3, &end)];
        options.extend(values.iter().map(|(code, value)| (*code, &value[..])));
        options.push((1, comment));
        let body = [&self.u32(interface)[..], &end, &self.options(&options)].concat();
        self.block(5, &body);
    }
}

/// Returns an Ethernet frame with a UDP packet.
pub fn udp(number: u8, payload: usize) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    let length = (28 + payload) as u16;
    frame.extend([0x45, 0, (length >> 8) as u8, length as u8, 0, number, 0, 0, 64, 17, 0, 0]);
    frame.extend([10, 0, 0, 1, 10, 0, 0, 2, 0x10, number, 0x20, 0]);
    frame.extend([((length - 20) >> 8) as u8, (length - 20) as u8, 0, 0]);
    frame.extend((0..payload).map(|at| at as u8 ^ number));
    frame
}

/// Start time in seconds.
const START: u64 = 1_700_000_000;

/// Returns two sections of different byte order with five interfaces of different resolutions, offsets and (unless
/// `link` is Ethernet) link types, every kind of packet block, comments on each, unknown blocks, statistics.
pub fn everything(big: bool, link: u16) -> Vec<u8> {
    let mut first = Blocks::new(big);
    let pen = first.u32(32_473);
    let custom = [&pen[..], b"custom"].concat();
    let speed = first.u64(10_000_000_000);
    first.section(&[(1, b"first of the section"), (2, b"a machine"), (3, b"an OS"), (4, b"a program"), (1, b"second")]);
    first.interface(
        1,
        0,
        &[(2, b"eth0"), (3, b"in the middle"), (8, &speed), (1, b"a cable"), (11, b"\0tcp"), (9, &[6])],
    );
    first.interface(1, 0, &[(2, b"eth1"), (9, &[9]), (6, &[2, 0, 0, 0, 0, 1]), (4, &[10, 0, 0, 1, 255, 0, 0, 0])]);
    first.interface(link, 0, &[(2, b"tun0"), (9, &[0x80 | 20]), (12, b"another OS"), (15, b"a card"), (2989, &custom)]);
    first.block(0x0bad_f00d, b"not to be copied");
    let record = [&first.u16(1)[..], &first.u16(10), &[10, 0, 0, 2], b"peer.\0", &[0; 2], &[0; 4]].concat();
    first.block(4, &record);
    let secrets = b"CLIENT_RANDOM 00 11\n";
    let secrets = [&first.u32(0x544c_534b)[..], &first.u32(secrets.len() as u32), secrets].concat();
    first.block(10, &secrets);
    let (micros, nanos, binary) = (START * 1_000_000, START * 1_000_000_000, START << 20);
    let drops = first.u64(5);
    first.frame(0, micros + 1, &udp(0, 20), 62, &[(1, b"one comment")]);
    first.frame(
        1,
        nanos + 2_345,
        &udp(1, 300),
        342,
        &[(1, b"two comments"), (4, &drops), (1, "with ümlaut".as_bytes())],
    );
    first.frame(2, binary + 5, &udp(2, 40)[14..], 68, &[]);
    first.old_frame(0, micros + 7, &udp(3, 77), &[(1, b"an old one")]);
    first.simple_frame(&udp(4, 19));
    let outbound = first.u32(2);
    first.frame(1, nanos + 9_000_001, &udp(5, 1000)[..60], 1042, &[(2, &outbound), (1, b"cut and sent")]);
    first.statistics(0, micros, micros + 100, &[(4, 1000), (5, 3), (7, 4), (8, 990)], b"told at the end");
    first.statistics(1, nanos, nanos + 100, &[(4, 50), (7, 2)], b"");

    let mut second = Blocks::new(!big);
    second.section(&[(1, b"of the second section")]);
    let offset = second.u64(START);
    second.interface(1, 0, &[(2, b"wlan0"), (9, &[3]), (14, &offset)]);
    second.interface(1, 96, &[(2, b"never used"), (9, &[12])]);
    for number in 10..40u8 {
        let comment = format!("frame {number}");
        let comments = [(1, comment.as_bytes())];
        second.frame(0, u64::from(number) * 10, &udp(number, 100), 142, if number % 3 == 0 { &comments } else { &[] });
    }
    [first.done(), second.done()].concat()
}
