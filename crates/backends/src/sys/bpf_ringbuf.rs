//! Wakes a sleeping reader of a program's frames: a ring buffer of the kernel (linux/bpf.h, `BPF_MAP_TYPE_RINGBUF`)
//! whose events have no content. Its descriptor is readable until they are taken.
//!
//! Unsafe because two pages of the ring are mapped: the reader's position, which this process writes, and the
//! program's.
#![allow(unsafe_code)]

use super::bpf::Map;
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

const PAGE: usize = 4096;

/// A bell for any number of programs.
#[derive(Debug)]
pub(crate) struct Bell {
    map: Map,
    /// Pages of the reader's position and of the writers'.
    reader: *mut u8,
    writers: *mut u8,
    /// Always readable: for a reader that must not wait.
    ready: OwnedFd,
}

// SAFETY: the mappings belong to this value and are accessed by atomics only.
unsafe impl Send for Bell {}
// SAFETY: as above.
unsafe impl Sync for Bell {}

impl Bell {
    /// Creates a bell.
    pub(crate) fn new() -> io::Result<Self> {
        let map = Map::ring(PAGE as u32)?;
        let ready = eventfd(1, EventfdFlags::CLOEXEC)?;
        let reader = page(map.raw(), libc::PROT_READ | libc::PROT_WRITE, 0)?;
        let writers = page(map.raw(), libc::PROT_READ, PAGE).inspect_err(|_| {
            // SAFETY: the mapping just made.
            unsafe { libc::munmap(reader.cast(), PAGE) };
        })?;
        Ok(Bell { map, reader, writers, ready })
    }

    /// Returns the descriptor of the map for instructions.
    pub(crate) fn raw(&self) -> i32 {
        self.map.raw()
    }

    /// Returns the descriptor to wait on.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.map.fd()
    }

    /// Returns a descriptor that is always readable.
    pub(crate) fn ready(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }

    /// Takes all events: the descriptor becomes readable again with the next one.
    pub(crate) fn quiet(&self) {
        let written = position(self.writers).load(Ordering::Acquire);
        let reader = position(self.reader);
        if reader.load(Ordering::Relaxed) != written {
            reader.store(written, Ordering::Release);
        }
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        for mapped in [self.reader, self.writers] {
            // SAFETY: the mappings made by `new`; positions borrow them for the length of a call.
            unsafe { libc::munmap(mapped.cast(), PAGE) };
        }
    }
}

/// Returns the first word of a page, which is a position.
fn position<'a>(page: *mut u8) -> &'a AtomicU64 {
    // SAFETY: a mapped page of the ring, which outlives the call; the kernel accesses the word by whole loads and stores.
    unsafe { AtomicU64::from_ptr(page.cast()) }
}

fn page(fd: RawFd, access: i32, offset: usize) -> io::Result<*mut u8> {
    // SAFETY: a new mapping of a page of the ring, at an address of the kernel's choice.
    let mapped = unsafe { libc::mmap(ptr::null_mut(), PAGE, access, libc::MAP_SHARED, fd, offset as libc::off_t) };
    if mapped == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(mapped.cast()) }
}
