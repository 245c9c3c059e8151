//! Attaching: names, rejections, clients that send nothing or too much, and the limits of a reader's access.

use crate::raw::{self, Map, RawReader, RawWriter};
use crate::support::{Ring, drain, options, unique};
use linerate_share::{Access, AttachOptions, Error, Options, Writer};
use proptest::prelude::*;
use rustix::fs::{FallocateFlags, Mode, OFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate, open};
use rustix::io::Errno;
use rustix::mm::{MprotectFlags, mprotect};
use std::fs;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

#[test]
fn a_name_is_shared_once() {
    let ring = Ring::new(4);
    let taken = Ring::with(&ring.name, Access::default(), 4).err().unwrap();
    let own = std::process::id() as i32;
    assert!(matches!(&taken, Error::Taken { pid, .. } if *pid == own), "{taken}");
    assert!(taken.to_string().contains(&format!("already shared by pid {own}")));
    let name = ring.name.clone();
    drop(ring);
    Ring::with(&name, Access::default(), 4).unwrap();
}

#[test]
fn path_is_shared_once_and_removed_after_its_writer() {
    let folder = std::env::temp_dir().join(format!("linerate-{}", unique()));
    fs::create_dir(&folder).unwrap();
    let path = folder.join("ring");
    let name = path.to_str().unwrap();
    let mut ring = Ring::with(name, Access::default(), 4).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let taken = Ring::with(name, Access::default(), 4).err().unwrap();
    assert!(matches!(taken, Error::Taken { .. }), "{taken}");
    let mut reader = ring.lossless();
    ring.write(5);
    assert_eq!(drain(&mut reader).len(), 5);
    // A writer that was killed leaves its file behind.
    let left = folder.join("left");
    let socket = raw::socket();
    rustix::net::bind(&socket, &rustix::net::SocketAddrUnix::new(&left).unwrap()).unwrap();
    drop(socket);
    let absent = AttachOptions::default().to(left.to_str().unwrap()).err().unwrap();
    assert!(matches!(absent, Error::Absent { .. }), "{absent}");
    let access = Access { users: vec![1], groups: vec![], ..Access::default() };
    let again = Ring::with(left.to_str().unwrap(), access, 4).unwrap();
    assert_eq!(fs::metadata(&left).unwrap().permissions().mode() & 0o777, 0o666);
    drop((ring, again));
    assert!(!path.exists() && !left.exists(), "the files go with their writers");
    // A file that is not a socket is left unchanged.
    fs::write(&path, "mine").unwrap();
    let other = Ring::with(name, Access::default(), 4).err().unwrap();
    assert!(other.to_string().contains("not a socket"), "{other}");
    assert_eq!(fs::read(&path).unwrap(), b"mine");
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn invalid_options_are_named() {
    let refused = |name: &str, options: Options| {
        Writer::create(name, Access::default(), &options, Default::default()).err().unwrap().to_string()
    };
    let good = options(4);
    for (name, options, words) in [
        ("", good, "1 to 90 bytes"),
        (&*"x".repeat(91), good, "1 to 90 bytes"),
        ("a\0b", good, "1 to 90 bytes"),
        ("/no/such/folder/x", good, "No such file"),
        ("x", Options { slots: 3, ..good }, "4 to 65536"),
        ("x", Options { slots: 65_537, ..good }, "4 to 65536"),
        ("x", Options { slot_bytes: 256 << 10, ..good }, "power of two"),
        ("x", Options { slot_bytes: 3 << 19, ..good }, "power of two"),
        ("x", Options { slot_bytes: 128 << 20, ..good }, "power of two"),
        ("x", Options { slots: 65_536, slot_bytes: 64 << 20, ..good }, "use a smaller ring"),
        ("x", Options { node: Some(1000), ..good }, "NUMA node 1000"),
        ("x", Options { node: Some(u32::MAX), ..good }, "NUMA node"),
    ] {
        let said = refused(name, options);
        assert!(said.contains(words), "{name} {options:?}: {said}");
    }
    let absent = AttachOptions::default().to("absent-ring").err().unwrap().to_string();
    assert!(absent.contains("absent-ring: no such ring"), "{absent}");
}

#[test]
fn memory_is_of_the_requested_kind_or_the_reason_is_given() {
    let make = |options| Writer::create(&unique(), Access::default(), &options, Default::default()).unwrap().0;
    let small = Options { slots: 8, ..Options::default() };
    let note = make(small).notes().join("\n");
    assert!(note.contains("huge pages") || note.contains("ordinary pages"), "{note}");
    assert!(note.contains("sysctl vm.nr_hugepages=") || note.starts_with("10 MiB of huge pages"), "{note}");
    assert_eq!(make(Options { huge: false, ..small }).notes(), ["10 MiB of ordinary pages, as requested"]);
    let locked = Writer::create(&unique(), Access::default(), &Options { lock: true, ..small }, Default::default());
    match locked {
        Ok((writer, _)) => assert_eq!(writer.bytes(), 10 << 20),
        Err(error) => assert!(error.to_string().contains("ulimit -l"), "{error}"),
    }
    match Writer::create(&unique(), Access::default(), &Options { node: Some(0), ..small }, Default::default()) {
        Ok((writer, _)) => assert_eq!(writer.notes().len(), 1),
        Err(error) => assert!(error.to_string().contains("NUMA node 0"), "{error}"),
    }
    assert_eq!(make(small).room(), 8 * (((1 << 20) - 192) / 108));
}

/// Page faults of this thread so far that cost no reading from disk (proc(5), minflt).
fn faults() -> u64 {
    let stat = fs::read_to_string("/proc/thread-self/stat").unwrap();
    stat.rsplit(')').next().unwrap().split(' ').nth(8).unwrap().parse().unwrap()
}

#[test]
fn all_pages_are_present_before_the_first_frame() {
    let mut ring = Ring::new(16);
    let mut reader = ring.lossless();
    drain(&mut reader);
    let before = faults();
    let written = ring.write(u64::MAX);
    let writing = faults() - before;
    let read = drain(&mut reader).len() as u64;
    let reading = faults() - before - writing;
    // 8 MiB have 2048 pages; the lists of the test itself have some.
    assert!(written == read && written > 5000 && writing < 100 && reading < 500, "{writing} {reading} faults");
}

#[test]
fn clients_that_send_nothing_or_too_much_are_rejected() {
    let mut ring = Ring::new(4);
    {
        let silent = raw::connected(&ring.name);
        ring.let_in();
        assert!(raw::read_message(&silent).is_none(), "it has time to speak");
        let one = raw::connected(&ring.name);
        raw::send_message(&one, b"half a hello", &[]);
        let long = raw::connected(&ring.name);
        raw::send_message(&long, &[b"LRHi".as_slice(), &[0; 200]].concat(), &[]);
        let full = raw::connected(&ring.name);
        raw::send_message(&full, &raw::hello(1, false, 0), &[silent.as_fd(), one.as_fd()]);
        let other = raw::connected(&ring.name);
        raw::send_message(&other, &[0; 128], &[]);
        let gone = raw::connected(&ring.name);
        drop(gone);
        ring.let_in();
        for (socket, words) in
            [(&one, "be a hello"), (&long, "be a hello"), (&full, "no descriptors"), (&other, "be a hello")]
        {
            let (status, text) = raw::refusal(socket);
            assert_eq!((status, text.contains(words)), (6, true), "{text}");
        }
        // A second later the silent one is disconnected too, as is any client if the clock was set back.
        ring.tick();
        ring.let_in();
        assert!(raw::read_message(&silent).is_none());
        ring.now.0 += 1_000_000_000;
        ring.let_in();
        assert_eq!(raw::read_message(&silent).map(|(bytes, _)| bytes.len()), Some(0));
        assert_eq!((ring.writer.readers(), ring.acceptor.refused()), (vec![], 6));
    }
    let mut reader = ring.lossless();
    ring.write(3);
    assert_eq!(drain(&mut reader).len(), 3);
}

#[test]
fn many_silent_clients_do_not_lock_readers_out() {
    let mut ring = Ring::new(4);
    let silent: Vec<_> = (0..40).map(|_| raw::connected(&ring.name)).collect();
    let attaching = AttachOptions::default().begin(&ring.name).unwrap();
    for _ in 0..4 {
        ring.let_in();
        ring.now.0 += 1_000_000_000;
    }
    attaching.finish().unwrap();
    drop(silent);
    let started = std::time::Instant::now();
    ring.acceptor.wait(Duration::from_millis(20));
    assert!(started.elapsed() < Duration::from_secs(5));
}

/// A thousand connections: silent ones, noise, descriptors, readers that hold all they can.
#[test]
fn a_thousand_connections_do_not_lock_readers_out() {
    let mut ring = Ring::new(8);
    let mut proper = ring.lossless();
    let (mut connected, mut seen) = (Vec::new(), 0);
    for round in 0..1000 {
        let socket = raw::connected(&ring.name);
        match round % 5 {
            0 => {}
            1 => raw::send_message(&socket, &[round as u8; 300], &[]),
            2 => raw::send_message(&socket, &raw::hello(1, false, 0), &[socket.as_fd(), socket.as_fd()]),
            3 => raw::send_message(&socket, &raw::hello(1, true, u32::MAX), &[]),
            _ => raw::send_message(&socket, &raw::hello(1, false, u32::MAX), &[]),
        }
        connected.push(socket);
        // The number of descriptors of one process is limited.
        if connected.len() == 300 {
            connected.drain(..150);
        }
        if round % 10 == 9 {
            ring.let_in();
            ring.write(5);
            seen += drain(&mut proper).len() as u64;
            ring.tick();
            ring.check();
            ring.writer.evict(1, "it blocks the writer");
        }
    }
    let mut late = ring.attach(&AttachOptions::default()).or_else(|refused| {
        // Open connections use all numbers.
        assert!(refused.to_string().contains("readers are attached"), "{refused}");
        connected.clear();
        ring.tick();
        ring.attach(&AttachOptions::default())
    });
    ring.write(5);
    seen += drain(&mut proper).len() as u64;
    assert_eq!(seen, ring.writer.committed());
    assert_eq!(drain(late.as_mut().unwrap()).len(), 5);
    assert!(ring.acceptor.refused() > 500);
}

#[test]
fn rejections_have_a_number_and_a_text() {
    let mut ring = Ring::new(4);
    let later = raw::connected(&ring.name);
    raw::send_message(&later, &raw::hello(2, false, 0), &[]);
    ring.let_in();
    let (status, text) = raw::refusal(&later);
    assert_eq!((status, text.contains("version 1")), (1, true), "{text}");
    let readers: Vec<_> = (0..64).map(|_| ring.lossy(2)).collect();
    let refused = ring.attach(&AttachOptions::default()).err().unwrap();
    assert!(refused.to_string().contains("64 readers"), "{refused}");
    ring.write(10);
    ring.check();
    assert_eq!(ring.writer.readers().len(), 64);
    drop(readers);
    ring.wait_for(0);
    drop(ring.lossy(2));
    let Ring { name, writer, mut acceptor, now } = ring;
    writer.finish();
    assert!(acceptor.is_over());
    let attaching = AttachOptions::default().begin(&name).unwrap();
    assert!(acceptor.step(now).is_empty());
    let ended = attaching.finish().err().unwrap();
    assert!(matches!(&ended, Error::Refused { reason, .. } if reason.contains("ended")), "{ended}");
}

#[test]
fn a_reader_that_is_not_admitted_returns_its_number() {
    let mut ring = Ring::new(4);
    for _ in 0..200 {
        let attaching = AttachOptions::default().begin(&ring.name).unwrap();
        drop(ring.acceptor.step(ring.now));
        let mut reader = attaching.finish().unwrap();
        (0..300).for_each(|_| assert!(reader.fill(1).is_empty()));
        assert!(reader.ended().is_some());
    }
    assert!(ring.lossless().is_lossless());
}

#[test]
fn a_readers_descriptor_is_read_only() {
    let mut ring = Ring::new(4);
    let reader = RawReader::attach(&mut ring, false, 2);
    let fd = reader.arena_fd.as_fd();
    assert_eq!(Map::new(fd, true).err(), Some(Errno::ACCESS), "mapped to be written");
    // SAFETY: the mapping of the reader, which lives; no more is allowed than before.
    let protected =
        unsafe { mprotect(reader.arena.address().cast(), 4096, MprotectFlags::READ | MprotectFlags::WRITE) };
    assert_eq!(protected, Err(Errno::ACCESS));
    assert_eq!(rustix::io::write(fd, b"x"), Err(Errno::BADF));
    assert!(ftruncate(fd, 0).is_err());
    assert!(fcntl_add_seals(fd, SealFlags::WRITE).is_err());
    // Root can reopen the file; the seals hold nevertheless.
    let again = open(&*format!("/proc/self/fd/{}", fd.as_raw_fd()), OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    match again {
        Ok(fd) => {
            assert_eq!(Map::new(fd.as_fd(), true).err(), Some(Errno::PERM), "mapped to be written");
            assert_eq!(rustix::io::write(&fd, b"x"), Err(Errno::PERM));
            assert_eq!((ftruncate(&fd, 0), ftruncate(&fd, 1 << 30)), (Err(Errno::PERM), Err(Errno::PERM)));
            let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            assert_eq!(fallocate(&fd, punch, 0, 4096), Err(Errno::PERM));
        }
        Err(error) => assert_eq!(error, Errno::ACCESS),
    }
    assert_eq!(&reader.arena.copy(0, 8), b"LINERATE");
}

/// Invalid answers of a writer.
#[test]
fn an_invalid_writer_is_an_error() {
    type Answer = fn(&mut RawWriter);
    let send_message =
        |writer: &RawWriter, bytes: &[u8]| raw::send_message(writer.socket.as_ref().unwrap(), bytes, &[]);
    let answers: [(&str, Answer); 9] = [
        (": no answer from the writer", |_| {}),
        (": no answer: the writer closed the connection (it died", |writer| writer.socket = None),
        ("not follow this protocol", |writer| raw::send_message(writer.socket.as_ref().unwrap(), b"hello", &[])),
        ("0 descriptors", |writer| raw::send_message(writer.socket.as_ref().unwrap(), &writer.answer(), &[])),
        ("peer is not a linerate ring", |writer| {
            let fd = writer.arena_fd.as_fd();
            raw::send_message(writer.socket.as_ref().unwrap(), &writer.answer(), &[fd, fd, fd]);
        }),
        ("control memory", |writer| {
            let fd = writer.arena_fd.as_fd();
            raw::send_message(writer.socket.as_ref().unwrap(), &writer.answer(), &[fd, fd]);
        }),
        ("an invalid size", |writer| {
            let fd = writer.control_fd.as_fd();
            raw::send_message(writer.socket.as_ref().unwrap(), &writer.answer(), &[fd, fd]);
        }),
        ("its memory", |writer| {
            let fd = writer.listener.as_fd();
            raw::send_message(writer.socket.as_ref().unwrap(), &writer.answer(), &[fd, fd]);
        }),
        ("another ring", |writer| {
            let mut answer = writer.answer();
            answer[24] = 78;
            let fds = [writer.arena_fd.as_fd(), writer.control_fd.as_fd()];
            raw::send_message(writer.socket.as_ref().unwrap(), &answer, &fds);
        }),
    ];
    for (words, answer) in answers {
        let name = unique();
        let mut writer = RawWriter::new(&name);
        let attach = AttachOptions { patience: Duration::from_millis(50), ..AttachOptions::default() };
        let attaching = attach.begin(&name).unwrap();
        writer.accept();
        answer(&mut writer);
        let error = attaching.finish().err().unwrap().to_string();
        assert!(error.contains(words), "{words}: {error}");
    }
    let name = unique();
    let mut writer = RawWriter::new(&name);
    let attaching = AttachOptions::default().begin(&name).unwrap();
    writer.accept();
    let mut refusal = writer.answer();
    refusal[12] = 99;
    refusal[48] = 12;
    refusal[64..76].copy_from_slice(b"come\x1b[2Jback");
    send_message(&writer, &refusal);
    let error = attaching.finish().err().unwrap();
    assert!(matches!(&error, Error::Refused { reason, .. } if reason == "come?[2Jback"), "{error}");
}

proptest! {
    /// Any contents of the headers from a writer: an error, or a reader that works.
    #[test]
    fn any_headers_are_handled(
        arena in prop::collection::vec((0usize..26, any::<u32>()), 0..3),
        control in prop::collection::vec((0usize..10, any::<u32>()), 0..3),
    ) {
        let name = unique();
        let mut writer = RawWriter::new(&name);
        arena.iter().for_each(|(at, value)| writer.arena.put(at * 4, &value.to_ne_bytes()));
        control.iter().for_each(|(at, value)| writer.control.put(at * 4, &value.to_ne_bytes()));
        let attaching = AttachOptions::default().begin(&name).unwrap();
        writer.welcome();
        if let Ok(mut reader) = attaching.finish() {
            writer.fill(0, 0, 50);
            writer.publish(0);
            let shown = reader.fill(60).len();
            reader.consume(shown);
        }
    }
}
