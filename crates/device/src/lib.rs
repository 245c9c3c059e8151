//! Frames of memory on a device: a GPU, or a processor that stands in for one.
//!
//! Streams are received by the host: sequence numbers, acknowledgements, gaps. Their bytes end in frames of device memory, each at
//! its place once, by one of three ways ([`Route`]):
//!
//! - *copy*: the processor puts payload into frames of the host, a finished frame is copied. Where a port reads payload straight to
//!   its place, nothing else touches it;
//! - *place*: blocks go over as they lie, by one copy a block, and the device puts their bytes into place by a list {offset, place,
//!   length}. That is what contiguous blocks buy: scattered buffers are a copy command each;
//! - *gather*: the device reads them from memory of the host over the bus, by the same list.
//!
//! Lists are looked at on the host first ([`list`]): nothing goes outside a frame, and no byte is written twice, whatever senders
//! repeat. The device counts what came and sums it (CRC-32C), and both are compared with what the host knows before anybody gets a
//! frame. Samples of one or two bytes can become `f32` on the way ([`Form`]).
//!
//! - [`contract`]: what a device does; [`cpu`]: one that is a thread, the oracle of the others; [`cuda`](mod@cuda): GPUs of NVIDIA;
//! - [`frames`]: both ends of frames there; [`routes`]: which way is the fastest; [`dlpack`]: frames as tensors of others.
//!
//! # CUDA
//! The driver (`libcuda.so.1`) is loaded when a GPU is asked for; without one there is an error and nothing else happens. Kernels are
//! `kernels.cu`; their PTX is part of the program (`kernels.ptx`, made by `scripts/kernels`), and the driver makes code for its GPU of
//! it. `cudarc` brings the declarations of the driver's functions, checked against NVIDIA's headers by its maker, and loads them; it
//! panics where the library is missing, so that is looked for first.
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

pub use contract::{Device, DeviceError, Examined, Exported, Facts, Route, Shape, Ticket};
pub use form::Form;
