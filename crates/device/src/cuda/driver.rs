//! The driver of CUDA, as much of it as frames need.
//!
//! Unsafe because it is C, and because what it is handed is read and written later, by the GPU. What makes it sound: memory of a GPU is
//! reached by the functions here alone, inside of an allocation (asserted); memory of the host that work was queued for is kept by who
//! queued it until an event behind it was seen; nothing is freed before the streams are through ([`Stream`] waits when it is dropped).
#![allow(unsafe_code)]

use crate::contract::DeviceError;
use cudarc::driver::sys::{self, CUcontext, CUdevice, CUdeviceptr, CUevent, CUfunction, CUmodule, CUresult, CUstream};
use std::ffi::{CStr, c_char, c_void};
use std::ops::Range;
use std::ptr::null_mut;
use std::sync::Arc;

/// The least that takes the PTX that there is: 12.1.
const LEAST_DRIVER: i32 = 12_010;
/// Of `cuStreamCreate`: does not wait for the stream of those who name none. Of `cuEventCreate`: without times.
const NON_BLOCKING: u32 = 1;
const NO_TIMES: u32 = 2;

/// A GPU that is in use.
#[derive(Debug)]
pub(super) struct Context {
    device: CUdevice,
    context: CUcontext,
    pub name: String,
    pub model: String,
    pub memory: u64,
}

// SAFETY: handles of the driver, which may be used from any thread (CUDA C++ Programming Guide, section Context).
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// Loads the driver, if there is one, and starts to use a GPU.
    pub(super) fn open(number: u32) -> Result<Arc<Context>, DeviceError> {
        // SAFETY: loads the library and runs its initialisers, as any program linked with it does.
        if !unsafe { sys::is_culib_present() } {
            return Err(DeviceError::NoDriver(
                "libcuda.so.1 is not on this machine (NVIDIA's driver brings it)".to_owned(),
            ));
        }
        let mut version = 0;
        // SAFETY: writes a number; allowed before cuInit.
        let asked = unsafe { sys::cuDriverGetVersion(&mut version) };
        if asked != CUresult::CUDA_SUCCESS || version < LEAST_DRIVER {
            let (major, minor) = (version / 1000, version % 1000 / 10);
            return Err(DeviceError::NoDriver(format!(
                "the driver is for CUDA {major}.{minor}, and 12.1 is needed (530 on)"
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
        // SAFETY: each writes to the variable that it is given, of the length that it is told.
        unsafe {
            done(&name, "opening", sys::cuDeviceGet(&mut device, number as i32))?;
            done(&name, "its name", sys::cuDeviceGetName(model.as_mut_ptr(), 127, device))?;
            done(&name, "its memory", sys::cuDeviceTotalMem_v2(&mut memory, device))?;
            done(&name, "its context", sys::cuDevicePrimaryCtxRetain(&mut context, device))?;
        }
        // SAFETY: the last byte is 0, whatever was written before.
        let model = unsafe { CStr::from_ptr(model.as_ptr()) }.to_string_lossy().into_owned();
        Ok(Arc::new(Context { device, context, name, model, memory: memory as u64 }))
    }

    /// What this thread does from here on is for this GPU.
    pub(super) fn bind(&self) -> Result<(), DeviceError> {
        // SAFETY: the context is retained.
        self.done("its context", unsafe { sys::cuCtxSetCurrent(self.context) })
    }

    /// Bytes of memory that nobody uses.
    pub(super) fn free(&self) -> Result<u64, DeviceError> {
        let (mut free, mut all) = (0, 0);
        // SAFETY: writes two numbers.
        self.done("its memory", unsafe { sys::cuMemGetInfo_v2(&mut free, &mut all) })?;
        Ok(free as u64)
    }

    pub(super) fn done(&self, what: &'static str, result: CUresult) -> Result<(), DeviceError> {
        done(&self.name, what, result)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: retained once; what was made in it holds a reference to this.
        let _ = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
    }
}

fn done(name: &str, what: &'static str, result: CUresult) -> Result<(), DeviceError> {
    if result == CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    let mut text: *const c_char = std::ptr::null();
    // SAFETY: writes an address of text that stays, or none.
    let found = unsafe { sys::cuGetErrorString(result, &mut text) } == CUresult::CUDA_SUCCESS && !text.is_null();
    // SAFETY: as it said.
    let text = if found { unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned() } else { String::new() };
    let name = if name.is_empty() { "CUDA" } else { name }.to_owned();
    Err(DeviceError::Failed { name, what, why: format!("{text} ({result:?})") })
}

/// Memory of a GPU.
#[derive(Debug)]
pub(super) struct Memory {
    context: Arc<Context>,
    base: CUdeviceptr,
    bytes: usize,
}

impl Memory {
    /// All zero, once the stream is as far.
    pub(super) fn new(context: &Arc<Context>, bytes: usize, stream: &Stream) -> Result<Memory, DeviceError> {
        let mut base = 0;
        // SAFETY: writes an address.
        context.done("memory", unsafe { sys::cuMemAlloc_v2(&mut base, bytes.max(1)) })?;
        let memory = Memory { context: Arc::clone(context), base, bytes };
        stream.clear(&memory, 0..bytes)?;
        Ok(memory)
    }

    pub(super) fn len(&self) -> usize {
        self.bytes
    }

    /// The address of a byte on the GPU.
    ///
    /// # Panics
    /// If there is none.
    pub(super) fn at(&self, offset: usize) -> u64 {
        assert!(offset <= self.bytes, "byte {offset} of {}", self.bytes);
        self.base + offset as u64
    }

    /// What another process opens it by; none where the driver has no such thing.
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
            // SAFETY: allocated once; who used it is through, as the driver waits for that here.
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

// SAFETY: a handle of the driver, which may be used from any thread.
unsafe impl Send for Stream {}

impl Stream {
    pub(super) fn new(context: &Arc<Context>) -> Result<Stream, DeviceError> {
        let mut stream = null_mut();
        // SAFETY: writes a handle.
        context.done("a stream", unsafe { sys::cuStreamCreate(&mut stream, NON_BLOCKING) })?;
        Ok(Stream { context: Arc::clone(context), stream })
    }

    /// Queues: bytes become zero.
    ///
    /// # Panics
    /// If they are outside, here and below.
    pub(super) fn clear(&self, memory: &Memory, range: Range<usize>) -> Result<(), DeviceError> {
        assert!(range.start <= range.end && range.end <= memory.bytes);
        if range.is_empty() {
            return Ok(());
        }
        // SAFETY: inside the allocation.
        let result = unsafe { sys::cuMemsetD8Async(memory.at(range.start), 0, range.len(), self.stream) };
        self.context.done("clearing", result)
    }

    /// Queues: bytes of the host go there.
    ///
    /// # Safety
    /// They stay as they are until an event behind this was seen.
    pub(super) unsafe fn send(&self, from: &[u8], to: &Memory, at: usize) -> Result<(), DeviceError> {
        assert!(at.checked_add(from.len()).is_some_and(|end| end <= to.bytes));
        if from.is_empty() {
            return Ok(());
        }
        // SAFETY: inside the allocation; the caller promises the rest.
        let result = unsafe { sys::cuMemcpyHtoDAsync_v2(to.at(at), from.as_ptr().cast(), from.len(), self.stream) };
        self.context.done("copying to it", result)
    }

    /// Queues: bytes come from there.
    ///
    /// # Safety
    /// Nobody touches `to` until an event behind this was seen.
    pub(super) unsafe fn fetch(&self, from: &Memory, at: usize, to: &mut [u8]) -> Result<(), DeviceError> {
        assert!(at.checked_add(to.len()).is_some_and(|end| end <= from.bytes));
        if to.is_empty() {
            return Ok(());
        }
        // SAFETY: inside the allocation; the caller promises the rest.
        let result = unsafe { sys::cuMemcpyDtoHAsync_v2(to.as_mut_ptr().cast(), from.at(at), to.len(), self.stream) };
        self.context.done("copying from it", result)
    }

    /// Queues a kernel with these words as its arguments, in the order and of the sizes that it declares.
    ///
    /// # Safety
    /// The kernel takes such arguments, and reaches only memory that stays until an event behind this was seen.
    pub(super) unsafe fn launch(
        &self,
        kernel: Kernel,
        grid: u32,
        block: u32,
        arguments: &mut [Word],
    ) -> Result<(), DeviceError> {
        let mut pointers: Vec<*mut c_void> = arguments.iter_mut().map(Word::pointer).collect();
        // SAFETY: the pointers live until the call returns, which copies what they point to; the caller promises the rest.
        let result = unsafe {
            let pointers = pointers.as_mut_ptr();
            sys::cuLaunchKernel(kernel.0, grid.max(1), 1, 1, block, 1, 1, 0, self.stream, pointers, null_mut())
        };
        self.context.done("starting a kernel", result)
    }

    /// What is queued behind this waits for an event of another stream.
    pub(super) fn follow(&self, event: &Event) -> Result<(), DeviceError> {
        // SAFETY: both handles live.
        self.context.done("waiting", unsafe { sys::cuStreamWaitEvent(self.stream, event.event, 0) })
    }

    /// Marks how far the queue is.
    pub(super) fn record(&self, event: &Event) -> Result<(), DeviceError> {
        // SAFETY: both handles live.
        self.context.done("an event", unsafe { sys::cuEventRecord(event.event, self.stream) })
    }

    /// Waits until all of it is done.
    pub(super) fn finish(&self) -> Result<(), DeviceError> {
        // SAFETY: the handle lives.
        self.context.done("its work", unsafe { sys::cuStreamSynchronize(self.stream) })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let _ = self.context.bind().and_then(|()| self.finish());
        // SAFETY: made once, and through.
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

/// A mark in a queue.
#[derive(Debug)]
pub(super) struct Event {
    context: Arc<Context>,
    event: CUevent,
}

// SAFETY: a handle of the driver, which may be used from any thread.
unsafe impl Send for Event {}

impl Event {
    pub(super) fn new(context: &Arc<Context>) -> Result<Event, DeviceError> {
        let mut event = null_mut();
        // SAFETY: writes a handle.
        context.done("an event", unsafe { sys::cuEventCreate(&mut event, NO_TIMES) })?;
        Ok(Event { context: Arc::clone(context), event })
    }

    /// Whether all before it is done.
    pub(super) fn is_done(&self) -> Result<bool, DeviceError> {
        // SAFETY: the handle lives.
        match unsafe { sys::cuEventQuery(self.event) } {
            CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            other => self.context.done("its work", other).map(|()| true),
        }
    }

    /// Waits until it is.
    pub(super) fn wait(&self) -> Result<(), DeviceError> {
        // SAFETY: the handle lives.
        self.context.done("its work", unsafe { sys::cuEventSynchronize(self.event) })
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: made once; the driver keeps it as long as work needs it.
        let _ = unsafe { sys::cuEventDestroy_v2(self.event) };
    }
}

/// A kernel, as long as its module is there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kernel(CUfunction);

// SAFETY: a handle of the driver, which may be used from any thread.
unsafe impl Send for Kernel {}

/// Kernels that were made of PTX. They stay until the context goes.
pub(super) fn kernels<const N: usize>(
    context: &Context,
    ptx: &CStr,
    names: [&CStr; N],
) -> Result<[Kernel; N], DeviceError> {
    let (mut module, mut kernels): (CUmodule, _) = (null_mut(), [Kernel(null_mut()); N]);
    // SAFETY: writes a handle; the text ends with 0.
    context.done("its kernels", unsafe { sys::cuModuleLoadData(&mut module, ptx.as_ptr().cast()) })?;
    for (kernel, name) in kernels.iter_mut().zip(names) {
        // SAFETY: writes a handle; the name ends with 0.
        context.done("its kernels", unsafe { sys::cuModuleGetFunction(&mut kernel.0, module, name.as_ptr()) })?;
    }
    Ok(kernels)
}
