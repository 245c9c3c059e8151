//! The CUDA driver API, as far as frames need it.
//!
//! Unsafe because it is C, and because the GPU reads and writes its arguments later. It is sound because GPU memory is
//! accessed only by the functions here, inside an allocation (asserted); host memory for queued work is kept by the
//! caller until a later event was seen; nothing is freed before the streams have finished ([`Stream`] waits when it is
//! dropped).
#![allow(unsafe_code)]

use crate::contract::DeviceError;
use cudarc::driver::sys::{self, CUcontext, CUdevice, CUdeviceptr, CUevent, CUfunction, CUmodule, CUresult, CUstream};
use std::ffi::{CStr, c_char, c_void};
use std::ops::Range;
use std::ptr::null_mut;
use std::sync::Arc;

/// Minimum driver version for the PTX: 12.1.
const LEAST_DRIVER: i32 = 12_010;
/// Flag of `cuStreamCreate`: do not wait for the default stream. Flag of `cuEventCreate`: no timing.
const NON_BLOCKING: u32 = 1;
const NO_TIMES: u32 = 2;

/// An open GPU.
#[derive(Debug)]
pub(super) struct Context {
    device: CUdevice,
    context: CUcontext,
    pub name: String,
    pub model: String,
    pub memory: u64,
}

// SAFETY: driver handles, which may be used from any thread (CUDA C++ Programming Guide, section Context).
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// Loads the driver, if present, and opens a GPU.
    pub(super) fn open(number: u32) -> Result<Arc<Context>, DeviceError> {
        // SAFETY: loads the library and runs its initialisers, as any program linked with it does.
        if !unsafe { sys::is_culib_present() } {
            return Err(DeviceError::NoDriver("libcuda.so.1 not found (part of NVIDIA's driver)".to_owned()));
        }
        let mut version = 0;
        // SAFETY: writes a number; allowed before cuInit.
        let asked = unsafe { sys::cuDriverGetVersion(&mut version) };
        if asked != CUresult::CUDA_SUCCESS || version < LEAST_DRIVER {
            let (major, minor) = (version / 1000, version % 1000 / 10);
            return Err(DeviceError::NoDriver(format!(
                "the driver supports CUDA {major}.{minor}; 12.1 is needed (driver 530 or later)"
            )));
        }
        // SAFETY: no memory is involved.
        done("", "starting", unsafe { sys::cuInit(0) }).map_err(|error| DeviceError::NoDriver(error.to_string()))?;
        let mut count = 0;
        // SAFETY: writes a number.
        done("", "counting GPUs", unsafe { sys::cuDeviceGetCount(&mut count) })?;
        if i64::from(number) >= i64::from(count) {
            return Err(DeviceError::NoDevice(number, count as u32));
        }
        let name = format!("cuda:{number}");
        let (mut device, mut context, mut memory) = (0, null_mut(), 0);
        let mut model = [0 as c_char; 128];
        // SAFETY: each writes to the given variable, of the given length.
        unsafe {
            done(&name, "opening", sys::cuDeviceGet(&mut device, number as i32))?;
            done(&name, "reading its name", sys::cuDeviceGetName(model.as_mut_ptr(), 127, device))?;
            done(&name, "reading its memory size", sys::cuDeviceTotalMem_v2(&mut memory, device))?;
            done(&name, "retaining its context", sys::cuDevicePrimaryCtxRetain(&mut context, device))?;
        }
        // SAFETY: the last byte is 0, whatever was written before.
        let model = unsafe { CStr::from_ptr(model.as_ptr()) }.to_string_lossy().into_owned();
        Ok(Arc::new(Context { device, context, name, model, memory: memory as u64 }))
    }

    /// Makes this GPU current for the calling thread.
    pub(super) fn bind(&self) -> Result<(), DeviceError> {
        // SAFETY: the context is retained.
        self.done("selecting its context", unsafe { sys::cuCtxSetCurrent(self.context) })
    }

    /// Returns the bytes of free memory.
    pub(super) fn free(&self) -> Result<u64, DeviceError> {
        let (mut free, mut all) = (0, 0);
        // SAFETY: writes two numbers.
        self.done("reading its free memory", unsafe { sys::cuMemGetInfo_v2(&mut free, &mut all) })?;
        Ok(free as u64)
    }

    pub(super) fn done(&self, what: &'static str, result: CUresult) -> Result<(), DeviceError> {
        done(&self.name, what, result)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: retained once; everything created in it holds a reference to this.
        let _ = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
    }
}

fn done(name: &str, what: &'static str, result: CUresult) -> Result<(), DeviceError> {
    if result == CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    let mut text: *const c_char = std::ptr::null();
    // SAFETY: writes the address of a static text, or none.
    let found = unsafe { sys::cuGetErrorString(result, &mut text) } == CUresult::CUDA_SUCCESS && !text.is_null();
    // SAFETY: the call succeeded and the address is not null.
    let text = if found { unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned() } else { String::new() };
    let name = if name.is_empty() { "CUDA" } else { name }.to_owned();
    Err(DeviceError::Failed { name, what, why: format!("{text} ({result:?})") })
}

/// GPU memory.
#[derive(Debug)]
pub(super) struct Memory {
    context: Arc<Context>,
    base: CUdeviceptr,
    bytes: usize,
}

impl Memory {
    /// Allocates memory; it is zero once the stream has reached this point.
    pub(super) fn new(context: &Arc<Context>, bytes: usize, stream: &Stream) -> Result<Memory, DeviceError> {
        let mut base = 0;
        // SAFETY: writes an address.
        context.done("allocating memory", unsafe { sys::cuMemAlloc_v2(&mut base, bytes.max(1)) })?;
        let memory = Memory { context: Arc::clone(context), base, bytes };
        stream.clear(&memory, 0..bytes)?;
        Ok(memory)
    }

    pub(super) fn len(&self) -> usize {
        self.bytes
    }

    /// Returns the address of a byte on the GPU.
    ///
    /// # Panics
    /// If the offset exceeds the memory.
    pub(super) fn at(&self, offset: usize) -> u64 {
        assert!(offset <= self.bytes, "byte {offset} of {}", self.bytes);
        self.base + offset as u64
    }

    /// Returns the handle for other processes; `None` if the driver does not support it.
    pub(super) fn handle(&self) -> Option<[u8; 64]> {
        let mut handle = sys::CUipcMemHandle { reserved: [0; 64] };
        // SAFETY: writes the handle.
        let made = unsafe { sys::cuIpcGetMemHandle(&mut handle, self.base) } == CUresult::CUDA_SUCCESS;
        made.then(|| handle.reserved.map(|byte| byte as u8))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            // SAFETY: allocated once; the driver waits here for work that uses it.
            let _ = unsafe { sys::cuMemFree_v2(self.base) };
        }
    }
}

/// A queue of a GPU.
#[derive(Debug)]
pub(super) struct Stream {
    context: Arc<Context>,
    stream: CUstream,
}

// SAFETY: a driver handle, which may be used from any thread.
unsafe impl Send for Stream {}

impl Stream {
    pub(super) fn new(context: &Arc<Context>) -> Result<Stream, DeviceError> {
        let mut stream = null_mut();
        // SAFETY: writes a handle.
        context.done("creating a stream", unsafe { sys::cuStreamCreate(&mut stream, NON_BLOCKING) })?;
        Ok(Stream { context: Arc::clone(context), stream })
    }

    /// Queues zeroing of bytes.
    ///
    /// # Panics
    /// If the range exceeds the memory, here and below.
    pub(super) fn clear(&self, memory: &Memory, range: Range<usize>) -> Result<(), DeviceError> {
        assert!(range.start <= range.end && range.end <= memory.bytes);
        if range.is_empty() {
            return Ok(());
        }
        // SAFETY: inside the allocation.
        let result = unsafe { sys::cuMemsetD8Async(memory.at(range.start), 0, range.len(), self.stream) };
        self.context.done("clearing", result)
    }

    /// Queues a copy from the host to the GPU.
    ///
    /// # Safety
    /// The bytes must not change until a later event was seen.
    pub(super) unsafe fn send(&self, from: &[u8], to: &Memory, at: usize) -> Result<(), DeviceError> {
        assert!(at.checked_add(from.len()).is_some_and(|end| end <= to.bytes));
        if from.is_empty() {
            return Ok(());
        }
        // SAFETY: inside the allocation; the rest is the caller's contract.
        let result = unsafe { sys::cuMemcpyHtoDAsync_v2(to.at(at), from.as_ptr().cast(), from.len(), self.stream) };
        self.context.done("copying to it", result)
    }

    /// Queues a copy from the GPU to the host.
    ///
    /// # Safety
    /// `to` must not be accessed until a later event was seen.
    pub(super) unsafe fn fetch(&self, from: &Memory, at: usize, to: &mut [u8]) -> Result<(), DeviceError> {
        assert!(at.checked_add(to.len()).is_some_and(|end| end <= from.bytes));
        if to.is_empty() {
            return Ok(());
        }
        // SAFETY: inside the allocation; the rest is the caller's contract.
        let result = unsafe { sys::cuMemcpyDtoHAsync_v2(to.as_mut_ptr().cast(), from.at(at), to.len(), self.stream) };
        self.context.done("copying from it", result)
    }

    /// Queues a kernel with these arguments, in the order and of the sizes that it declares.
    ///
    /// # Safety
    /// The kernel must take such arguments, and access only memory that stays until a later event was seen.
    pub(super) unsafe fn launch(
        &self,
        kernel: Kernel,
        grid: u32,
        block: u32,
        arguments: &mut [Word],
    ) -> Result<(), DeviceError> {
        let mut pointers: Vec<*mut c_void> = arguments.iter_mut().map(Word::pointer).collect();
        // SAFETY: the pointers live until the call returns, which copies their targets; the rest is the caller's part.
        let result = unsafe {
            let pointers = pointers.as_mut_ptr();
            sys::cuLaunchKernel(kernel.0, grid.max(1), 1, 1, block, 1, 1, 0, self.stream, pointers, null_mut())
        };
        self.context.done("starting a kernel", result)
    }

    /// Makes later work of this queue wait for an event of another one.
    pub(super) fn follow(&self, event: &Event) -> Result<(), DeviceError> {
        // SAFETY: both handles live.
        self.context.done("waiting for an event", unsafe { sys::cuStreamWaitEvent(self.stream, event.event, 0) })
    }

    /// Records the position of the queue in an event.
    pub(super) fn record(&self, event: &Event) -> Result<(), DeviceError> {
        // SAFETY: both handles live.
        self.context.done("recording an event", unsafe { sys::cuEventRecord(event.event, self.stream) })
    }

    /// Waits until all work is done.
    pub(super) fn finish(&self) -> Result<(), DeviceError> {
        // SAFETY: the handle lives.
        self.context.done("running its work", unsafe { sys::cuStreamSynchronize(self.stream) })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let _ = self.context.bind().and_then(|()| self.finish());
        // SAFETY: created once, and finished.
        let _ = unsafe { sys::cuStreamDestroy_v2(self.stream) };
    }
}

/// An argument of a kernel.
#[derive(Clone, Copy, Debug)]
pub(super) enum Word {
    Short(u32),
    Long(u64),
}

impl Word {
    fn pointer(&mut self) -> *mut c_void {
        match self {
            Word::Short(word) => (word as *mut u32).cast(),
            Word::Long(word) => (word as *mut u64).cast(),
        }
    }
}

/// A position in a queue.
#[derive(Debug)]
pub(super) struct Event {
    context: Arc<Context>,
    event: CUevent,
}

// SAFETY: a driver handle, which may be used from any thread.
unsafe impl Send for Event {}

impl Event {
    pub(super) fn new(context: &Arc<Context>) -> Result<Event, DeviceError> {
        let mut event = null_mut();
        // SAFETY: writes a handle.
        context.done("creating an event", unsafe { sys::cuEventCreate(&mut event, NO_TIMES) })?;
        Ok(Event { context: Arc::clone(context), event })
    }

    /// Returns whether all work before it is done.
    pub(super) fn is_done(&self) -> Result<bool, DeviceError> {
        // SAFETY: the handle lives.
        match unsafe { sys::cuEventQuery(self.event) } {
            CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            other => self.context.done("running its work", other).map(|()| true),
        }
    }

    /// Waits until all work before it is done.
    pub(super) fn wait(&self) -> Result<(), DeviceError> {
        // SAFETY: the handle lives.
        self.context.done("running its work", unsafe { sys::cuEventSynchronize(self.event) })
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: created once; the driver keeps it as long as work needs it.
        let _ = unsafe { sys::cuEventDestroy_v2(self.event) };
    }
}

/// A kernel, valid while its module is loaded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kernel(CUfunction);

// SAFETY: a driver handle, which may be used from any thread.
unsafe impl Send for Kernel {}

/// Loads kernels from PTX. They stay loaded until the context is released.
pub(super) fn kernels<const N: usize>(
    context: &Context,
    ptx: &CStr,
    names: [&CStr; N],
) -> Result<[Kernel; N], DeviceError> {
    let (mut module, mut kernels): (CUmodule, _) = (null_mut(), [Kernel(null_mut()); N]);
    // SAFETY: writes a handle; the text ends with 0.
    context.done("loading the kernels", unsafe { sys::cuModuleLoadData(&mut module, ptx.as_ptr().cast()) })?;
    for (kernel, name) in kernels.iter_mut().zip(names) {
        // SAFETY: writes a handle; the name ends with 0.
        let found = unsafe { sys::cuModuleGetFunction(&mut kernel.0, module, name.as_ptr()) };
        context.done("loading the kernels", found)?;
    }
    Ok(kernels)
}
