//! Parts of bpf(2) for sending by an XDP program, in addition to programs and words: bytes shared with a program, a
//! program that traces a tracepoint, and a single run of a program on a frame in memory.
//!
//! Unsafe because attributes go to the kernel as raw memory, and because an array map is mapped.
#![allow(unsafe_code)]

use super::bpf::{F_MMAPABLE, LICENSE, LoadAttr, Map, MapKind, NAME, PROG_LOAD, Program, bpf_fd};
use crate::ebpf::Insn;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;

const RAW_TRACEPOINT_OPEN: i32 = 17;
const PROG_TYPE_RAW_TRACEPOINT: u32 = 17;

/// Bytes that this process writes and programs read: the only value of an array map, mapped.
#[derive(Debug)]
pub(crate) struct Bytes {
    map: Map,
    base: *mut u8,
    length: usize,
}

// SAFETY: the mapping belongs only to this value and is reached only through `&mut self`.
unsafe impl Send for Bytes {}

impl Bytes {
    /// Creates `length` bytes, all 0.
    pub(crate) fn new(length: usize) -> io::Result<Self> {
        let map = Map::create(MapKind::Array, length.next_multiple_of(8), 1, F_MMAPABLE)?;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe {
            libc::mmap(ptr::null_mut(), length, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, map.raw(), 0)
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Bytes { map, base: base.cast(), length })
    }

    /// Returns the descriptor of the map for instructions.
    pub(crate) fn raw(&self) -> i32 {
        self.map.raw()
    }

    /// Copies bytes to an offset.
    ///
    /// # Panics
    /// If they reach beyond the end.
    pub(crate) fn write(&mut self, at: usize, bytes: &[u8]) {
        assert!(at <= self.length && bytes.len() <= self.length - at);
        // SAFETY: inside the mapping (just checked), to which no reference exists; nothing else in this process writes
        // it, and a program that reads concurrently reads bytes that are old or new.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.base.add(at), bytes.len()) };
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        // SAFETY: the mapping made by `new`; no reference to it exists.
        unsafe { libc::munmap(self.base.cast(), self.length) };
    }
}

/// A program that runs at each hit of a tracepoint; removed on drop, however the process ends.
#[derive(Debug)]
pub(crate) struct Tracer {
    _link: OwnedFd,
}

impl Tracer {
    /// Loads a program and attaches it to a tracepoint; its context is the tracepoint's arguments, 64 bits each.
    pub(crate) fn attach(insns: &[Insn], tracepoint: &std::ffi::CStr) -> io::Result<Self> {
        let mut attr = LoadAttr {
            prog_type: PROG_TYPE_RAW_TRACEPOINT,
            insn_cnt: insns.len() as u32,
            insns: insns.as_ptr() as u64,
            license: LICENSE.as_ptr() as u64,
            prog_name: NAME,
            ..LoadAttr::default()
        };
        // SAFETY: instructions and licence outlive the call, which only reads them.
        let program = unsafe { bpf_fd(PROG_LOAD, &mut attr) }?;
        let mut attr =
            OpenAttr { name: tracepoint.as_ptr() as u64, prog_fd: program.as_raw_fd() as u32, ..OpenAttr::default() };
        // SAFETY: the name ends with a zero and outlives the call, which only reads it.
        let link = unsafe { bpf_fd(RAW_TRACEPOINT_OPEN, &mut attr) }?;
        Ok(Tracer { _link: link })
    }
}

impl Program {
    /// Runs the program once on `frame` in memory, without sending it; returns its result, and the frame afterwards.
    #[cfg(test)]
    pub(crate) fn run_once(&self, frame: &[u8]) -> io::Result<(u32, Vec<u8>)> {
        let mut out = vec![0; 1 << 14];
        let mut attr = super::bpf::RunAttr {
            prog_fd: self.0.as_raw_fd() as u32,
            data_size_in: frame.len() as u32,
            data_in: frame.as_ptr() as u64,
            data_size_out: out.len() as u32,
            data_out: out.as_mut_ptr() as u64,
            repeat: 1,
            ..super::bpf::RunAttr::default()
        };
        // SAFETY: the kernel reads the frame, and writes at most `data_size_out` bytes to `out`.
        unsafe { super::bpf::bpf(super::bpf::PROG_TEST_RUN, &mut attr) }?;
        out.truncate(attr.data_size_out as usize);
        Ok((attr.retval, out))
    }
}

#[derive(Default)]
#[repr(C)]
struct OpenAttr {
    name: u64,
    prog_fd: u32,
    pad: u32,
    cookie: u64,
}
