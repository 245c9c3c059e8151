use super::*;
use crate::Reader;
use crate::file::Target;
use linerate_burst::{Block, Desc, Flags, Interface, Nanos, StampSource};
use std::io;
use std::sync::{Arc, Mutex};

/// A file of at most `capacity` bytes that accepts at most `step` of them at a time.
#[derive(Clone)]
struct Disk {
    bytes: Arc<Mutex<Vec<u8>>>,
    capacity: usize,
    step: usize,
}

impl Disk {
    fn new(capacity: usize, step: usize) -> Self {
        Disk { bytes: Arc::default(), capacity, step }
    }

    fn bytes(&self) -> Vec<u8> {
        self.bytes.lock().unwrap().clone()
    }

    fn output(&self) -> Output {
        Output::over(Box::new(self.clone()), "x")
    }
}

impl Target for Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut file = self.bytes.lock().unwrap();
        let count = bytes.len().min(self.step).min(self.capacity - file.len());
        if count == 0 {
            return Err(ErrorKind::StorageFull.into());
        }
        file.extend(&bytes[..count]);
        Ok(count)
    }

    fn take_back(&mut self, bytes: u64) -> io::Result<bool> {
        let mut file = self.bytes.lock().unwrap();
        let length = file.len() - bytes as usize;
        file.truncate(length);
        Ok(true)
    }
}

fn interfaces() -> Vec<Interface> {
    let mut left = Interface::new("left", LinkType::ETHERNET, StampSource::Kernel);
    left.description = "first".into();
    let right = Interface::new("right", LinkType::ETHERNET, StampSource::File);
    vec![left, right, Interface::new("tun0", LinkType::RAW, StampSource::User)]
}

fn block(frames: &[(u16, Flags, usize)]) -> Block {
    let mut block = Block::new(0, frames.len().max(1));
    for (index, (interface, flags, length)) in frames.iter().enumerate() {
        let time = Nanos::from_parts(1_700_000_000 + index as u64, 123_456_789);
        let desc = Desc { interface: *interface, flags: *flags, wire: *length as u32 + 1, ..Desc::new(time, 0, 0) };
        assert!(block.push(&desc, &vec![index as u8; *length]));
    }
    block
}

fn counts(writer: &Writer) -> [u64; 4] {
    let mut ledger = Ledger::new();
    writer.counters(&mut ledger);
    assert_eq!(ledger.imbalances(), []);
    [Count::WriteReceived, Count::Written, Count::WriteFailed, Count::LinkTypeMixed].map(|count| ledger.total(count))
}

/// Reads a valid file: (interface name, flags, length) of each frame.
fn read(bytes: Vec<u8>) -> Vec<(String, Flags, usize)> {
    let mut reader = Reader::new(Box::new(io::Cursor::new(bytes)), "x").unwrap();
    let mut frames = Vec::new();
    loop {
        let descs = reader.fill().unwrap().descs().to_vec();
        if descs.is_empty() {
            return frames;
        }
        reader.consume(descs.len());
        for desc in descs {
            let name = reader.interfaces()[usize::from(desc.interface)].name.clone();
            frames.push((name, desc.flags, desc.captured as usize));
        }
    }
}

/// Returns the number of complete frames at the start of a file, whatever follows.
fn complete(bytes: &[u8]) -> u64 {
    let mut frames = 0;
    if let Ok(mut reader) = Reader::new(Box::new(io::Cursor::new(bytes.to_vec())), "x") {
        while let Ok(shown @ 1..) = reader.fill().map(|burst| burst.len()) {
            frames += shown as u64;
            reader.consume(shown);
        }
    }
    frames
}

/// Returns whether a file is read to its end without an error.
fn reads_to_end(bytes: &[u8]) -> bool {
    let Ok(mut reader) = Reader::new(Box::new(io::Cursor::new(bytes.to_vec())), "x") else { return false };
    loop {
        match reader.fill().map(|burst| burst.len()) {
            Ok(0) => return true,
            Ok(shown) => reader.consume(shown),
            Err(_) => return false,
        }
    }
}

#[test]
fn pcapng_keeps_interfaces_and_flags() {
    let disk = Disk::new(usize::MAX, usize::MAX);
    let mut writer = Writer::new(disk.output(), Format::Pcapng);
    let flags = [Flags::OUTGOING, Flags::DAMAGED | Flags::LATE, Flags::NONE];
    let block = block(&[(1, flags[0], 61), (2, flags[1], 0), (1, flags[2], 3)]);
    writer.accept(block.view(0, &interfaces())).unwrap();
    writer.finish(&Ledger::new()).unwrap();
    writer.finish(&Ledger::new()).unwrap();
    let expected =
        [("right".into(), flags[0], 61), ("tun0".into(), Flags::DAMAGED, 0), ("right".into(), Flags::NONE, 3)];
    assert_eq!(read(disk.bytes()), expected);
    assert_eq!(counts(&writer), [3, 3, 0, 0]);
}

/// Returns the lengths of the frames of a valid file.
fn lengths(disk: &Disk) -> Vec<usize> {
    read(disk.bytes()).into_iter().map(|(_, _, length)| length).collect()
}

#[test]
fn pcap_rejects_a_second_link_type_and_keeps_earlier_frames() {
    let first = block(&[(2, Flags::NONE, 1), (0, Flags::NONE, 2), (1, Flags::NONE, 3), (2, Flags::NONE, 4)]);
    let disk = Disk::new(usize::MAX, 7);
    let mut writer = Writer::new(disk.output(), Format::Pcap);
    let error = writer.accept(first.view(0, &interfaces())).unwrap_err().to_string();
    assert!(error.contains("holds one link type") && error.contains("write pcapng"), "{error}");
    assert!(writer.finish(&Ledger::new()).is_err());
    assert_eq!((disk.bytes().len(), counts(&writer)), (0, [4, 0, 0, 4]));

    let disk = Disk::new(usize::MAX, 7);
    let output = disk.output().compressed(crate::Compression::Gzip).unwrap();
    let mut writer = Writer::new(output, Format::Pcap);
    writer.accept(block(&[(2, Flags::NONE, 1)]).view(0, &interfaces())).unwrap();
    let error = writer.accept(block(&[(2, Flags::NONE, 2), (0, Flags::NONE, 3)]).view(0, &interfaces())).unwrap_err();
    assert!(error.to_string().contains("the 2 packets before it were written"), "{error}");
    assert!(writer.accept(block(&[(2, Flags::NONE, 9)]).view(0, &interfaces())).is_err());
    assert!(writer.finish(&Ledger::new()).is_err());
    assert_eq!((lengths(&disk), counts(&writer)), (vec![1, 2], [4, 2, 0, 2]));
}

#[test]
fn pipe_gets_pcapng_with_several_link_types() {
    for (interfaces, is_pcapng) in [(interfaces(), true), (interfaces()[..2].to_vec(), false)] {
        let disk = Disk::new(usize::MAX, usize::MAX);
        let mut writer = Writer::new(disk.output(), Format::Pcap).or_pcapng(true);
        writer.accept(block(&[(0, Flags::NONE, 2)]).view(0, &interfaces)).unwrap();
        let last = interfaces.len() as u16 - 1;
        writer.accept(block(&[(last, Flags::NONE, 3)]).view(0, &interfaces)).unwrap();
        writer.finish(&Ledger::new()).unwrap();
        assert_eq!((lengths(&disk), disk.bytes()[0] == 0x0a), (vec![2, 3], is_pcapng));
    }
}

#[test]
fn unregistered_link_types_are_rejected_by_pcap() {
    let interfaces = [40, 1].map(|link| Interface::new("", LinkType(link), StampSource::File));
    let disk = Disk::new(usize::MAX, usize::MAX);
    let mut writer = Writer::new(disk.output(), Format::Pcap);
    let error = writer.accept(block(&[(0, Flags::NONE, 9)]).view(0, &interfaces)).unwrap_err();
    assert!(error.to_string().contains("cannot be opened") && error.to_string().contains("write pcapng"), "{error}");
    assert_eq!((disk.bytes().len(), writer.finish(&Ledger::new()).is_err()), (0, true));
    let mut writer = Writer::new(disk.output(), Format::Pcap);
    assert!(writer.begin(LinkType(0x4001)).unwrap_err().to_string().contains("write pcapng"));
}

#[test]
fn a_file_without_frames_is_a_capture_file() {
    let cooked = [Interface::new("any", LinkType(113), StampSource::File)];
    let file = |format, interfaces: &[Interface]| {
        let disk = Disk::new(usize::MAX, 1);
        let mut writer = Writer::new(disk.output(), format);
        writer.flush().unwrap();
        writer.accept(Block::new(0, 1).view(0, interfaces)).unwrap();
        writer.finish(&Ledger::new()).unwrap();
        let mut reader = Reader::new(Box::new(io::Cursor::new(disk.bytes())), "x").unwrap();
        assert!(reader.fill().unwrap().is_empty());
        reader.interfaces().iter().map(|interface| interface.link).collect::<Vec<_>>()
    };
    for format in [Format::Pcap, Format::Pcapng] {
        assert_eq!(file(format, &[]), [LinkType::ETHERNET]);
        assert_eq!(file(format, &cooked), [LinkType(113)]);
    }
}

#[test]
fn existing_file_is_kept_until_the_first_write() {
    let path = std::env::temp_dir().join(format!("linerate-replaced-{}.pcap", std::process::id()));
    let path = path.to_str().unwrap();
    let open = || Output::open(path).map(|output| Writer::new(output, Format::Pcap));
    let length = || std::fs::metadata(path).unwrap().len();
    std::fs::write(path, [7; 1000]).unwrap();
    let mut writer = open().unwrap();
    let error = open().err().unwrap().to_string();
    assert!(error.contains("is being written"), "{error}");
    writer.finish_unused(&Ledger::new()).unwrap();
    drop(writer);
    drop(open().unwrap());
    assert_eq!(length(), 1000);
    open().unwrap().finish(&Ledger::new()).unwrap();
    assert_eq!(length(), 24);
    std::fs::remove_file(path).unwrap();
    open().unwrap().finish_unused(&Ledger::new()).unwrap();
    assert_eq!(length(), 24, "a new file is one without packets");
    // Nothing is written if the first packets have two link types.
    let mixed = block(&[(2, Flags::NONE, 1), (0, Flags::NONE, 2)]);
    assert!(open().unwrap().accept(mixed.view(0, &interfaces())).is_err());
    assert_eq!(length(), 24, "an old file stays");
    std::fs::remove_file(path).unwrap();
    assert!(open().unwrap().accept(mixed.view(0, &interfaces())).is_err());
    assert!(!std::fs::exists(path).unwrap(), "a new file is deleted");
    std::fs::write(path, []).unwrap();
    assert!(open().unwrap().accept(mixed.view(0, &interfaces())).is_err());
    assert_eq!(length(), 0, "an old empty file stays");
    std::fs::remove_file(path).unwrap();
}

#[test]
fn file_on_a_full_disk_ends_with_a_complete_record() {
    let frames = [(0, Flags::NONE, 60), (1, Flags::LATE, 7), (1, Flags::NONE, 0), (0, Flags::OUTGOING, 33)];
    for (format, step) in [(Format::Pcap, 5), (Format::Pcapng, usize::MAX), (Format::Pcapng, 3)] {
        let block = block(&frames);
        let whole = Disk::new(usize::MAX, usize::MAX);
        let mut writer = Writer::new(whole.output(), format);
        writer.accept(block.view(0, &interfaces())).unwrap();
        for capacity in 0..whole.bytes().len() {
            let disk = Disk::new(capacity, step);
            let mut writer = Writer::new(disk.output(), format);
            let error = writer.accept(block.view(0, &interfaces())).unwrap_err();
            assert!(error.to_string().contains("make room"), "{error}");
            let length = disk.bytes().len();
            let [received, written, ..] = counts(&writer);
            assert_eq!(received, 4);
            assert_eq!(written, complete(&whole.bytes()[..capacity]), "{format:?} {capacity}");
            if length > 0 {
                assert_eq!(read(disk.bytes()).len() as u64, written, "{format:?} {capacity}");
            }
            let again = writer.accept(block.view(0, &interfaces())).unwrap_err();
            assert_eq!((again.to_string(), disk.bytes().len()), (error.to_string(), length));
            assert!(writer.finish(&Ledger::new()).is_err() && writer.flush().is_err());
            assert_eq!(counts(&writer)[..2], [8, written]);
        }
    }
}

#[test]
fn compressed_file_on_a_full_disk_ends_with_a_complete_piece() {
    let blocks: Vec<Block> = (1..6).map(|n| block(&vec![(0, Flags::NONE, 60); n])).collect();
    for compression in [Compression::Gzip, Compression::Zstd, Compression::Lz4] {
        for format in [Format::Pcap, Format::Pcapng] {
            let mut ended = 0;
            for capacity in 0..1000 {
                let disk = Disk::new(capacity, 1 + capacity % 50);
                let mut writer = Writer::new(disk.output().compressed(compression).unwrap(), format);
                let results: Vec<_> = blocks.iter().map(|block| writer.accept(block.view(0, &interfaces()))).collect();
                let finished = writer.finish(&Ledger::new());
                let [received, written, ..] = counts(&writer);
                let whole = results.iter().filter(|result| result.is_ok()).count() as u64;
                assert_eq!((received, written), (15, whole * (whole + 1) / 2), "{capacity}");
                assert_eq!(finished.is_err() && whole < 5, whole < 5, "{capacity}");
                assert_eq!(complete(&disk.bytes()), written, "{compression:?} {format:?} {capacity}");
                // The tail fits if the piece that did not fit was longer.
                ended += u64::from(written > 0 && reads_to_end(&disk.bytes()));
            }
            assert!(ended > 700, "{ended}");
        }
    }
}

#[test]
fn frames_lost_to_a_full_device_are_counted_and_explained() {
    let mut writer = Writer::new(Output::open("/dev/full").unwrap(), Format::Pcapng);
    let error = writer.accept(block(&[(0, Flags::NONE, 60)]).view(0, &interfaces())).unwrap_err();
    assert!(error.to_string().starts_with("/dev/full: No space left on device"), "{error}");
    assert_eq!(counts(&writer), [1, 0, 1, 0]);
}

#[test]
fn frames_lost_to_a_closed_pipe_are_counted_and_explained() {
    let (reader, pipe) = io::pipe().unwrap();
    drop(reader);
    let mut writer = Writer::new(Output::to(Box::new(pipe), "pipe"), Format::Pcap);
    let error = writer.accept(block(&[(0, Flags::NONE, 60)]).view(0, &interfaces())).unwrap_err();
    assert!(error.to_string().contains("the reader closed the pipe"), "{error}");
    assert_eq!(counts(&writer), [1, 0, 1, 0]);
}

type Options = Vec<(u16, Vec<u8>)>;

/// Returns the interface and the options of each interface statistics block.
fn statistics_blocks(bytes: &[u8]) -> Vec<(u32, Options)> {
    let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
    let half = |at: usize| u16::from_ne_bytes(bytes[at..at + 2].try_into().unwrap());
    let (mut at, mut found) = (0, Vec::new());
    while at < bytes.len() {
        let end = at + word(at + 4) as usize;
        assert_eq!(word(end - 4), word(at + 4));
        if word(at) == 5 {
            let (mut option, mut options) = (at + 20, Vec::new());
            while half(option) != 0 {
                let length = usize::from(half(option + 2));
                options.push((half(option), bytes[option + 4..option + 4 + length].to_vec()));
                option += 4 + length.next_multiple_of(4);
            }
            found.push((word(at + 8), options));
        }
        at = end;
    }
    found
}

#[test]
fn pcapng_ends_with_the_ledger() {
    let disk = Disk::new(usize::MAX, usize::MAX);
    let mut writer = Writer::new(disk.output(), Format::Pcapng);
    writer
        .accept(block(&[(2, Flags::NONE, 4), (0, Flags::NONE, 61), (0, Flags::NONE, 3)]).view(0, &interfaces()))
        .unwrap();
    let mut run = Ledger::new();
    run.account(Stage::Nic, "packet:left").add(Count::NicReceived, 9).add(Count::NicMissed, 2);
    let queue = run.account(Stage::Receive, "packet:left@0");
    queue.add(Count::Received, 7).add(Count::RingFull, 1).add(Count::Delivered, 6);
    writer.finish(&run).unwrap();

    let blocks = statistics_blocks(&disk.bytes());
    let count = |value: u64| value.to_ne_bytes().to_vec();
    let time = |seconds| {
        let nanos = Nanos::from_parts(seconds, 123_456_789).0;
        [((nanos >> 32) as u32).to_ne_bytes(), (nanos as u32).to_ne_bytes()].concat()
    };
    let text =
        b"nic packet:left: received 9, nic_missed 2\nreceive packet:left@0: received 7, delivered 6, ring_full 1";
    let [start, end] = [time(1_700_000_000), time(1_700_000_000)];
    assert_eq!(blocks[0], (0, vec![(2, start), (3, end), (1, text.to_vec())]), "nothing is known of tun0");
    let expected = vec![
        (2, time(1_700_000_001)),
        (3, time(1_700_000_002)),
        (4, count(9)),
        (5, count(2)),
        (6, count(7)),
        (7, count(1)),
        (8, count(6)),
    ];
    assert_eq!(blocks[1..], [(1, expected)]);
}
