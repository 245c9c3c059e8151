//! Frames of memory on a device: a GPU, or a CPU thread that stands in for one.
//!
//! The host receives streams: sequence numbers, acknowledgements, gaps. Their bytes are stored once in frames of device
//! memory, by one of three routes ([`Route`]):
//!
//! - *copy*: the CPU places payload in frames of the host, and finished frames are copied. If a port reads payload
//!   directly into place, nothing else touches it;
//! - *place*: whole blocks are copied, with one copy per block, and the device places their bytes by a list {offset,
//!   place, length}. This is the benefit of contiguous blocks: scattered buffers need a copy command each;
//! - *gather*: the device reads the bytes from host memory over the bus, by the same list.
//!
//! The host checks lists first ([`list`]): nothing is written outside a frame, and no byte is written twice, whatever
//! senders retransmit. The device counts the bytes and computes the CRC-32C, and both are compared with the host's
//! values before a frame is used. Samples of one or two bytes can be converted to `f32` on the way ([`Form`]).
//!
//! - [`contract`]: the device interface; [`cpu`]: a thread as a device, the reference for others; [`cuda`](mod@cuda):
//!   NVIDIA GPUs;
//! - [`frames`]: both ends of frames on a device; [`routes`]: finds the fastest route; [`dlpack`]: frames as tensors.
//!
//! # CUDA
//! The driver (`libcuda.so.1`) is loaded when a GPU is requested; without it opening one is an error, without further
//! effects. The source of the kernels is `kernels.cu`; their PTX is part of the program (`kernels.ptx`, made by
//! `scripts/kernels`), which the driver compiles for its GPU. `cudarc` declares the driver's functions, verified
//! against NVIDIA's headers by its maker, and loads them; it panics if the library is missing, so its presence is
//! checked first.
#![deny(unsafe_code)]

pub mod contract;
pub mod cpu;
#[cfg(any(feature = "cuda", test))]
mod crc;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod dlpack;
pub mod form;
pub mod frames;
#[cfg(test)]
#[path = "kernels/tests.rs"]
mod kernels;
pub mod list;
pub mod routes;
mod verify;

pub use contract::{Device, DeviceError, DeviceInfo, ExamineResult, FrameLocation, Route, Shape, Ticket};
pub use form::Form;
