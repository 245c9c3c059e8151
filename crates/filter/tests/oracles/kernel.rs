//! The kernel accepts the programs made for it, with the interpreter's results.
//!
//! A pair of local datagram sockets tests the kernel without privileges and without traffic: the filter on the
//! receiving end sees the datagram as a packet socket's filter sees a frame without VLAN tag.

use crate::captures;
use crate::filters::{FILTERS, NOT_IN_KERNEL};
use crate::programs::program;
use linerate_filter::program::code;
use linerate_filter::{Filter, Insn, KernelProgram};
use proptest::prelude::*;
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicU32, Ordering};

const SNAP: u32 = 96;

struct Kernel {
    sender: UnixDatagram,
    receiver: UnixDatagram,
}

impl Kernel {
    fn with(program: &KernelProgram) -> io::Result<Kernel> {
        let (sender, receiver) = UnixDatagram::pair()?;
        receiver.set_nonblocking(true)?;
        let insns = program.insns();
        let fprog = libc::sock_fprog { len: insns.len() as u16, filter: insns.as_ptr().cast_mut().cast() };
        // SAFETY: the option's value is a sock_fprog over instructions that outlive the call.
        let status = unsafe {
            libc::setsockopt(
                receiver.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_ATTACH_FILTER,
                (&raw const fprog).cast(),
                size_of::<libc::sock_fprog>() as u32,
            )
        };
        if status == 0 { Ok(Kernel { sender, receiver }) } else { Err(io::Error::last_os_error()) }
    }

    /// Returns the number of bytes of a frame that pass; `None` if it is rejected.
    fn run(&self, frame: &[u8]) -> Option<usize> {
        let mut buffer = [0_u8; 65_536];
        self.sender.send(frame).expect("local datagrams are accepted");
        match self.receiver.recv(&mut buffer) {
            Ok(kept) => Some(kept),
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            Err(error) => panic!("receive: {error}"),
        }
    }
}

/// Compiles a filter; prints a note if libpcap is missing.
fn compile(text: &str) -> Option<Filter> {
    match Filter::compile(text, 1) {
        Ok(filter) => Some(filter),
        Err(error @ linerate_filter::FilterError::NoLibpcap { .. }) => {
            eprintln!("SKIPPED: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn kernel_accepts_every_filter_meant_for_it() {
    for text in FILTERS {
        let Some(filter) = compile(text) else { return };
        match filter.in_kernel(SNAP) {
            Ok(program) => {
                assert!(!NOT_IN_KERNEL.contains(text), "{text} must not run in the kernel");
                Kernel::with(&program).unwrap_or_else(|error| panic!("{text}: {error}"));
            }
            Err(reason) => assert!(NOT_IN_KERNEL.contains(text), "{text}: {reason}"),
        }
    }
}

#[test]
fn kernel_selects_the_same_real_frames() {
    let Some(corpus) = captures::corpus() else { return };
    let file = std::fs::read(corpus.join("real-mix.pcap")).expect("the corpus has real-mix.pcap");
    let capture = captures::parse(&file).expect("it is a pcap file");
    let mut passed = 0;
    for text in FILTERS {
        let Some(filter) = compile(text) else { return };
        let Ok(program) = filter.in_kernel(SNAP) else { continue };
        let kernel = Kernel::with(&program).expect("the kernel accepts it");
        for (frame, _) in capture.frames.iter().step_by(7) {
            let here = filter.matches(frame, frame.len() as u32);
            assert_eq!(kernel.run(frame), here.then_some(frame.len().min(SNAP as usize)), "{text}");
            passed += u32::from(here);
        }
    }
    assert!(passed > 10_000, "only {passed} frames passed");
}

/// Rejects or passes by one bit of the accumulator.
fn one_bit() -> impl Strategy<Value = Vec<Insn>> {
    (0_u32..32).prop_map(|bit| vec![Insn::jump(code::JSET_K, 1 << bit, 0, 1), Insn::ret(1), Insn::ret(0)])
}

static RUN: AtomicU32 = AtomicU32::new(0);

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    fn random_programs(program in program(one_bit()), frame in prop::collection::vec(any::<u8>(), 1..80)) {
        let Ok(made) = KernelProgram::new(&program, 0) else { return Ok(()) };
        let kernel = Kernel::with(&made).expect("the kernel accepts it");
        let here = program.run(&frame, frame.len() as u32) != 0;
        prop_assert_eq!(kernel.run(&frame), here.then_some(frame.len()));
        RUN.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn kernel_agrees_with_the_interpreter() {
    random_programs();
    let run = RUN.load(Ordering::Relaxed);
    assert!(run > 2_000, "only {run} programs may run in the kernel");
}
