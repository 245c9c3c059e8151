//! Frames as tensors of PyTorch, CuPy, JAX and others, without a copy: DLPack's `DLManagedTensor` (dmlc/dlpack, `dlpack.h`, ABI
//! version 0, which all of them take).
//!
//! The frame stays as it is from [`tensor`] until the tensor is deleted by whoever took it: its stream waits meanwhile. The tensor has
//! to be deleted before the device is closed. In Python, `torch.from_dlpack` takes a `PyCapsule` of the name `dltensor` around the
//! pointer that [`Tensor::into_raw`] gives.
//!
//! Unsafe because others call back to delete it.
#![allow(unsafe_code)]

use crate::contract::DeviceError;
use crate::form::Form;
use crate::frames::Placed;
use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

/// Which device (`DLDevice`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct DlDevice {
    /// 2 for CUDA (`kDLCUDA`).
    pub kind: i32,
    /// Which of these.
    pub number: i32,
}

/// What an element is (`DLDataType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct DlType {
    /// 1 for unsigned numbers, 2 for floating point.
    pub code: u8,
    /// Bits of one.
    pub bits: u8,
    /// 1.
    pub lanes: u16,
}

/// Elements in device memory (`DLTensor`).
#[derive(Debug)]
#[repr(C)]
pub struct DlTensor {
    /// Their address on the device.
    pub data: *mut c_void,
    /// Which one.
    pub device: DlDevice,
    /// Dimensions: 1.
    pub dimensions: i32,
    /// What an element is.
    pub element: DlType,
    /// How many there are.
    pub shape: *mut i64,
    /// None: they lie one behind the other.
    pub strides: *mut i64,
    /// From `data` to the first: 0.
    pub byte_offset: u64,
}

/// A tensor that somebody takes over (`DLManagedTensor`).
#[derive(Debug)]
#[repr(C)]
pub struct DlManagedTensor {
    /// The elements.
    pub tensor: DlTensor,
    /// Ours.
    pub context: *mut c_void,
    /// Called once by whoever took it, with a pointer to this.
    pub deleter: Option<unsafe extern "C" fn(*mut DlManagedTensor)>,
}

/// What a tensor is freed with.
struct Whole {
    managed: DlManagedTensor,
    shape: [i64; 1],
    _hold: Arc<()>,
}

/// A frame as a tensor that nobody has taken over yet.
#[derive(Debug)]
pub struct Tensor(NonNull<DlManagedTensor>);

/// `kDLCUDA`, `kDLUInt`, `kDLFloat`.
const CUDA: i32 = 2;
const UINT: u8 = 1;
const FLOAT: u8 = 2;

/// A frame as a tensor: bytes, or numbers if they were converted.
///
/// # Errors
/// If the frame is on a device that others do not reach.
pub fn tensor(placed: &Placed<'_>, form: Form) -> Result<Tensor, DeviceError> {
    if !placed.facts.is_cuda {
        return Err(DeviceError::Cannot("memory of this device is reached by nobody: tensors are for GPUs"));
    }
    let device = DlDevice { kind: CUDA, number: placed.facts.number };
    Ok(Tensor::of(placed.at.address, placed.bytes, device, form, Arc::clone(&placed.hold)))
}

impl Tensor {
    fn of(address: u64, bytes: u64, device: DlDevice, form: Form, hold: Arc<()>) -> Tensor {
        let (code, size) = if form == Form::Raw { (UINT, 1) } else { (FLOAT, 4) };
        let tensor = DlTensor {
            // An address of the device: nobody here goes there.
            data: std::ptr::without_provenance_mut(address as usize),
            device,
            dimensions: 1,
            element: DlType { code, bits: size * 8, lanes: 1 },
            shape: null_mut(),
            strides: null_mut(),
            byte_offset: 0,
        };
        let managed = DlManagedTensor { tensor, context: null_mut(), deleter: Some(delete) };
        let whole = Box::new(Whole { managed, shape: [(bytes / u64::from(size)) as i64], _hold: hold });
        let whole = Box::into_raw(whole);
        // SAFETY: the box was just made and has one owner; its parts stay where they are until `delete`.
        unsafe {
            (*whole).managed.tensor.shape = (&raw mut (*whole).shape).cast();
            (*whole).managed.context = whole.cast();
            Tensor(NonNull::new_unchecked(&raw mut (*whole).managed))
        }
    }

    /// What it says.
    pub fn about(&self) -> &DlTensor {
        // SAFETY: it lives until this value is dropped or given away.
        unsafe { &self.0.as_ref().tensor }
    }

    /// Gives it away: whoever takes it calls its deleter once.
    pub fn into_raw(self) -> *mut DlManagedTensor {
        let raw = self.0.as_ptr();
        std::mem::forget(self);
        raw
    }
}

impl Drop for Tensor {
    fn drop(&mut self) {
        // SAFETY: it was given to nobody else, so it is deleted once.
        unsafe { delete(self.0.as_ptr()) };
    }
}

/// The deleter.
///
/// # Safety
/// `managed` came from [`Tensor::into_raw`], and is used no more.
unsafe extern "C" fn delete(managed: *mut DlManagedTensor) {
    // SAFETY: the context is the box that the tensor is a part of, and this is called once.
    drop(unsafe { Box::from_raw((*managed).context.cast::<Whole>()) });
}

// SAFETY: the box is reached by its owner alone, and what it points to is the device's.
unsafe impl Send for Tensor {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tensor_says_where_a_frame_is_and_holds_it_until_it_is_deleted() {
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
        // SAFETY: as whoever takes it does.
        unsafe { (*raw).deleter.unwrap()(raw) };
        assert_eq!(Arc::strong_count(&hold), 1);
        drop(Tensor::of(1, 7, device, Form::Raw, Arc::clone(&hold)));
        assert_eq!(Arc::strong_count(&hold), 1);
    }
}
