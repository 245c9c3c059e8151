//! Memory cut into chunks with one owner each; and pieces of memory that own themselves.
//!
//! Unsafe because several owners access one allocation. It is sound because there is exactly one [`Chunk`] for each
//! chunk, which cannot be copied, and bytes are reached only through it: read through a shared borrow of it, written
//! through an exclusive one. The same holds for a [`OwnedBytes`], which keeps its memory alive.
#![allow(unsafe_code)]

use crate::{Burst, Desc, TAIL};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// One allocation, divided into chunks of equal size.
#[derive(Debug)]
pub struct Pool {
    base: NonNull<u8>,
    chunk: usize,
    chunks: usize,
    /// Unique within this process.
    id: u64,
}

// SAFETY: the allocation belongs to this value; its bytes are reached only through chunks, by the rules of borrowing.
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

/// The ownership of one chunk of a pool. A chunk whose `Chunk` is dropped is never used again.
#[derive(Debug)]
pub struct Chunk {
    index: usize,
    pool: u64,
}

impl Pool {
    /// Allocates `chunks` zeroed chunks of `chunk` bytes; returns the pool and the ownership of each chunk.
    ///
    /// # Panics
    /// If the total is 0 bytes, or more than 32-bit offsets can reach.
    pub fn new(chunk: usize, chunks: usize) -> (Pool, Vec<Chunk>) {
        static IDS: AtomicU64 = AtomicU64::new(0);
        let bytes = chunk.checked_mul(chunks).and_then(|bytes| u32::try_from(bytes).ok());
        assert!(bytes.is_some_and(|bytes| bytes > 0), "a pool of {chunks} chunks of {chunk} bytes");
        let id = IDS.fetch_add(1, Ordering::Relaxed);
        let layout = Pool::layout(chunk, chunks);
        // SAFETY: the layout is never empty.
        let Some(base) = NonNull::new(unsafe { alloc_zeroed(layout) }) else { handle_alloc_error(layout) };
        (Pool { base, chunk, chunks, id }, (0..chunks).map(|index| Chunk { index, pool: id }).collect())
    }

    /// Returns the size of a chunk in bytes.
    pub fn chunk_bytes(&self) -> usize {
        self.chunk
    }

    /// Returns the offset of a chunk from the base of the memory.
    pub fn offset(&self, chunk: &Chunk) -> u32 {
        self.start(chunk) as u32
    }

    /// Returns the bytes of a chunk.
    ///
    /// # Panics
    /// If the chunk belongs to another pool.
    pub fn bytes<'a>(&'a self, chunk: &'a Chunk) -> &'a [u8] {
        let start = self.start(chunk);
        // SAFETY: inside the allocation, initialised, and not written as long as the chunk is borrowed.
        unsafe { slice::from_raw_parts(self.base.as_ptr().add(start), self.chunk) }
    }

    /// Returns the bytes of a chunk for writing.
    ///
    /// # Panics
    /// If the chunk belongs to another pool.
    pub fn bytes_mut<'a>(&'a self, chunk: &'a mut Chunk) -> &'a mut [u8] {
        let start = self.start(chunk);
        // SAFETY: inside the allocation, and not accessed otherwise while the chunk is borrowed exclusively.
        unsafe { slice::from_raw_parts_mut(self.base.as_ptr().add(start), self.chunk) }
    }

    /// Returns a burst of frames, the first in the first of these chunks and so on.
    ///
    /// # Panics
    /// If there are fewer chunks, or a frame exceeds its chunk.
    pub fn burst<'a>(&'a self, chunks: &'a [Chunk], descs: &'a [Desc]) -> Burst<'a> {
        assert!(descs.len() <= chunks.len(), "{} frames in {} chunks", descs.len(), chunks.len());
        for (chunk, desc) in chunks.iter().zip(descs) {
            let within = (desc.offset as usize).checked_sub(self.start(chunk));
            let fits = within.is_some_and(|within| within + desc.stored() as usize <= self.chunk);
            assert!(fits, "a frame lies outside its chunk");
        }
        // SAFETY: each frame lies inside a chunk that is borrowed as long as the burst lives, so it is not written; the
        // allocation extends TAIL bytes past the last chunk.
        unsafe { Burst::from_raw(self.base.as_ptr(), descs) }
    }

    fn start(&self, chunk: &Chunk) -> usize {
        assert_eq!(chunk.pool, self.id, "a chunk of another pool");
        chunk.index * self.chunk
    }

    fn layout(chunk: usize, chunks: usize) -> Layout {
        Layout::from_size_align(chunk * chunks + TAIL, 64).expect("32-bit offsets reach it")
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: allocated by `new` with this layout; all borrows from it have ended.
        unsafe { dealloc(self.base.as_ptr(), Pool::layout(self.chunk, self.chunks)) };
    }
}

/// Bytes with one owner: a part of a memory that lives as long as the piece. Empty by default.
pub struct OwnedBytes {
    base: NonNull<u8>,
    bytes: usize,
    /// Bytes that may be written: all, or 0.
    writable: usize,
    owner: Option<Arc<dyn Any + Send + Sync>>,
}

// SAFETY: bytes are accessed by the rules of borrowing; their owner is `Send + Sync`.
unsafe impl Send for OwnedBytes {}
// SAFETY: as above.
unsafe impl Sync for OwnedBytes {}

impl Default for OwnedBytes {
    fn default() -> Self {
        OwnedBytes { base: NonNull::dangling(), bytes: 0, writable: 0, owner: None }
    }
}

impl OwnedBytes {
    /// Returns a part of a vector.
    ///
    /// # Panics
    /// If the part exceeds the vector.
    pub fn of(mut room: Vec<u8>, part: Range<usize>) -> Self {
        let bytes = room[part.clone()].len();
        let start = room[part].as_mut_ptr();
        let base = NonNull::new(start).unwrap_or(NonNull::dangling());
        OwnedBytes { base, bytes, writable: bytes, owner: Some(Arc::new(room)) }
    }

    /// Wraps a part of a memory that others may read.
    ///
    /// # Safety
    /// `bytes` bytes from `base` on are mapped, readable, and writable if `writable`, as long as `owner` lives. While
    /// this value lives nothing else writes there.
    pub unsafe fn shared(base: NonNull<u8>, bytes: usize, writable: bool, owner: Arc<dyn Any + Send + Sync>) -> Self {
        OwnedBytes { base, bytes, writable: if writable { bytes } else { 0 }, owner: Some(owner) }
    }

    /// Returns the number of bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Returns whether the piece is empty.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Returns the bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: readable as long as the owner lives, and written only through `&mut self`.
        unsafe { slice::from_raw_parts(self.base.as_ptr(), self.bytes) }
    }

    /// Returns the bytes for writing; none if the piece is read-only.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: writable as long as the owner lives, and not accessed otherwise during the borrow.
        unsafe { slice::from_raw_parts_mut(self.base.as_ptr(), self.writable) }
    }
}

impl fmt::Debug for OwnedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let owner = if self.owner.is_some() { "owned" } else { "unowned" };
        write!(f, "{} bytes, {owner}", self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Nanos;

    #[test]
    fn chunks_are_disjoint_and_contain_their_frames() {
        let (pool, mut chunks) = Pool::new(100, 3);
        for (number, chunk) in chunks.iter_mut().enumerate() {
            pool.bytes_mut(chunk).fill(number as u8 + 1);
        }
        let descs: Vec<Desc> = chunks.iter().map(|chunk| Desc::new(Nanos(1), pool.offset(chunk) + 10, 90)).collect();
        let burst = pool.burst(&chunks, &descs);
        assert!(burst.iter().enumerate().all(|(number, (_, frame))| frame == [number as u8 + 1; 90]));
        assert_eq!(pool.bytes(&chunks[2]), [3; 100]);
    }

    #[test]
    fn piece_is_a_slice_and_keeps_its_owner() {
        let mut piece = OwnedBytes::of(vec![1; 100], 10..30);
        piece.bytes_mut()[0] = 7;
        assert_eq!((piece.len(), piece.bytes()[0], piece.bytes()[19]), (20, 7, 1));
        let owner: Arc<Vec<u8>> = Arc::new(vec![5; 8]);
        let base = NonNull::from(&owner[0]);
        // SAFETY: the vector lives as long as its owner, and is not written.
        let mut piece = unsafe { OwnedBytes::shared(base, 8, false, Arc::clone(&owner) as _) };
        assert_eq!((piece.bytes_mut().len(), Arc::strong_count(&owner)), (0, 2));
        assert_eq!(piece.bytes(), [5; 8]);
        drop(piece);
        assert_eq!((Arc::strong_count(&owner), OwnedBytes::default().bytes().len()), (1, 0));
    }

    #[test]
    #[should_panic(expected = "outside its chunk")]
    fn frame_outside_its_chunk_is_rejected() {
        let (pool, chunks) = Pool::new(100, 2);
        pool.burst(&chunks, &[Desc::new(Nanos(1), 11, 90)]);
    }

    #[test]
    #[should_panic(expected = "another pool")]
    fn chunk_of_another_pool_is_rejected() {
        let ((pool, _), (_, others)) = (Pool::new(100, 1), Pool::new(100, 1));
        pool.bytes(&others[0]);
    }
}
