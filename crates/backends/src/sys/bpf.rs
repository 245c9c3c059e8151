//! bpf(2): programs, maps and links, as descriptors that close themselves (linux/bpf.h).
//!
//! Unsafe because attributes and keys go to the kernel as raw memory, and because an array map can be mapped.
#![allow(unsafe_code)]

use crate::ebpf::Insn;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

const MAP_CREATE: i32 = 0;
const MAP_UPDATE: i32 = 2;
pub(super) const PROG_LOAD: i32 = 5;
pub(super) const PROG_TEST_RUN: i32 = 10;
const PROG_GET_FD_BY_ID: i32 = 13;
const OBJ_GET_INFO_BY_FD: i32 = 15;
const LINK_CREATE: i32 = 28;

const PROG_TYPE_XDP: u32 = 6;
const PROG_TYPE_SOCKET_FILTER: u32 = 1;
/// As the attach type of a program it means `BPF_XDP`.
const ATTACH_XDP: u32 = 37;
pub(super) const F_MMAPABLE: u32 = 1 << 10;
const F_TEST_XDP_LIVE_FRAMES: u32 = 1 << 1;
/// Helpers used by linerate need no licence, kernel functions need this one.
pub(super) const LICENSE: &[u8] = b"Dual MIT/GPL\0";
pub(super) const NAME: [u8; 16] = *b"linerate\0\0\0\0\0\0\0\0";
/// Time for which a closed program may stay attached.
const CLOSING: Duration = Duration::from_millis(500);
const CLOSING_NAP: Duration = Duration::from_millis(5);
const LOG_BYTES: usize = 1 << 20;

/// Features that a program needs beyond the plain form.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Demands {
    /// It supports frames in several buffers (`BPF_F_XDP_HAS_FRAGS`).
    pub frags: bool,
    /// It calls the driver of this interface (`BPF_F_XDP_DEV_BOUND_ONLY`).
    pub bound_to: Option<u32>,
}

/// An XDP program in the kernel.
#[derive(Debug)]
pub(crate) struct Program(pub(super) OwnedFd);

impl Program {
    /// Loads an XDP program; if the verifier rejects it, the error ends with the verifier's last message.
    pub(crate) fn load(insns: &[Insn], demands: Demands) -> io::Result<Self> {
        Program::load_as((PROG_TYPE_XDP, ATTACH_XDP), insns, demands)
    }

    /// Loads a packet filter: the program returns the number of bytes to keep.
    pub(crate) fn load_filter(insns: &[Insn]) -> io::Result<Self> {
        Program::load_as((PROG_TYPE_SOCKET_FILTER, 0), insns, Demands::default())
    }

    fn load_as((kind, attach): (u32, u32), insns: &[Insn], demands: Demands) -> io::Result<Self> {
        let mut attr = LoadAttr {
            prog_type: kind,
            insn_cnt: insns.len() as u32,
            insns: insns.as_ptr() as u64,
            license: LICENSE.as_ptr() as u64,
            prog_flags: if demands.frags { 1 << 5 } else { 0 } | if demands.bound_to.is_some() { 1 << 6 } else { 0 },
            prog_name: NAME,
            prog_ifindex: demands.bound_to.unwrap_or(0),
            expected_attach_type: attach,
            ..LoadAttr::default()
        };
        // SAFETY: instructions and licence outlive the call, which only reads them.
        let refused = match unsafe { bpf_fd(PROG_LOAD, &mut attr) } {
            Ok(fd) => return Ok(Program(fd)),
            Err(error) => error,
        };
        let mut log = vec![0u8; LOG_BYTES];
        (attr.log_level, attr.log_size, attr.log_buf) = (1, LOG_BYTES as u32, log.as_mut_ptr() as u64);
        // SAFETY: as above; the kernel writes at most `log_size` bytes to the log.
        match unsafe { bpf_fd(PROG_LOAD, &mut attr) } {
            Ok(fd) => Ok(Program(fd)),
            Err(_) => Err(io::Error::new(refused.kind(), format!("{refused}{}", last_words(&log)))),
        }
    }

    /// Runs the program on `repeat` live frames with the contents of `frame`, in batches of `batch`, and sends each as
    /// the program decides. Returns when all have run or a signal arrives (`EINTR`).
    pub(crate) fn run_live(&self, frame: &[u8], repeat: u32, batch: u32) -> io::Result<()> {
        // struct xdp_md: data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex.
        let context: [u32; 6] = [0, frame.len() as u32, 0, 0, 0, 0];
        let mut attr = RunAttr {
            prog_fd: self.0.as_raw_fd() as u32,
            data_size_in: frame.len() as u32,
            data_in: frame.as_ptr() as u64,
            repeat,
            ctx_size_in: size_of_val(&context) as u32,
            ctx_in: context.as_ptr() as u64,
            flags: F_TEST_XDP_LIVE_FRAMES,
            batch_size: batch,
            ..RunAttr::default()
        };
        // SAFETY: frame and context outlive the call, which only reads them.
        unsafe { bpf(PROG_TEST_RUN, &mut attr) }.map(|_| ())
    }

    /// Returns the name of the program with a number, if this process may query it.
    pub(crate) fn name_of(id: u32) -> io::Result<String> {
        let mut attr = [id, 0, 0];
        // SAFETY: the attribute is the only memory passed.
        let fd = unsafe { bpf_fd(PROG_GET_FD_BY_ID, &mut attr) }?;
        let mut info = [0u8; 80];
        let mut attr =
            InfoAttr { fd: fd.as_raw_fd() as u32, length: info.len() as u32, info: info.as_mut_ptr() as u64 };
        // SAFETY: the kernel writes at most `length` bytes of struct bpf_prog_info, all zero before.
        unsafe { bpf(OBJ_GET_INFO_BY_FD, &mut attr) }?;
        let name: Vec<u8> = info[64..].iter().copied().take_while(|byte| *byte != 0).collect();
        Ok(String::from_utf8_lossy(&name).into_owned())
    }
}

/// Kinds of maps that linerate uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MapKind {
    /// Values by index.
    Array = 2,
    /// Interfaces to send to, by index.
    Devmap = 14,
    /// AF_XDP sockets by queue.
    Xskmap = 17,
    /// Events from programs.
    Ring = 27,
}

/// A map with 32-bit keys.
#[derive(Debug)]
pub(crate) struct Map {
    fd: OwnedFd,
    value_bytes: usize,
}

impl Map {
    /// Creates a map of `entries` values of `value_bytes` bytes each.
    pub(crate) fn new(kind: MapKind, value_bytes: usize, entries: u32) -> io::Result<Self> {
        Self::create(kind, value_bytes, entries, 0)
    }

    pub(super) fn create(kind: MapKind, value_bytes: usize, entries: u32, map_flags: u32) -> io::Result<Self> {
        Self::make(MapAttr {
            map_type: kind as u32,
            key_size: 4,
            value_size: value_bytes as u32,
            max_entries: entries,
            map_flags,
            map_name: NAME,
            ..MapAttr::default()
        })
    }

    fn make(mut attr: MapAttr) -> io::Result<Self> {
        // SAFETY: the attribute is the only memory passed.
        let fd = unsafe { bpf_fd(MAP_CREATE, &mut attr) }?;
        Ok(Map { fd, value_bytes: attr.value_size as usize })
    }

    /// Creates a ring buffer of `bytes`, a power of two and a multiple of the page size.
    pub(crate) fn ring(bytes: u32) -> io::Result<Self> {
        let attr = MapAttr { map_type: MapKind::Ring as u32, max_entries: bytes, map_name: NAME, ..MapAttr::default() };
        Self::make(attr)
    }

    /// Returns the descriptor for instructions.
    pub(crate) fn raw(&self) -> i32 {
        self.fd.as_raw_fd()
    }

    /// Returns the descriptor to wait on.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Sets the value of a key.
    ///
    /// # Panics
    /// If the size of the value differs from that of the map.
    pub(crate) fn set(&self, key: u32, value: &[u8]) -> io::Result<()> {
        assert_eq!(value.len(), self.value_bytes);
        let key_at = (&raw const key) as u64;
        let mut attr =
            ElementAttr { map_fd: self.raw() as u32, pad: 0, key: key_at, value: value.as_ptr() as u64, flags: 0 };
        // SAFETY: the kernel reads four bytes of the key and `value_bytes` of the value.
        unsafe { bpf(MAP_UPDATE, &mut attr) }.map(|_| ())
    }
}

/// 64-bit words shared by programs and this process: the only value of an array map, mapped.
#[derive(Debug)]
pub(crate) struct Words {
    map: Map,
    base: *mut u8,
    bytes: usize,
}

// SAFETY: the mapping belongs only to this value and is accessed by atomics only.
unsafe impl Send for Words {}
// SAFETY: as above.
unsafe impl Sync for Words {}

impl Words {
    /// Creates `count` words, all 0.
    pub(crate) fn new(count: usize) -> io::Result<Self> {
        let map = Map::create(MapKind::Array, count * 8, 1, F_MMAPABLE)?;
        let bytes = (count * 8).next_multiple_of(4096);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe {
            libc::mmap(ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, map.raw(), 0)
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Words { map, base: base.cast(), bytes })
    }

    /// Returns the descriptor of the map for instructions.
    pub(crate) fn raw(&self) -> i32 {
        self.map.raw()
    }

    /// Returns the number of words.
    pub(crate) fn len(&self) -> usize {
        self.map.value_bytes / size_of::<AtomicU64>()
    }

    /// Returns a word.
    ///
    /// # Panics
    /// If the index is out of range.
    pub(crate) fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index * 8 < self.map.value_bytes);
        // SAFETY: inside the mapping (just checked), aligned to 8 bytes, and accessed by atomics on this side;
        // programs access it by single aligned loads and stores.
        unsafe { AtomicU64::from_ptr(self.base.add(index * 8).cast()) }
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        // SAFETY: the mapping made by `new`; words borrow this value, so none is left.
        unsafe { libc::munmap(self.base.cast(), self.bytes) };
    }
}

/// Mode of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// In the driver, before the kernel allocates an skb for the frame.
    Native,
    /// In the kernel, on a copy: every driver.
    Generic,
}

/// A program attached to an interface; detached on drop, however the process ends.
#[derive(Debug)]
pub(crate) struct Link(#[expect(dead_code, reason = "closing it detaches")] OwnedFd);

impl Link {
    /// Attaches a program; fails with `EBUSY` if another is attached. A closed one may stay for a moment: a child
    /// process that is being started holds all descriptors too.
    pub(crate) fn attach(program: &Program, interface: u32, mode: Mode) -> io::Result<Self> {
        let started = Instant::now();
        loop {
            match Self::attach_now(program, interface, mode) {
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) && started.elapsed() < CLOSING => {
                    std::thread::sleep(CLOSING_NAP);
                }
                result => return result,
            }
        }
    }

    fn attach_now(program: &Program, interface: u32, mode: Mode) -> io::Result<Self> {
        let flags = match mode {
            Mode::Native => 1 << 2,
            Mode::Generic => 1 << 1,
        };
        let mut attr = [program.0.as_raw_fd() as u32, interface, ATTACH_XDP, flags];
        // SAFETY: the attribute is the only memory passed.
        unsafe { bpf_fd(LINK_CREATE, &mut attr) }.map(Link)
    }
}

#[derive(Default)]
#[repr(C)]
pub(super) struct LoadAttr {
    pub prog_type: u32,
    pub insn_cnt: u32,
    pub insns: u64,
    pub license: u64,
    pub log_level: u32,
    pub log_size: u32,
    pub log_buf: u64,
    pub kern_version: u32,
    pub prog_flags: u32,
    pub prog_name: [u8; 16],
    pub prog_ifindex: u32,
    pub expected_attach_type: u32,
}

#[derive(Default)]
#[repr(C)]
struct MapAttr {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
    inner_map_fd: u32,
    numa_node: u32,
    map_name: [u8; 16],
}

#[repr(C)]
struct ElementAttr {
    map_fd: u32,
    /// Explicit, so that no byte the kernel reads is uninitialised.
    pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[derive(Default)]
#[repr(C)]
pub(super) struct RunAttr {
    pub prog_fd: u32,
    pub retval: u32,
    pub data_size_in: u32,
    pub data_size_out: u32,
    pub data_in: u64,
    pub data_out: u64,
    pub repeat: u32,
    pub duration: u32,
    pub ctx_size_in: u32,
    pub ctx_size_out: u32,
    pub ctx_in: u64,
    pub ctx_out: u64,
    pub flags: u32,
    pub cpu: u32,
    pub batch_size: u32,
    pub reserved: u32,
}

#[repr(C)]
struct InfoAttr {
    fd: u32,
    length: u32,
    info: u64,
}

/// # Safety
/// `attr` is the beginning of `union bpf_attr` for the command, and what it points to is valid for it.
pub(super) unsafe fn bpf<T>(command: i32, attr: &mut T) -> io::Result<i32> {
    // SAFETY: the attribute is live and its size is passed; the rest is the caller's promise.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, (&raw mut *attr), size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as i32) }
}

/// # Safety
/// As [`bpf`], for a command that returns a new descriptor.
pub(super) unsafe fn bpf_fd<T>(command: i32, attr: &mut T) -> io::Result<OwnedFd> {
    // SAFETY: the caller's promise.
    let fd = unsafe { bpf(command, attr) }?;
    // SAFETY: a new descriptor that nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Returns the end of the verifier's log, with the reason.
fn last_words(log: &[u8]) -> String {
    let text = String::from_utf8_lossy(log.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned();
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("processed ")).collect();
    match lines.last() {
        Some(line) => format!(" (the kernel's verifier: {line})"),
        None => String::new(),
    }
}
