//! Host memory that a GPU accesses directly: allocated by the driver, or registered with it.
//!
//! Unsafe because it is C, and because the GPU reads the memory later: the code that queued work keeps its [`OwnedBytes`]
//! until a later event was seen.
#![allow(unsafe_code)]

use super::driver::Context;
use crate::contract::DeviceError;
use cudarc::driver::sys::{self, CUresult};
use linerate_burst::pool::OwnedBytes;
use std::any::Any;
use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

/// Flags of `cuMemHostAlloc` and `cuMemHostRegister`: for all contexts, and mapped for the GPU; of the latter:
/// read-only for the GPU.
const PORTABLE: u32 = 1;
const MAPPED: u32 = 2;
const READ_ONLY: u32 = 8;

/// Host memory that a GPU reads and writes directly.
#[derive(Debug)]
struct PinnedMemory {
    context: Arc<Context>,
    base: NonNull<u8>,
}

// SAFETY: accessed only through the piece that owns it.
unsafe impl Send for PinnedMemory {}
// SAFETY: as above.
unsafe impl Sync for PinnedMemory {}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            // SAFETY: allocated once by cuMemHostAlloc.
            let _ = unsafe { sys::cuMemFreeHost(self.base.as_ptr().cast()) };
        }
    }
}

/// Allocates pinned memory, all zero, aligned to pages.
pub(super) fn pinned(context: &Arc<Context>, bytes: usize) -> Result<OwnedBytes, DeviceError> {
    let mut base: *mut c_void = null_mut();
    // SAFETY: writes an address.
    let allocated = unsafe { sys::cuMemHostAlloc(&mut base, bytes.max(1), PORTABLE | MAPPED) };
    context.done("allocating host memory", allocated)?;
    let base = NonNull::new(base.cast::<u8>()).ok_or(DeviceError::Cannot("the driver returned no host memory"))?;
    // SAFETY: these bytes were just allocated, and are not shared yet.
    unsafe { base.as_ptr().write_bytes(0, bytes) };
    let owner: Arc<dyn Any + Send + Sync> = Arc::new(PinnedMemory { context: Arc::clone(context), base });
    // SAFETY: mapped as long as the owner lives, and written only through the piece and by queued work of its owner.
    Ok(unsafe { OwnedBytes::shared(base, bytes, true, owner) })
}

/// Existing memory that a GPU reads directly, until this is dropped.
struct RegisteredMemory {
    context: Arc<Context>,
    piece: OwnedBytes,
}

impl Drop for RegisteredMemory {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            let base = self.piece.bytes().as_ptr().cast_mut().cast();
            // SAFETY: registered once; the memory is released after this.
            let _ = unsafe { sys::cuMemHostUnregister(base) };
        }
    }
}

/// Registers memory, which a GPU then reads directly, and returns it.
pub(super) fn registered(context: &Arc<Context>, mut piece: OwnedBytes) -> Result<OwnedBytes, DeviceError> {
    let (base, bytes) = (NonNull::from(piece.bytes()).cast::<u8>(), piece.len());
    let writable = piece.bytes_mut().len() == bytes;
    let flags = PORTABLE | MAPPED | if writable { 0 } else { READ_ONLY };
    // SAFETY: these bytes are mapped as long as the piece lives, which is kept until they are unregistered.
    let registered = unsafe { sys::cuMemHostRegister_v2(base.as_ptr().cast(), bytes, flags) };
    context.done("registering host memory", registered)?;
    let owner: Arc<dyn Any + Send + Sync> = Arc::new(RegisteredMemory { context: Arc::clone(context), piece });
    // SAFETY: the piece that had them belongs to the owner, and is not accessible otherwise.
    Ok(unsafe { OwnedBytes::shared(base, bytes, writable, owner) })
}

/// Returns the GPU address of host memory from [`pinned`] or [`registered`]; `None` for other memory.
pub(super) fn mapped(piece: &OwnedBytes) -> Option<u64> {
    let mut address = 0;
    let base = piece.bytes().as_ptr().cast_mut().cast();
    // SAFETY: writes an address; the driver checks that it knows the memory.
    let result = unsafe { sys::cuMemHostGetDevicePointer_v2(&mut address, base, 0) };
    (result == CUresult::CUDA_SUCCESS).then_some(address)
}
