//! The readers in C and Python attach to a writer with wrong numbers: they report an error and do no harm.

use crate::share::fixtures::{SANITIZERS, compile_cat, python_cat, ring_cat, ring_name};
use linerate_tests::support::program::{Ended, spawn};
use linerate_tests::support::{may_change_user, skip};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::pwrite;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags,
    SocketType, accept, bind, listen, recv, sendmsg, socket_with,
};
use rustix::process::Uid;
use rustix::thread::set_thread_res_uid;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// The memory and offset of a number, and its wrong value.
type Edit = (Place, usize, Number);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    Arena,
    /// Relative to the start of the only published block.
    Block,
    /// Relative to the start of the second of its three descriptors.
    Desc,
    Control,
    Welcome,
}
use Place::*;

const PLACES: [Place; 5] = [Arena, Block, Desc, Control, Welcome];

#[derive(Clone, Copy, Debug)]
enum Number {
    Short(u16),
    Word(u32),
    Long(u64),
}
use Number::*;

impl Number {
    fn bytes(self) -> Vec<u8> {
        match self {
            Short(number) => number.to_ne_bytes().to_vec(),
            Word(number) => number.to_ne_bytes().to_vec(),
            Long(number) => number.to_ne_bytes().to_vec(),
        }
    }
}

const SLOTS: u32 = 4;
const SLOT: usize = 512 << 10;
const FIRST: usize = 2 << 20;
const ARENA: usize = FIRST + SLOTS as usize * SLOT;
const FRAMES: u32 = 4852;
const BODY: u32 = 155_648;
const GENERATION: u64 = 7;
/// Length of each frame.
const LENGTH: u32 = 60;

fn memory(bytes: usize, sealed: bool) -> OwnedFd {
    let fd = memfd_create("hostile", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&fd, bytes as u64).unwrap();
    fcntl_add_seals(&fd, if sealed { SealFlags::SHRINK } else { SealFlags::GROW }).unwrap();
    fd
}

fn put(fd: &OwnedFd, at: usize, number: Number) {
    pwrite(fd, &number.bytes(), at as u64).unwrap();
}

/// A ring that has ended in order, with one block of three frames.
fn arena(fd: &OwnedFd) {
    pwrite(fd, b"LINERATE", 0).unwrap();
    let words = [(8, 0x0102_0304), (12, 1), (20, 4096), (24, 4096), (28, 512), (32, 1024), (36, SLOTS), (64, FRAMES)];
    words.into_iter().for_each(|(at, word)| put(fd, at, Word(word)));
    for (at, long) in [(40, FIRST as u64), (48, SLOT as u64), (56, ARENA as u64), (80, GENERATION)] {
        put(fd, at, Long(long));
    }
    for (at, word) in [(68, BODY), (72, 4096), (280, 2), (284, 1), (4096, 1), (4096 + 12, 4)] {
        put(fd, at, Word(word));
    }
    pwrite(fd, b"eth0", 4096 + 32).unwrap();
    let used = 3 * (16 + LENGTH);
    for (at, word) in [(0, 0x3142_524c), (32, 128), (36, BODY), (64, 3), (68, used), (108, 1)] {
        put(fd, FIRST + at, Word(word));
    }
    for frame in 0..3 {
        let (desc, record) = (FIRST + 128 + 32 * frame, BODY + frame as u32 * (16 + LENGTH));
        put(fd, desc, Long(frame as u64));
        [record + 16, LENGTH, LENGTH].iter().enumerate().for_each(|(at, word)| put(fd, desc + 8 + 4 * at, Word(*word)));
        let header = [0, frame as u32, LENGTH, LENGTH];
        header.iter().enumerate().for_each(|(at, word)| put(fd, FIRST + record as usize + 4 * at, Word(*word)));
    }
}

fn control(fd: &OwnedFd) {
    pwrite(fd, b"LINERATE", 0).unwrap();
    for (at, word) in [(8, 1), (24, SLOTS), (28, 512), (32, 512 + 8 * SLOTS)] {
        put(fd, at, Word(word));
    }
    for (at, long) in [(16, GENERATION), (128, 1), (512, 0)] {
        put(fd, at, Long(long));
    }
}

fn welcome() -> Vec<u8> {
    let mut bytes = vec![0; 512];
    bytes[..4].copy_from_slice(b"LRWe");
    bytes[4] = 1;
    for (at, long) in [(24, GENERATION), (32, ARENA as u64), (40, 4096)] {
        bytes[at..at + 8].copy_from_slice(&u64::to_ne_bytes(long));
    }
    bytes
}

/// Other faults of a writer.
#[derive(Clone, Copy, PartialEq)]
enum Manner {
    Right,
    /// Memory that may be truncated at any time: the arena (0) or the control memory (1).
    Unsealed(usize),
    /// A ring of another user, with control memory in reserved huge pages.
    Huge,
    /// Memory larger than announced.
    Larger,
    /// A number of file descriptors other than 2.
    Descriptors(usize),
}

/// Runs `work` in a thread of another user: clients see the credentials of the thread that calls listen(2).
fn as_another(work: impl FnOnce() + Send) {
    let work = || {
        set_thread_res_uid(None::<Uid>, Uid::from_raw(65534), None::<Uid>).unwrap();
        work();
    };
    std::thread::scope(|scope| scope.spawn(work).join().unwrap());
}

/// Returns a reader, or `None` if it is not available.
type Reader = fn() -> Option<Command>;

/// Attaches a reader with this argument to a faulty ring and returns its end; it must not crash.
fn attach(reader: Reader, edits: &[Edit], manner: Manner, argument: &str) -> Option<Ended> {
    let mut reader = reader()?;
    let name = ring_name();
    let acceptor = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    bind(&acceptor, &SocketAddrUnix::new_abstract_name(format!("linerate/{name}").as_bytes()).unwrap()).unwrap();
    let listens = || listen(&acceptor, 1).unwrap();
    if manner == Manner::Huge {
        as_another(listens)
    } else {
        listens()
    }
    let arena_fd = memory(if manner == Manner::Larger { 2 * ARENA } else { ARENA }, manner != Manner::Unsealed(0));
    let mut control_fd = memory(4096, manner != Manner::Unsealed(1));
    let mut welcome = welcome();
    arena(&arena_fd);
    control(&control_fd);
    if manner == Manner::Huge {
        pwrite(&arena_fd, &[0], ARENA as u64 - 1).unwrap();
        fallocate(&arena_fd, FallocateFlags::empty(), 0, ARENA as u64).unwrap();
        fcntl_add_seals(&arena_fd, SealFlags::FUTURE_WRITE).unwrap();
        let flags = MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
        control_fd =
            memfd_create("hostile", flags).inspect_err(|error| skip(&format!("no huge pages: {error}"))).ok()?;
        ftruncate(&control_fd, 2 << 20).unwrap();
        fcntl_add_seals(&control_fd, SealFlags::SHRINK).unwrap();
        welcome[40..48].copy_from_slice(&u64::to_ne_bytes(2 << 20));
    }
    for (place, at, number) in edits {
        match place {
            Arena => put(&arena_fd, *at, *number),
            Block => put(&arena_fd, FIRST + at, *number),
            Desc => put(&arena_fd, FIRST + 128 + 32 + at, *number),
            Control => put(&control_fd, *at, *number),
            Welcome => welcome[*at..at + number.bytes().len()].copy_from_slice(&number.bytes()),
        }
    }
    let trust: &[&str] = if manner == Manner::Huge { &["-t"] } else { &[] };
    let reader = spawn(reader.args(trust).args([argument, &name]).stdout(Stdio::piped()));
    let socket = accept(&acceptor).unwrap();
    let mut hello = [0; 129];
    assert_eq!(recv(&socket, &mut hello, RecvFlags::empty()).unwrap().0, 128);
    assert_eq!(&hello[..4], b"LRHi");
    let count = if let Manner::Descriptors(count) = manner { count } else { 2 };
    let fds = [arena_fd.as_fd(), control_fd.as_fd(), arena_fd.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    rights.push(SendAncillaryMessage::ScmRights(&fds[..count]));
    sendmsg(&socket, &[IoSlice::new(&welcome)], &mut rights, SendFlags::NOSIGNAL).unwrap();
    drop(socket);
    let ended = reader.end();
    let harmed = !(0..=1).contains(&ended.status)
        || ["Sanitizer", "runtime", "Traceback"].iter().any(|word| ended.errors.contains(word));
    assert!(!harmed, "{edits:?}: {} {}", ended.status, ended.errors);
    Some(ended)
}

/// The reader in C with sanitizers.
fn strict_cat() -> Option<Command> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    let compile = || {
        // Compiles without sanitizers first, to report all other errors.
        ring_cat();
        compile_cat("strict_cat", &SANITIZERS).inspect_err(|_| skip("the compiler has no sanitizers")).ok()
    };
    PROGRAM.get_or_init(compile).as_ref().map(Command::new)
}

#[test]
fn c_reader_detects_each_invalid_number() {
    assert_each_is_detected(strict_cat, &["-l", "-w"], &PLACES);
}

#[test]
fn python_reader_detects_each_invalid_number() {
    // Only descriptors are read in another way with NumPy.
    assert_each_is_detected(|| python_cat(true), &["-l"], &[Desc]);
    assert_each_is_detected(|| python_cat(false), &["-w"], &PLACES);
}

fn assert_each_is_detected(reader: Reader, arguments: &[&str], places: &[Place]) {
    let Some(right) = attach(reader, &[], Manner::Right, "-l") else { return };
    assert_eq!(right.good().says("3 frames, 0 skipped, 0 bad: the writer has ended").output.lines().count(), 3);
    let refused = "peer is not a linerate ring";
    let broken = "0 frames, 0 skipped, 0 bad: the writer broke the format";
    let one_bad = "2 frames, 0 skipped, 1 bad: the writer has ended";
    let entry = |slot: u64, from: u64| Long(slot | from << 32);
    for (edits, part) in [
        (&[(Welcome, 0, Word(1))][..], refused),
        (&[(Welcome, 12, Word(2))], refused),
        (&[(Welcome, 24, Long(8))], "another ring"),
        (&[(Welcome, 32, Long(0))], "sizes"),
        (&[(Welcome, 32, Long(u64::MAX))], "sizes"),
        (&[(Welcome, 32, Long(2 * ARENA as u64))], "another size"),
        (&[(Welcome, 40, Long(0))], "sizes"),
        (&[(Welcome, 40, Long(8192))], "another size"),
        (&[(Arena, 0, Word(0))], "does not begin"),
        (&[(Arena, 8, Word(0x0403_0201))], "does not begin"),
        (&[(Arena, 12, Word(2))], "another version"),
        (&[(Arena, 24, Word(0))], refused),
        (&[(Arena, 28, Word(256))], refused),
        (&[(Arena, 36, Word(3))], "size or number"),
        (&[(Arena, 36, Word(u32::MAX))], "size or number"),
        (&[(Arena, 36, Word(5))], refused),
        (&[(Arena, 40, Long(0))], refused),
        (&[(Arena, 48, Long(0))], "size or number"),
        (&[(Arena, 48, Long(600_000))], "size or number"),
        (&[(Arena, 48, Long(1 << 63))], "size or number"),
        (&[(Arena, 48, Long(1 << 20))], refused),
        (&[(Arena, 64, Word(0))], refused),
        (&[(Arena, 64, Word(u32::MAX))], refused),
        (&[(Arena, 64, Word(FRAMES + 100))], refused),
        (&[(Arena, 68, Word(BODY + 1))], refused),
        (&[(Arena, 68, Word(SLOT as u32))], refused),
        (&[(Arena, 68, Word(0xffff_f000))], refused),
        (&[(Arena, 80, Long(8))], "another ring"),
        (&[(Control, 16, Long(8))], "another ring"),
        (&[(Control, 24, Word(8))], "does not fit"),
        (&[(Control, 28, Word(0))], "does not fit"),
        (&[(Control, 32, Word(u32::MAX))], "does not fit"),
        (&[(Control, 128, Long(5))], broken),
        (&[(Control, 128, Long(u64::MAX))], broken),
        (&[(Control, 128, Long(2)), (Control, 520, entry(0, 0))], broken),
        (&[(Control, 512, entry(4, 0))], broken),
        (&[(Control, 512, entry(0xffff_ffff, 0))], broken),
        (&[(Control, 512, entry(0, 4))], broken),
        (&[(Control, 512, entry(0, 0xffff_ffff))], broken),
        (&[(Control, 512, entry(0, 2))], "1 frames, 0 skipped, 0 bad"),
        (&[(Control, 156, Word(1))], "evicted by the writer"),
        (&[(Block, 64, Word(FRAMES + 1))], broken),
        (&[(Block, 64, Word(u32::MAX))], broken),
        (&[(Desc, 8, Word(0))], one_bad),
        (&[(Desc, 8, Word(BODY + 15))], one_bad),
        (&[(Desc, 8, Word(SLOT as u32 - 64 - LENGTH + 1))], one_bad),
        (&[(Desc, 8, Word(u32::MAX))], one_bad),
        (&[(Desc, 8, Word(SLOT as u32 - 64 - LENGTH))], "3 frames"),
        (&[(Desc, 12, Word(262_145))], one_bad),
        (&[(Desc, 12, Word(u32::MAX))], one_bad),
        (&[(Desc, 12, Word(262_144))], "3 frames"),
        (&[(Desc, 20, Short(1))], one_bad),
        (&[(Desc, 20, Short(u16::MAX)), (Arena, 284, Word(u32::MAX))], one_bad),
        (&[(Arena, 284, Word(0))], "0 frames, 0 skipped, 3 bad"),
        (&[(Arena, 4096 + 12, Word(u32::MAX)), (Arena, 4096 + 16, Word(u32::MAX))], "3 frames"),
        (&[(Arena, 280, Word(1))], "3 frames, 0 skipped, 0 bad: the writer died"),
    ] {
        if !edits.iter().any(|(place, ..)| places.contains(place)) {
            continue;
        }
        for argument in arguments {
            let ended = attach(reader, edits, Manner::Right, argument).unwrap();
            assert!(ended.errors.contains(part), "{edits:?}: {part:?} is missing in {}", ended.errors);
        }
    }
    for (manner, part) in [
        (Manner::Unsealed(0), "while it is read"),
        (Manner::Unsealed(1), "while it is read"),
        (Manner::Larger, "another size"),
        (Manner::Descriptors(1), refused),
        (Manner::Descriptors(3), refused),
    ] {
        attach(reader, &[], manner, "-l").unwrap().with_status(1).says(refused).says(part);
    }
    if !may_change_user() {
        return;
    }
    if let Some(ended) = attach(reader, &[], Manner::Huge, "-l") {
        ended.with_status(1).says("in reserved huge pages");
    }
}

#[test]
fn random_numbers_do_no_harm() {
    attach_with_random_numbers(strict_cat, 150);
    attach_with_random_numbers(|| python_cat(true), 30);
    attach_with_random_numbers(|| python_cat(false), 50);
}

fn attach_with_random_numbers(reader: Reader, times: usize) {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 16) % below
    };
    for _ in 0..times {
        let edits: Vec<Edit> = (0..=next(4))
            .map(|_| {
                let (place, bytes) =
                    [(Arena, 288), (Block, 256), (Desc, 32), (Control, 600), (Block, 1 << 19)][next(5) as usize];
                let long = [0, 1, 2, 4, 1 << next(64), u64::MAX, next(u64::MAX)][next(7) as usize];
                let at = next(bytes / 8) as usize * 8;
                if next(2) == 0 { (place, at, Word(long as u32)) } else { (place, at, Long(long)) }
            })
            .collect();
        let argument = ["-l", "-w", "-i"][next(3) as usize];
        if attach(reader, &edits, Manner::Right, argument).is_none() {
            return;
        }
    }
}
