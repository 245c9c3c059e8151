//! Frames as tensors of PyTorch, CuPy, JAX and others, without a copy: DLPack's `DLManagedTensor` (dmlc/dlpack,
//! `dlpack.h`, ABI version 0, which all of them accept).
//!
//! The frame does not change from [`tensor`] until the consumer deletes the tensor: its stream waits until then. The
//! tensor must be deleted before the device is closed. In Python, `torch.from_dlpack` takes a `PyCapsule` with the name
//! `dltensor` around the pointer that [`Tensor::into_raw`] returns.
//!
//! Unsafe because consumers call back to delete it.
#![allow(unsafe_code)]

use crate::contract::DeviceError;
use crate::form::Form;
use crate::frames::DeviceFrame;
use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

/// A device (`DLDevice`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct DlDevice {
    /// 2 for CUDA (`kDLCUDA`).
    pub kind: i32,
    /// Number of the device.
    pub number: i32,
}

/// Type of an element (`DLDataType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct DlType {
    /// 1 for unsigned integers, 2 for floating point.
    pub code: u8,
    /// Bits per element.
    pub bits: u8,
    /// Always 1.
    pub lanes: u16,
}

/// Elements in device memory (`DLTensor`).
#[derive(Debug)]
#[repr(C)]
pub struct DlTensor {
    /// Address of the elements on the device.
    pub data: *mut c_void,
    /// The device.
    pub device: DlDevice,
    /// Number of dimensions: 1.
    pub dimensions: i32,
    /// Type of the elements.
    pub element: DlType,
    /// Number of elements.
    pub shape: *mut i64,
    /// Null: elements are contiguous.
    pub strides: *mut i64,
    /// Offset from `data` to the first element: 0.
    pub byte_offset: u64,
}

/// A tensor to hand over (`DLManagedTensor`).
#[derive(Debug)]
#[repr(C)]
pub struct DlManagedTensor {
    /// The elements.
    pub tensor: DlTensor,
    /// Private data of this module.
    pub context: *mut c_void,
    /// Called once by the consumer, with a pointer to this.
    pub deleter: Option<unsafe extern "C" fn(*mut DlManagedTensor)>,
}

/// The allocation of a tensor.
struct TensorAllocation {
    managed: DlManagedTensor,
    shape: [i64; 1],
    _hold: Arc<()>,
}

/// A frame as a tensor that was not handed over yet.
#[derive(Debug)]
pub struct Tensor(NonNull<DlManagedTensor>);

/// `kDLCUDA`, `kDLUInt`, `kDLFloat`.
const CUDA: i32 = 2;
const UINT: u8 = 1;
const FLOAT: u8 = 2;

/// Returns a frame as a tensor: of bytes, or of numbers if they were converted.
///
/// # Errors
/// If other programs cannot access the memory of the device.
pub fn tensor(placed: &DeviceFrame<'_>, form: Form) -> Result<Tensor, DeviceError> {
    if !placed.facts.is_cuda {
        return Err(DeviceError::Cannot("memory of this device is not accessible; tensors need a GPU"));
    }
    let device = DlDevice { kind: CUDA, number: placed.facts.number };
    Ok(Tensor::of(placed.at.address, placed.bytes, device, form, Arc::clone(&placed.hold)))
}

impl Tensor {
    fn of(address: u64, bytes: u64, device: DlDevice, form: Form, hold: Arc<()>) -> Tensor {
        let (code, size) = if form == Form::Raw { (UINT, 1) } else { (FLOAT, 4) };
        let tensor = DlTensor {
            // An address of the device, never dereferenced here.
            data: std::ptr::without_provenance_mut(address as usize),
            device,
            dimensions: 1,
            element: DlType { code, bits: size * 8, lanes: 1 },
            shape: null_mut(),
            strides: null_mut(),
            byte_offset: 0,
        };
        let managed = DlManagedTensor { tensor, context: null_mut(), deleter: Some(delete) };
        let whole = Box::new(TensorAllocation { managed, shape: [(bytes / u64::from(size)) as i64], _hold: hold });
        let whole = Box::into_raw(whole);
        // SAFETY: the box was just made and has one owner; its parts do not move until `delete`.
        unsafe {
            (*whole).managed.tensor.shape = (&raw mut (*whole).shape).cast();
            (*whole).managed.context = whole.cast();
            Tensor(NonNull::new_unchecked(&raw mut (*whole).managed))
        }
    }

    /// Returns the contents of the tensor.
    pub fn about(&self) -> &DlTensor {
        // SAFETY: it lives until this value is dropped or handed over.
        unsafe { &self.0.as_ref().tensor }
    }

    /// Hands the tensor over: the consumer calls its deleter once.
    pub fn into_raw(self) -> *mut DlManagedTensor {
        let raw = self.0.as_ptr();
        std::mem::forget(self);
        raw
    }
}

impl Drop for Tensor {
    fn drop(&mut self) {
        // SAFETY: it was not handed over, so it is deleted once.
        unsafe { delete(self.0.as_ptr()) };
    }
}

/// Frees a tensor: the deleter that consumers call.
///
/// # Safety
/// `managed` comes from [`Tensor::into_raw`], and is not used afterwards.
unsafe extern "C" fn delete(managed: *mut DlManagedTensor) {
    // SAFETY: the context is the box that the tensor is a part of, and this is called once.
    drop(unsafe { Box::from_raw((*managed).context.cast::<TensorAllocation>()) });
}

// SAFETY: only its owner accesses the box, and its pointers refer to device memory.
unsafe impl Send for Tensor {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tensor_describes_a_frame_and_holds_it_until_it_is_deleted() {
        assert_eq!((size_of::<DlTensor>(), size_of::<DlManagedTensor>()), (48, 64), "as in dlpack.h, on 64 bits");
        let hold = Arc::new(());
        let device = DlDevice { kind: CUDA, number: 3 };
        let tensor = Tensor::of(0x7000_0000, 4096, device, Form::Int16, Arc::clone(&hold));
        let about = tensor.about();
        assert_eq!((about.data as usize, about.device, about.dimensions), (0x7000_0000, device, 1));
        assert_eq!(about.element, DlType { code: FLOAT, bits: 32, lanes: 1 });
        // SAFETY: the shape is a part of the tensor, which lives.
        assert_eq!((unsafe { *about.shape }, Arc::strong_count(&hold)), (1024, 2));
        let raw = tensor.into_raw();
        assert_eq!(Arc::strong_count(&hold), 2);
        // SAFETY: as a consumer does.
        unsafe { (*raw).deleter.unwrap()(raw) };
        assert_eq!(Arc::strong_count(&hold), 1);
        drop(Tensor::of(1, 7, device, Form::Raw, Arc::clone(&hold)));
        assert_eq!(Arc::strong_count(&hold), 1);
    }
}
