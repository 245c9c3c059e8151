//! The sending side of an AF_XDP socket: frames are copied into chunks, and the chunks are returned after sending.
//!
//! Unsafe because chunks are written in memory that the kernel reads. A chunk is in `free` or with the kernel,
//! never both.
#![allow(unsafe_code)]

use super::xsk_memory::Memory;
use super::xsk_ring::{Consumer, Producer};
use std::sync::Arc;

/// The send ring and the chunks that frames are sent from.
pub(crate) struct XskSender {
    memory: Arc<Memory>,
    send: Producer<libc::xdp_desc>,
    completion: Consumer<u64>,
    /// Chunks owned by this process.
    free: Vec<u64>,
    /// Address range of chunks to send from.
    first: u64,
    chunks: usize,
    multi_buffer: bool,
}

impl XskSender {
    /// Sends from `chunks` chunks of the memory, from chunk `first` on.
    pub(crate) fn new(
        memory: Arc<Memory>,
        send: Producer<libc::xdp_desc>,
        completion: Consumer<u64>,
        first: u32,
        chunks: u32,
        multi_buffer: bool,
    ) -> Self {
        let size = u64::from(memory.chunk());
        let first = u64::from(first) * size;
        let free = (0..u64::from(chunks)).rev().map(|chunk| first + chunk * size).collect();
        XskSender { memory, send, completion, free, first, chunks: chunks as usize, multi_buffer }
    }

    /// Returns the longest frame that can be sent.
    pub(crate) fn longest(&self) -> usize {
        // MAX_SKB_FRAGS of the kernel, and the chunk that the frame starts in.
        let most = if self.multi_buffer { 17 } else { 1 };
        most.min(self.chunks) * self.memory.chunk() as usize
    }

    /// Writes a frame into the send ring; false if it has no room now.
    ///
    /// # Panics
    /// If it is longer than [`XskSender::longest`].
    pub(crate) fn push(&mut self, frame: &[u8]) -> bool {
        assert!(frame.len() <= self.longest());
        let chunk = self.memory.chunk() as usize;
        let parts = frame.len().div_ceil(chunk).max(1);
        if self.free.len() < parts || (self.send.free() as usize) < parts {
            return false;
        }
        let mut rest = frame;
        for part in 0..parts {
            let Some(address) = self.free.pop() else { return false };
            let (now, later) = rest.split_at(rest.len().min(chunk));
            // SAFETY: a chunk in `free` is only ours, and it has just been removed from there.
            unsafe { self.memory.bytes_mut(address as usize, now.len()) }.copy_from_slice(now);
            let options = if part + 1 < parts { libc::XDP_PKT_CONTD } else { 0 };
            self.send.push(libc::xdp_desc { addr: address, len: now.len() as u32, options });
            rest = later;
        }
        true
    }

    /// Publishes written entries to the kernel.
    pub(crate) fn publish(&mut self) {
        self.send.publish();
    }

    /// Returns whether the kernel waits for a notification.
    pub(crate) fn needs_wakeup(&self) -> bool {
        self.send.needs_wakeup()
    }

    /// Returns the number of entries that the kernel has not taken yet.
    pub(crate) fn waiting(&mut self) -> usize {
        self.send.waiting() as usize
    }

    /// Returns the number of chunks that the kernel has not returned yet.
    pub(crate) fn outstanding(&self) -> usize {
        self.chunks - self.free.len()
    }

    /// Returns the total number of chunks.
    pub(crate) fn chunks(&self) -> usize {
        self.chunks
    }

    /// Takes back sent chunks; calls `each` with the number of every returned chunk, counted from the first.
    pub(crate) fn reclaim(&mut self, mut each: impl FnMut(usize)) {
        let ready = self.completion.look();
        let size = u64::from(self.memory.chunk());
        for ahead in 0..ready {
            let address = self.completion.peek(ahead) & !(size - 1);
            let chunk = address.wrapping_sub(self.first) / size;
            // Never more than the total: the kernel returns only what it was given.
            if chunk < self.chunks as u64 && self.free.len() < self.chunks {
                self.free.push(address);
                each(chunk as usize);
            }
        }
        self.completion.advance(ready);
        self.completion.release();
    }

    /// Returns the number of the chunk that the next frame will start in.
    pub(crate) fn next_chunk(&self) -> Option<usize> {
        self.free.last().map(|address| ((address - self.first) / u64::from(self.memory.chunk())) as usize)
    }
}
