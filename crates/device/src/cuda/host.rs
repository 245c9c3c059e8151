//! Memory of the host that a GPU reaches by itself: of the driver's making, or somebody's that it was told of.
//!
//! Unsafe because it is C, and because what has such memory is read later, by the GPU: a [`Piece`] of it is kept by who queued work until
//! an event behind that was seen.
#![allow(unsafe_code)]

use super::driver::Context;
use crate::contract::DeviceError;
use cudarc::driver::sys::{self, CUresult};
use linerate_burst::pool::Piece;
use std::any::Any;
use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

/// Of `cuMemHostAlloc` and `cuMemHostRegister`: for all contexts, and mapped for the GPU; of the latter: which it only reads.
const PORTABLE: u32 = 1;
const MAPPED: u32 = 2;
const READ_ONLY: u32 = 8;

/// Memory of the host that a GPU reads and writes by itself.
#[derive(Debug)]
struct Pinned {
    context: Arc<Context>,
    base: NonNull<u8>,
}

// SAFETY: reached through the piece that owns it alone.
unsafe impl Send for Pinned {}
// SAFETY: as above.
unsafe impl Sync for Pinned {}

impl Drop for Pinned {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            // SAFETY: allocated once by cuMemHostAlloc.
            let _ = unsafe { sys::cuMemFreeHost(self.base.as_ptr().cast()) };
        }
    }
}

/// Such memory, all zero, from the beginning of a page on.
pub(super) fn pinned(context: &Arc<Context>, bytes: usize) -> Result<Piece, DeviceError> {
    let mut base: *mut c_void = null_mut();
    // SAFETY: writes an address.
    context.done("memory of the host", unsafe { sys::cuMemHostAlloc(&mut base, bytes.max(1), PORTABLE | MAPPED) })?;
    let base = NonNull::new(base.cast::<u8>()).ok_or(DeviceError::Cannot("the driver gave no memory of the host"))?;
    // SAFETY: as many bytes were just allocated, and nobody else has them.
    unsafe { base.as_ptr().write_bytes(0, bytes) };
    let owner: Arc<dyn Any + Send + Sync> = Arc::new(Pinned { context: Arc::clone(context), base });
    // SAFETY: mapped as long as the owner lives, and written by the piece and by work that its owner has queued.
    Ok(unsafe { Piece::shared(base, bytes, true, owner) })
}

/// Memory of somebody else that a GPU reads by itself, until this is dropped.
struct Registered {
    context: Arc<Context>,
    piece: Piece,
}

impl Drop for Registered {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            let base = self.piece.bytes().as_ptr().cast_mut().cast();
            // SAFETY: registered once; the memory goes after this.
            let _ = unsafe { sys::cuMemHostUnregister(base) };
        }
    }
}

/// The same memory, which a GPU reads by itself from here on.
pub(super) fn registered(context: &Arc<Context>, mut piece: Piece) -> Result<Piece, DeviceError> {
    let (base, bytes) = (NonNull::from(piece.bytes()).cast::<u8>(), piece.len());
    let writable = piece.bytes_mut().len() == bytes;
    let flags = PORTABLE | MAPPED | if writable { 0 } else { READ_ONLY };
    // SAFETY: as many bytes are mapped as long as the piece lives, which is kept until they are unregistered.
    context.done("registering memory of the host", unsafe {
        sys::cuMemHostRegister_v2(base.as_ptr().cast(), bytes, flags)
    })?;
    let owner: Arc<dyn Any + Send + Sync> = Arc::new(Registered { context: Arc::clone(context), piece });
    // SAFETY: the piece that had them is the owner's, which nobody reaches any more.
    Ok(unsafe { Piece::shared(base, bytes, writable, owner) })
}

/// The address by which a GPU reads memory of the host that [`pinned`] or [`registered`] gave; none for other memory.
pub(super) fn mapped(piece: &Piece) -> Option<u64> {
    let mut address = 0;
    let base = piece.bytes().as_ptr().cast_mut().cast();
    // SAFETY: writes an address; the driver looks whether it knows the memory.
    let result = unsafe { sys::cuMemHostGetDevicePointer_v2(&mut address, base, 0) };
    (result == CUresult::CUDA_SUCCESS).then_some(address)
}
